"""Learning a kernel by the evidence of a sample: before the fit by the tied one, beside it by that of the fit.

**Before.** Some rows of the sample are centres, and iRprop⁻ (``core.rprop``) moves the kernel's log parameters by
evidence and slopes (``setup.evaluation``), all of them by one evaluation a round. Three stages:

1. from the kernel that was given to the best evidence, where there is one width alone from the best of several
   (``STARTS``): between a width that sees the trend and one that sees the detail the evidence may have a valley;
2. *revival*, once, where features have been switched off: all widths are raised again and the search begins anew.
   Inputs that matter only together both look useless at first, and come back together;
3. *growth*, while the data determine most of the weights: twice the centres out of the same rows. More centres can
   tell what a feature is for that few could not.

The kernel with the best evidence wins, over the same rows and centres, so that no stage makes it worse. Centres are far
fewer than rows: where every row is one the evidence asks for widths far too narrow.

**Beside.** The fit's own vectors are the centres, as they are where the model needs detail, and its own α and β stay
while the kernel moves: each evaluation takes one dense solve, and a few are enough. α that are tied, or follow, won no
more over all rows where there were hundreds of vectors (kin40k, protein), and erred more where there were fewer
(airfoil, concrete). Where gammas are off a second search begins with all of these raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.half_normal import half_normal
from partirvm.core.rprop import FIRST_STEP, LATER_STEP, Search, advance, again, awakened, begin, groups, off
from partirvm.core.rprop import raised as raised_by
from partirvm.core.rprop import revived as revived_by
from partirvm.core.termination import Termination
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.gaussian import noise, root_mean
from partirvm.setup.evaluation import Point, evaluate, evaluate_fit
from partirvm.setup.sample import Sample
from partirvm.strategies.instructions import KernelLearned, LearnKernel, Record
from partirvm.strategies.problem import Problem
from partirvm.strategies.relearning import SHARE
from partirvm.types import LEARNING_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

CENTRES = 300
"""Centres of the first stage, at most."""

MOST_CENTRES = 500
"""Centres after growth, at most: more are worth a per cent of error, and cost as many times more."""

STARTS = np.log([8.0, 1 / 8])
"""Where a search for one parameter looks besides its start, as changes of the log; it begins at the best.

A gamma per feature has its revival; begun anew at other scales it wins nothing, and every look costs two passes.
"""

CLASS_SHARE = 0.25
"""Centres of classes as a fraction of the rows, at most; of numbers it is ``SHARE``: with fewer small sets lack detail,
with more the evidence overfits."""

GROWS = 0.5
"""Mean determinedness γ of the weights above which there are too few centres: each has its work."""

WINDOW = 3
"""Evaluations beside a fit over which the best one has to rise (``core.rprop.RISE``)."""

DRAW = 3
"""Sets the draw of centres apart from other draws of the same seed."""


@dataclass(frozen=True)
class Ask:
    """How a kernel is to be learned: centres at first and at most, and the prior of its gamma per feature.

    ``prior`` is "flat", uniform in log gamma, or "half-normal" with a precision of its own (``core.half_normal``),
    which costs half a nat per unit of log gamma and switches features off.
    """

    centres: int
    most: int
    prior: str = "flat"


def asked(n_rows: int, *, classes: bool, prior: str = "flat") -> Ask:
    """What ``n_rows`` rows allow.

    >>> asked(36_000, classes=False), asked(400, classes=True).most
    (Ask(centres=300, most=500, prior='flat'), 100)
    """
    share = CLASS_SHARE if classes else SHARE
    room = max(int(share * min(n_rows, LEARNING_ROWS)), 1)
    return Ask(min(CENTRES, room), min(CENTRES if classes else MOST_CENTRES, room), prior)


@dataclass
class Stage:
    """A search over the same rows and centres, the first ``count`` of ``pool``, from its beginning on.

    Columns are what is counted, where a centre has several kernels. ``first`` is the evidence that it began with and
    ``best`` the point of the search's best; ``reason`` says why it is over.
    """

    sample: Sample
    problem: Problem
    prior: str
    pool: Design
    count: int
    search: Search
    number: int = 1
    evaluations: int = 0
    first: float = 0.0
    best: Point | None = None
    reason: Termination | None = None

    @property
    def kernel(self) -> Kernel | Several:
        """The best so far."""
        return self.problem.empty.kernel.with_logs(self.search.best)

    def design(self, kernel: Kernel | Several) -> Design:
        """The centres of this stage with a kernel."""
        return replace(self.pool.take(np.arange(self.count)), kernel=kernel)

    def look(self, last: Point | None = None, *, fresh: bool = False) -> Point:
        """Evaluate the kernel that the search wants to see, and move it on; α and β begin where ``last`` ended."""
        if self.best is None:
            self.sample.best(self.kernel)
        kernel = self.problem.empty.kernel
        design = self.design(kernel.with_logs(self.search.logs))
        point = evaluate(self.sample, self.problem, design, last, fresh=fresh)
        value, slope = with_prior(self.prior, groups(kernel.parameters), self.search.logs, point.value, point.slope)
        self.search, self.reason = advance(self.search, value, slope, point.rows)
        self.evaluations += 1
        if self.best is None:
            self.first = point.value
        if self.search.improved:
            self.best = point
            self.sample.best(self.kernel)
        return point

    def restart(self, logs: Float, step: float, last: Point | None = None) -> Point:
        """Look at another point, and go on from there; the best so far stays the one to beat."""
        self.search = again(self.search, logs, step)
        return self.look(last, fresh=last is None)

    def climb(self, point: Point) -> None:
        """Go on from the point that was looked at last until the best rises no more."""
        while self.reason is None:
            point = self.look(point)

    def record(self) -> Record:
        """The stage's line of history, of the best point."""
        best, problem = self.best, self.problem
        assert best is not None
        scale = problem.empty.scaling.t_scale
        shift = 0.0 if problem.classifies else best.rows * float(np.log(scale).sum())
        numbers: dict[str, Any] = {"noise_variance": None, "noise_sd": None, "train_rmse": None}
        if problem.classifies:
            numbers |= {"train_log_loss": best.nll / best.rows, "train_error": best.wrong / best.rows}
        else:
            numbers |= noise(1 / best.tied.beta, scale)
            numbers["train_rmse"] = root_mean(scale * np.sqrt(best.residual / best.rows))
        return Record(
            kind="kernel",
            number=self.number,
            rows=best.rows,
            candidates=self.count,
            vectors=self.count,
            iterations=self.evaluations,
            termination=self.reason or Termination.CONVERGED,
            log_evidence=best.value - shift,
            selection="random",
            fit_rows="full" if self.sample.whole else "sample",
            kernel=self.kernel.spec(),
            gain=best.value - self.first,
            **numbers,
        )


