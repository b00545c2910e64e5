"""Jobs are fits that are stored in a folder and can be resumed."""

from __future__ import annotations

from partirvm.jobs.attempt import fit, plan, run_job
from partirvm.jobs.job import Job, jobs_in, open_job, submit

__all__ = ["Job", "fit", "jobs_in", "open_job", "plan", "run_job", "submit"]
