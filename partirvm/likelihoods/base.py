"""The interface of a likelihood: passes over the rows, the two kinds of fit, and the methods that
strategies call.

A *pass* computes a statistic of each tile with a pure function and sums these in a fixed tree.
Passes are frozen dataclasses at module level, so that workers can unpickle them. A *likelihood* is
a small immutable object, registered in ``likelihoods.LIKELIHOODS``. A ``DenseFit`` runs to its end
without reading rows; a ``PassFit`` needs a pass for each step.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np

from partirvm.core.priors import JOINING
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels.design import Design
from partirvm.model import AnyModel
from partirvm.types import Bool, Columns, Float, Int

Rows: TypeAlias = Int | range
"""Increasing row numbers, as an array or, using no memory for each, as a range of neighbouring
rows."""

OnStep = Callable[[StepInfo], None]
Draw: TypeAlias = tuple[int, int] | None


@dataclass(frozen=True)
class Panel:
    """Some rows of a tile.

    Attributes:
        rows: their numbers (n,)
        X: inputs (n, d)
        t: targets (n, T)
        weights: row weights (n,), or None
    """

    rows: Int
    X: Float
    t: Float
    weights: Float | None


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass over rows of the data, a dataclass: each class defines ``of_panel``, or ``statistic``.

    Attributes:
        name: of the pass, in progress reports
        held_out: True for a pass over the held-out rows instead of the training rows
        design_fields: names of the fields with the designs that the pass evaluates
        rows: increasing numbers of the rows to read, or None for all
    """

    name: ClassVar[str]
    held_out: ClassVar[bool]
    design_fields: ClassVar[tuple[str, ...]]
    rows: Rows | None = None
    of_panel: ClassVar[Callable[..., Any]]
    """Return the statistic of a panel, given the panel and a block of each design, in the order of
    ``design_fields``."""

    def __init_subclass__(
        cls, name: str, held_out: bool = False, designs: tuple[str, ...] = ()
    ) -> None:
        cls.name = name
        cls.held_out = held_out
        cls.design_fields = designs

    @property
    def designs(self) -> tuple[Design, ...]:
        """The designs whose blocks the pass evaluates."""
        return tuple(getattr(self, name) for name in self.design_fields)

    def statistic(self, tile: Any) -> Any:
        """Return the statistic of one tile (``execution.local``): the sum over its panels, by
        ``+``.

        A block (n, M) reuses the memory of the previous panel's block and may be changed.
        """
        parts = (
            self.of_panel(panel, *blocks)
            for panel, *blocks in tile.panels(self.rows, *self.designs)
        )
        return reduce(operator.iadd, parts)


def eligible(panel: Panel, exclude: Int) -> Bool:
    """Return a mask (n,) of a panel's rows with weight above zero that are not in ``exclude``
    (sorted row numbers)."""
    mask = np.isin(panel.rows, between(exclude, panel.rows[0], panel.rows[-1]), invert=True)
    return mask if panel.weights is None else mask & (panel.weights > 0)


def between(sorted_rows: Rows, first: int, last: int) -> Int:
    """Return the elements of ``sorted_rows`` between ``first`` and ``last``, inclusive."""
    if isinstance(sorted_rows, range):
        low = max(first, sorted_rows.start)
        return np.arange(low, min(last + 1, sorted_rows.stop), dtype=np.int64)
    start = np.searchsorted(sorted_rows, first)
    return sorted_rows[start : np.searchsorted(sorted_rows, last, side="right")]


def positions(selected: Int, labels: Int) -> Int:
    """Return the positions of the labels ``selected`` in ``labels``, which contains all of them."""
    order = np.argsort(labels, kind="stable")
    return order[np.searchsorted(labels, selected, sorter=order)]


def survivors(design: Design, fit: Any) -> Design:
    """Return the columns of ``design`` whose labels remain in the fit, in the order of the fit."""
    labels = fit.labels
    return design.take(positions(labels[labels >= 0], design.labels), leading=labels[labels < 0])


