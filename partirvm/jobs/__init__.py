"""Jobs: fits that are stored in a folder and can be resumed. Names are imported when first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partirvm.jobs.attempt import fit, plan, run_job
    from partirvm.jobs.job import Job, jobs_in, open_job, submit

__all__ = ["Job", "fit", "jobs_in", "open_job", "plan", "run_job", "submit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "attempt" if name in ("fit", "plan", "run_job") else "job"
    return getattr(importlib.import_module(f"partirvm.jobs.{home}"), name)
