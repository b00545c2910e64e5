"""The interface of a likelihood, and the two kinds of fit that a driver performs.

A likelihood is the model of a target given the linear predictors f = Φw. It is a small frozen value, found by name in
``likelihoods.LIKELIHOODS``, and offers what every strategy needs: where a fit starts, what new columns have to be
measured by, how a fit goes on, how it is scored and recorded. Of a fit, strategies read what ``Fit`` has, and no more.

A fit is performed in one of two ways. A ``DenseFit`` has all its statistics and runs to its end in one place. A
``PassFit`` needs a pass over the rows for each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.priors import Prior
from partirvm.core.residuals import LargestErrors
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo, StopRule
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import Pass
from partirvm.model import AnyModel
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]
OnStep = Callable[[StepInfo], None]


class Fit(Protocol):
    """A fit of M columns with these labels (M,) to ``n`` rows; ``log_evidence`` in nats."""

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
        """Evidence that each column's deletion would cost (M,), nats."""
        ...


class FitProblem(Protocol):
    """The part of a problem that likelihoods use (``strategies.problem.Problem``)."""

    @property
    def n_rows(self) -> int: ...
    @property
    def empty(self) -> Design: ...
    @property
    def target_variance(self) -> float: ...
    @property
    def target_variances(self) -> Float | None: ...
    @property
    def noise_variance(self) -> float | Float | None: ...
    @property
    def prior(self) -> Prior: ...
    @property
    def n_targets(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...


class FitOptions(Protocol):
    """The part of the options that likelihoods use (``strategies.problem.Options``)."""

    @property
    def solver(self) -> str: ...
    @property
    def max_passes(self) -> int: ...
    @property
    def noise_rows(self) -> int | None: ...
    @property
    def noise_every(self) -> int: ...
    @property
    def moderate(self) -> bool: ...


class DenseFit(ABC):
    """A fit whose statistics are all there. ``candidates`` is for the watcher."""

    candidates: int

    @abstractmethod
    def run(self, on_step: OnStep) -> tuple[Any, Termination]:
        """Where the fit ends, and why. ``on_step`` is called after each step, and may raise to stop."""


class Course(Protocol):
    """A fit under way that needs a pass for each step; over once there is a ``reason``."""

    @property
    def reason(self) -> Termination | None: ...
    @property
    def wanted(self) -> Pass:
        """The pass that comes next."""
        ...

    @property
    def fit(self) -> Any:
        """The fit where it stands, after the first pass."""
        ...

    @property
    def info(self) -> StepInfo:
        """What the last step did; feeds reports only."""
        ...

    def heard(self, block: Any, look: Callable[[], None] = ...) -> Course:
        """Go on with the statistic of the pass. ``look`` is called between dense iterations, and may raise."""
        ...


class PassFit(ABC):
    """A fit that needs a pass for each step. ``candidates`` is for the watcher."""

    candidates: int

    @abstractmethod
    def begun(self) -> Course:
        """The fit before its first pass."""


F = TypeVar("F", bound=Fit)
W = TypeVar("W")


@dataclass(frozen=True)
class Begin:
    """How a fit is to begin and end: ``rule`` ends it, ``rows`` are those it sees (increasing), None for all.

    ``warm`` is where a fit over other rows begins, None to go on from the fit at hand. With ``hold`` α stays as it is.
    ``pool`` holds candidates for a solver that forms their statistics on demand.
    """

    rule: StopRule
    candidates: int
    rows: Int | None = None
    warm: Any = None
    hold: bool = False
    pool: Any = None


class Likelihood(Protocol[F, W]):
    """The model of a target given linear predictors; its fits are F, the starts of fits over other rows W.

    Verbs that return passes may return none; the verb that takes their statistics is then called without any.
    """

    name: ClassVar[str]
    of_classes: ClassVar[bool] = False
    """True for a classification."""
    words: ClassVar[tuple[str, ...]]
    """By what it is asked for: values of ``multi_class`` for classes, of ``noise_variance`` for a number."""
    has_noise: ClassVar[bool] = False
    """Whether fits have a noise variance, which may be measured over other rows than the posterior's."""
    draws_pools: ClassVar[bool] = False
    """Whether pools of candidates for ``gains`` are drawn by ``errors``; else they are random rows."""
    early_rows: ClassVar[int] = 4000
    """Rows that the small fit of a run out of time sees, at most (``strategies.early``)."""
    relearns: ClassVar[bool] = False
    """Whether a learned kernel is learned again as the vectors grow (``strategies.relearning``)."""

    @property
    def measured_by(self) -> Likelihood[Any, Any]:
        """The likelihood of the small fits by which a kernel is learned and the partition size is measured."""
        return self

    def serves(self, n_classes: int, word: float | str) -> bool:
        """Whether it is the one of a target of so many classes (0 for a number) that a word or number asks for."""
        return self.of_classes == (n_classes > 0) and word in self.words

    @abstractmethod
    def n_outputs(self, n_classes: int) -> int:
        """C, the number of linear predictors, for so many classes (0 for a target that is a number)."""

    @abstractmethod
    def model(self, design: Design, fit: F, columns: Columns, moderate: bool) -> AnyModel:
        """What a fit leaves for prediction; ``moderate`` is for probabilities of classes."""

    @abstractmethod
    def step_flops(self, problem: FitProblem, rows: int, columns: int) -> float:
        """Multiplications and additions of one step of a fit."""

    # where a fit begins

    @abstractmethod
    def start(self, problem: FitProblem) -> F:
        """The fit of no columns."""

    @abstractmethod
    def warm(self, fit: F) -> W:
        """Where a fit over other rows, or of more columns, begins: as this fit stands."""

    @abstractmethod
    def merge(self, left: W, right: W, labels: Int) -> W:
        """Where a fit of the columns of two others together begins, as far as they are among ``labels``."""

    def measure(self, fit: F, kept: Design, new: Design, rows: Int | None) -> tuple[Pass, ...]:
        """The passes over ``rows`` for statistics of the columns of ``new`` beside those of the fit, ``kept``."""
        return ()

    def join(self, fit: F, kept: Design, new: Design, *statistics: Any) -> F:
        """The fit with the columns of ``new``, by the statistics of ``measure``, over the rows that it has seen."""
        return fit

    def restart(self, problem: FitProblem, options: FitOptions, fit: F, warm: W, design: Design, *statistics: Any) -> F:
        """A fit of the columns of ``design`` over other rows than ``fit``, from ``warm`` on.

        The statistics are those of ``measure`` for no kept columns; for a likelihood with noise of its own rows
        there are those over the latter, too.
        """
        return fit

    def first_design(self, problem: FitProblem, options: FitOptions, new: Design, rows: Int | None) -> tuple[Pass, ...]:
        """The pass by which a first fit of all candidates does without the products of all pairs, if there is one."""
        return ()

    def from_design(
        self, problem: FitProblem, options: FitOptions, fit: F, design: Design, *statistics: Any
    ) -> tuple[F, Any]:
        """The first fit by the statistics of ``first_design``, and the pool of its candidates, if it needs one."""
        return fit, None

    # how it goes on

    @abstractmethod
    def fit(self, problem: FitProblem, options: FitOptions, design: Design, fit: F, begin: Begin) -> DenseFit | PassFit:
        """The instruction to fit the columns of ``design``, from where ``fit`` stands."""

    def again(self, fit: F) -> F:
        """The fit with its iterations counted from zero."""
        return fit

    def settling(
        self, problem: FitProblem, design: Design, fit: F, rows: Int | None, *, whole: bool, last: bool
    ) -> tuple[Pass, ...]:
        """The passes over ``rows`` that measure a fit anew: for the ``last`` word on it, or to go on with full digits.

        ``whole`` says that the fit's statistics are of all rows.
        """
        return ()

    def settle(self, fit: F, *statistics: Any, last: bool) -> F:
        """The fit by the statistics of ``settling``."""
        return fit

    def grow(self, problem: FitProblem, design: Design, fit: F, rows: Int) -> tuple[Pass, ...]:
        """The passes over ``rows`` alone, that came later, by which a fit of all rows before is one of all now.

        An empty tuple where that takes a fit over all rows.
        """
        return ()

    def grown(self, problem: FitProblem, design: Design, fit: F, *statistics: Any) -> F:
        """The fit by the statistics of ``grow``."""
        return fit

    # which rows become candidates

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
        """The pass for the ``count`` rows of largest error outside ``used``, among ``rows``.

        With a ``draw`` (a seed), rows are drawn at random by error + ``floor``, where ``draws_pools``.
        """

    @abstractmethod
    def largest(self, statistic: Any) -> LargestErrors:
        """The rows that ``errors`` found."""

    @abstractmethod
    def gain_pass(self, design: Design, fit: F, pool: Design, rows: Int | None) -> Pass:
        """The pass for ``gains``."""

    @abstractmethod
    def gains(self, fit: F, statistic: Any) -> Float:
        """Evidence that each column of a pool would bring by itself (Q,), nats (Tipping & Faul 2003)."""

    @abstractmethod
    def size_pass(self, design: Design, fit: F, pool: Design, rows: Int | None) -> Pass:
        """The pass for ``sizes``."""

    @abstractmethod
    def sizes(self, fit: F, pool: Design, statistic: Any, alpha: float) -> Float:
        """The largest |w| of each column of a pool (Q,), of this α each, in the MAP solution with the fit's columns."""

    # scores and history

    @abstractmethod
    def score(self, design: Design, fit: F, moderate: bool) -> Pass:
        """The pass over held-out rows that scores a fit, in the target's own units; it has a ``loss``."""

    @abstractmethod
    def record(self, problem: FitProblem, fit: F, scores: Any) -> dict[str, Any]:
        """Fields of a line of history (``strategies.instructions.Record``): sizes, evidence, noise, errors."""

    # checkpoints: names, arrays and scalars, with which the same bits are made again

    @abstractmethod
    def pack(self, fit: F) -> dict[str, Any]:
        """A fit, without what the problem and its design say."""

    @abstractmethod
    def unpack(self, problem: FitProblem, design: Design, packed: dict[str, Any]) -> F:
        """The fit of the columns of ``design`` of which ``pack`` made this.

        ``KeyError``, ``TypeError`` or ``ValueError`` for names or values that cannot be those of such a fit.
        """

    @abstractmethod
    def pack_warm(self, warm: W) -> dict[str, Any]:
        """Where a fit over other rows begins."""

    @abstractmethod
    def unpack_warm(self, problem: FitProblem, packed: dict[str, Any]) -> W:
        """The beginning of which ``pack_warm`` made this. Raises as ``unpack`` does."""

    def pack_scores(self, scores: Any) -> dict[str, Any] | None:
        """Scores of held-out rows (None if there are none), or None where a checkpoint does not keep them."""
        return None

    def unpack_scores(self, packed: dict[str, Any] | None) -> Any:
        """The scores of which ``pack_scores`` made this."""
        return None
