"""Predictions and scores of a job's model over DATA: resumable, on Dask too, with RVM*."""

from __future__ import annotations

from partirvm.predict.evaluation import evaluate
from partirvm.predict.prediction import predict

__all__ = ["evaluate", "predict"]
