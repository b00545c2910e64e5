"""The problem of a fit, its resolved options, and the interface of likelihoods.

A ``Problem`` has a likelihood, whose methods take the problem: both are defined in this file. A
*likelihood* is a small immutable object, registered in ``likelihoods.LIKELIHOODS``. A ``DenseFit``
runs to its end without reading rows; a ``PassFit`` needs a pass for each step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.groups import GroupedRows
from partirvm.core.priors import FLAT, JOINING, Prior
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.kernels.functions import Basis
from partirvm.model import AnyModel
from partirvm.scaling.maps import Scaling
from partirvm.spec.panel_pass import Pass, Rows, positions
from partirvm.types import Columns, Float, Int

Codes = NDArray[np.integer[Any]]

OnStep = Callable[[StepInfo], None]
Draw: TypeAlias = tuple[int, int] | None


@dataclass(frozen=True)
class AppendedBatch:
    """Rows that were appended together.

    Attributes:
        stop: number of the row after the last one; the batch begins where the previous one ends
        partitions: number of parts into which the batch is split
        shuffled: True if neighbouring rows are a random sample of the batch
    """

    stop: int
    partitions: int
    shuffled: bool


@dataclass(frozen=True)
class Problem:
    """The constants of a fit that a strategy uses. Variances refer to the scaled target.

    Several targets share their vectors and α.

    Attributes:
        n_rows: N, number of training rows
        empty: the design without columns
        bias: True if a fit has a bias
        target_variance: variance of the scaled target, the mean over several; 0 for a constant
            target
        noise_variance: σ², (T,) for several targets; None if it is estimated
        target_scale: factor from the scaled target to the user's units; for several targets, the
            root of the mean of their squares
        shuffled: True if neighbouring rows are a random sample
        held_out: True if there are held-out rows
        likelihood: likelihood of the target
        n_classes: K, or 0 for a regression
        codes: class codes of the rows (N,), or None
        prior: prior of α
        target_variances: variances of several targets (T,), or None
        batches: the original rows and each appended batch; empty without appends
        left_out_square: mean squared error of left-out rows while the kernel was learned from few
            rows, or 0
        mean_only: True if the leading columns alone predicted these left-out rows as well as any
            kernel
        groups: rows that are left out by groups, or None
        group_effects: True if the kernel is learned beside effects of groups
    """

    n_rows: int
    empty: Design
    bias: bool
    target_variance: float
    noise_variance: float | Float | None
    target_scale: float
    shuffled: bool
    held_out: bool
    likelihood: "Likelihood"
    n_classes: int = 0
    codes: Codes | None = None
    prior: Prior = FLAT
    target_variances: Float | None = None
    batches: tuple[AppendedBatch, ...] = ()
    left_out_square: float = 0.0
    mean_only: bool = False
    groups: GroupedRows | None = None
    group_effects: bool = False

    def of_rows(self, rows: Int) -> Self:
        """Return the problem of a refit to some of the rows (n,), without groups."""
        codes = None if self.codes is None else self.codes[rows]
        return replace(self, n_rows=len(rows), codes=codes, groups=None)

    def with_kernel(self, kernel: Kernel) -> Self:
        """Return the problem with a different kernel."""
        return replace(self, empty=replace(self.empty, kernel=kernel))

    def with_functions(self, functions: Basis | None) -> Self:
        """Return the problem with other basis functions."""
        return replace(self, empty=replace(self.empty, functions=functions))

    def with_scaling(self, scaling: Scaling) -> Self:
        """Return the problem with a different scaling of its inputs, whose mean is 0."""
        if scaling is self.empty.scaling:
            return self
        return replace(
            self, empty=replace(self.empty, scaling=scaling, origin=np.zeros(scaling.n_inputs))
        )

    def with_doubts(self, multiple: float) -> Self:
        """Return the problem with the doubts about level effects multiplied relative to the noise;
        the inputs do not change."""
        features = self.empty.scaling.features
        assert features is not None
        scaling = replace(
            self.empty.scaling, features=features.with_doubts(multiple, 1.0 - features.share)
        )
        return replace(self, empty=replace(self.empty, scaling=scaling))

    @property
    def variances(self) -> float | Float:
        """Variances of the scaled targets: a number, or (T,) for several targets."""
        return self.target_variance if self.target_variances is None else self.target_variances

    @property
    def n_targets(self) -> int:
        """T, the number of targets of a regression."""
        return 1 if self.target_variances is None else len(self.target_variances)

    @property
    def n_outputs(self) -> int:
        """C, the number of linear predictors with their own posterior; class indicators have one
        posterior, like a single target."""
        per_class = self.likelihood.newton and not self.likelihood.binary
        return max(self.n_classes, 1) if per_class else 1

    @property
    def allows_effects(self) -> bool:
        """True if groups of rows may have effects: those of one number with estimated noise."""
        is_estimated = self.noise_variance is None and self.target_variance > 0
        is_one_number = self.target_variances is None and self.likelihood.working.effects
        return self.groups is not None and is_estimated and is_one_number

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


NO_TREES = "none"
"""Value of ``Options.trees`` with which a fit has no boosted trees."""


@dataclass(frozen=True)
class Options:
    """Resolved options of a fit.

    Attributes:
        partition_size: P, number of candidates of a partition
        selection: method by which candidates are chosen
        fit_rows: rows that an intermediate fit uses (``strategies.fit_rows``)
        last_rows: rows that the last fit uses
        sample_rows: number of rows of a sample
        stop_fraction: an intermediate fit ends below this fraction of P vectors
        max_rounds: maximum number of rounds, None for no limit
        max_vectors: maximum number of vectors, None for no limit
        max_columns: number of columns, including candidates, that fit in memory, None for no limit
        batch: limit on the sum of the squared column counts of parallel fits
        tol: rise of the log evidence below which a fit ends, in nats per row
        max_iterations: maximum number of iterations of a dense fit
        max_passes: maximum number of passes of a fit that needs passes
        moderate: True for moderated class probabilities
        seed: seed of the random streams
        centres: number of centres from which the kernel was learned, or 0 if it must not change
        learning_columns: number of columns that fit in memory when the kernel is relearned
        solver: name of the solver of dense fits
        noise: "constant" or "local"
        residual: "none" if local residuals are not tried, otherwise "auto" or "local"
        neighbours: number of neighbours of a local residual
        residual_family: kernel family of local residuals
        residual_bytes: maximum bytes of the rows of local residuals
        effort: effort of kernel learning
        trees: "none" without boosted trees, "auto" if they must be a clear gain, or "trees"
        tree_rounds: maximum number of rounds of boosting
        tree_rows: maximum number of rows from which trees learn
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
    trees: str = NO_TREES
    tree_rounds: int = 400
    tree_rows: int = 200_000


