"""The inputs of a strategy (``Problem``, ``Options``), and the instructions that it yields.

A strategy runs in steps. ``step(state)`` is a generator: it yields instructions, is sent their
answers, and returns the next state, which is all that a further step depends on: the state after a
stored history line is the checkpoint. A strategy has no access to data, clock, disk or cluster: the
driver carries out instructions that are yielded together, in parallel if possible, and sends the
answers in the same order (a statistic for a pass, ``Solved`` for a fit, None for ``Save``).
``Stopped`` is raised where the step waits for its answers.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.left_out import LeftOut
from partirvm.core.priors import FLAT, Prior
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.likelihoods import GAUSSIAN
from partirvm.likelihoods.base import DenseFit, Fit, Likelihood, Pass, PassFit
from partirvm.likelihoods.gaussian import root_mean
from partirvm.local.residuals import LocalResiduals
from partirvm.scaling.maps import Scaling
from partirvm.types import Float, Int

Codes = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class AppendedBatch:
    """The rows from the end of the previous batch up to (not including) row ``stop``, split into
    ``partitions`` parts.

    ``shuffled`` is true if neighbouring rows are a random sample of the batch.
    """

    stop: int
    partitions: int
    shuffled: bool


@dataclass(frozen=True)
class Problem:
    """The constants of a fit that a strategy uses; variances refer to the scaled target.

    ``empty`` is the design without columns. ``target_variance`` is 0 for a constant target.
    ``noise_variance`` is σ², or None if it is estimated. ``target_scale`` is the factor from the
    scaled target to the user's units. ``shuffled``: neighbouring rows are a random sample. Several
    targets share vectors and α: ``target_variances`` and ``noise_variance`` are then (T,), and
    ``target_variance`` and the square of ``target_scale`` are means. ``codes`` (N,) are class
    codes; in regression ``n_classes`` is 0. ``batches`` are the original rows and each append, if
    any. ``left_out_square`` is the mean squared error of left-out rows while the kernel was learned
    from few rows, or 0. ``mean_only`` is true if the leading columns alone predicted these rows as
    well as any kernel.
    """

    n_rows: int
    empty: Design
    bias: bool
    target_variance: float
    noise_variance: float | Float | None
    target_scale: float
    shuffled: bool
    held_out: bool
    likelihood: Likelihood = GAUSSIAN
    n_classes: int = 0
    codes: Codes | None = None
    prior: Prior = FLAT
    target_variances: Float | None = None
    batches: tuple[AppendedBatch, ...] = ()
    left_out_square: float = 0.0
    mean_only: bool = False

    def with_kernel(self, kernel: Kernel) -> Self:
        """Return the problem with a different kernel."""
        return replace(self, empty=replace(self.empty, kernel=kernel))

    def with_scaling(self, scaling: Scaling) -> Self:
        """Return the problem with a different scaling of its inputs, whose mean is 0."""
        if scaling is self.empty.scaling:
            return self
        return replace(
            self, empty=replace(self.empty, scaling=scaling, origin=np.zeros(scaling.n_inputs))
        )

    def with_doubts(self, multiple: float) -> Self:
        """Return the problem with the doubts about level effects multiplied beside the noise;
        inputs stay the same."""
        features = self.empty.scaling.features
        assert features is not None
        scaling = replace(
            self.empty.scaling, features=features.with_doubts(multiple, 1.0 - features.share)
        )
        return replace(self, empty=replace(self.empty, scaling=scaling))

    @property
    def n_targets(self) -> int:
        """T, the number of targets of a regression."""
        return 1 if self.target_variances is None else len(self.target_variances)

    @property
    def n_outputs(self) -> int:
        """C, the number of linear predictors with their own posterior; class indicators, as one
        target, have one."""
        return 1 if self.likelihood.dense or self.likelihood.binary else self.n_classes

    @property
    def leading(self) -> Int:
        """Labels of the leading columns of every fit: the bias, then the explicit basis
        functions."""
        size = 0 if self.empty.functions is None else self.empty.functions.size
        return replace(self.empty, bias=self.bias, active=np.arange(size)).leading

    def missing_leading(self, design: Design) -> Int:
        """Return the labels of the leading columns that a design lacks."""
        return np.setdiff1d(self.leading, design.leading)

    @property
    def n_kernels(self) -> int:
        """K, the number of kernel columns that each row offers as candidates; 0 without a
        kernel."""
        return len(self.empty.kernels)

    def rows_of(self, candidates: int) -> int:
        """Return the number of rows that offer this number of candidates, K each; at least one
        row."""
        return max(candidates // max(self.n_kernels, 1), 1)


@dataclass(frozen=True)
class Options:
    """Resolved options of a fit.

    ``fit_rows`` says which rows an intermediate fit uses (``strategies.fit_rows``), ``last_rows``
    which the last one uses. There is memory for ``max_columns`` columns including candidates, and
    for ``learning_columns`` to learn the kernel again. ``batch`` limits the sum of squared column
    counts of parallel fits. ``tol`` is in nats per row. ``centres`` is the number of centres from
    which the kernel was learned, or 0 if it must stay. The rows of local residuals take at most
    ``residual_bytes``.
    """

    partition_size: int
    selection: str
    fit_rows: str = "full"
    last_rows: str = "full"
    sample_rows: int = 0
    stop_fraction: float = 0.5
    max_rounds: int | None = None
    max_vectors: int | None = None
    max_columns: int | None = None
    batch: int = 4_000_000
    tol: float = 1e-7
    max_iterations: int = 500
    max_passes: int = 200
    moderate: bool = False
    seed: int = 0
    centres: int = 0
    learning_columns: int = 0
    solver: str = "fixed-point"
    noise: str = "constant"
    residual: str = "none"
    neighbours: int = 60
    residual_family: str = "auto"
    residual_bytes: int = 0
    effort: str = "thorough"


@dataclass(frozen=True)
class Gather:
    """Request for the inputs of the rows with these numbers.

    The answer is a pair: the numbers (k,) of those with positive weight, in the same order, and
    their inputs (k, d).
    """

    rows: Int


@dataclass(frozen=True)
class LearnKernel:
    """Request a search for a better kernel for the columns of ``design``, at the α and β of their
    ``fit``.

    The search uses the rows ``rows`` (row numbers, increasing) or, if None, all rows.
    """

    design: Design
    fit: HyperState
    rows: Int | None


@dataclass(frozen=True)
class KernelLearned:
    """The kernel with the highest evidence, ``better`` if it is new, and the number of rows with
    positive weight."""

    kernel: Kernel
    better: bool
    rows: int
    evaluations: int


@dataclass(frozen=True)
class FitResiduals:
    """Request for the local residuals of a fit; ``left_out`` are its errors on left-out rows, by
    target.

    A ``trial`` only measures the gain.
    """

    design: Design
    fit: HyperState
    left_out: tuple[LeftOut, ...]
    options: Options
    trial: bool = False


@dataclass(frozen=True)
class ResidualsFitted:
    """Local residuals if they are used, and the gains on left-out rows.

    The gains are the fraction by which the RMSE falls and the rise in the mean log density in nats,
    both over all targets; 0 if not measured. ``rmse`` (T,) is the corrected RMSE in the model's
    units; empty if the residuals are not used, or after a trial would not be. ``lacking`` is the
    number of bytes that fitted neither in memory nor in a folder. ``diagnostics`` are those of the
    first targets on corrected left-out rows, in the targets' units.
    """

    residuals: LocalResiduals | None = None
    rmse_gain: float = 0.0
    density_gain: float = 0.0
    rmse: tuple[float, ...] = ()
    lacking: int = 0
    diagnostics: tuple[NumberDiagnostics, ...] = ()

    def error(self, scales: Float | float = 1.0) -> float:
        """Return the root mean square over targets of ``rmse`` times ``scales`` (T,); 0 if there is
        none."""
        return root_mean(scales * np.array(self.rmse)) if self.rmse else 0.0

    def facts(self, scales: Float) -> dict[str, Any]:
        """Return the gains, and the ``bytes`` of the rows if they are used, or ``lacking``, as
        plain JSON.

        ``rmse`` is in the targets' units; ``scales`` (T,) convert the model's units to these.
        """
        kept = 0 if self.residuals is None else self.residuals.cells.nbytes
        gains = {"rmse_gain": self.rmse_gain, "density_gain": self.density_gain}
        return {**gains, "rmse": self.error(scales), "bytes": kept, "lacking": self.lacking}


@dataclass(frozen=True)
class Record:
    """One history line, which describes one fit. Errors and evidence are in the target's units.

    ``kind`` is "round" (an intermediate fit whose model is saved), "part" (a fit of
    split-and-merge, of ``level`` 0 for a partition; saved only if its evidence per row is the
    highest so far), "heuristic" (the fit that measures the partition size), "kernel" (a result of
    kernel learning), "final", or "early" (instead of "final" if the time limit ends a run before
    there is a model, or during the fit with local noise).

    ``rows`` is the number of rows of the posterior and of the log evidence; the training error is
    over the rows from which σ² was estimated. ``dropped`` counts the vectors deleted so far because
    of a limit. For classification, errors are the mean log loss (nats) and the fraction of
    misclassified rows, and ``iterations`` are passes. For several targets, the evidence is joint,
    the noise variance and the negative log density are means, and errors are root mean squares.

    After kernel learning, ``iterations`` are evaluations of the evidence, and ``gain`` is the
    increase of the tied evidence (``core.tied``) over the first kernel, in nats; between rounds,
    that of the fit, ``taken`` is true if the new kernel replaced the old one, and all fields except
    ``rows`` and ``candidates`` describe the fit with which the run continues. ``diagnostics``
    (``core.diagnostics``) are those of held-out rows, or of left-out rows of a last fit with one
    numeric target or with local residuals. ``overconfidence`` is the mean squared leave-one-out
    error divided by the variance that the evidence predicts. ``residuals`` are the
    ``ResidualsFitted.facts`` of a last fit.
    """

    kind: str
    number: int
    rows: int
    candidates: int
    vectors: int
    iterations: int
    termination: Termination
    log_evidence: float
    selection: str
    fit_rows: str = "full"
    noise_variance: float | None = None
    train_rmse: float | None = None
    level: int | None = None
    dropped: int = 0
    floored: bool = False
    held_out_rmse: float | None = None
    held_out_nlpd: float | None = None
    train_log_loss: float | None = None
    train_error: float | None = None
    held_out_log_loss: float | None = None
    held_out_error: float | None = None
    kernel: dict[str, Any] | None = None
    gain: float | None = None
    taken: bool | None = None
    choice: dict[str, Any] | None = None
    overconfidence: float | None = None
    overconfident: bool = False
    noise_sd: float | None = None
    noise_vectors: int | None = None
    residuals: dict[str, Any] | None = None
    diagnostics: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Save:
    """Request to save a history line, to which the driver adds the seconds, and the model if
    ``model`` is true."""

    design: Design
    fit: Fit
    record: Record
    moderate: bool = False
    residuals: LocalResiduals | None = None
    model: bool = True


Instruction: TypeAlias = Pass | DenseFit | PassFit | Gather | LearnKernel | FitResiduals | Save
T = TypeVar("T")
Steps: TypeAlias = Generator[tuple[Instruction, ...], tuple[Any, ...], T]
"""A part of a step: yields instructions, is sent their answers, and returns a result."""


class Stopped(Exception):
    """The run must end now, with the last saved model."""

    def __init__(self, reason: Termination) -> None:
        super().__init__(reason.value)
        self.reason = reason
