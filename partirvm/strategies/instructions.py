"""Input and output of a strategy: events in, instructions out.

A strategy is a pure state machine, ``start(problem, options) -> (state, instructions)`` and ``next(state, *events) ->
(state, instructions)``. It never touches data, clock, disk or cluster. The driver performs the instructions, those of
one answer side by side where it can, and answers with one event for each, in their order: a pass
(``likelihoods.passes``) with its ``Passed`` statistic, a fit (``likelihoods.base``) with ``Solved``, ``Gather`` with
``Gathered``, ``LearnKernel`` with ``KernelLearned``, ``Save`` and ``Log`` with ``Saved``; ``Finish`` ends the run. A
single ``Stop`` may come in place of all answers, when time is up or a person aborts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import DenseFit, Fit, PassFit
from partirvm.likelihoods.passes import Pass
from partirvm.planning.schedule import Schedule
from partirvm.strategies.problem import Options, Problem

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Gather:
    """Inputs of the rows with these numbers."""

    rows: Int


@dataclass(frozen=True)
class LearnKernel:
    """Search for a better kernel of the columns of ``design``, at the α and β of their ``fit``.

    On the rows of ``rows`` (row numbers, increasing), None for all; ``prior`` is that of a gamma per feature
    (``setup.kernel_search``).
    """

    design: Design
    fit: HyperState
    rows: Int | None
    prior: str


@dataclass(frozen=True)
class Save:
    """A usable model: these columns, this fit. ``record`` is one line of history; the driver adds seconds."""

    design: Design
    fit: Fit
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


Instruction: TypeAlias = Pass | DenseFit | PassFit | Gather | LearnKernel | Save | Log | Finish


@dataclass(frozen=True)
class Record:
    """One fit in the history. Errors are in the target's own units; evidence is of the target in its own units.

    ``kind`` is ``"round"`` for an intermediate fit that leaves a model, ``"part"`` for one that leaves a model only if
    it is the best so far (split-merge: on ``level`` 0 the partitions, above it merges), ``"heuristic"`` for that of the
    partition size, ``"kernel"`` for what was learned of the kernel, ``"early"`` for the small fit of a run whose time
    was up before it had a model, and ``"final"`` for the last. ``rows`` is how many rows the
    posterior saw, by ``likelihood``; the log evidence is over these, the training error over those that σ² comes from.
    ``duplicates`` says how many chosen rows were left out so far because they equal another one, ``dropped`` how many
    vectors a limit has cost so far, ``floored`` whether the noise sits at its floor. ``termination`` is the dense
    fit's. A fit of classes has no noise; its errors are the mean negative log probability of a row's class (nats) and
    the fraction of rows in the wrong class, over the posterior's rows, and its iterations are logistic passes. Of a
    kernel that was learned, ``kernel`` is the spec, the iterations are evaluations of the evidence and its slopes, and
    the evidence is by ``gain`` nats above that of the kernel that it began with, over the same rows and centres, tied
    (``core.tied``). Of one that was learned again at a fit's vectors, ``rows`` and ``candidates`` are what it was
    learned from, ``gain`` is what it brings over all rows, and ``taken`` says whether it was: the rest is of the fit
    that stands, whose kernel it is or is not. ``choice`` is what ``gamma="auto"`` decided (``setup.choosing``):
    the ``form``, ``rows`` that were held out, or all there are where these are many, and the held-out RMSE or log loss
    of ``one`` width and of ``each`` feature its own.
    ``noise_sd`` is the root of ``noise_variance``, which is None where a double does not hold it. Of several targets
    the evidence is that of all together, the noise variance and the negative log density are means over targets,
    errors the root of the mean of squares.
    ``overconfidence`` is the mean squared error of rows left out in units of the variance by the evidence; the
    ``noise_variance`` of a final fit comes from these errors (``core.left_out``), and the fit is ``overconfident`` if
    they are much larger.
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
    """Answer to a fit: the fit at its end, and the reason of the end."""

    fit: Fit
    reason: Termination


@dataclass(frozen=True)
class KernelLearned:
    """Answer to ``LearnKernel``: the kernel of largest evidence; ``better`` if it differs from the previous one.

    It took so many evaluations, over ``rows`` rows of weight above zero.
    """

    kernel: Kernel | Several
    better: bool
    rows: int
    evaluations: int


@dataclass(frozen=True)
class Saved:
    """Answer to ``Save`` and ``Log``: the model or the line is stored."""


@dataclass(frozen=True)
class Stop:
    """Instead of all answers: end now with the last saved model."""

    reason: Termination


Event: TypeAlias = Passed | Gathered | Solved | KernelLearned | Saved | Stop


S = TypeVar("S")


class Strategy(Protocol[S]):
    """A pure state machine; its state is the checkpoint."""

    name: str
    schedule: ClassVar[Schedule]

    def start(self, problem: Problem, options: Options) -> tuple[S, tuple[Instruction, ...]]:
        """First state and instructions."""
        ...

    def next(self, state: S, *events: Event) -> tuple[S, tuple[Instruction, ...]]:
        """State and instructions after the answers to the last instructions."""
        ...


AnyStrategy: TypeAlias = Strategy[Any]
