"""Kernel learning: maximise the evidence on a sample, before the fit and between its rounds.

**Before the fit**, the model is a tied RVM (``core.tied``), fitted to the indicators in case of
classes; the search starts where ``learning.process_search`` or ``learning.class_search`` ended.
Only some of the sample rows are centres: with every row as a centre, the evidence favours far too
narrow widths. L-BFGS (``core.ascent``) optimises all log parameters of the kernel jointly, with one
evaluation of evidence and slopes per step, in two passes over the same kernel blocks. There are
four stages, each of which starts with the curvature measured in the previous one:

1. *Search* from the initial kernel, on few rows and centres; a single width starts from the best of
   several values.
2. *Revival*, once, if features were switched off: all widths are raised again and the search is
   repeated. Two inputs that matter only jointly both appear irrelevant at first, and are found
   after the revival.
3. *All rows*, with more centres. Directions (``learning.forms``) move here: on few rows, their
   entries would fit the noise.
4. *Growth*: the number of centres is doubled as long as the weights are mostly determined by the
   data; few steps are needed.

**Between rounds**, the model is the current fit, and its relevance vectors are the centres. Its α
and β are fixed while the kernel changes: tied or updated α gave no higher evidence. If features are
switched off, their gamma is raised and a second search starts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np

from partirvm.core import ascent
from partirvm.core.sampling import Purpose, stream
from partirvm.core.termination import Termination
from partirvm.kernels import Anova, Directions, Family, Kernel
from partirvm.kernels.base import NEGLIGIBLE
from partirvm.kernels.composed import Several, replaced
from partirvm.kernels.design import Design
from partirvm.learning.sample import (
    EFFORT,
    EvidencePoint,
    SampledRows,
    SearchEffort,
    evaluate,
    evaluate_fit,
)
from partirvm.likelihoods.gaussian import noise
from partirvm.spec.entries import Record
from partirvm.spec.problem import Problem
from partirvm.strategies.instructions import KernelLearned, LearnKernel
from partirvm.strategies.stages import SHARE
from partirvm.types import LEARNING_ROWS, Bool, Float, Int

LEAST = 20
"""Minimum number of rows for kernel learning."""

COARSE_ROWS = 3000
"""Maximum number of rows in searches of widths and of fixed directions, with few parameters."""

COARSE_CENTRES = 200
"""Maximum number of centres in these searches."""

ALL_EVALUATIONS = 30
"""Maximum number of evaluations in the first stage on all rows."""

LAST_EVALUATIONS = 12
"""Maximum number of evaluations after growth. With the curvature from the previous stage, 12
evaluations gain as much as 20 without it."""

AGAIN_EVALUATIONS = 8
"""Maximum number of evaluations in each search between rounds."""

AXES_SD = 0.3
"""Standard deviation of the normal prior on a direction's entries around their initial values;
results with .1 or without a prior differ little. In a search, it scales the entries of the
direction with the largest gamma."""

MOST_SCALE = 10.0
"""Maximum scale of other directions' entries, relative to the direction with the largest gamma."""

WORK = 2e8
"""Maximum rows × centres × features per evaluation, so that a search ends in about a minute on one
core."""


@dataclass(frozen=True)
class CentreLimits:
    """Limits on the number of centres of a tied RVM.

    Attributes:
        share: maximum fraction of the rows
        first: maximum number in the first stage on all rows
        most: maximum number after growth
    """

    share: float
    first: int
    most: int


OF_NUMBERS = CentreLimits(SHARE, 300, 500)
"""Limits for numeric targets; more centres lower the error by 1 % at most."""

OF_TWO_CLASSES = CentreLimits(0.25, 300, 300)
"""Limits for two classes: with fewer centres, detail is lost on small datasets; with more, the
evidence overfits."""

OF_CLASSES = CentreLimits(0.25, 100, 100)
"""Limits for more classes, chosen to save time; the errors differ little."""