@dataclass(frozen=True)
class Start:
    """Start of a fit to other rows or with more columns.

    Attributes:
        labels: of the columns that are not new (M,)
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

        Columns of the two fits explain the same data, and would eliminate each other at their own
        α: they start at ``JOINING`` × α, half their weights, and the larger β.
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
    """Result of a fit: its final state (a ``Fit``, or what another kind of fit returns) and the
    reason why it ended."""

    fit: Any
    reason: Termination


class DenseFit(ABC):
    """A fit that holds all its statistics."""

    @abstractmethod
    def run(self, on_step: OnStep) -> tuple[Any, Termination]:
        """Run the fit; return its final state and the reason why it ended. ``on_step`` may raise to
        stop the fit."""


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
        """Return the fit after the statistic of the pass. ``poll``, called between steps, may raise
        to stop the fit."""


class Likelihood(Protocol):
    """The model of a target given the linear predictors; its fits have one type, a ``Fit``.

    Methods that return passes may return an empty tuple: then no statistics are requested.
    ``problem`` and ``options`` are those of strategies (``strategies.problem``).
    """

    name: str
    words: tuple[str, ...]
    """Option values that select this likelihood: of ``multi_class`` in classification, else of
    ``noise_variance``."""
    classifies: bool = False
    binary: bool = False
    """True for two classes with one linear predictor; otherwise a classification has one per
    class."""
    dense: bool = True
    """True if sums over rows are sufficient, so that fits are dense; the evidence then has a closed
    form."""
    at_once: int = 200**2
    """Maximum number C·N² for which ``strategy="auto"`` makes each of N rows a candidate of a
    single fit."""

    def model(self, design: Design, fit: Any, columns: Columns, moderate: bool) -> AnyModel:
        """Return the model for prediction.

        Args:
            design: the columns of the fit
            fit: the fit
            columns: names of the data's columns
            moderate: True for moderated class probabilities
        """

    def start(self, problem: Any) -> Any:
        """Return the fit without columns."""

    def warm(self, fit: Any) -> Start:
        """Return the current α and β, or weights, as a start for a fit to other rows or with more
        columns."""

    def measure(self, fit: Any, kept: Design, new: Design, rows: Rows | None) -> tuple[Pass, ...]:
        """Return the passes that add columns to the statistics of a fit; empty if rows cannot be
        added.

        Args:
            fit: the fit
            kept: its columns
            new: new columns
            rows: its rows, None for all
        """
        return ()

    def join(
        self,
        problem: Any,
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
            kept: its columns that remain; without them, the result may be a fit to other rows
            new: new columns
            statistics: those of the passes of ``measure``
            warm: where a fit without kept columns starts, by default like ``fit``
        """
        return fit

    def fit(
        self,
        problem: Any,
        options: Any,
        design: Design,
        fit: Any,
        rule: StopRule,
        rows: Int | None,
        warm: Start | None,
    ) -> DenseFit | PassFit:
        """Return a fit, yet to be run.

        Args:
            problem: the problem
            options: the options
            design: the columns
            fit: where it starts, unless at ``warm``
            rule: when it ends
            rows: its rows, None for all
            warm: the start from a fit to other rows
        """

    def settling(
        self,
        problem: Any,
        design: Design,
        fit: Any,
        rows: Int | None,
        *,
        last: bool,
        left_out: bool,
    ) -> tuple[Pass, ...]:
        """Return the passes that compute the residual of a fit.

        Args:
            problem: the problem
            design: the columns
            fit: the fit
            rows: its rows, None for all
            last: True if the residual gives the final noise variance; otherwise it replaces
                statistics that lost digits to cancellation
            left_out: True if, with an estimated noise variance, the first passes are for left-out
                errors, one for each target; those of a dense fit of classes, unless it is a last
                one, choose its ramp
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
            draw: a seed with which rows of classes are drawn at random, those with large errors
                being more likely
        """

    def gain_pass(
        self, design: Design, fit: Any, pool: Design, rows: Int | None
    ) -> tuple[Pass, ...]:
        """Return the pass whose statistic ``Fit.gains`` of a dense fit needs.

        Args:
            design: the columns of the fit
            fit: the fit
            pool: the columns whose gains are computed
            rows: the rows of the pass, None for all
        """
        return ()

    def record(self, problem: Any, fit: Any, scores: Any) -> dict[str, Any]:
        """Return the fields of a history line (``strategies.problem.Record``) in the target's
        units."""
