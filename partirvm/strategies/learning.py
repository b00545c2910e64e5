"""Learning a kernel by the tied evidence: a small strategy of its own, run before the fit.

A fixed random sample of rows, some of them centres, gives evidence and slopes (``strategies.evaluating``); iRprop⁻
(``core.rprop``) moves the kernel's log parameters, all of them by one evaluation a round. Three stages:

1. from the kernel that was given to the best evidence, where there is one width alone from the best of several
   (``STARTS``): between a width that sees the trend and one that sees the detail the evidence may have a valley;
2. *revival*, once, where features have been switched off: all widths are raised again and the search begins anew.
   Inputs that matter only together both look useless at first, and come back together;
3. *growth*, while the data determine most of the weights: twice the centres out of the same rows. More centres can
   tell what a feature is for that few could not.

The kernel with the best evidence wins, over the same rows and centres, so that no stage makes it worse. Centres are far
fewer than rows: where every row is one the evidence asks for widths far too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.half_normal import half_normal
from partirvm.core.rprop import FIRST_STEP, LATER_STEP, Search, advance, again, begin, groups, off, raised, revived
from partirvm.core.termination import Termination
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.gaussian import noise, root_mean
from partirvm.strategies.columns import fresh
from partirvm.strategies.evaluating import Evaluation, Point, evaluation
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import Event, Finish, Gather, Gathered, Instruction, Log, Record, Saved, Stop
from partirvm.strategies.problem import Options, Problem

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ROWS = 8000
"""Most rows that a kernel is learned from: with more of them it hardly changes."""

CENTRES = 300
"""Centres of the first stage, at most."""

MOST_CENTRES = 500
"""Centres after growth, at most: more are worth a per cent of error, and cost as many times more."""

STARTS = np.log([8.0, 1 / 8])
"""Where a search for one parameter looks besides its start, as changes of the log; it begins at the best.

