"""A row sample in memory for small fits before a fit or between its rounds, and the evidence of a
kernel on this sample."""

import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from typing import Any, Self

import numpy as np

from partirvm.core import ascent
from partirvm.core.posterior import posterior
from partirvm.core.statistics import GramStatistics
from partirvm.core.tied import Tied, updates
from partirvm.core.updates import HyperState, StepInfo
from partirvm.data.arrays import GatheredRows, rows_of_tile
from partirvm.data.source import Source
from partirvm.execution import Executor, LocalExecutor
from partirvm.execution.kernel_store import Keeping, forget
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.gaussian import FIRST_NOISE
from partirvm.likelihoods.passes import GramPass, SlopePass
from partirvm.process import on_threads, one_blas_thread
from partirvm.spec.entries import Record, Spent
from partirvm.spec.panel_pass import Pass
from partirvm.spec.problem import Problem
from partirvm.strategies.fit_rows import fresh
from partirvm.types import Float, Int

FIRST_UPDATES = 10
"""Number of updates of α and β in the first evaluation of a search."""

UPDATES = 3
"""Number of updates in later evaluations, which start from the last α and β: five updates found the
same optima on kin40k, and two ended too early with a single width."""

SINGLE_COLUMNS = 100
"""Slopes use single precision from this number of columns on; the evidence always uses double
precision."""

SINGLE_VARIANCE = 1e3
"""Variances of all weights ÷ noise variance below which slopes use single precision: an element of
βΦΣ then has an error below 1e-3."""

STAGES = (
    "widths",
    "directions",
    "sums of effects",
    "jumps",
    "more rows",
    "left-out rows",
    "widths of more rows",
    "directions of more rows",
    "all rows",
)
"""Stages of kernel learning, in order; a search may omit some."""


OnStep = Callable[[int, int, str], None]
"""Kernel-learning callback, called with the number of the current stage, the number of stages, and
a description of the stage."""

OnProgress = Callable[[Sequence[Pass], int, int], None]
"""Progress callback, called with the passes, the number of tiles done and the total; it may raise
to end the work."""


@dataclass(frozen=True)
class SearchEffort:
    """How much work a kernel search does. The defaults are those of every fit.

    Attributes:
        evaluations: maximum number of evaluations per search of the tied evidence
        starts: initial inverse widths of a process, relative to gamma="scale"
        rows: maximum number of rows in the searches for a regression with a process; 500 would
            take twice as long
        class_rows: the same for a classification
        few: up to this many rows, the process kernel is the result; with more rows, the tied
            search starts from it
        judged: minimum number of left-out rows that judge a kernel: fewer can detect only
            differences of 20 % or more
        lost: ratio to the best rival's error above which a kernel counts as lost
        free_rows: with more rows than this, directions themselves also move (``learning.forms``);
            with fewer rows, moving them raised errors by a few %
        sure: minimum difference in squared error from the rival, in standard errors, for a kernel
            to count as lost
    """

    evaluations: int = ascent.MOST
    starts: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    rows: int = 400
    class_rows: int = 400
    few: int = 2000
    judged: int = 100
    lost: float = 1.05
    sure: float = 1.0
    free_rows: int = 2000


EFFORT = SearchEffort()
"""The effort of every fit."""