@dataclass(frozen=True)
class LearningOptions:
    """Options of kernel learning: number of rows, and the initial and maximum number of centres.

    ``evaluations`` is the maximum number of evaluations of each search. ``metric`` is "widths",
    "directions", or "auto", which chooses between them (``learning.forms``). ``warm`` (p,) are the
    log parameters from which the first search starts, if they were learned earlier.
    """

    rows: int
    centres: int
    max_centres: int
    evaluations: int = EFFORT.evaluations
    metric: str = "widths"
    warm: Float | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a kernel search.

    Attributes:
        learning: options of kernel learning
        seed: draws rows and centres
        columns: maximum number of columns of a fit
        warp: whether features may be warped
        family: whether the family of the kernel may be chosen
        judged: whether the kernel may be compared with rivals, which takes memory
        residuals: whether the fit may use local residuals
    """

    learning: LearningOptions
    seed: int
    columns: int
    warp: bool = False
    family: bool = False
    judged: bool = True
    residuals: bool = False


def learning_options(
    n_rows: int,
    n_features: int = 1,
    *,
    limits: CentreLimits = OF_NUMBERS,
    metric: str = "widths",
    most: int = LEARNING_ROWS,
    effort: SearchEffort = EFFORT,
) -> LearningOptions:
    """Compute the options of kernel learning.

    Beyond ``WORK``, rows, centres and evaluations are reduced in proportion.

    Args:
        n_rows: number of rows of the data
        n_features: number of features
        limits: limits on the number of centres
        metric: "widths", "directions" or "auto"
        most: maximum number of rows to use
        effort: limits the number of evaluations

    >>> learning_options(36_000)
    LearningOptions(rows=8000, centres=300, max_centres=500, evaluations=150, metric='widths')
    >>> learning_options(400, limits=OF_TWO_CLASSES).max_centres
    100
    >>> learning_options(2_000, 2_000)
    LearningOptions(rows=632, centres=158, max_centres=158, evaluations=47, metric='widths')
    """
    rows = min(n_rows, most)
    centres = min(limits.most, max(int(limits.share * rows), 1))
    share = min(np.sqrt(WORK / (rows * centres * n_features)), 1.0)
    centres = max(int(share * centres), 1)
    evaluations = max(int(share * effort.evaluations), 20)
    first = min(limits.first, centres)
    return LearningOptions(max(int(share * rows), 2), first, centres, evaluations, metric)


Score: TypeAlias = Callable[[Design, EvidencePoint | None, bool], EvidencePoint]
"""Function that evaluates a design; α and β start from the given evaluation, with more updates if
the last argument is true."""


@dataclass
class KernelSearch:
    """A search with fixed rows and centres; the centres are the first ``count`` columns of
    ``pool``.

    ``start`` is the kernel whose log parameters are optimised, within bounds around ``middle``
    (p,). ``first`` is the evidence of the first evaluation, ``best`` the best evaluation, at the
    log parameters ``logs`` (p,), with the posterior ``peak``. ``choice`` contains the compared
    figures. Each search takes at most ``most`` evaluations.
    """

    sample: SampledRows
    start: Kernel
    pool: Design
    count: int
    score: Score
    middle: Float
    logs: Float
    number: int = 1
    evaluations: int = 0
    first: float = 0.0
    peak: float = -np.inf
    best: EvidencePoint = field(default_factory=EvidencePoint)
    last: EvidencePoint | None = None
    choice: dict[str, Any] | None = None
    reason: Termination | None = None
    most: int = ascent.MOST
    pairs: ascent.Pairs = field(default_factory=list)

    @property
    def kernel(self) -> Kernel:
        """The kernel with the highest evidence so far."""
        return self.start.with_logs(self.logs)

    def design(self, kernel: Kernel) -> Design:
        """Return the design of this stage's centres with this kernel."""
        return replace(self.pool.take(np.arange(self.count)), kernel=kernel)

    def again(self, **fields: Any) -> Self:
        """Return a stage that starts from the best kernel or from another ``start``, with some
        fields replaced."""
        if "start" in fields:
            fields |= dict.fromkeys(("middle", "logs"), fields["start"].logs) | {"pairs": []}
        unknown: dict[str, Any] = {
            "evaluations": 0,
            "peak": -np.inf,
            "best": EvidencePoint(),
            "pairs": self.pairs[:],
        }
        return replace(self, last=self.best, reason=None, **unknown | fields)

    def evaluate(self, logs: Float) -> tuple[float, Float]:
        """Return the log posterior and its slopes at ``logs``, per row; α and β start from the
        previous evaluation."""
        if first := not self.evaluations:
            self.sample.on_best(self.design(self.kernel))
        self.sample.on_step("")
        last = self.last
        point = self.last = self.score(
            self.design(self.start.with_logs(logs)), last, first or last is None
        )
        # directions' entries have a normal prior around their start, other parameters a flat one
        entries = axes_of(self.start.parameters)
        move = np.where(entries, logs - np.where(entries, self.start.logs, 0.0), 0.0)
        value = point.value - 0.5 * float(move @ move) / AXES_SD**2
        slope = point.slope - move / AXES_SD**2
        self.evaluations += 1
        self.first = point.value if first else self.first
        if value > self.peak:
            self.best = point
            self.logs = logs
            self.peak = value
            self.sample.on_best(self.design(self.kernel))
        return value / point.rows, slope / point.rows

    def climb(self, logs: Float | None = None) -> Self:
        """Raise the log posterior from ``logs``, or from the best parameters, until it rises too
        little; keep the best parameters."""
        low = self.middle + ascent.LOWEST
        high = self.middle + ascent.HIGHEST
        begin = self.logs if logs is None else logs
        scales = scales_of(self.start)
        self.reason, _ = ascent.ascend(
            self.evaluate, begin, low, high, scales, most=self.most, pairs=self.pairs
        )
        return self

    def record(self, problem: Problem) -> Record:
        """Return the history record of the stage, based on its best evaluation."""
        best = self.best
        facts: dict[str, Any] = {
            "number": self.number,
            "candidates": self.count,
            "iterations": self.evaluations,
            "gain": best.value - self.first,
            "fit_rows": "full" if self.sample.whole else "sample",
            "choice": self.choice,
            "termination": self.reason or Termination.CONVERGED,
        }
        variance = 1 / best.tied.beta
        return kernel_record(problem, self.kernel, variance, best.rows, best.value, facts)


