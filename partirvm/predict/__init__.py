"""Predict DATA, or score predictions, with a job's model. Both can use Dask and RVM*."""

from partirvm.predict.prediction import evaluate, predict

__all__ = ["evaluate", "predict"]
