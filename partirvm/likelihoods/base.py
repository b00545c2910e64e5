"""The interface of a likelihood, and the two kinds of fit that a driver performs.

A likelihood is the model of a target given the linear predictors f = Φw. Every likelihood is a small immutable object,
registered by name in ``likelihoods.LIKELIHOODS``. Its methods start fits, request statistics of new columns, continue
fits, score them and describe them in the history. Strategies read only the attributes of ``Fit``.

There are two kinds of fit. A ``DenseFit`` holds all its statistics and runs to its end without reading rows. A
``PassFit`` needs a pass over the rows for each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.priors import Prior
from partirvm.core.stopping import StopRule
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import Pass, Rows
from partirvm.model import AnyModel
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]
OnStep = Callable[[StepInfo], None]


class Fit(Protocol):
    """A fit of M columns, which have these labels (M,), to ``n`` rows; ``log_evidence`` is in nats."""

    @property
    def n(self) -> int: ...
    @property
    def labels(self) -> Int: ...
    @property
    def n_columns(self) -> int: ...
    @property
    def n_vectors(self) -> int: ...
    @property
    def log_evidence(self) -> float: ...
    def losses(self) -> Float:
        """Return, for each column, the decrease of the evidence if this column is deleted (M,), nats."""
        ...

    def again(self) -> Self:
        """Return the fit with its count of iterations reset to zero."""
        ...


class FitStart(Protocol):
    """Initial values of a fit."""

    def merge(self, other: Any, labels: Int) -> Any:
        """Return a start for the joined columns of two fits, restricted to the columns ``labels``."""
        ...


class FitProblem(Protocol):
    """The attributes of ``strategies.problem.Problem`` that likelihoods use."""

    @property
    def n_rows(self) -> int: ...
    @property
    def empty(self) -> Design: ...
    @property
    def target_variance(self) -> float: ...
    @property
    def target_variances(self) -> Float | None: ...
    @property
    def left_out_square(self) -> float: ...
    @property
    def noise_variance(self) -> float | Float | None: ...
    @property
    def prior(self) -> Prior: ...
    @property
    def n_targets(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def shuffled(self) -> bool: ...


class FitOptions(Protocol):
    """The attributes of ``strategies.problem.Options`` that likelihoods use."""

    @property
    def solver(self) -> str: ...
    @property
    def max_passes(self) -> int: ...
    @property
    def moderate(self) -> bool: ...


class DenseFit(ABC):
    """A fit that holds all its statistics. ``candidates`` is for progress reports only."""

    candidates: int

    @abstractmethod
    def run(self, on_step: OnStep) -> tuple[Any, Termination]:
        """Run the fit; return its final state and the reason of the end.

        ``on_step`` is called after each step, and may raise an exception to stop the fit.
        """


class RunningFit(Protocol):
    """A running fit that needs a pass for each step. The fit has ended if ``reason`` is not None."""

    @property
    def reason(self) -> Termination | None: ...
    @property
    def next_pass(self) -> Pass:
        """The next pass."""
        ...

    @property
    def fit(self) -> Any:
        """The current state of the fit; available after the first pass."""
        ...

    @property
    def info(self) -> StepInfo:
        """Information about the last step, for reports only."""
        ...

    def advance(self, block: Any, poll: Callable[[], None] = ...) -> RunningFit:
        """Continue with the statistic of the pass.

        ``poll`` is called between dense iterations, and may raise an exception to stop the fit.
        """
        ...


class PassFit(ABC):
    """A fit that needs a pass for each step. ``candidates`` is for progress reports only."""

    candidates: int

    @abstractmethod
    def begun(self) -> RunningFit:
        """Return the running fit before its first pass."""


F = TypeVar("F", bound=Fit)
W = TypeVar("W")


@dataclass(frozen=True)
class Begin:
    """Start and end of a fit over ``rows`` (increasing; None for all rows); ``rule`` ends the fit.

    ``warm`` is the start of a fit over other rows than before; None means the current fit. If ``hold`` is true, α stays
    fixed. ``pool`` holds candidates for a solver that computes their statistics on demand.
    """

    rule: StopRule
    candidates: int
    rows: Int | None = None
    warm: Any = None
    hold: bool = False
    pool: Any = None


class Likelihood(Protocol[F, W]):
    """The model of a target given the linear predictors.

    F is the type of fits. W is the type of warm starts: initial values of fits over other rows. Methods that return
    passes may return an empty tuple. The method that processes their statistics is then called without statistics.
    """

    name: ClassVar[str]
    classifies: ClassVar[bool] = False
    """True for classification."""
    words: ClassVar[tuple[str, ...]]
    """Option values that select this likelihood: of ``multi_class`` in classification, else of ``noise_variance``."""
    draws_pools: ClassVar[bool] = False
    """True if ``errors`` draws the pools of candidates for ``gains``; otherwise pools are random rows."""
    early_rows: ClassVar[int] = 4000
    """Maximum number of rows of the small fit when the time limit ends a run (``strategies.in_order``)."""
    relearns: ClassVar[bool] = False
    """True if a learned kernel is learned again as the number of vectors grows (``strategies.rounds``)."""

    @property
    def measured_by(self) -> Likelihood[Any, Any]:
        """The likelihood of the small fits that learn a kernel and estimate ρ for the partition size."""
        return self

    def serves(self, n_classes: int, word: float | str) -> bool:
        """Return whether an option value selects this likelihood for ``n_classes`` classes (0 for regression)."""
        return self.classifies == (n_classes > 0) and word in self.words

    @abstractmethod
    def n_outputs(self, n_classes: int) -> int:
        """Return C, the number of linear predictors for ``n_classes`` classes (0 for regression)."""

    @abstractmethod
    def model(self, design: Design, fit: F, columns: Columns, moderate: bool) -> AnyModel:
        """Return the model for prediction; ``moderate`` selects moderated class probabilities."""

    @abstractmethod
    def step_flops(self, problem: FitProblem, rows: int, columns: int) -> float:
        """Return the number of multiplications and additions of one step of a fit."""

    # initial values of fits

    @abstractmethod
    def start(self, problem: FitProblem) -> F:
        """Return the fit without columns."""

    @abstractmethod
    def warm(self, fit: F) -> W:
        """Return the current α and β, or weights, as a start for a fit over other rows or of more columns."""

    def measure(self, fit: F, kept: Design, new: Design, rows: Rows | None) -> tuple[Pass, ...]:
        """Return the passes over ``rows`` that extend the statistics of the columns ``kept`` by the columns ``new``."""
        return ()

    def join(self, fit: F, kept: Design, new: Design, *statistics: Any) -> F:
        """Return the fit extended by the columns of ``new``, from the statistics of ``measure`` over the same rows."""
        return fit

    def restart(self, problem: FitProblem, options: FitOptions, fit: F, warm: W, design: Design, *statistics: Any) -> F:
        """Return a fit of the columns of ``design`` over other rows than ``fit``, started at ``warm``.

        The statistics are the results of ``measure`` without kept columns.
        """
        return fit

    def first_design(self, problem: FitProblem, options: FitOptions, new: Design, rows: Int | None) -> tuple[Pass, ...]:
        """Return a pass that replaces the Gram pass when all rows are candidates of a first fit, or no pass."""
        return ()

    def from_design(
        self, problem: FitProblem, options: FitOptions, fit: F, design: Design, *statistics: Any
    ) -> tuple[F, Any]:
        """Return the first fit from the statistics of ``first_design``, and the pool of candidates or None."""
        return fit, None

    # continuation of fits

    @abstractmethod
    def fit(self, problem: FitProblem, options: FitOptions, design: Design, fit: F, begin: Begin) -> DenseFit | PassFit:
        """Return the instruction to fit the columns of ``design``, started at ``fit``."""

    def settling(
        self, problem: FitProblem, design: Design, fit: F, rows: Int | None, *, whole: bool, last: bool
    ) -> tuple[Pass, ...]:
        """Return the passes over ``rows`` that compute the residual of a fit.

        With ``last`` the residual gives the final noise variance. Otherwise the residual replaces statistics that lost
        digits by cancellation, and the fit continues. ``whole`` is true if the fit uses all rows.
        """
        return ()

    def settle(self, fit: F, *statistics: Any, last: bool) -> F:
        """Return the fit, updated with the statistics of ``settling``."""
        return fit

    def grow(self, problem: FitProblem, design: Design, fit: F, rows: Rows) -> tuple[Pass, ...]:
        """Return the passes over the appended ``rows`` that extend the statistics of a fit to all rows.

        The result is an empty tuple if the statistics cannot be extended, so that a fit over all rows is necessary.
        """
        return ()

    def grown(self, problem: FitProblem, design: Design, fit: F, *statistics: Any) -> F:
        """Return the fit, extended by the statistics of ``grow``."""
        return fit

    # choice of candidates

    @abstractmethod
    def errors(
        self,
        design: Design,
        fit: F,
        count: int,
        used: Int,
        rows: Int | None,
        *,
        draw: tuple[int, int] | None = None,
        floor: float = 0.0,
    ) -> Pass:
        """Return the pass that finds the ``count`` rows of largest error among ``rows``, without rows in ``used``.

        With a ``draw`` (a seed), rows are drawn with probabilities proportional to error + ``floor``. Only likelihoods
        with ``draws_pools`` support a ``draw``.
        """

    @abstractmethod
    def gain_pass(self, design: Design, fit: F, pool: Design, rows: Int | None) -> Pass:
        """Return the pass that ``gains`` needs."""

    @abstractmethod
    def gains(self, fit: F, statistic: Any) -> Float:
        """Return the evidence gain (Q,) of adding each column of a pool alone, in nats (Tipping & Faul 2003)."""

    # scores and history

    @abstractmethod
    def score(self, design: Design, fit: F, moderate: bool) -> Pass:
        """Return the pass over held-out rows that scores a fit in the target's units; its statistic has a ``loss``."""

    @abstractmethod
    def record(self, problem: FitProblem, fit: F, scores: Any) -> dict[str, Any]:
        """Return fields of a line of history (``strategies.instructions.Record``): sizes, evidence, noise, errors."""

    def left_out_diagnostics(self, problem: FitProblem, fit: F) -> Sequence[NumberDiagnostics]:
        """Return the diagnostics of rows left out of a last fit, in the target's units; by default there are none."""
        return ()
