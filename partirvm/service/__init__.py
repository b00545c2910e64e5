"""What the command line and the estimators call: ingest, plan, fit, predict, evaluate."""

from __future__ import annotations

from partirvm.backends import connect
from partirvm.service.ingesting import ingest
from partirvm.service.jobs import Fitted, fit, plan
from partirvm.service.predicting import evaluate, predict

__all__ = ["Fitted", "connect", "evaluate", "fit", "ingest", "plan", "predict"]
