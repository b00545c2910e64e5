"""How the working set chooses candidates: functions by the words of the option ``selection``."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from partirvm.core.sampling import Purpose, draw_key
from partirvm.kernels.design import NONE, Design
from partirvm.strategies import stages
from partirvm.strategies.fit_rows import (
    POOL,
    SPREAD,
    drawn_rows,
    posterior_rows,
)
from partirvm.strategies.instructions import Steps
from partirvm.strategies.stages import RoundsState
from partirvm.types import Int

HOPEFUL = 3
"""Maximum number of candidates in a regression round, as a multiple of the number that remained
after the last round: late rounds exchange few columns, and with this limit kin40k with 10,000 rows
gains as much in half the time."""

LEAST_SHARE = 3
"""Partition size ÷ the minimum number of candidates of a regression round."""

CHEAP = 200
"""Number of vectors below which rounds are cheap and the number of candidates is not reduced."""


def random_rows(state: RoundsState, used: Int, count: int) -> Int:
    """Return random rows outside ``used``, different in each round."""
    return drawn_rows(state.problem, used, count, state.options.seed, state.round - 1)


def marked(state: RoundsState, rows: Int) -> RoundsState:
    """Return the state with these rows marked as used, so that they are not chosen again."""
    return replace(state, used=np.union1d(state.used, rows))


def limited_room(state: RoundsState, room: int) -> int:
    """Return the number of candidates, which is reduced if rounds are expensive and few candidates
    remained after the last one."""
    problem = state.problem
    cheap = state.fit.n_vectors < CHEAP or not problem.likelihood.rounds.fewer_candidates
    if state.stayed is None or cheap:
        return room
    least = problem.rows_of(state.options.partition_size) // LEAST_SHARE
    return min(room, max(HOPEFUL * state.stayed // problem.n_kernels, least, 1))


def by_error(state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
    """Choose rows with large errors; with many rows, only a random sample is searched."""
    problem = state.problem
    largest = state.selection == "largest-error"
    compared = None
    if problem.shuffled and not largest:
        compared = random_rows(state, NONE, SPREAD * room)
    draw = None
    if problem.likelihood.rounds.draws_errors and not largest:
        draw = draw_key(state.options.seed, Purpose.POOL, state.round)
    request = problem.likelihood.errors(
        state.design, state.fit, room, state.used, compared, draw=draw
    )
    (largest_errors,) = yield (request,)
    chosen = state.design.with_centres(largest_errors.values, largest_errors.rows)
    if not len(largest_errors.rows):
        state = marked(state, np.arange(problem.n_rows) if compared is None else compared)
    return state, chosen


def at_random(state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
    """Choose unused rows at random."""
    rows = random_rows(state, state.used, room)
    chosen = yield from stages.columns_of(state.design, rows)
    return marked(state, np.setdiff1d(rows, chosen.rows)), chosen


def by_gain(state: RoundsState, room: int) -> Steps[tuple[RoundsState, Design]]:
    """Choose the columns of a random pool that raise the evidence most."""
    state, pool = yield from at_random(state, room * POOL)
    if not len(pool.labels):
        return state, pool
    problem = state.problem
    rows = posterior_rows(problem, state.options, state.seen)
    (statistic,) = yield problem.likelihood.gain_pass(state.design, state.fit, pool, rows)
    order = np.argsort(-state.fit.gains(statistic), kind="stable")
    return state, pool.take(order[: room * problem.n_kernels])


SELECTIONS: dict[str, Callable[[RoundsState, int], Steps[tuple[RoundsState, Design]]]] = {
    "error": by_error,
    "largest-error": by_error,
    "gain": by_gain,
    "random": at_random,
}
"""Functions that choose candidates, by the value of the option ``selection``."""
