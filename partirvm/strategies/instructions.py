"""What a strategy says and what it hears: instructions out, events in.

A strategy is a pure state machine, ``start(problem, options) -> (state, instructions)`` and ``next(state, *events) ->
(state, instructions)``. It never touches data, clock, disk or cluster. The driver performs the instructions, those of
one answer side by side where it can, and answers with one event for each, in their order: a pass with its ``Passed``
statistic, ``Solve`` and ``Newton`` with ``Solved``, ``Gather`` with ``Gathered``, ``Save`` and ``Log`` with ``Saved``;
``Finish`` ends the run. A single ``Stop`` may come in place of all answers, when time is up or a person aborts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState
from partirvm.core.logistic import n_outputs
from partirvm.core.on_demand import Pool
from partirvm.core.priors import FLAT, Prior
from partirvm.core.termination import Termination
from partirvm.core.updates import HOPE, HyperState, StopRule
from partirvm.kernels.bases import label_of
from partirvm.kernels.design import Design
from partirvm.types import BIAS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

AnyFit: TypeAlias = HyperState | LaplaceState
"""A dense fit: of a target that is a number, or of classes."""


@dataclass(frozen=True)
class GramPass:
    """What the columns of ``new`` add to those of ``kept``; answered by a ``core.statistics.GramBlock``.

    Over all rows, or over those of ``rows`` (row numbers, increasing). ``offset`` (M_kept, T) is that of the statistics
    to be extended. With ``diagonal`` the (P, P) block is left out but for its diagonal: a ``CrossBlock``.
    """

    kept: Design
    new: Design
    offset: Float
    diagonal: bool = False
    rows: Int | None = None


@dataclass(frozen=True)
class DesignPass:
    """Rows of the design itself, and of the target; answered by ``core.on_demand.DesignRows``.

    Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    rows: Int | None = None


@dataclass(frozen=True)
class ResidualPass:
    """Residuals of the mean μ (M, T); answered by a ``core.residuals.ResidualStatistics``.

    ``select`` rows of largest error are reported, none of those in ``exclude`` (sorted row numbers) among them. Over
    all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    select: int = 0
    exclude: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: Int | None = None


@dataclass(frozen=True)
class LeaveOneOutPass:
    """Errors of rows left out of a fit with mean μ (M,), root (M, M) and β; answered by a ``core.left_out.LeftOut``.

    Over all rows.
    """

    design: Design
    mean: Float
    root: Float
    beta: float


@dataclass(frozen=True)
class ScorePass:
    """Over the held-out rows: ``core.residuals.Scores`` of a fit, in the target's own units.

    ``mean`` (M,), ``root`` (M, M) and ``noise_variance``; of T targets (M, T), (T, M, M) and (T,).
    """

    design: Design
    mean: Float
    root: Float
    noise_variance: float | Float


@dataclass(frozen=True)
class TargetScorePass(ScorePass):
    """The same of each target by itself: answered by ``core.residuals.TargetScores``."""


@dataclass(frozen=True)
class LogisticPass:
    """Log likelihood, gradient and curvature at weights ``mean`` (M, C); answered by a ``core.logistic.LogisticBlock``.

    Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    likelihood: str
    rows: Int | None = None


@dataclass(frozen=True)
class SurprisePass:
    """Rows whose class the model holds for least probable; answered by a ``core.residuals.LargestErrors``.

    ``select`` rows of largest 1 − p_t are reported, none of those in ``exclude`` (sorted row numbers) among them. With
    a ``draw`` (two whole numbers, a seed) they are drawn at random instead, a row's chance in proportion to
    1 − p_t + ``floor``. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    likelihood: str
    select: int
    exclude: Int
    draw: tuple[int, int] | None = None
    floor: float = 0.0
    rows: Int | None = None


@dataclass(frozen=True)
class GainPass:
    """What s and q of the columns of ``pool`` need beside those of ``design`` at weights ``mean`` (M, C).

    Answered by a ``core.logistic.LogisticCross``. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    likelihood: str
    pool: Design
    rows: Int | None = None