def kernel_record(
    problem: Problem,
    kernel: Kernel,
    variance: Any,
    rows: int,
    log_evidence: float,
    facts: dict[str, Any],
) -> Record:
    """Return the history record of a learned kernel.

    Args:
        problem: the problem, which defines the scaling of the targets
        kernel: the learned kernel
        variance: noise variance of the scaled targets, a number or (T,)
        rows: number of rows on which the evidence is based
        log_evidence: evidence of the scaled targets in nats
        facts: further fields of the record, including the number of ``candidates``
    """
    scale = problem.empty.scaling.t_scale
    if problem.likelihood.has_noise:
        facts |= noise(variance, scale)
    facts |= {
        "vectors": facts["candidates"],
        "selection": "random",
        "kernel": kernel.spec(),
        "train_rmse": None,
    }
    log_evidence -= rows * float(np.log(scale).sum())
    return Record(kind="kernel", rows=rows, log_evidence=log_evidence, **facts)


def scales_of(kernel: Kernel) -> Float:
    """Return typical changes of the parameters (p,): the effect of a direction's entry is
    proportional to its gamma."""
    logs = kernel.learnable()
    largest = max((log for name, log in logs.items() if "gamma" in name), default=0.0)
    own = [
        logs.get(name.replace("axes", "gamma").partition(",")[0] + "]", largest) for name in logs
    ]
    entries = AXES_SD * np.minimum(np.exp((largest - np.array(own)) / 2), MOST_SCALE)
    return np.where(axes_of(kernel.parameters), entries, 1.0)


def begin_stage(
    sample: SampledRows, problem: Problem, learning: LearningOptions, seed: int
) -> KernelSearch:
    """Return the first stage without evaluating it.

    Args:
        sample: the rows from which the stage's rows and centres are drawn at random
        problem: the problem with the initial kernel
        learning: options of kernel learning
        seed: draws rows and centres
    """
    order = stream(seed, Purpose.CENTRES).permutation(sample.rows.rows)
    pool = sample.candidates(problem, order[: problem.rows_of(learning.max_centres)])
    if len(order) > COARSE_ROWS:
        sample = sample.only(np.sort(order[:COARSE_ROWS]))
    count = min(learning.centres, COARSE_CENTRES, len(pool.labels))
    kernel = problem.empty.kernel
    score = partial(evaluate, sample, problem)
    logs = kernel.logs if learning.warm is None else learning.warm
    return KernelSearch(
        sample, kernel, pool, count, score, kernel.logs, logs, most=learning.evaluations
    )


def first_stage(
    sample: SampledRows, problem: Problem, learning: LearningOptions, seed: int
) -> KernelSearch:
    """Run the first stage: try several starts if there is a single width, or revive switched-off
    features.

    Args:
        sample: the sample of rows
        problem: the problem with the initial kernel
        learning: options of kernel learning
        seed: draws rows and centres
    """
    stage = begin_stage(sample, problem, learning, seed)
    features = ascent.groups(problem.empty.kernel.parameters)
    if len(stage.logs) == 1 and learning.warm is None:
        for move in np.log([1.0, 8.0, 1 / 8]):
            stage.evaluate(stage.middle + move)
    stage.climb()
    if len(ascent.off(stage.logs, features)):
        stage.climb(ascent.raised(stage.logs, stage.middle, np.concatenate(features), 1 / 3))
    return stage


