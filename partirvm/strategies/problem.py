"""The data of a strategy about a fit: the problem and the resolved options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.core.priors import FLAT, Prior
from partirvm.kernels.bases import label_of
from partirvm.kernels.design import Design
from partirvm.likelihoods import GAUSSIAN, AnyLikelihood
from partirvm.strategies.selection import Codes
from partirvm.types import BIAS

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class AppendedBatch:
    """Rows added by one append: those before row ``stop`` that are in no earlier batch.

    Strategies that take rows in order divide it into ``partitions``; ``shuffled`` is true if neighbouring rows are a
    random sample of the batch.
    """

    stop: int
    partitions: int
    shuffled: bool


@dataclass(frozen=True)
class Problem:
    """The constants of a fit that a strategy uses.

    ``empty`` is the design without columns (kernel, functions, scaling); ``bias`` says whether the bias is offered;
    ``target_variance`` is the target's mean square about its mean as the model sees it, 0 for a constant target;
    ``noise_variance`` is σ² as the model sees it, or None to estimate; ``target_scale`` maps the model's target unit to
    the user's; ``shuffled`` says that neighbouring rows are a random sample. For several targets, which share vectors
    and α, ``target_variances`` (T,) has one per target and ``target_variance`` is their mean, ``target_scale`` is the
    root of the mean of squares, and ``noise_variance`` is (T,). For a class target, ``codes`` (N,) are those of all
    rows, one or two bytes each, and ``n_classes`` is K, otherwise 0. ``prior`` has the priors of α and β in the model's
    units, the update rule and the fixed α. If rows were appended (``strategies.growing``), ``batches`` are the original
    rows and each append, in order; otherwise it is empty.
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

    @property
    def n_targets(self) -> int:
        """T, the number of numeric targets."""
        return 1 if self.target_variances is None else len(self.target_variances)

    @property
    def classifies(self) -> bool:
        """True for a classification."""
        return self.n_classes > 0

    @property
    def n_outputs(self) -> int:
        """C, the number of linear predictors."""
        return self.likelihood.n_outputs(self.n_classes)

    @property
    def leading(self) -> Int:
        """Labels of the leading columns, which every fit has: the bias, then explicit basis functions."""
        functions = self.empty.functions
        numbers = np.arange(0 if functions is None else functions.size)
        return np.concatenate([np.full(int(self.bias), BIAS, dtype=np.int64), label_of(numbers)])

    @property
    def n_kernels(self) -> int:
        """K, the basis functions that each row offers; 0 without a kernel."""
        return len(self.empty.kernels)

    def rows_of(self, candidates: int) -> int:
        """The number of rows that offer this number of candidates; at least one.

        Rows join with all that they offer, so that P // K of them make a partition.
        """
        return max(candidates // self.n_kernels, 1)


STOP_RULES: dict[str, Callable[[int, int], int]] = {
    "candidates": lambda candidates, partition_size: candidates,
    "partition": lambda candidates, partition_size: partition_size,
}
"""What ``stop_fraction`` is a fraction of, by name: of the candidates that a fit began with, and of P."""


@dataclass(frozen=True)
class Options:
    """The user's choices, all resolved.

    ``likelihood`` says which rows the posterior of an intermediate fit sees, ``last_rows`` that of the last:
    ``"full"`` all, ``"sample"`` one random sample of ``sample_rows``, ``"partition"`` those of its candidates, with
    σ² from ``noise_rows`` rows (all, if None) every ``noise_every`` iterations. ``stop_rule`` says what
    ``stop_fraction`` is a fraction of: a fit's ``"candidates"``, or P (``"partition"``). ``max_columns`` is what memory
    allows (P candidates included), ``batch`` what it allows fits side by side: the sum of their squared columns;
    ``tol`` is the convergence tolerance in nats per row. ``max_passes`` ends a classification fit as ``max_iterations``
    does others; its model gives ``moderate`` probabilities. ``centres`` are those that the kernel was learned from, 0
    where it is to stay, under ``gamma_prior``; with up to ``learning_columns`` memory has room to learn it again.
    ``solver`` says how dense fits are solved (``core.solvers``); that of the partition size is always the fixed point.
    """

    partition_size: int
    selection: str
    fit_rows: str = "full"
    last_rows: str = "full"
    sample_rows: int = 0
    noise_rows: int | None = None
    noise_every: int = 1
    stop_fraction: float = 0.5
    stop_rule: str = "candidates"
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