@dataclass(frozen=True)
class SampledRows:
    """Rows held in memory, and the executor for passes over them.

    ``whole`` is True if the sample contains all rows of the source. ``room`` is the number of bytes
    for kernel blocks kept between passes. ``log`` is called with each history record, ``on_best``
    with a design of the best kernel, and ``on_step`` with the name of each of the ``STAGES`` when
    it begins and with "" before each evaluation of the evidence. ``effort`` limits kernel searches.
    """

    rows: GatheredRows
    whole: bool
    executor: LocalExecutor
    on_progress: OnProgress
    spent: Spent
    room: int = 0
    log: Callable[[Record], None] = lambda record: None
    on_best: Callable[[Design], None] = lambda design: None
    on_step: Callable[[str], None] = lambda stage: None
    effort: SearchEffort = EFFORT

    @cached_property
    def _runs(self) -> tuple[str, Iterator[int]]:
        """The token of the kept kernel blocks, and a counter of pass runs."""
        token = uuid.uuid4().hex
        weakref.finalize(self, forget, token)
        return token, count()

    def run(self, *passes: Any) -> list[Any]:
        """Run passes over all rows of the sample in one reading; return their statistics."""
        self.on_progress(passes, 0, 0)
        token, runs = self._runs
        began = time.perf_counter()
        progress = partial(self.on_progress, passes)
        statistics = self.executor.run(
            passes, self.rows, progress, Keeping(token, self.room, next(runs))
        )
        self.spent.add(began, len(passes), len(passes) * self.rows.n_rows)
        return statistics

    def drop_blocks(self) -> None:
        """Delete the kept kernel blocks, which belong to a different kernel."""
        forget(self._runs[0])

    def check_interrupted(self, info: StepInfo | None = None) -> None:
        """Call the progress callback without a pass, so that it can interrupt dense
        computations."""
        self.on_progress((), 0, 0)

    def only(self, rows: Int) -> Self:
        """Return a sample with a subset of the rows; ``rows`` are increasing row numbers of the
        source."""
        return replace(self, rows=self.rows.only(rows), whole=False)

    def groups_of(self, rows: Int) -> Int | None:
        """Return the groups (n,) of rows with these numbers (n,); None without groups."""
        return self.rows.gather(rows).groups

    def candidates(self, problem: Problem, rows: Int) -> Design:
        """Return the design with the leading columns and the distinct kernel columns of these rows.

        Rows with zero weight get no columns. Of several equal columns, the first is kept.
        """
        held = self.rows.gather(rows)
        offered = problem.empty.with_centres(held.X[held.present], rows[held.present])
        return offered.take(fresh(offered, problem.empty), leading=problem.leading)