def begin_stage(sample: Sample, problem: Problem, ask: Ask, seed: int) -> Stage:
    """The first stage before its first look: centres are drawn from the rows of the sample."""
    chosen = np.random.default_rng((seed, DRAW)).permutation(sample.rows.rows)[: problem.rows_of(ask.most)]
    _, pool = sample.candidates(problem, chosen)
    count = min(ask.centres, len(pool.labels))
    return Stage(sample, problem, ask.prior, pool, count, begin(problem.empty.kernel.logs))


def first_stage(sample: Sample, problem: Problem, ask: Ask, seed: int, *, revive: bool = True) -> Stage:
    """The first stage at its end: from several starts where there is one width, then with what was off raised."""
    stage, features = begin_stage(sample, problem, ask, seed), groups(problem.empty.kernel.parameters)
    point = stage.look(fresh=True)
    if len(stage.search.logs) == 1:
        for move in STARTS:
            stage.restart(stage.search.start + move, FIRST_STEP)
        point = stage.restart(stage.search.best, FIRST_STEP)
    stage.climb(point)
    if revive and len(off(stage.search.best, features)):
        stage.climb(stage.restart(revived_by(stage.search, features), FIRST_STEP))
    return stage


def learn(sample: Sample, problem: Problem, ask: Ask, seed: int) -> Kernel | Several:
    """The kernel of the largest tied evidence; each stage leaves a line of history."""
    stage, features = first_stage(sample, problem, ask, seed), groups(problem.empty.kernel.parameters)
    while True:
        sample.log(stage.record())
        last, count = stage.best, min(2 * stage.count, ask.most, len(stage.pool.labels))
        assert last is not None
        if last.determined < GROWS or count <= stage.count:
            return stage.kernel
        search = begin(stage.search.start, stage.search.best, LATER_STEP)
        stage = Stage(sample, problem, ask.prior, stage.pool, count, search, stage.number + 1)
        point = stage.look(last, fresh=True)
        if len(off(stage.search.best, features)):
            point = stage.restart(raised_by(stage.search, features), LATER_STEP, point)
        stage.climb(point)


def learn_again(sample: Sample, wanted: LearnKernel) -> KernelLearned:
    """A better kernel for the columns of a fit, at its α and β; what all rows make of it is the strategy's to see."""
    start, fit = wanted.design.kernel, wanted.fit
    features = groups(start.parameters)
    search, design = begin(start.logs, None, LATER_STEP), wanted.design
    evaluations, awake = 0, False
    while True:
        value, slope, rows = evaluate_fit(sample, design, fit)
        value, slope = with_prior(wanted.prior, features, search.logs, value, slope)
        search, reason = advance(search, value, slope, rows, WINDOW)
        evaluations += 1
        if reason is not None:
            raised = awakened(search.best, features)
            if awake or np.array_equal(raised, search.best):
                better = not np.array_equal(search.best, start.logs)
                return KernelLearned(start.with_logs(search.best), better, rows, evaluations)
            search = replace(again(search, raised, LATER_STEP), start=raised)  # bounds are those of what is raised
            awake = True
        design = replace(wanted.design, kernel=start.with_logs(search.logs))


def with_prior(prior: str, features: Sequence[Int], logs: Float, value: float, slope: Float) -> tuple[float, Float]:
    """Evidence and slopes at ``logs`` (p,) with those of the prior of each gamma per feature, up to a constant."""
    if prior == "flat":
        return value, slope
    slope = slope.copy()
    for group in features:
        alive = group[np.isfinite(logs[group])]
        cost, rise = half_normal(logs[alive])
        value += cost
        slope[alive] += rise
    return value, slope
