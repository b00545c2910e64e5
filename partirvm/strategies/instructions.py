"""The instructions that a strategy yields, and the answers to them.

A strategy runs in steps. ``step(state)`` is a generator: it yields instructions, is sent the
answers, and returns the next state. Further steps depend only on this state, so the state after a
stored history line is the checkpoint. A strategy has no access to data, clock, disk or cluster: the
driver carries out instructions that are yielded together, in parallel if possible, and sends the
answers in the order of the instructions (a statistic for a pass, ``Solved`` for a fit, None for
``Save``). ``Stopped`` is raised where the step waits for its answers.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from partirvm.core.class_groups import ClassGroups
from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.group_effects import GroupEffects
from partirvm.core.groups import GroupedRows
from partirvm.core.left_out import LeftOut
from partirvm.core.stacking import LeftOutClassLogits, LeftOutNumbers
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.likelihoods.gaussian import root_mean
from partirvm.local.known_groups import KnownGroups
from partirvm.local.residuals import LocalResiduals
from partirvm.local.tree_share import TreeShare
from partirvm.spec.entries import Record
from partirvm.spec.panel_pass import Pass
from partirvm.spec.problem import DenseFit, Fit, Options, PassFit, Problem
from partirvm.types import Float, Int


@dataclass(frozen=True)
class Gather:
    """Request for the inputs of the rows with these numbers.

    The answer is a pair: the numbers (k,) of the rows with positive weight, in the requested order,
    and their inputs (k, d).
    """

    rows: Int


@dataclass(frozen=True)
class LearnKernel:
    """Request for a search for a better kernel for the columns of ``design``, at the α and β of
    ``fit``.

    The search uses the rows with the numbers ``rows`` (increasing) or, if None, all rows.
    """

    design: Design
    fit: HyperState
    rows: Int | None


@dataclass(frozen=True)
class KernelLearned:
    """The kernel with the highest evidence, ``better`` (True for a new kernel), and the number of
    rows with positive weight."""

    kernel: Kernel
    better: bool
    rows: int
    evaluations: int


@dataclass(frozen=True)
class LeaveGroupsOut:
    """Request for the errors of a fit on groups of rows that are left out as a whole, a ``LeftOut``
    for each target.

    ``least_square`` is a lower bound on the mean squared error.
    """

    design: Design
    fit: HyperState
    groups: GroupedRows
    least_square: float = 0.0


@dataclass(frozen=True)
class LeaveIndicatorGroupsOut(LeaveGroupsOut):
    """The same for a fit to class indicators: a ``LeftOutClasses``, which chooses the ramp."""


@dataclass(frozen=True)
class LeaveClassGroupsOut:
    """Request for what a classification says of rows of new and of known groups, a
    ``ClassGroups``."""

    problem: Problem
    options: Options
    design: Design
    fit: Fit
    groups: GroupedRows


@dataclass(frozen=True)
class FitEffects:
    """Request for effects of known groups, an ``EffectsFit`` or None, from errors of rows that were
    left out one by one."""

    left_out: LeftOut


@dataclass(frozen=True)
class FitResiduals:
    """Request for the local residuals of a fit; ``left_out`` are the fit's errors on left-out rows,
    by target.

    A ``trial`` only measures the gain. With ``effects``, these errors exclude effects of known
    groups.
    """

    design: Design
    fit: HyperState
    left_out: tuple[LeftOut, ...]
    options: Options
    trial: bool = False
    effects: GroupEffects | None = None


@dataclass(frozen=True)
class ResidualsFitted:
    """Local residuals if they are used, and the gains on left-out rows.

    The gains are the relative decrease in RMSE and the increase in mean log density in nats, both
    over all targets; 0 if not measured. ``rmse`` (T,) is the corrected RMSE in the model's units;
    it is empty if the residuals are not used or, after a trial, would not be used. ``lacking`` is
    the number of bytes required if the rows fit neither in memory nor in a folder. ``diagnostics``
    describe the first targets on corrected left-out rows, in the targets' units. ``left_out`` are
    these rows, until boosted trees have been judged.
    """

    residuals: LocalResiduals | None = None
    rmse_gain: float = 0.0
    density_gain: float = 0.0
    rmse: tuple[float, ...] = ()
    lacking: int = 0
    diagnostics: tuple[NumberDiagnostics, ...] = ()
    left_out: LeftOutNumbers | None = None

    def error(self, scales: Float | float = 1.0) -> float:
        """Return the root mean square over targets of ``rmse`` times ``scales`` (T,); 0 if ``rmse``
        is empty."""
        return root_mean(scales * np.array(self.rmse)) if self.rmse else 0.0

    def facts(self, scales: Float) -> dict[str, Any]:
        """Return, as plain JSON, the gains and the ``bytes`` of the rows if these are used, or
        ``lacking``.

        ``rmse`` is in the targets' units; ``scales`` (T,) convert the model's units to the targets'
        units.
        """
        kept = 0 if self.residuals is None else self.residuals.cells.nbytes
        gains = {"rmse_gain": self.rmse_gain, "density_gain": self.density_gain}
        return {**gains, "rmse": self.error(scales), "bytes": kept, "lacking": self.lacking}


@dataclass(frozen=True)
class FitTrees:
    """Request for boosted trees beside a fit, a ``TreesFitted``.

    ``numbers`` are left-out rows of a regression: the first ones judge the trees, which also
    predict the others. Classes are judged on rows that are left out for this purpose. ``residuals``
    are the local residuals of the fit, or None.
    """

    problem: Problem
    options: Options
    design: Design
    fit: Fit
    numbers: tuple[LeftOutNumbers, ...] = ()
    residuals: LocalResiduals | None = None


@dataclass(frozen=True)
class TreesFitted:
    """Boosted trees and their share, or the ``reason`` why there are none.

    Attributes:
        share: the trees and their share, or None
        predictions: what trees that did not learn from the rows of ``FitTrees.numbers`` predict for
            them (m, T), for each of these sets of rows
        logits: for classes, the left-out rows as the mixture predicts them
        facts: plain JSON for the history
        diagnostics: of the first targets on left-out rows, as the mixture predicts them
    """

    share: TreeShare | None = None
    predictions: tuple[Float, ...] = ()
    logits: LeftOutClassLogits | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    diagnostics: tuple[NumberDiagnostics, ...] = ()

    @classmethod
    def without(cls, reason: str) -> Self:
        """Return the answer for a fit without trees."""
        return cls(facts={"share": 0.0, "reason": f"no boosted trees: {reason}"})


@dataclass(frozen=True)
class Save:
    """Request to save a history line, to which the driver adds the seconds, and the model if
    ``model`` is true. ``known`` says how rows of known groups are predicted, and ``trees`` what
    boosted trees add."""

    design: Design
    fit: Fit
    record: Record
    moderate: bool = False
    residuals: LocalResiduals | None = None
    known: KnownGroups | ClassGroups | None = None
    trees: TreesFitted | None = None
    model: bool = True


Instruction: TypeAlias = (
    Pass
    | DenseFit
    | PassFit
    | Gather
    | LearnKernel
    | LeaveGroupsOut
    | LeaveClassGroupsOut
    | FitEffects
    | FitResiduals
    | FitTrees
    | Save
)
T = TypeVar("T")
Steps: TypeAlias = Generator[tuple[Instruction, ...], tuple[Any, ...], T]
"""A part of a step: it yields instructions, is sent the answers, and returns a result."""


class Stopped(Exception):
    """Raised when the run must end immediately, with the last saved model."""

    def __init__(self, reason: Termination) -> None:
        super().__init__(reason.value)
        self.reason = reason
