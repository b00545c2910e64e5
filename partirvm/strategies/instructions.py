"""Instructions of a strategy, and the answers to them.

A strategy runs in steps. ``step(state)`` is a generator: it yields instructions, is sent their answers, and returns the
next state. A strategy has no access to data, clock, disk or cluster: the driver performs the instructions that are
yielded together, side by side if possible, and sends one answer for each of them, in the same order:

=====================================  ========================
instruction                            answer
=====================================  ========================
a pass (``likelihoods.base``)        the statistic of the pass
a fit (``likelihoods.base``)           ``Solved``
``Gather``                             ``Gathered``
``LearnKernel``                        ``KernelLearned``
``Save``, ``Log``                      None
=====================================  ========================

If the time limit is reached or the job is aborted, ``Stopped`` is raised where the step waits for its answers. A state
is all that a step depends on, so that the state after a stored line of history is the checkpoint.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import DenseFit, Fit, Pass, PassFit
from partirvm.planning.cost import Schedule
from partirvm.strategies.problem import Options, Problem

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Gather:
    """Request for the inputs of the rows with these numbers."""

    rows: Int


@dataclass(frozen=True)
class LearnKernel:
    """Request to search for a better kernel for the columns of ``design``, at the α and β of their ``fit``.

    The search uses the rows ``rows`` (row numbers, increasing) or, if None, all rows. ``prior`` names the prior of one
    gamma per feature (``learning.search``).
    """

    design: Design
    fit: HyperState
    rows: Int | None
    prior: str


@dataclass(frozen=True)
class Save:
    """Request to save a model of these columns and this fit.

    ``record`` is one line of history, to which the driver adds the seconds.
    """

    design: Design
    fit: Fit
    record: Record
    moderate: bool = False


@dataclass(frozen=True)
class Log:
    """Request to write one line of history for a fit whose model is not saved."""

    record: Record


Instruction: TypeAlias = Pass | DenseFit | PassFit | Gather | LearnKernel | Save | Log
T = TypeVar("T")
Steps: TypeAlias = Generator[tuple[Instruction, ...], tuple[Any, ...], T]
"""A part of a step: yields instructions, is sent their answers, and returns a result."""


@dataclass(frozen=True)
class Record:
    """One line of history, which describes one fit. Errors and evidence are in the units of the target.

    ``kind`` is one of

    - ``"round"``: an intermediate fit whose model is saved.
    - ``"part"``: a fit of split-and-merge, on ``level`` 0 to a partition, on higher levels to a merge of two parts. The
      model is saved only if its evidence per row is the highest so far.
    - ``"heuristic"``: the fit that measures the partition size.
    - ``"kernel"``: a result of kernel learning.
    - ``"early"``: the small fit of a run whose time limit ended the run before there was a model, or the last fit
      with constant noise of a run that ended during the fit with local noise (``strategies.stages``).
    - ``"final"``: the last fit.

    ``rows`` is the number of rows that the posterior used (see ``fit_rows``), over which the log evidence is; the
    training error is over the rows from which σ² was estimated. ``duplicates`` and ``dropped`` count, so far, rows left
    out because they equal another row, and vectors deleted because of a limit. ``floored`` is true if the noise
    variance is at its floor. ``termination`` is the reason of the end of the dense fit.

    A classification has no noise variance. Its errors are the mean log loss (nats) and the fraction of wrongly
    classified rows, both over the rows of the posterior. Its ``iterations`` are passes.

    After kernel learning, ``kernel`` is the spec of the learned kernel, ``iterations`` the number of evaluations of the
    evidence, and ``gain`` the increase of the tied evidence (``core.tied``) over the first kernel, in nats. If the
    kernel was learned again between rounds, ``rows`` and ``candidates`` count the rows and the vectors of the search,
    ``gain`` is the increase over all rows, and ``taken`` is true if the new kernel replaced the old one; all other
    fields describe the fit that the run continues with.

    ``choice`` is the result of ``gamma="auto"`` (``learning.folds``, ``learning.process_search``). Its item ``form`` is
    the chosen form, ``rows`` the number of rows left out, or of all rows if these are too many for the comparison. Of
    classes, ``errors`` are the log losses on these rows; of a regression, ``families`` are the nats of each family, and
    ``gain`` and ``error`` the mean gain in log density by directions and its standard error.

    ``noise_sd`` is the square root of the noise variance, which is None if a double cannot represent it. Of several
    targets the evidence is the joint one, the noise variance and the negative log density are means, and errors are
    roots of mean squares. ``diagnostics`` (``core.diagnostics``, as plain JSON, one dict for each of the first targets)
    are those of held-out rows, or of rows left out of a last fit of one numeric target. ``overconfidence`` is the mean
    squared leave-one-out error divided by the variance that the evidence predicts (``core.left_out``).
    ``noise_vectors`` is the number of centres of a noise that depends on the inputs, whose mean is ``noise_variance``.
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
    fit_rows: str = "full"
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
    noise_sd: float | None = None
    noise_vectors: int | None = None
    diagnostics: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Gathered:
    """Answer to ``Gather``: inputs (k, d) of the requested rows, in the requested order.

    ``present`` (k,) is true for rows with a weight above zero; None means all. Rows without weight are no candidates.
    """

    points: Float
    present: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Solved:
    """Answer to a fit: its final state (a ``Fit``, or what another fit returns), and the reason of its end."""

    fit: Any
    reason: Termination


@dataclass(frozen=True)
class KernelLearned:
    """Answer to ``LearnKernel``: the kernel of largest evidence.

    ``better`` is true if this kernel differs from the previous one. ``evaluations`` is the number of evaluations of the
    evidence, and ``rows`` the number of rows with a weight above zero.
    """

    kernel: Kernel
    better: bool
    rows: int
    evaluations: int


class Stopped(Exception):
    """The run must end now, with the last saved model."""

    def __init__(self, reason: Termination) -> None:
        super().__init__(reason.value)
        self.reason = reason


S = TypeVar("S")


class StrategySteps(Protocol[S]):
    """The steps of a strategy; the field ``end`` of a state is the reason of the end, or None before."""

    name: str
    schedule: ClassVar[Schedule]

    def start(self, problem: Problem, options: Options) -> S:
        """Return the state before the first step."""
        ...

    def step(self, state: S) -> Steps[S]:
        """Go on to the next line of history, or until no line follows from the next candidates."""
        ...


AnyStrategy: TypeAlias = StrategySteps[Any]