@dataclass(frozen=True)
class Start:
    """Starting point of a fit to other rows or with more columns.

    Attributes:
        labels: labels of the columns that are not new (M,)
        alpha: their α, (M,) or (M, C)
        beta: β of a regression
        weights: weights of a classification (M, C)
    """

    labels: Int
    alpha: Float
    beta: float | Float = 1.0
    weights: Float | None = None

    def merge(self, other: Self, labels: Int) -> Self:
        """Return a start for the joined columns of two fits, restricted to ``labels``.

        Columns of the two fits explain the same data, and would eliminate each other at their
        present α, so they start at ``JOINING`` × α, half their weights, and the larger β.
        """
        joined, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        selected = np.isin(joined, labels)
        alpha = np.concatenate([self.alpha, other.alpha])[first[selected]]
        beta = np.maximum(self.beta, other.beta)
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = 0.5 * np.concatenate([self.weights, other.weights])[first[selected]]
        beta = beta if isinstance(self.beta, np.ndarray) else float(beta)
        return type(self)(joined[selected], JOINING * alpha, beta, weights)


Fit: TypeAlias = Any
"""A fit of M columns with the labels ``labels`` (M,) to ``n`` rows, of the likelihood's own type.

It has ``n_columns``, ``n_vectors``, ``iteration`` and ``log_evidence`` (nats). ``losses()`` returns
the evidence lost by deleting each column (M,) and, for a dense fit, ``gains(statistic)`` the gain
of adding each column of ``Likelihood.gain_pass`` alone (Q,), in nats.
"""


@dataclass(frozen=True)
class Solved:
    """Result of a fit: its final state (a ``Fit``, or the result of another kind of fit) and the
    reason why it ended."""

    fit: Any
    reason: Termination


class DenseFit(ABC):
    """A fit that holds all its statistics."""

    @abstractmethod
    def run(self, on_step: OnStep) -> tuple[Any, Termination]:
        """Run the fit; return its final state and the reason why it ended. ``on_step`` may raise an
        exception to stop the fit."""


