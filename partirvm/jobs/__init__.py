"""Jobs: fits that are stored in a folder and can be resumed. Names are imported when first used."""

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "attempt": ["fit", "plan", "run_job"],
    "checkpoint": ["Checkpoint", "attached", "load_checkpoint", "save_checkpoint"],
    "job": ["Job", "advice_of", "jobs_in", "open_job", "submit"],
    "request": ["create"],
    "state": ["JobState", "Status", "fold", "observed"],
    "store": ["JobStore"],
}
"""The names of each module."""

_MODULES = {name: f"partirvm.jobs.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "Checkpoint",
    "Job",
    "JobState",
    "JobStore",
    "Status",
    "advice_of",
    "attached",
    "create",
    "fit",
    "fold",
    "jobs_in",
    "load_checkpoint",
    "observed",
    "open_job",
    "plan",
    "run_job",
    "save_checkpoint",
    "submit",
]

if TYPE_CHECKING:
    from partirvm.jobs.attempt import fit, plan, run_job
    from partirvm.jobs.checkpoint import Checkpoint, attached, load_checkpoint, save_checkpoint
    from partirvm.jobs.job import Job, advice_of, jobs_in, open_job, submit
    from partirvm.jobs.request import create
    from partirvm.jobs.state import JobState, Status, fold, observed
    from partirvm.jobs.store import JobStore


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
