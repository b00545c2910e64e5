"""Kernel learning: maximise the evidence of a sample, before the fit and between the rounds of the fit.

**Before the fit** the evidence is that of a tied RVM; a regression begins where ``learning.process_search`` ended. Some
rows of the sample are centres. iRprop⁻ (``core.rprop``) moves all log parameters of the kernel at once, with one
evaluation of evidence and slopes per step (``learning.evidence``). There are three stages:

1. *Search* from the initial kernel to the best evidence. A kernel with a single width starts from the best of several
   widths (``STARTS``): the evidence may have one maximum for the trend and another one for the detail.
2. *Revival*, once, if features were switched off: all widths are raised again and the search is repeated. Two inputs
   that matter only jointly both appear irrelevant at first, and are found together after the revival.
3. *Growth*: the number of centres is doubled while the data determine most of the weights. More centres can reveal an
   effect of a feature that few centres cannot.

Each stage returns its kernel with the best evidence over the same rows and centres, so no stage lowers the evidence.
There are far fewer centres than rows: with every row as a centre, the evidence favours far too narrow widths.

**Between rounds** the evidence is that of the fit. The relevance vectors are the centres, because they lie where the
model needs detail. The α and β of the fit stay constant while the kernel changes, so each evaluation takes one dense
solve, and a few evaluations suffice. In trials, tied α and updated α gave no higher evidence with hundreds of vectors
(kin40k, protein), and larger errors with fewer vectors (airfoil, concrete). If features are switched off, a second
search starts with the gamma of these features raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.core.rprop import (
    FIRST_STEP,
    LATER_STEP,
    MOST_ROUNDS,
    PRIORS,
    WINDOW,
    RpropSearch,
    advance,
    again,
    awakened,
    begin,
    groups,
    off,
    raised,
    revived,
)
from partirvm.core.sampling import Purpose, stream
from partirvm.core.termination import Termination
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.learning.evidence import EvidencePoint, evaluate, evaluate_fit
from partirvm.learning.sample import SampledRows
from partirvm.likelihoods.gaussian import noise, root_mean
from partirvm.strategies.problem import KernelLearned, LearnKernel, Problem, Record
from partirvm.strategies.relearn import SHARE
from partirvm.types import LEARNING_ROWS

Float = NDArray[np.float64]

CENTRES = 300
"""Maximum number of centres in the first stage."""

MOST_CENTRES = 500
"""Maximum number of centres after growth; more centres lower the error by one per cent at most, but cost more."""

STARTS = np.log([8.0, 1 / 8])
"""Further starting points of a search for one parameter, as changes of the log; the search continues from the best.

A kernel with a gamma per feature has the revival stage instead. Other starting points gave it no better evidence, and
each evaluation costs two passes.
"""

CLASS_SHARE = 0.25
"""Maximum number of centres of a classification, as a fraction of the rows; for regression it is ``SHARE``.

With fewer centres small data sets lack detail; with more centres the evidence overfits.
"""

SEVERAL_CENTRES = 100
"""Maximum number of centres for more than two classes, which also bounds the partition size from below.

Chosen for time: with 300, a fit of 7,494 rows of pendigits did not end in 150 s; with 100 it took 72 s. The log loss of
two splits of digits was .084 and .054 with 300, and .073 and .083 with 100.
"""

GROWS = 0.5
"""Mean determinedness γ of the weights above which more centres are added."""

AXES_SD = 0.3
"""Standard deviation of the normal prior of an entry of a direction (``kernels.directions``) around its start.

Errors with .3, .1 and no prior, of a Gaussian kernel: concrete .265, .275, .292; airfoil .209, .219, .208; kin40k .108,
.113, .109.
"""

SHORT_WINDOW = 5
"""Number of evaluations within which the best evidence must rise in a search that begins at learned widths."""

LATER_WINDOW = 3
"""Number of evaluations between rounds within which the best evidence must rise (``core.rprop.RISE``)."""

WORK = 2e8
"""Maximum rows × centres × features of one evaluation: 8,000 rows and 500 centres for up to 50 features.

