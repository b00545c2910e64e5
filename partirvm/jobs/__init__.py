"""Jobs are fits that are stored in a folder and can be resumed. Names are imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Allowed": "partirvm.jobs.places",
    "Fitted": "partirvm.jobs.attempt",
    "Job": "partirvm.jobs.job",
    "run_job": "partirvm.jobs.attempt",
    "fit": "partirvm.jobs.submission",
    "jobs_in": "partirvm.jobs.job",
    "open_job": "partirvm.jobs.job",
    "plan": "partirvm.jobs.submission",
    "submit": "partirvm.jobs.submission",
}

__all__ = ["Allowed", "Fitted", "Job", "fit", "jobs_in", "open_job", "plan", "run_job", "submit"]

if TYPE_CHECKING:
    from partirvm.jobs.attempt import Fitted, run_job
    from partirvm.jobs.job import Job, jobs_in, open_job
    from partirvm.jobs.places import Allowed
    from partirvm.jobs.submission import fit, plan, submit


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