SMALL = NEGLIGIBLE * 1e-10
"""Gamma of a feature that is switched off. A later search can raise this value, but not 0."""

LOSS = 1.0
"""Maximum loss of evidence, in nats per feature, when features without effect are switched off."""


SHARES = 1e-3, 1e-4, 1e-5
"""Fractions of the largest gamma below which features are switched off; the next one is tried if
the evidence falls. If the largest gamma belongs to a wave, a feature with a thousandth of it may
still have a large linear effect."""


def reductions(kernel: Kernel, n_features: int) -> Iterator[tuple[Kernel, int]]:
    """Yield the kernel with fewer and fewer features switched off, and the number of these features
    as long as it is positive."""
    for share in SHARES:
        reduced = switched_off(kernel, n_features, share)
        removed = kernel.effective(n_features) & ~reduced.effective(n_features)
        if removed.any():
            yield reduced, int(removed.sum())


def switched_off(kernel: Kernel, n_features: int, share: float) -> Kernel:
    """Return the kernel without the features whose gamma is below this fraction of the largest.

    Their gamma becomes ``SMALL``, as do equally small gammas of directions; directions' entries for
    such features become 0. A gamma of 0 is not changed. In an ANOVA kernel, the share becomes
    ``SMALL``, if the product of gamma and the portion of a feature is below this fraction.
    """

    def small(gamma: Float) -> tuple[float, ...]:
        return tuple(np.where((gamma > 0.0) & (gamma < share * gamma.max()), SMALL, gamma).tolist())

    def make(old: Any, columns: Int) -> Kernel:
        if isinstance(old, Directions):
            widths = old.kernel.widths(len(old.axes)) @ old.matrix**2
            matrix = np.where(widths < share * widths.max(), 0.0, old.matrix)
            inner = replace(old.kernel, gamma=small(np.array(old.kernel.gamma)))
            return replace(old, kernel=inner, axes=tuple(map(tuple, matrix.tolist())))
        if isinstance(old, Anova):
            return old.without_weak(share, SMALL)
        family: Family = old
        return replace(family, gamma=small(np.array(family.gamma)))

    if isinstance(kernel, Several):
        return replace(
            kernel, kernels=tuple(switched_off(each, n_features, share) for each in kernel.kernels)
        )
    return replaced(kernel, np.arange(n_features), Directions | Family, make)


def without_weak_features(stage: KernelSearch) -> KernelSearch:
    """Switch off weak features in a stage's best kernel, unless the evidence falls by more than
    ``LOSS`` nats per feature."""
    for reduced, removed in reductions(stage.kernel, stage.pool.scaling.n_inputs):
        point = stage.score(stage.design(reduced), stage.best, False)
        if point.value > stage.best.value - LOSS * removed:
            best_search = replace(
                stage, start=reduced, middle=reduced.logs, logs=reduced.logs, best=point
            )
            best_search.sample.on_best(best_search.design(best_search.kernel))
            return best_search
    return stage


def grow(stage: KernelSearch, problem: Problem, most: int) -> KernelSearch:
    """Double the number of centres, up to ``most``, while the mean determinedness is at least one
    half; log each stage."""
    while True:
        count = min(2 * stage.count, most, len(stage.pool.labels))
        if stage.best.determined < 0.5 or count <= stage.count:
            stage = without_weak_features(stage)
            stage.sample.log(stage.record(problem))
            return stage
        stage.sample.log(stage.record(problem))
        stage = stage.again(
            count=count, number=stage.number + 1, most=min(stage.most, LAST_EVALUATIONS)
        ).climb()


def learn_again(sample: SampledRows, instruction: LearnKernel) -> KernelLearned:
    """Learn a kernel for a fit's columns at fixed α and β; the strategy then checks it on all
    rows."""
    design = instruction.design
    start = instruction.design.kernel

    count = len(design.labels)
    logs = start.logs
    score = partial(evaluate_fit, sample, instruction.fit)
    stage = KernelSearch(
        sample, start, design, count, score, logs, logs, most=AGAIN_EVALUATIONS
    ).climb()
    wider = ascent.awakened(stage.logs, ascent.groups(start.parameters))
    if not np.array_equal(wider, stage.logs):
        stage.middle = wider  # the bounds of the search are relative to its start
        stage.climb(wider)
    stage = without_weak_features(stage)
    return KernelLearned(
        stage.kernel, stage.best.value > stage.first, stage.best.rows, stage.evaluations
    )


def axes_of(names: Sequence[str]) -> Bool:
    """Return which parameters are entries of directions, (p,)."""
    return np.array(["axes[" in name for name in names], dtype=np.bool_)