@contextmanager
def gathered(
    source: Source,
    rows: Int | None,
    executor: Executor,
    on_progress: OnProgress,
    spent: Spent,
    **options: Any,
) -> Iterator[SampledRows]:
    """Read rows of a source through an executor and hold them in this process.

    Args:
        source: the source of the rows
        rows: (n,), increasing row numbers, or None for all rows
        executor: reads the tiles and, if it is local, runs the later passes
        on_progress: called before and while tiles are read
        spent: accumulates the reading time in seconds
        options: ``room``, ``log``, ``on_best``, ``on_step`` and ``effort`` of ``SampledRows``
    """
    own = executor if isinstance(executor, LocalExecutor) else LocalExecutor(executor.threads)
    with (
        nullcontext(own) if own is executor else closing(own) as local,
        one_blas_thread(),
        on_threads(own.threads),
    ):
        on_progress((), 0, 0)
        began = time.perf_counter()
        numbers = np.arange(source.n_rows) if rows is None else rows
        tiles = np.unique(numbers // source.tile_rows).tolist()
        found = executor.map(
            partial(rows_of_tile, numbers), source, tiles, partial(on_progress, ())
        )
        held = GatheredRows(source, numbers, (piece for _, piece in found))
        spent.passing += time.perf_counter() - began
        yield SampledRows(held, rows is None, local, on_progress, spent, **options)


@dataclass(frozen=True)
class EvidencePoint:
    """The result of one evaluation over ``rows`` rows with positive weight; at given α and β, only
    three fields are set.

    ``value`` is the evidence in nats, −∞ before the first evaluation, and ``slope`` (p,) its
    derivative with respect to the log parameters. ``weights`` (M, C) are the posterior mean.
    ``determined`` is the mean γ of the kernel columns.
    """

    value: float = -np.inf
    slope: Float = field(default_factory=lambda: np.zeros(0))
    rows: int = 0
    tied: Tied = field(default_factory=lambda: Tied(1.0, 1.0))
    weights: Float = field(default_factory=lambda: np.zeros((0, 1)))
    determined: float = 0.0


def evaluate(
    sample: SampledRows,
    problem: Problem,
    design: Design,
    last: EvidencePoint | None = None,
    fresh: bool = True,
) -> EvidencePoint:
    """Compute evidence and slopes of a design.

    Args:
        sample: the sample of rows
        problem: the problem whose kernel is learned
        design: the design of M columns; centres that are new since ``last`` are at the end
        last: the evaluation whose α and β are the initial values, or None
        fresh: whether to use the larger number of updates of α and β
    """
    count = FIRST_UPDATES if fresh else UPDATES
    statistics, tied, estimated = fitted(
        sample, problem, design, None if last is None else last.tied, count
    )
    (slope,) = sample.run(_slope_pass(design, estimated, tied.beta, problem.n_classes))
    determined = float(estimated.determinedness[statistics.labels >= 0].mean())
    return EvidencePoint(
        estimated.log_evidence, slope, statistics.n, tied, estimated.means, determined
    )


def _slope_pass(design: Design, found: Any, beta: float | Float, n_classes: int) -> SlopePass:
    """Return the pass for the slopes at a posterior; with many columns, in single precision if that
    suffices.

    Args:
        design: the design of M columns
        found: the posterior, with means (M, T) and covariances (T, M, M) or (1, M, M)
        beta: noise precision, a number or (T,)
        n_classes: number of classes, or 0
    """
    covariances = found.covariances
    if covariances.shape[-1] >= SINGLE_COLUMNS and np.max(beta * found.variance) < SINGLE_VARIANCE:
        covariances = covariances.astype(np.float32)
    return SlopePass(design, found.means, covariances, beta, n_classes)


def fitted(
    sample: SampledRows, problem: Problem, design: Design, tied: Tied | None = None, count: int = 10
) -> tuple[GramStatistics, Tied, Any]:
    """Fit α and β of a design.

    Args:
        sample: the sample of rows
        problem: the problem of the fit, with its target variance
        design: the design of M columns
        tied: α and β from which the updates start, or None for the problem's initial values
        count: number of updates

    Returns the statistics, α and β, and the posterior.
    """
    statistics = _statistics(sample, design, problem.n_classes)
    fixed = None if problem.noise_variance is None else 1 / problem.noise_variance
    tied = _first_tied(problem) if tied is None else tied
    variances = None if problem.likelihood.working.shared_noise else problem.variances
    return (statistics, *updates(statistics, tied, count, variances, fixed))


def evaluate_fit(sample: SampledRows, fit: HyperState, design: Design, *last: Any) -> EvidencePoint:
    """Compute evidence and slopes for ``design`` at the fixed α and β of ``fit``; ``last`` is
    ignored."""
    statistics = _statistics(sample, design, fit.n_classes)
    estimated = posterior(statistics, fit.alpha, fit.beta)
    (slope,) = sample.run(_slope_pass(design, estimated, fit.beta, fit.n_classes))
    return EvidencePoint(estimated.log_evidence, slope, statistics.n)


def _first_tied(problem: Problem) -> Tied:
    """Return the initial α and β: the prior variance is the target variance, and the noise has its
    usual initial value."""
    variance = problem.noise_variance
    if variance is None:
        variance = FIRST_NOISE * problem.likelihood.working.first_share * problem.variances
    return Tied(1 / problem.target_variance, 1 / problem.target_variance, 1 / variance)


def _statistics(sample: SampledRows, design: Design, n_classes: int) -> GramStatistics:
    """Return the statistics of a design's columns and the targets, which are class indicators
    unless ``n_classes`` is 0; kernel blocks of other designs are dropped."""
    sample.drop_blocks()
    nothing = design.take(NONE, leading=NONE)
    no_offset = np.zeros((0, 1))
    (block,) = sample.run(GramPass(nothing, design, no_offset, n_classes=n_classes))
    return GramStatistics.of(design.all_labels, block)
