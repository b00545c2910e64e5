"""``gamma="auto"``: one width or a width per feature, whichever errs less on rows held out; then that is learned.

A width per feature tells most, where the rows can carry so many parameters; whether they can, evidence does not say.
With more than ``MANY`` rows nobody asks. With fewer, rows are dealt to ``FOLDS`` folds, held out by turns. On the rows
outside a width per feature is learned (``strategies.learning``, its first search alone), and the tied RVM
(``core.tied``) is fitted at one width after the other, ``WIDTHS`` × the one that was given, with the same centres; a
pass over the fold tells the error of each. Where every row is to be a candidate it is that fit which is judged, at all
of these kernels, instead of the tied one (``strategies.rehearsal``). The least sum decides, but a width per feature
must be ahead by more than a standard error over the folds: chosen by luck, it loses more than one width would. One
width is known then; a width per feature is learned again, from all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.strategies.evaluating import Evaluation, evaluation, held_out, loss
from partirvm.strategies.instructions import Event, Finish, Gather, Gathered, Instruction, Log, Saved, Stop
from partirvm.strategies.learning import Ask, Learning, LearningState
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rehearsal import Rehearsal, rehearsal

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEAST = 20
"""With fewer rows nothing is learned."""

MANY = 2000
"""With more rows each feature gets its width, unasked."""

FOLDS = 5

HELD_OUT = 500
"""Folds are tried until so many rows were held out."""

CENTRES = 100
"""Centres in a fold, at most: enough to tell one form from another."""

WIDTHS = 2.0 ** np.arange(-3, 4)
"""Widths that are tried, as multiples of the one that was given."""

ONE, EACH = "one width", "a width per feature"
"""The forms, as history and plan call them."""

DRAW = 4
"""Sets the deal of folds apart from other draws of the same seed."""


class Phase(Enum):
    """What the machine waits for. An event in phase X goes to the method ``_on_x``."""

    FOLD = "a width per feature, of the rows outside a fold"
    ROWS = "inputs of these rows, which are all candidates"
    FITS = "fits of one width after the other to the same rows"
    LOSSES = "what all of these are worth on the fold"
    LAST = "the chosen kernel, from all rows"


@dataclass(frozen=True)
class ChoosingState:
    """Where the machine stands: with ``fold`` of ``folds``, the rows that are held out by turns.

    ``inner`` is the learning under way, ``fits`` those of the fold, ``losses`` (fold, len(WIDTHS) + 1) the sums of
    those before it: of ``WIDTHS``, then of a width per feature. ``choice`` is ``Record.choice``, ``looked`` counts
    evaluations.
    """

    problem: Problem
    options: Options
    folds: tuple[Int, ...]
    losses: Float
    phase: Phase = Phase.FOLD
    fold: int = 0
    inner: LearningState | None = None
    fits: tuple[Evaluation | Rehearsal, ...] = ()
    choice: dict[str, Any] | None = None
    looked: int = 0

    @property
    def kept(self) -> Int:
        """Rows outside the fold, increasing."""
        return np.sort(np.concatenate([*self.folds[: self.fold], *self.folds[self.fold + 1 :]]))

    @property
    def kernels(self) -> list[Kernel | Several]:
        """The kernel that was given at each of ``WIDTHS``."""
        return [self.problem.empty.kernel.rescaled(width) for width in WIDTHS]

    @property
    def kernel(self) -> Kernel | Several:
        """The best so far: of the learning under way, or the one that was given."""
        return self.problem.empty.kernel if self.inner is None else self.inner.kernel

    @property
    def one_width(self) -> bool:
        """Whether one width was chosen."""
        return self.choice is not None and self.choice["form"] == ONE


Answer = tuple[ChoosingState, tuple[Instruction, ...]]


class Choosing:
    """Finds a kernel as ``Learning`` does, once it has found out what is to be learned; its lines tell that, too."""

    name = "choosing"

    def __init__(self, ask: Ask, *, rehearse: bool) -> None:
        """``rehearse`` says that the fit to come has every row for a candidate, and that memory has room for it."""
        few = min(ask.centres, CENTRES)
        self.learning, self.trial, self.rehearse = Learning(ask), Learning(Ask(few, few, ask.prior)), rehearse

    def start(self, problem: Problem, options: Options) -> Answer:
        """Deal the rows to folds, or learn at once where they are many. The kernel has one gamma."""
        state = ChoosingState(problem, options, (), np.zeros((0, len(WIDTHS) + 1)))
        if problem.n_rows > MANY:
            return self._last(state, {"form": EACH, "rows": problem.n_rows})
        return self._hold_out(replace(state, folds=deal(problem, options.seed)))

    def next(self, state: ChoosingState, *events: Event) -> Answer:
        """What to do after the answers to the last instructions."""
        if isinstance(events[0], Stop):
            return state, (Finish(events[0].reason),)
        answer: Answer = getattr(self, f"_on_{state.phase.name.lower()}")(state, *events)
        return answer

    def _hold_out(self, state: ChoosingState) -> Answer:
        """Learn a width per feature without the rows of the fold; what a second search may find decides nothing."""
        inner, wanted = self.trial.begin(per_feature(state.problem), state.options, state.kept)
        return replace(state, phase=Phase.FOLD, inner=replace(inner, revived=True)), wanted

    def _on_fold(self, state: ChoosingState, event: Event) -> Answer:
        assert state.inner is not None
        inner, wanted = self.trial.next(state.inner, event)
        state = replace(state, inner=inner)
        if not isinstance(wanted[0], Log):
            return state, wanted
        state = replace(state, looked=state.looked + inner.evaluations)
        if self.rehearse:
            return replace(state, phase=Phase.ROWS), (Gather(state.kept),)
        fits = tuple(
            evaluation(state.problem, self._design(state, kernel), inner.rows, inner.best, fresh=True)
            for kernel in state.kernels
        )
        return self._fit(replace(state, phase=Phase.FITS, fits=fits))

    def _on_rows(self, state: ChoosingState, event: Gathered) -> Answer:
        assert state.inner is not None
        fits = tuple(
            rehearsal(state.problem, state.options, state.kept, event, kernel)
            for kernel in [*state.kernels, state.inner.kernel]
        )
        return self._fit(replace(state, phase=Phase.FITS, fits=fits))

    def _design(self, state: ChoosingState, kernel: Kernel | Several) -> Design:
        """The centres of the learning, with another kernel."""
        assert state.inner is not None
        assert state.inner.pool is not None
        pool = state.inner.pool.take(np.arange(state.inner.centres))
        return replace(pool, kernel=kernel)

    def _fit(self, state: ChoosingState) -> Answer:
        """Go on with those fits that are not done, all at once; then see what they are worth."""
        going = [fit.wanted for fit in state.fits if fit.mean is None]
        if going:
            return state, tuple(look for look in going if look is not None)
        inner, rows = state.inner, state.folds[state.fold]
        assert inner is not None
        assert inner.best is not None
        means = [(fit.design, fit.mean) for fit in state.fits if fit.mean is not None]
        if not self.rehearse:
            means.append((self._design(state, inner.kernel), inner.best.weights))
        looks = tuple(held_out(state.problem, design, mean, rows) for design, mean in means)
        return replace(state, phase=Phase.LOSSES, looked=state.looked + len(state.fits)), looks

    def _on_fits(self, state: ChoosingState, *events: Any) -> Answer:
        heard = iter(events)
        fits = tuple(_told(fit, next(heard)) if fit.mean is None else fit for fit in state.fits)
        return self._fit(replace(state, fits=fits))

    def _on_losses(self, state: ChoosingState, *events: Any) -> Answer:
        losses = np.vstack([state.losses, [loss(event.statistic) for event in events]])
        state = replace(state, losses=losses, fold=state.fold + 1, fits=())
        held = sum(len(rows) for rows in state.folds[: state.fold])
        if state.fold < FOLDS and held < HELD_OUT:
            return self._hold_out(state)
        return self._last(state, self.choice_of(state, held))

    def choice_of(self, state: ChoosingState, held: int) -> dict[str, Any]:
        """The form of least error, and the errors, in the target's units or in nats per row."""
        problem, sums = state.problem, state.losses.sum(axis=0)
        best = int(np.argmin(sums[:-1]))
        ahead = state.losses[:, best] - state.losses[:, -1]
        chance = ahead.std(ddof=1) / np.sqrt(len(ahead)) if len(ahead) > 1 else 0.0
        form = EACH if ahead.mean() > chance else ONE
        errors = sums / held
        if not problem.classifies:
            errors = problem.target_scale * np.sqrt(errors / problem.n_targets)
        one, each = float(errors[best]), float(errors[-1])
        return {"form": form, "rows": held, "width": float(WIDTHS[best]), "one": one, "each": each}

    def _last(self, state: ChoosingState, choice: dict[str, Any]) -> Answer:
        """Learn a width per feature from all rows, or look once at the width that was chosen."""
        state = replace(state, phase=Phase.LAST, choice=choice)
        problem = state.problem
        if state.one_width:
            kernel = problem.empty.kernel.rescaled(choice["width"])
            problem = replace(problem, empty=replace(problem.empty, kernel=kernel))
        else:
            problem = per_feature(problem)
        inner, wanted = self.learning.start(problem, state.options)
        return replace(state, inner=inner), wanted

    def _on_last(self, state: ChoosingState, event: Event) -> Answer:
        assert state.inner is not None
        if isinstance(event, Saved) and state.one_width:
            return state, (Finish(Termination.CONVERGED),)
        inner, wanted = self.learning.next(state.inner, event)
        if state.one_width and inner.best is not None:
            wanted = (Log(self.learning.record(inner)),)
        if isinstance(wanted[0], Log):
            record = wanted[0].record
            told = replace(record, choice=state.choice, iterations=record.iterations + state.looked)
            return replace(state, inner=inner, looked=0), (Log(told),)
        return replace(state, inner=inner), wanted


def _told(fit: Evaluation | Rehearsal, event: Any) -> Evaluation | Rehearsal:
    return fit.heard(event if isinstance(fit, Rehearsal) else event.statistic)


def per_feature(problem: Problem) -> Problem:
    """The same with its kernel's gamma for each feature."""
    empty = problem.empty
    return replace(problem, empty=replace(empty, kernel=empty.kernel.per_feature(empty.centres.shape[1])))


def deal(problem: Problem, seed: int) -> tuple[Int, ...]:
    """``FOLDS`` folds of all rows at random, each with its share of every class; row numbers increase."""
    order = np.random.default_rng((seed, DRAW)).permutation(problem.n_rows).astype(np.int64)
    if problem.codes is not None:
        order = order[np.argsort(problem.codes[order], kind="stable")]
    return tuple(np.sort(order[fold::FOLDS]) for fold in range(FOLDS))