class PassFit(ABC):
    """A fit, started or not, that needs a pass for each step; it has ended if ``reason`` is not
    None."""

    reason: Termination | None

    @property
    @abstractmethod
    def next_pass(self) -> Pass:
        """The next pass."""

    @property
    @abstractmethod
    def fit(self) -> Any:
        """The current state of the fit; available after the first pass."""

    @property
    def info(self) -> StepInfo:
        """Information about the last step, for reports only."""
        fit = self.fit
        return StepInfo(fit.iteration, fit.n_vectors, 0, fit.log_evidence, np.nan, np.nan)

    @abstractmethod
    def advance(self, block: Any, poll: Callable[[], None] = ...) -> Self:
        """Return the fit after processing the statistic of the pass. ``poll``, called between
        steps, may raise an exception to stop the fit."""


def survivors(design: Design, fit: Any) -> Design:
    """Return the columns of ``design`` whose labels remain in the fit, in the fit's order."""
    labels = fit.labels
    return design.take(positions(labels[labels >= 0], design.labels), leading=labels[labels < 0])


LEAST_GAIN = {"quick": 0.2, "balanced": 0.05, "thorough": 0.0}
"""By ``effort``, the minimum gain of the log evidence for twice the work, in nats per row."""


@dataclass(frozen=True)
class RoundTraits:
    """Properties that determine how rounds of fits choose candidates and when rounds end; the
    defaults suit any likelihood.

    Attributes:
        ranks_gains: True if candidates can be ranked by ``Likelihood.gain_pass``
        draws_errors: True if candidates with large errors are drawn at random, because the largest
            errors come from wrong labels
        fewer_candidates: True if late rounds, which keep few candidates, have fewer of them
        learns_again: True if a learned kernel is relearned between rounds, which compares evidences
            of the same columns
    """

    ranks_gains: bool = False
    draws_errors: bool = False
    fewer_candidates: bool = False
    learns_again: bool = False

    def least_gain(self, loss: float, effort: str) -> float:
        """Return the gain, in nats per row, below which twice the work (with ``has_ramp``, twice
        the vectors) is not worthwhile.

        Args:
            loss: minus ``Likelihood.objective``, per row
            effort: value of the option
        """
        return LEAST_GAIN[effort]


@dataclass(frozen=True)
class WorkingTargets:
    """Numbers that represent the target while the kernel is learned by least squares; by default,
    the scaled targets.

    Attributes:
        search: key of the kernel search in ``learning.SEARCHES``, also for the variances of levels
        first_share: fraction of the target's variance from which the initial noise variance of a
            tied RVM follows
        shared_noise: True if all numbers have one noise variance
        effects: True if groups of rows may have effects on them
    """

    search: str = "numbers"
    first_share: float = 1.0
    shared_noise: bool = False
    effects: bool = False

    def of_process(self, problem: Problem, t: Float) -> Float:
        """Return the numbers (n, C) for an exact process, with mean 0 and mean square 1, for
        targets (n, T)."""
        return problem.empty.scaling.targets(t)

    def of_levels(self, problem: Problem, t: Float) -> Float:
        """Return the numbers (n, C) that level effects explain, for targets (n, T)."""
        return self.of_process(problem, t)


