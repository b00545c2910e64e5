"""Predict DATA and score predictions with a job's model. Both can use Dask and RVM*."""

from __future__ import annotations

from partirvm.predict.evaluation import evaluate
from partirvm.predict.prediction import predict

__all__ = ["evaluate", "predict"]