A search takes some hundred evaluations of about eight operations each, so it ends in about a minute on one core.
"""

LEAST_EVALUATIONS = 20
"""Least number of evaluations of a search, however many features there are."""


@dataclass(frozen=True)
class LearningOptions:
    """Options of kernel learning: initial and maximum number of centres, and the prior of a gamma per feature.

    ``prior`` is "flat" (uniform in log gamma) or one of ``core.rprop``, with estimated precisions. "half-normal"
    costs half a nat per unit of log gamma, and it switches irrelevant features off. ``metric`` is
    "widths", "directions", or "auto", which chooses between them (``learning.forms``). ``warm``
    (p,) are log parameters at which the first search begins, if they were learned before. ``evaluations`` is the
    maximum number of evaluations of each search.
    """

    centres: int
    max_centres: int
    prior: str = "flat"
    metric: str = "widths"
    warm: Float | None = field(default=None, repr=False, compare=False)
    evaluations: int = field(default=MOST_ROUNDS, repr=False)


def learning_options(
    n_rows: int, *, classes: bool, several: bool = False, prior: str = "flat", metric: str = "widths"
) -> LearningOptions:
    """Compute the options of kernel learning for data of ``n_rows`` rows; ``several`` for more than two classes.

    >>> learning_options(36_000, classes=False), learning_options(400, classes=True).max_centres
    (LearningOptions(centres=300, max_centres=500, prior='flat', metric='widths'), 100)
    """
    share = CLASS_SHARE if classes else SHARE
    room = max(int(share * min(n_rows, LEARNING_ROWS)), 1)
    if several:
        return LearningOptions(min(SEVERAL_CENTRES, room), min(SEVERAL_CENTRES, room), prior, metric)
    return LearningOptions(min(CENTRES, room), min(CENTRES if classes else MOST_CENTRES, room), prior, metric)


def within_work(rows: int, centres: int, n_features: int) -> tuple[int, int, int]:
    """Return rows and centres of kernel learning and evaluations of each search, all reduced alike beyond ``WORK``.

    >>> within_work(8_000, 500, 50), within_work(2_000, 500, 2_000)
    ((8000, 500, 150), (632, 158, 47))
    """
    share = min(np.sqrt(WORK / (rows * centres * n_features)), 1.0)
    return max(int(share * rows), 2), max(int(share * centres), 1), max(int(share * MOST_ROUNDS), LEAST_EVALUATIONS)


class Score(Protocol):
    """Evaluates a design; α and β start from the evaluation ``last``, with more updates if ``fresh``."""

    def __call__(self, design: Design, last: EvidencePoint | None, *, fresh: bool) -> EvidencePoint: ...


@dataclass
class KernelSearch:
    """A search with constant rows and centres; the centres are the first ``count`` columns of ``pool``.

    ``start`` is the kernel whose log parameters are searched. ``score`` evaluates a design, from the last evaluation.
    With several kernels, each centre has several columns. ``first`` is the evidence of the first evaluation, ``best``
    is the evaluation with the best evidence, and ``reason`` is the reason for the end of the search. ``choice`` states
    what was compared, for the history. Each search takes at most ``most`` evaluations.
    """

    sample: SampledRows
    start: Kernel
    prior: str
    pool: Design
    count: int
    score: Score
    search: RpropSearch
    number: int = 1
    evaluations: int = 0
    first: float = 0.0
    best: EvidencePoint | None = None
    choice: dict[str, Any] | None = None
    reason: Termination | None = None
    most: int = MOST_ROUNDS

    @property
    def kernel(self) -> Kernel:
        """The kernel with the best evidence so far."""
        return self.start.with_logs(self.search.best)

    @property
    def value(self) -> float:
        """The best evidence so far."""
        return -np.inf if self.best is None else self.best.value

    def design(self, kernel: Kernel) -> Design:
        """Return the design of this stage's centres with another kernel."""
        return replace(self.pool.take(np.arange(self.count)), kernel=kernel)

    def candidate(self, kernel: Kernel, step: float | Float) -> KernelSearch:
        """Return a stage with the same rows and centres that begins at another kernel."""
        search = begin(kernel.logs, kernel.logs, step)
        return replace(self, start=kernel, search=search, evaluations=0, best=None, reason=None)

    def evaluate_next(
        self, last: EvidencePoint | None = None, *, fresh: bool = False, window: int = WINDOW
    ) -> EvidencePoint:
        """Evaluate the current kernel of the search and take one step; α and β start from the evaluation ``last``."""
        if self.best is None:
            self.sample.best(self.kernel)
        point = self.score(self.design(self.start.with_logs(self.search.logs)), last, fresh=fresh)
        value, slope = with_prior(self.prior, self.start, self.search.logs, point.value, point.slope)
        self.search, self.reason = advance(self.search, value, slope, point.rows, window, self.most)
        self.evaluations += 1
        if self.best is None:
            self.first = point.value
        if self.search.improved:
            self.best = point
            self.sample.best(self.kernel)
        return point

    def restart(self, logs: Float, step: float, last: EvidencePoint | None = None) -> EvidencePoint:
        """Restart the search from the log parameters ``logs`` and evaluate them; the best kernel so far is kept."""
        self.search = again(self.search, logs, step)
        return self.evaluate_next(last, fresh=last is None)

    def climb(self, point: EvidencePoint, window: int = WINDOW) -> None:
        """Repeat steps from the evaluation ``point`` until the best evidence stops rising within ``window`` of them."""
        while self.reason is None:
            point = self.evaluate_next(point, window=window)

    def record(self, problem: Problem) -> Record:
        """Make the history record of the stage from its best evaluation."""
        best, scale = self.best, problem.empty.scaling.t_scale
        assert best is not None
        assert best.tied is not None
        numbers: dict[str, Any] = {"noise_variance": None, "noise_sd": None, "train_rmse": None}
        shift = 0.0
        if problem.classifies:
            numbers["train_rmse"] = float(np.sqrt(best.residual[0] / (best.rows * problem.n_classes)))
            numbers["train_error"] = best.wrong / best.rows
        else:
            shift = best.rows * float(np.log(scale).sum())
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
            choice=self.choice,
            **numbers,
        )


