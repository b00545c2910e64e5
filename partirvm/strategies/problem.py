"""Input of a strategy: the problem and the resolved options."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.priors import FLAT, Prior
from partirvm.kernels import Kernel
from partirvm.kernels.bases import label_of
from partirvm.kernels.design import Design
from partirvm.likelihoods import GAUSSIAN, AnyLikelihood
from partirvm.strategies.selection import Codes
from partirvm.types import BIAS

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class AppendedBatch:
    """Rows added by one append: the rows from the end of the previous batch up to, but without, row ``stop``.

    Strategies that use rows in order divide the batch into ``partitions`` partitions. ``shuffled`` is true if
    neighbouring rows are a random sample of the batch.
    """

    stop: int
    partitions: int
    shuffled: bool


@dataclass(frozen=True)
class Problem:
    """Constants of a fit that a strategy uses.

    ``empty`` is the design without columns (kernel, functions, scaling). ``bias`` is true if the model has a bias.
    ``target_variance`` is the variance of the scaled target, 0 for a constant target. ``noise_variance`` is σ² of the
    scaled target, or None if σ² is to be estimated. ``target_scale`` is the factor from the scaled target to the user's
    unit. ``shuffled`` is true if neighbouring rows are a random sample.

    Several targets share vectors and α. ``target_variances`` (T,) and ``noise_variance`` (T,) then have one element per
    target, ``target_variance`` is the mean variance, and ``target_scale`` is the root mean square of the scales. In
    classification, ``codes`` (N,) are the class codes of all rows (one or two bytes each), and ``n_classes`` is the
    number of classes; in regression ``n_classes`` is 0.

    ``prior`` has the priors of α and β in the units of the scaled target, the update rule and the fixed α. If rows were
    appended (``strategies.rounds``), ``batches`` are the original rows and each append, in order; otherwise
    ``batches`` is empty.

    ``left_out_square`` is the mean squared error, in scaled targets, of rows left out while the kernel was learned from
    few rows; 0 if unknown. Errors of rows left out of a fit alone are smaller, since its kernel has seen these rows.
    """

    n_rows: int
    empty: Design
    bias: bool
    target_variance: float
    noise_variance: float | Float | None
    target_scale: float
    shuffled: bool
    held_out: bool
    likelihood: AnyLikelihood = GAUSSIAN
    n_classes: int = 0
    codes: Codes | None = None
    prior: Prior = FLAT
    target_variances: Float | None = None
    batches: tuple[AppendedBatch, ...] = ()
    left_out_square: float = 0.0

    def with_kernel(self, kernel: Kernel) -> Problem:
        """Return the problem with another kernel."""
        return replace(self, empty=replace(self.empty, kernel=kernel))

    @property
    def n_targets(self) -> int:
        """T, the number of targets of a regression."""
        return 1 if self.target_variances is None else len(self.target_variances)

    @property
    def classifies(self) -> bool:
        """True for a classification."""
        return self.n_classes > 0

    @property
    def n_outputs(self) -> int:
        """C, the number of linear predictors."""
        return self.n_classes if self.n_classes and not self.likelihood.binary else 1

    @property
    def leading(self) -> Int:
        """Labels of the leading columns of every fit: the bias, then the explicit basis functions."""
        functions = self.empty.functions
        numbers = np.arange(0 if functions is None else functions.size)
        return np.concatenate([np.full(int(self.bias), BIAS, dtype=np.int64), label_of(numbers)])

    def missing_leading(self, design: Design) -> Int:
        """Return the labels of the leading columns that a design lacks."""
        return np.setdiff1d(self.leading, design.leading)

    @property
    def n_kernels(self) -> int:
        """K, the number of kernel columns that each row offers as candidates; 0 without a kernel."""
        return len(self.empty.kernels)

    def rows_of(self, candidates: int) -> int:
        """Return the number of rows that offer this number of candidates; at least one.

        A row joins with all its K candidates, so that a partition of size P has P // K rows.
        """
        return max(candidates // self.n_kernels, 1)


@dataclass(frozen=True)
class Options:
    """Resolved options of a fit.

    ``fit_rows`` determines the rows that the posterior of an intermediate fit uses, and ``last_rows`` the rows of the
    last fit (all rows but in ``strategies.in_order``): ``"full"`` means all rows, ``"sample"`` one random sample of
    ``sample_rows`` rows, ``"growing"`` a sample that grows. ``stop_fraction`` is a fraction of the fit's candidates.

    ``max_columns`` is the number of columns, including the candidates, for which there is memory. ``batch`` is the
    limit for fits that run side by side: the sum of their squared numbers of columns. ``tol`` is the convergence
    tolerance in nats per row. Regression ends after ``max_iterations`` iterations, classification after ``max_passes``
    passes. ``moderate`` selects moderated class probabilities.

    ``centres`` is the number of centres from which the kernel was learned, or 0 if the kernel must stay unchanged;
    ``gamma_prior`` is the prior of this learning. With at most ``learning_columns`` columns there is enough memory to
    learn the kernel again. ``solver`` is the solver of dense fits (``core.solvers``); the
    fit that measures the partition size always uses the fixed point. ``noise`` determines whether the noise variance of
    the last fit may depend on the inputs (``strategies.stages``). ``effort`` determines when the rounds of the working
    set end (``strategies.working_set``).
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
    gamma_prior: str = "flat"
    learning_columns: int = 0
    solver: str = "fixed-point"
    noise: str = "constant"
    effort: str = "thorough"
