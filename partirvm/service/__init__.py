"""What the command line and the estimators call: ingest, plan, fit, submit, predict, evaluate."""

from __future__ import annotations

from partirvm.backends import connect
from partirvm.service.carrying import Fitted, carry_out
from partirvm.service.ingesting import ingest
from partirvm.service.jobs import Job, fit, jobs_in, open_job, plan, submit
from partirvm.service.predicting import evaluate, predict

__all__ = [
    "Fitted",
    "Job",
    "carry_out",
    "connect",
    "evaluate",
    "fit",
    "ingest",
    "jobs_in",
    "open_job",
    "plan",
    "predict",
    "submit",
]