def begin_stage(sample: SampledRows, problem: Problem, learning: LearningOptions, seed: int) -> KernelSearch:
    """Make the first stage without evaluating it; draw its centres at random from the rows of the sample."""
    chosen = stream(seed, Purpose.CENTRES).permutation(sample.rows.rows)[: problem.rows_of(learning.max_centres)]
    _, pool = sample.candidates(problem, chosen)
    count, kernel = min(learning.centres, len(pool.labels)), problem.empty.kernel
    score = partial(evaluate, sample, problem)
    return KernelSearch(
        sample, kernel, learning.prior, pool, count, score, begin(kernel.logs), most=learning.evaluations
    )


def first_stage(
    sample: SampledRows, problem: Problem, learning: LearningOptions, seed: int, *, revive: bool = True
) -> KernelSearch:
    """Run the first stage: several starts if there is a single width, then the revival of switched-off features.

    If a search has been made before (``LearningOptions.warm``), this one begins where that ended.
    """
    stage, features = begin_stage(sample, problem, learning, seed), groups(problem.empty.kernel.parameters)
    window = WINDOW
    if learning.warm is not None:
        stage.search, window = begin(stage.search.start, learning.warm, LATER_STEP), SHORT_WINDOW
    point = stage.evaluate_next(fresh=True)
    if len(stage.search.logs) == 1 and learning.warm is None:
        for move in STARTS:
            stage.restart(stage.search.start + move, FIRST_STEP)
        point = stage.restart(stage.search.best, FIRST_STEP)
    stage.climb(point, window)
    if revive and len(off(stage.search.best, features)):
        stage.climb(stage.restart(revived(stage.search, features), FIRST_STEP))
    return stage


def grow(stage: KernelSearch, problem: Problem, most: int) -> KernelSearch:
    """Double the number of centres, up to ``most``, while the data determine most weights; log each stage."""
    features = groups(stage.start.parameters)
    while True:
        stage.sample.log(stage.record(problem))
        last, count = stage.best, min(2 * stage.count, most, len(stage.pool.labels))
        assert last is not None
        if last.determined < GROWS or count <= stage.count:
            return stage
        search = begin(stage.search.start, stage.search.best, LATER_STEP)
        number = stage.number + 1
        stage = replace(stage, count=count, search=search, number=number, evaluations=0, best=None, reason=None)
        point = stage.evaluate_next(last, fresh=True)
        if len(off(stage.search.best, features)):
            point = stage.restart(raised(stage.search, features), LATER_STEP, point)
        stage.climb(point, SHORT_WINDOW)


def learn_again(sample: SampledRows, instruction: LearnKernel) -> KernelLearned:
    """Learn a kernel for the columns of a fit at constant α and β; the strategy then checks the kernel on all rows."""
    design, fit, start = instruction.design, instruction.fit, instruction.design.kernel

    def score(design: Design, last: EvidencePoint | None, *, fresh: bool) -> EvidencePoint:
        return evaluate_fit(sample, design, fit)

    search = begin(start.logs, None, LATER_STEP)
    stage = KernelSearch(sample, start, instruction.prior, design, len(design.labels), score, search)
    stage.climb(stage.evaluate_next(), LATER_WINDOW)
    wider = awakened(stage.search.best, groups(start.parameters))
    if not np.array_equal(wider, stage.search.best):
        # the bounds of the search are relative to its start
        stage.search, stage.reason = replace(again(stage.search, wider, LATER_STEP), start=wider), None
        stage.climb(stage.evaluate_next(), LATER_WINDOW)
    assert stage.best is not None
    better = not np.array_equal(stage.search.best, start.logs)
    return KernelLearned(stage.kernel, better, stage.best.rows, stage.evaluations)


def with_prior(prior: str, start: Kernel, logs: Float, value: float, slope: Float) -> tuple[float, Float]:
    """Add the log prior of parameters ``logs`` (p,) to the evidence, and its slopes (p,); constants are left out.

    Each gamma per feature has the prior ``prior``, and each entry of a direction a normal one around ``start``.
    """
    names = start.parameters
    entries = axes_of(names)
    move = np.where(entries, logs - np.where(entries, start.logs, 0.0), 0.0)
    value -= 0.5 * float(move @ move) / AXES_SD**2
    slope = slope - move / AXES_SD**2
    if prior == "flat":
        return value, slope
    for group in groups(names):
        alive = group[np.isfinite(logs[group])]
        cost, rise = PRIORS[prior](logs[alive])
        value += cost
        slope[alive] += rise
    return value, slope


def axes_of(names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which parameters are entries of directions, (p,)."""
    return np.array(["axes[" in name for name in names], dtype=np.bool_)
