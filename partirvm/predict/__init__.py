"""Predictions for DATA with a job's model, and their scores; both can use Dask and RVM*."""

from partirvm.predict.prediction import evaluate, predict

__all__ = ["evaluate", "predict"]
