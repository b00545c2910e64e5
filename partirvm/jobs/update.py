"""Continue a job from a checkpoint after rows were appended to its DATA (``setup.resolve``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.errors import UsageError
from partirvm.jobs.checkpoint import SPLIT_MERGE
from partirvm.jobs.schema import POINTER
from partirvm.setup.spec import FitSpec
from partirvm.storage.records import require
from partirvm.strategies.rounds import with_appended_rows
from partirvm.strategies.stages import RoundsState


def require_growable(location: str, packed: Any, spec: FitSpec | None) -> FitSpec:
    """Return ``spec`` if the checkpoint contains a fit that new rows can join, and raise ``UsageError`` otherwise.

    ``packed`` is the job's last checkpoint as stored, and ``spec`` the spec of this checkpoint. Both are None if the
    job has no checkpoint.
    """
    if packed is None or spec is None:
        why = "the job has finished no round, so that there is no fit that new rows could join"
    elif packed["state"]["kind"] == SPLIT_MERGE:
        why = "split-merge ended before its last merge, so that there is no fit that new rows could join"
    elif not spec.problem.target_variance:
        why = "the target of the earlier rows is constant, so that the target of new rows cannot be scaled"
    else:
        return spec
    raise UsageError(f"{location} cannot be updated: {why}; start a new job with all rows")


def is_growable(state: Any) -> bool:
    """Return True if new rows can join the fit of this state of a strategy, as all but split-merge's own."""
    return isinstance(state, RoundsState)


def is_resumable(about: dict[str, Any], n_rows: int) -> bool:
    """Return True if a run over ``n_rows`` rows can resume from a checkpoint with the pointer data ``about``.

    A run resumes from a final checkpoint only if there are new rows. Raises ``FormatError`` for other pointer data.
    """
    require(about, POINTER, "the pointer of a checkpoint")
    return not (about["final"] and about["rows"] >= n_rows)


def with_new_rows(state: RoundsState, spec: FitSpec) -> RoundsState:
    """Return the state of a checkpoint extended to the new rows of a grown spec."""
    state = with_appended_rows(state, spec.problem, spec.options)
    return state if spec.plan.schedule.selects else replace(state, selection=spec.options.selection)