class Likelihood(Protocol):
    """The model of a target given the linear predictors; its fits have one type, a ``Fit``.

    Methods that return passes may return an empty tuple, in which case no statistics are requested.
    """

    name: str
    words: tuple[str, ...]
    """Values of the option ``likelihood`` that select this likelihood."""
    classifies: bool = False
    binary: bool = False
    """True for two classes with one linear predictor; otherwise a classification has one per
    class."""
    at_once: int = 200**2
    """Maximum value of C·N² for which ``strategy="auto"`` makes each of N rows a candidate of a
    single fit."""
    working: WorkingTargets = WorkingTargets()
    """Numbers that represent the target while the kernel is learned."""
    has_noise: bool = False
    """True if the target is the linear predictor plus noise with variance σ²."""
    has_ramp: bool = False
    """True if left-out rows turn the predictors of each dense fit into probabilities; small rounds
    then end with fewer vectors and the same loss."""
    loss_name: str = "RMSE"
    """Name of the loss by which its models are compared, in ``fit.judged`` and
    ``fit.comparison``."""
    rounds: RoundTraits = RoundTraits()
    """How rounds choose candidates and when they end."""
    newton: bool = False
    """True if each step of a fit is a pass for one matrix per linear predictor, and a fit starts
    from the weights of columns with the same labels."""
    takes: frozenset[str] = frozenset()
    """Which of the options ``class_weight``, ``residual``, ``solver`` and ``warp_target`` may have
    values other than their defaults."""
    prediction_without_vectors: str = "mean"
    """Name of the quantity that a model without vectors predicts."""

    def model(self, design: Design, fit: Any, columns: Columns, moderate: bool) -> AnyModel:
        """Return the model for prediction.

        Args:
            design: the columns of the fit
            fit: the fit
            columns: names of the data's columns
            moderate: True for moderated class probabilities
        """

    def start(self, problem: Problem) -> Any:
        """Return the fit without columns."""

    def warm(self, fit: Any) -> Start:
        """Return the current α and β, or weights, as a start for a fit to other rows or with more
        columns."""

    def measure(self, fit: Any, kept: Design, new: Design, rows: Rows | None) -> tuple[Pass, ...]:
        """Return the passes that add columns to the statistics of a fit; empty if rows cannot be
        added.

        Args:
            fit: the fit
            kept: kept columns of the fit
            new: new columns
            rows: rows of the fit, None for all
        """
        return ()

    def join(
        self,
        problem: Problem,
        fit: Any,
        kept: Design,
        new: Design,
        *statistics: Any,
        warm: Start | None = None,
    ) -> Any:
        """Return the fit with new columns.

        Args:
            problem: the problem
            fit: the current fit
            kept: columns of the fit that remain; without them, the result may be a fit to other
                rows
            new: new columns
            statistics: statistics from the passes of ``measure``
            warm: where a fit without kept columns starts, by default like ``fit``
        """
        return fit

    def fit(
        self,
        problem: Problem,
        options: Options,
        design: Design,
        fit: Any,
        rule: StopRule,
        rows: Int | None,
        warm: Start | None,
    ) -> DenseFit | PassFit:
        """Return a fit that has yet to be run.

        Args:
            problem: the problem
            options: the options
            design: the columns
            fit: where the fit starts, unless ``warm`` is given
            rule: decides when the fit ends
            rows: rows of the fit, None for all
            warm: the start from a fit to other rows
        """

    def settling(
        self,
        problem: Problem,
        design: Design,
        fit: Any,
        rows: Int | None,
        *,
        last: bool,
        left_out: bool,
        corrected: bool = False,
    ) -> tuple[Pass, ...]:
        """Return the passes that compute the residual of a fit.

        Args:
            problem: the problem
            design: the columns
            fit: the fit
            rows: rows of the fit, None for all
            last: True if the residual gives the final noise variance; otherwise it replaces
                statistics that lost digits to cancellation
            left_out: True if, with an estimated noise variance, the first passes are for left-out
                errors, which also determine the ramp of a fit of indicators, unless it is the last
                fit
            corrected: True if left-out errors are for local residuals, which need the errors of
                each of several targets, not only of one
        """
        return ()

    def settle(self, fit: Any, *statistics: Any, last: bool) -> Any:
        """Return the fit, updated with the statistics of ``settling``."""
        return fit

    def errors(
        self, design: Design, fit: Any, count: int, used: Int, rows: Int | None, draw: Draw = None
    ) -> Pass:
        """Return the pass that finds the rows with the largest errors.

        Args:
            design: the columns
            fit: the fit
            count: number of rows to find
            used: rows that are excluded
            rows: rows among which to search, None for all
            draw: a seed for drawing rows of classes at random, with large errors being more likely
        """

    def gain_pass(
        self, design: Design, fit: Any, pool: Design, rows: Int | None
    ) -> tuple[Pass, ...]:
        """Return the pass whose statistic is needed for ``Fit.gains`` of a dense fit.

        Args:
            design: the columns of the fit
            fit: the fit
            pool: the columns whose gains are computed
            rows: the rows of the pass, None for all
        """
        return ()

    def record(self, problem: Problem, fit: Any, scores: Any) -> dict[str, Any]:
        """Return the fields of a history line (``spec.entries.Record``) in the target's
        units."""

    def objective(self, fit: Any) -> float:
        """Return the quantity that rounds should raise, in nats; by default, the log evidence."""
        return float(fit.log_evidence)

    def stored(self, fit: Any) -> Any:
        """Return the fit in the form stored in a checkpoint."""
        return fit
