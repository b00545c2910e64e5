"""What a strategy says and what it hears: instructions out, events in.

A strategy is a pure state machine, ``start(problem) -> (state, instructions)`` and ``next(state, event) -> (state,
instructions)``. It never touches data, clock, disk or cluster. The driver performs each instruction and answers it with
one event: a pass with its ``Passed`` statistic, ``Solve`` with ``Solved``, ``Gather`` with ``Gathered``, ``Save`` with
``Saved``; ``Finish`` ends the run. ``Stop`` may come in place of any answer, when time is up or a person aborts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState, StopRule
from partirvm.kernels.design import Design

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class GramPass:
    """Over all rows: what the columns of ``new`` add to those of ``kept``; answered by a ``core.statistics.GramBlock``.

    ``offset`` (M_kept, T) is that of the statistics to be extended. With ``diagonal`` the (P, P) block is left out but
    for its diagonal: a ``CrossBlock``.
    """

    kept: Design
    new: Design
    offset: Float
    diagonal: bool = False


@dataclass(frozen=True)
class ResidualPass:
    """Residuals of the mean μ (M, T); answered by a ``core.residuals.ResidualStatistics``.

    ``select`` rows of largest error are reported, none of those in ``exclude`` (sorted row numbers) among them. Over
    all rows, or with ``sample`` > 0 over about that many, in whole tiles spread evenly, others for each ``draw``.
    """

    design: Design
    mean: Float
    select: int = 0
    exclude: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    sample: int = 0
    draw: int = 0


@dataclass(frozen=True)
class ScorePass:
    """Over the held-out rows: ``core.residuals.Scores`` of a fit, in the target's own units."""

    design: Design
    mean: Float
    root: Float
    noise_variance: float


Pass: TypeAlias = GramPass | ResidualPass | ScorePass


@dataclass(frozen=True)
class Gather:
    """Inputs of the rows with these numbers."""

    rows: Int


@dataclass(frozen=True)
class Solve:
    """A dense fit: step from ``start`` until ``rule`` ends it. ``candidates`` is for the watcher."""

    start: HyperState
    rule: StopRule
    candidates: int


@dataclass(frozen=True)
class Save:
    """A usable model: these columns, this fit. ``record`` is one line of history; the driver adds seconds."""

    design: Design
    fit: HyperState
    record: Record


@dataclass(frozen=True)
class Finish:
    """The run is over; the model is the one saved last."""

    reason: Termination


Instruction: TypeAlias = Pass | Gather | Solve | Save | Finish


@dataclass(frozen=True)
class Record:
    """One fit in the history. Errors are in the target's own units; evidence is of the target in its own units.

    ``kind`` is ``"round"`` for an intermediate fit and ``"final"`` for the last; ``likelihood`` says which rows the
    posterior saw, ``duplicates`` how many chosen rows were left out so far because they equal another one,
    ``floored`` whether the noise sits at its floor. ``termination`` is the dense fit's own.
    """

    kind: str
    number: int
    rows: int
    candidates: int
    vectors: int
    iterations: int
    termination: Termination
    log_evidence: float
    noise_variance: float
    train_rmse: float
    selection: str
    likelihood: str = "full"
    duplicates: int = 0
    floored: bool = False
    held_out_rmse: float | None = None
    held_out_nlpd: float | None = None


@dataclass(frozen=True)
class Passed:
    """Answer to a pass: its statistic."""

    statistic: Any


@dataclass(frozen=True)
class Gathered:
    """Answer to ``Gather``: inputs (k, d) of the rows asked for, in that order."""

    points: Float


@dataclass(frozen=True)
class Solved:
    """Answer to ``Solve``: where the fit ended, and why."""

    fit: HyperState
    reason: Termination


@dataclass(frozen=True)
class Saved:
    """Answer to ``Save``: the model is safe."""


@dataclass(frozen=True)
class Stop:
    """In place of an answer: end now with the model saved last."""

    reason: Termination


Event: TypeAlias = Passed | Gathered | Solved | Saved | Stop


@dataclass(frozen=True)
class Problem:
    """All that a strategy knows of the fit.

    ``empty`` is the design without columns (kernel and scaling, no bias); ``bias`` says whether the bias is offered;
    ``power`` is the target's mean square about its mean as the model sees it, 0 for a constant target;
    ``noise_variance`` is σ² as the model sees it, or None to estimate; ``target_scale`` maps the model's target unit to
    the user's; ``shuffled`` says that neighbouring rows are a random sample.
    """

    n_rows: int
    empty: Design
    bias: bool
    power: float
    noise_variance: float | None
    target_scale: float
    shuffled: bool
    held_out: bool


@dataclass(frozen=True)
class Options:
    """The user's choices, all resolved to numbers.

    ``max_columns`` is what memory allows (P candidates included); ``tol`` is the convergence tolerance in nats per row.
    """

    partition_size: int
    selection: str
    stop_fraction: float = 0.5
    max_rounds: int | None = None
    max_vectors: int | None = None
    max_columns: int | None = None
    tol: float = 1e-7
    max_iterations: int = 500
    seed: int = 0


class Strategy(Protocol):
    """A pure state machine; its state is the checkpoint."""

    name: str

    def start(self, problem: Problem, options: Options) -> tuple[Any, tuple[Instruction, ...]]:
        """First state and instructions."""
        ...

    def next(self, state: Any, event: Event) -> tuple[Any, tuple[Instruction, ...]]:
        """State and instructions after an event."""
        ...