@dataclass(frozen=True)
class LogisticScorePass:
    """Over all rows: ``core.scores.ClassScores`` of a classification with this mean (M, C), and roots (C, M, M) of Σ.

    With ``moderate`` the linear predictors are moderated by their variances first. ``codes`` (K',) are the codes that
    the fit has for the codes 0 … K'−1 of the data; None where they are the same.
    """

    design: Design
    mean: Float
    roots: Float
    likelihood: str
    moderate: bool
    codes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class BendPass:
    """Φᵀc (M, C), an array: how log|H| changes with the weights ``mean`` (M, C) of classes (``core.tied_laplace``).

    ``covariance`` (C, M, M) is Σ. Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    covariance: Float
    likelihood: str
    rows: Int | None = None


@dataclass(frozen=True)
class SlopePass:
    """Slopes of the evidence in the kernel's log parameters, an array (p,): Σ D ∘ ∂Φ/∂ log parameter.

    D is that of ``core.tied`` at μ (M, T), Σ (T, M, M) and β, or where ``likelihood`` is one of classes that of
    ``core.tied_laplace`` with ``shift`` (M, C). Over all rows, or over those of ``rows`` (row numbers, increasing).
    """

    design: Design
    mean: Float
    covariance: Float
    beta: float | Float = 1.0
    likelihood: str = "gaussian"
    shift: Float | None = None
    rows: Int | None = None


@dataclass(frozen=True)
class AugmentPass:
    """What extra columns have to do with all rows and a model of mean (M,); answered by ``core.augment.ExtraColumns``.

    ``extras`` are designs whose columns, G in all, follow each other. Each is evaluated and multiplied by itself, so
    that no column's bits depend on the designs beside its own.
    """

    design: Design
    mean: Float
    extras: tuple[Design, ...]


Pass: TypeAlias = (
    GramPass
    | DesignPass
    | ResidualPass
    | LeaveOneOutPass
    | ScorePass
    | LogisticPass
    | SurprisePass
    | GainPass
    | LogisticScorePass
    | BendPass
    | SlopePass
    | AugmentPass
)


@dataclass(frozen=True)
class Gather:
    """Inputs of the rows with these numbers."""

    rows: Int


@dataclass(frozen=True)
class Solve:
    """A dense fit: step from ``start`` until ``rule`` ends it. ``candidates`` is for the watcher.

    ``solver`` says how (``core.solvers``); the candidates of "fast" may be in a ``pool``.
    """

    start: HyperState
    rule: StopRule
    candidates: int
    solver: str = "fixed-point"
    pool: Pool | None = None


@dataclass(frozen=True)
class Start:
    """Where a classification fit begins: α and weights, (M, C), of the columns with these labels; others are new."""

    labels: Int
    alpha: Float
    weights: Float

    @classmethod
    def of(cls, fit: LaplaceState) -> Start:
        """Where this fit stands."""
        return cls(fit.labels, fit.alpha, fit.mean)

    def merge(self, other: Start, labels: Int) -> Start:
        """A beginning for the columns of two fits together, as far as they are among ``labels``.

        Both explain the same data, so each begins with half its weights, and with ``HOPE`` × α, as columns that enter
        do.
        """
        both, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        alpha = np.concatenate([self.alpha, other.alpha])[first]
        weights = np.concatenate([self.weights, other.weights])[first]
        there = np.isin(both, labels)
        return Start(both[there], HOPE * alpha[there], 0.5 * weights[there])


@dataclass(frozen=True)
class Newton:
    """A classification fit of the columns of ``design``: logistic passes and Newton steps until ``rule`` ends it.

    Over all rows, or over those of ``rows`` (row numbers, increasing). ``candidates`` is for the watcher. ``prior`` is
    that of each α; with the ``solver`` "fast" columns that are new wait to be added (``core.fast_laplace``). With
    ``hold`` α stays as it is, and only the mode is sought.
    """

    design: Design
    likelihood: str
    start: Start
    rule: StopRule
    candidates: int
    rows: Int | None = None
    prior: Prior = FLAT
    solver: str = "fixed-point"
    hold: bool = False


@dataclass(frozen=True)
class Save:
    """A usable model: these columns, this fit. ``record`` is one line of history; the driver adds seconds."""

    design: Design
    fit: AnyFit
    record: Record
    moderate: bool = False


@dataclass(frozen=True)
class Log:
    """One line of history of a fit that leaves no model of its own."""

    record: Record


@dataclass(frozen=True)
class Finish:
    """The run is over; the model is the one saved last."""

    reason: Termination


Instruction: TypeAlias = Pass | Gather | Solve | Newton | Save | Log | Finish


@dataclass(frozen=True)
class Record:
    """One fit in the history. Errors are in the target's own units; evidence is of the target in its own units.

    ``kind`` is ``"round"`` for an intermediate fit that leaves a model, ``"part"`` for one that leaves none
    (split-merge: on ``level`` 0 the partitions, above it merges), ``"heuristic"`` for that of the partition size,
    ``"kernel"`` for what was learned of the kernel and ``"final"`` for the last. ``rows`` is how many rows the
    posterior saw, by ``likelihood``; the log evidence is over these, the training error over those that σ² comes from.
    ``duplicates`` says how many chosen rows were left out so far because they equal another one, ``dropped`` how many
    vectors a limit has cost so far, ``floored`` whether the noise sits at its floor. ``termination`` is the dense
    fit's. A fit of classes has no noise; its errors are the mean negative log probability of a row's class (nats) and
    the fraction of rows in the wrong class, over the posterior's rows, and its iterations are logistic passes. Of a
    kernel that was learned, ``kernel`` is the spec, the iterations are evaluations of the evidence and its slopes, and
    the evidence is by ``gain`` nats above that of the kernel that it began with, over the same rows and centres, tied
    (``core.tied``). Of one that was learned again at a fit's vectors, ``rows`` and ``candidates`` are what it was
    learned from, ``gain`` is what it brings over all rows, and ``taken`` says whether it was: the rest is of the fit
    that stands, whose kernel it is or is not. ``choice`` is what ``gamma="auto"`` decided (``strategies.choosing``):
    the ``form``, ``rows`` that were held out, or all there are where these are many, and the held-out RMSE or log loss
    of ``one`` width and of ``each`` feature its own. Of several targets the evidence is that of all together, the noise
    variance and the negative log density are means over targets, errors the root of the mean of squares.
    ``overconfidence`` is the mean squared error of rows left out in units of the variance that the fit states
    (``core.left_out``); of an ``overconfident`` one the ``noise_variance`` is what these errors tell, instead of that
    of most evidence.
    """

    kind: str
    number: int
    rows: int
    candidates: int
    vectors: int
    iterations: int
    termination: Termination
    log_evidence: float
    noise_variance: float | None
    train_rmse: float | None
    selection: str
    likelihood: str = "full"
    level: int | None = None
    duplicates: int = 0
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


@dataclass(frozen=True)
class Passed:
    """Answer to a pass: its statistic."""

    statistic: Any


@dataclass(frozen=True)
class Gathered:
    """Answer to ``Gather``: inputs (k, d) of the rows asked for, in that order.

    ``present`` (k,) says which of them have a weight above zero, None that all have: the others are no candidates.
    """

    points: Float
    present: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Solved:
    """Answer to ``Solve`` and ``Newton``: where the fit ended, and why."""

    fit: AnyFit
    reason: Termination


@dataclass(frozen=True)
class Saved:
    """Answer to ``Save`` and ``Log``: it is safe."""


@dataclass(frozen=True)
class Stop:
    """In place of all answers: end now with the model saved last."""

    reason: Termination


Event: TypeAlias = Passed | Gathered | Solved | Saved | Stop


@dataclass(frozen=True)
class Lot:
    """Rows that came together: those before row ``stop`` that are of no earlier lot.

    Where strategies take rows in order it makes so many ``partitions``; ``shuffled`` says that its neighbouring rows
    are a random sample of it.
    """

    stop: int
    partitions: int
    shuffled: bool


@dataclass(frozen=True)
class Problem:
    """All that a strategy knows of the fit.

    ``empty`` is the design without columns (kernel, functions, scaling); ``bias`` says whether the bias is offered;
    ``power`` is the target's mean square about its mean as the model sees it, 0 for a constant target;
    ``noise_variance`` is σ² as the model sees it, or None to estimate; ``target_scale`` maps the model's target unit to
    the user's; ``shuffled`` says that neighbouring rows are a random sample. Of several targets, which share vectors
    and α, ``powers`` (T,) are theirs and ``power`` is the mean, ``target_scale`` is the root of the mean of squares,
    and ``noise_variance`` is (T,). Where ``likelihood`` is one of classes (``core.logistic``), ``codes`` (N,) are those
    of all rows, one or two bytes each, and ``n_classes`` is K. ``prior`` is that of α and of β, as the model sees the
    target, and says how they are updated, and which α stay as they are. Where rows came later (``strategies.growing``)
    ``lots`` are those before and each later one, in order; it is empty where all rows came at once.
    """

    n_rows: int
    empty: Design
    bias: bool
    power: float
    noise_variance: float | Float | None
    target_scale: float
    shuffled: bool
    held_out: bool
    likelihood: str = "gaussian"
    n_classes: int = 0
    codes: NDArray[np.integer[Any]] | None = None
    prior: Prior = FLAT
    powers: Float | None = None
    lots: tuple[Lot, ...] = ()

    @property
    def n_targets(self) -> int:
        """T, the number of targets that are numbers."""
        return 1 if self.powers is None else len(self.powers)

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return self.likelihood != "gaussian"

    @property
    def n_outputs(self) -> int:
        """C, the number of linear predictors."""
        return n_outputs(self.likelihood, self.n_classes)

    @property
    def leading(self) -> Int:
        """Labels of the leading columns, which every fit is offered: of the bias, then of basis functions."""
        functions = self.empty.functions
        numbers = np.arange(0 if functions is None else functions.size)
        return np.concatenate([np.full(int(self.bias), BIAS, dtype=np.int64), label_of(numbers)])

    @property
    def n_kernels(self) -> int:
        """K, the basis functions that each row offers; 0 without a kernel."""
        return len(self.empty.kernels)

    def rows_of(self, candidates: int) -> int:
        """How many rows offer so many candidates; one at least.

        Rows join with all that they offer, so that P // K of them make a partition.
        """
        return max(candidates // self.n_kernels, 1)


STOP_RULES = ("candidates", "partition")


@dataclass(frozen=True)
class Options:
    """The user's choices, all resolved to numbers.

    ``likelihood`` says which rows the posterior of an intermediate fit sees, ``final_likelihood`` that of the last:
    ``"full"`` all, ``"sample"`` one random sample of ``likelihood_rows``, ``"partition"`` those of its candidates, with
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
    likelihood: str = "full"
    final_likelihood: str = "full"
    likelihood_rows: int = 0
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


class Strategy(Protocol):
    """A pure state machine; its state is the checkpoint."""

    name: str

    def start(self, problem: Problem, options: Options) -> tuple[Any, tuple[Instruction, ...]]:
        """First state and instructions."""
        ...

    def next(self, state: Any, *events: Event) -> tuple[Any, tuple[Instruction, ...]]:
        """State and instructions after the answers to the last instructions."""
        ...
