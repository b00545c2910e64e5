"""Jobs whose DATA have gained rows: what one goes on from, and as what (``strategies.growing``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.data import Source
from partirvm.errors import UsageError
from partirvm.options import Request
from partirvm.setup.resolve import Prepared
from partirvm.strategies.fit_rows import automatic
from partirvm.strategies.growing import grown
from partirvm.strategies.incremental import Incremental
from partirvm.strategies.rounds import RoundsState
from partirvm.strategies.working_set import WorkingSetState


def require_growable(location: str, state: Any) -> RoundsState:
    """The state of a job's last checkpoint (None if it has none), if there is a fit in it for new rows to join.

    Raises ``UsageError`` where there is none.
    """
    if state is None:
        why = "it has done no round that new rows could join"
    elif not isinstance(state, RoundsState):
        why = "split-merge was ended before its last merge, and without it there is no fit that new rows could join"
    elif not state.problem.power:
        why = "its target was constant, which sets no scale for that of new rows"
    else:
        return state
    raise UsageError(f"{location} cannot be updated: {why}; start a new job with all rows")


def leads_on(about: dict[str, Any], n_rows: int) -> bool:
    """Whether a run over so many rows can go on from this checkpoint: after the last fit only if there are new ones."""
    return not (about.get("final") and about["rows"] >= n_rows)


def goes_in_order(state: RoundsState) -> bool:
    """Whether new rows join in order, partition by partition: after all strategies but the working set.

    Without a kernel no row joins as a candidate.
    """
    return bool(state.problem.n_kernels) and not isinstance(state, WorkingSetState)


def as_grown(
    asked: Request, before: Request, state: RoundsState, plan: dict[str, Any] | None, source: Source
) -> Request:
    """The parameters with which a checkpoint's run goes on over a source with new rows, given those ``before``.

    After a fit of all rows at once a partition is as large as these were, after split-and-merge as its partitions, and
    no larger than the new rows. A likelihood that is ``"auto"`` is chosen for the new rows.
    """
    if not goes_in_order(state):
        return before
    new, each = source.n_rows - state.problem.n_rows, state.problem.n_kernels
    size = state.options.partition_size
    if _at_once(state):
        size = min(size if plan is None else int(plan["partition_size"]), new * each)
    likelihood = before.likelihood
    if asked.likelihood == "auto":
        likelihood = automatic(Incremental.name, source.n_rows, size, each, new)
    return replace(before, strategy=Incremental.name, partition_size=size, likelihood=likelihood)


def with_new_rows(state: RoundsState, prepared: Prepared) -> RoundsState:
    """A checkpoint's state for the rows of what was prepared; a last fit of all at once takes on its limits, too."""
    options = replace(state.options, likelihood=prepared.options.likelihood)
    if _at_once(state):
        state, options = replace(state, selection=prepared.options.selection), prepared.options
    return grown(state, prepared.problem, options)


def _at_once(state: RoundsState) -> bool:
    """Whether the fit is one of all candidates together, which knows no limits."""
    return state.options.max_columns is None
