"""Jobs whose DATA have gained rows: from which checkpoint one goes on, and how (``setup.growth``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.errors import UsageError
from partirvm.jobs.checkpoint import SPLIT_MERGE
from partirvm.setup.spec import FitSpec
from partirvm.strategies.growing import grown
from partirvm.strategies.rounds import RoundsState


def require_growable(location: str, packed: Any, spec: FitSpec | None) -> FitSpec:
    """The spec of a job's last checkpoint (None if it has none), if there is a fit in it for new rows to join.

    ``packed`` is the checkpoint as it is stored. Raises ``UsageError`` where there is no such fit.
    """
    if packed is None or spec is None:
        why = "it has done no round that new rows could join"
    elif packed["state"]["kind"] == SPLIT_MERGE:
        why = "split-merge was ended before its last merge, and without it there is no fit that new rows could join"
    elif not spec.problem.target_variance:
        why = "its target was constant, which sets no scale for that of new rows"
    else:
        return spec
    raise UsageError(f"{location} cannot be updated: {why}; start a new job with all rows")


def is_resumable(about: dict[str, Any], n_rows: int) -> bool:
    """Whether a run over so many rows can go on from this checkpoint: after the last fit only if there are new ones."""
    return not (about.get("final") and about["rows"] >= n_rows)


def with_new_rows(state: RoundsState, spec: FitSpec) -> RoundsState:
    """A checkpoint's state for the rows of a spec that has grown."""
    state = grown(state, spec.problem, spec.options)
    return state if spec.plan.schedule.selects else replace(state, selection=spec.options.selection)