A gamma per feature has its revival; begun anew at other scales it wins nothing, and every look costs two passes.
"""

SHARE, CLASS_SHARE = 0.4, 0.25
"""Centres as a fraction of the rows, at most: with fewer small sets lack detail, with more the evidence overfits."""

GROWS = 0.5
"""Mean determinedness γ of the weights above which there are too few centres: each has its work."""

DRAW = 3
"""Sets the draw of centres apart from other draws of the same seed."""

PRIORS = ("flat", "half-normal")
"""Priors of a gamma per feature: uniform in log gamma; or half-normal with a precision of its own (``half_normal``),
which costs half a nat per unit of log gamma and switches features off."""


@dataclass(frozen=True)
class Ask:
    """How a kernel is to be learned: centres at first and at most, and the prior of its gamma per feature."""

    centres: int
    most: int
    prior: str = "flat"


def asked(n_rows: int, *, classes: bool, prior: str = "flat") -> Ask:
    """What ``n_rows`` rows allow.

    >>> asked(36_000, classes=False), asked(400, classes=True).most
    (Ask(centres=300, most=500, prior='flat'), 100)
    """
    share = CLASS_SHARE if classes else SHARE
    room = max(int(share * min(n_rows, ROWS)), 1)
    return Ask(min(CENTRES, room), min(CENTRES if classes else MOST_CENTRES, room), prior)


class Phase(Enum):
    """What the machine waits for. An event in phase X goes to the method ``_on_x``."""

    CENTRES = "inputs of the centres"
    PASS = "a pass of the evaluation"
    SAVED = "the line of history"
    OVER = "nothing"


@dataclass(frozen=True)
class LearningState:
    """Where the machine stands: a search over ``evaluations`` so far, and the one under way.

    ``rows`` are the sample, None for all; ``pool`` has every column there may be, of which the first ``centres`` are in
    use: centres, or where each has several kernels columns are what is counted. ``first`` is the evidence that the
    stage began with, ``best`` the point of the search's best; ``started`` counts the ``STARTS`` that were seen, and the
    return to the best.
    """

    problem: Problem
    options: Options
    rows: Int | None
    chosen: Int
    search: Search
    features: tuple[Int, ...]
    phase: Phase = Phase.CENTRES
    pool: Design | None = None
    centres: int = 0
    stage: int = 1
    evaluations: int = 0
    started: int = 0
    revived: bool = False
    first: float = 0.0
    now: Evaluation | None = None
    best: Point | None = None
    reason: Termination = Termination.CONVERGED

    @property
    def kernel(self) -> Kernel | Several:
        """The best so far."""
        return self.problem.empty.kernel.with_logs(self.search.best)


Answer = tuple[LearningState, tuple[Instruction, ...]]


class Learning:
    """Finds the kernel of the largest tied evidence; each stage leaves a line of history, and no model."""

    name = "learning"

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def start(self, problem: Problem, options: Options) -> Answer:
        """The sample is that of ``options.likelihood_rows`` rows."""
        return self.begin(problem, options, posterior_rows(problem, options, "sample", problem.empty))

    def begin(self, problem: Problem, options: Options, rows: Int | None) -> Answer:
        """Learn from these rows, None for all; ask for those that may become centres."""
        among = np.arange(problem.n_rows, dtype=np.int64) if rows is None else rows
        count = problem.rows_of(self.ask.most)
        chosen = np.random.default_rng((options.seed, DRAW)).permutation(among)[:count]
        kernel = problem.empty.kernel
        state = LearningState(problem, options, rows, chosen, begin(kernel.logs), tuple(groups(kernel.parameters)))
        return state, (Gather(chosen),)

    def next(self, state: LearningState, *events: Event) -> Answer:
        """What to do after the answer to the last instruction."""
        (event,) = events
        if isinstance(event, Stop):
            return replace(state, phase=Phase.OVER), (Finish(event.reason),)
        answer: Answer = getattr(self, f"_on_{state.phase.name.lower()}")(state, event)
        return answer

    def _on_centres(self, state: LearningState, event: Gathered) -> Answer:
        there = slice(None) if event.present is None else event.present
        points, labels = event.points[there], state.chosen[there]
        empty = state.problem.empty
        offered = empty.with_centres(points, labels)
        pool = offered.take(fresh(offered, empty), leading=state.problem.leading)
        return self._look(replace(state, pool=pool, centres=min(self.ask.centres, len(pool.labels))), fresh=True)

    def _look(self, state: LearningState, last: Point | None = None, *, fresh: bool = False) -> Answer:
        """Evaluate the kernel that the search wants to see; α and β go on where ``last`` ended."""
        assert state.pool is not None
        kernel = state.problem.empty.kernel.with_logs(state.search.logs)
        design = replace(state.pool.take(np.arange(state.centres)), kernel=kernel)
        now = evaluation(state.problem, design, state.rows, last, fresh=fresh)
        assert now.wanted is not None
        return replace(state, now=now, phase=Phase.PASS), (now.wanted,)

    def _on_pass(self, state: LearningState, event: Any) -> Answer:
        assert state.now is not None
        now = state.now.heard(event.statistic)
        if now.wanted is not None:
            return replace(state, now=now), (now.wanted,)
        return self._judge(replace(state, now=None, evaluations=state.evaluations + 1), now.point)

    def _judge(self, state: LearningState, point: Point) -> Answer:
        """Go on with the search, or to the next stage where it is over."""
        opening = state.best is None
        value, slope = with_prior(self.ask.prior, state.features, state.search.logs, point)
        search, reason = advance(state.search, value, slope, point.rows)
        state = replace(state, search=search, best=point if search.improved else state.best)
        if opening:
            state = replace(state, first=point.value)
            if state.stage > 1 and len(off(search.best, state.features)):
                search = again(search, raised(search, state.features), LATER_STEP)
                return self._look(replace(state, search=search), point)
        if len(search.logs) == 1 and state.stage == 1 and state.started <= len(STARTS):
            places = [*(search.start + STARTS[:, None]), search.best]
            search = again(search, places[state.started], FIRST_STEP)
            return self._look(replace(state, started=state.started + 1, search=search), fresh=True)
        if reason is None:
            return self._look(state, point)
        state = replace(state, reason=reason)
        if not state.revived and state.stage == 1 and len(off(search.best, state.features)):
            fresh = again(search, revived(search, state.features), FIRST_STEP)
            return self._look(replace(state, revived=True, search=fresh), fresh=True)
        return replace(state, phase=Phase.SAVED), (Log(self.record(state)),)

    def _on_saved(self, state: LearningState, event: Saved) -> Answer:
        """Grow, or end."""
        assert state.pool is not None
        assert state.best is not None
        most = min(2 * state.centres, self.ask.most, len(state.pool.labels))
        if state.best.determined < GROWS or most <= state.centres:
            return replace(state, phase=Phase.OVER), (Finish(state.reason),)
        last, search = state.best, begin(state.search.start, state.search.best, LATER_STEP)
        grown = replace(state, stage=state.stage + 1, centres=most, search=search, best=None, evaluations=0)
        return self._look(grown, last, fresh=True)

    def record(self, state: LearningState) -> Record:
        """The stage's line of history, of the best point."""
        best, problem = state.best, state.problem
        assert best is not None
        scale = problem.empty.scaling.t_scale
        shift = 0.0 if problem.classifies else best.rows * float(np.log(scale).sum())
        numbers: dict[str, Any] = {"noise_variance": None, "noise_sd": None, "train_rmse": None}
        if problem.classifies:
            numbers |= {"train_log_loss": best.surprise / best.rows, "train_error": best.wrong / best.rows}
        else:
            numbers |= noise(1 / best.tied.beta, scale)
            numbers["train_rmse"] = root_mean(scale * np.sqrt(best.residual / best.rows))
        return Record(
            kind="kernel",
            number=state.stage,
            rows=best.rows,
            candidates=state.centres,
            vectors=state.centres,
            iterations=state.evaluations,
            termination=state.reason,
            log_evidence=best.value - shift,
            selection="random",
            likelihood="full" if state.rows is None else "sample",
            kernel=state.kernel.spec(),
            gain=best.value - state.first,
            **numbers,
        )


def with_prior(prior: str, features: Sequence[Int], logs: Float, point: Point) -> tuple[float, Float]:
    """Evidence and slopes at ``logs`` (p,) with those of the prior of each gamma per feature, up to a constant."""
    if prior == "flat":
        return point.value, point.slope
    value, slope = point.value, point.slope.copy()
    for group in features:
        alive = group[np.isfinite(logs[group])]
        cost, rise = half_normal(logs[alive])
        value += cost
        slope[alive] += rise
    return value, slope
