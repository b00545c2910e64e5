"""A simulator that answers a strategy's instructions: passes over one tile in memory, no threads or
files.

The statistics of passes are compared with dense formulas in ``execution/test_executors.py`` and
``core``.
"""

import pickle
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import naive
import numpy as np
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.core import Termination, solvers
from partirvm.data import ArraySource
from partirvm.execution.local import tile_statistics
from partirvm.kernels import Design, Gaussian
from partirvm.likelihoods import GAUSSIAN, ErrorPass, GramPass, ScorePass, Solve
from partirvm.scaling import Scaling
from partirvm.spec import Pass, Problem, Solved
from partirvm.strategies import STRATEGIES, Gather, Save, Stopped
from partirvm.types import BIAS

MOST = 2000
"""Number of instructions after which a run is considered endless."""

UNLIMITED = {Termination.CONVERGED, Termination.ITERATIONS}
"""How a run ends if no limit stops it and there was something to fit."""


@dataclass
class Simulator:
    """A problem in memory: inputs X (N, d), targets y (N,), weights, held-out rows; the kernel is
    Gaussian.

    ``turns`` are the instructions of the last run, grouped as they were yielded, ``answers`` the
    answers to them. ``lines`` are the states after each step that stored history lines, with the
    number of turns so far.
    """

    X: np.ndarray
    y: np.ndarray
    gamma: float = 0.5
    w: np.ndarray | None = None
    held_out: tuple[np.ndarray, np.ndarray] | None = None
    bias: bool = True
    noise_variance: float | None = None
    shuffled: bool = True
    turns: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    lines: list[Any] = field(default_factory=list)

    def __post_init__(self):
        shift = np.average(self.y, weights=self.w)
        d = self.X.shape[1]
        self.scaling = Scaling(np.zeros(d), np.ones(d), np.array([shift]), np.ones(1))
        self.t = (self.y - shift)[:, None]
        self.empty = Design(
            Gaussian((self.gamma,)),
            self.scaling,
            np.zeros((0, d)),
            np.zeros(0, np.int64),
            bias=False,
        )

    @property
    def problem(self):
        constant = self.y.min() == self.y.max()
        target_variance = 0.0 if constant else float(np.average(self.t[:, 0] ** 2, weights=self.w))
        facts = len(self.X), self.empty, self.bias, target_variance, self.noise_variance, 1.0
        held_out = self.held_out is not None
        return Problem(*facts, self.shuffled, held_out, likelihood=GAUSSIAN)

    def phi(self, design, X=None):
        """Return the design matrix from pairwise differences, bias first."""
        X = self.X if X is None else X
        kernels = naive.gaussian(X, design.centres, self.gamma)
        return np.hstack([np.ones((len(X), int(design.bias))), kernels])

    def run(
        self,
        name,
        options,
        stop_at=None,
        state=None,
    ):
        """Drive a strategy to its end, from a state if one is given; stop it at turn
        ``stop_at``."""
        strategy = STRATEGIES[name]() if isinstance(name, str) else name
        self.turns = []
        self.answers = []
        self.lines = []
        state = strategy.start(self.problem, options) if state is None else state
        try:
            while state.end is None:
                state = self.step(strategy.step(state), stop_at)
                if isinstance(self.said[-1], Save):
                    self.lines.append((state, len(self.turns)))
        except Stopped as stopped:
            return stopped.reason
        return state.end

    def step(self, step, stop_at=None):
        """Drive one step, and return the next state."""
        instructions = next(step)
        while True:
            assert instructions, "nothing to do, and not finished"
            self.turns.append(instructions)
            assert len(self.turns) < MOST, "the strategy does not end"
            if len(self.turns) - 1 == stop_at:
                instructions = step.throw(Stopped(Termination.ABORTED))
                continue
            self.answers.append(tuple(map(self.answer, instructions)))
            try:
                instructions = step.send(self.answers[-1])
            except StopIteration as end:
                return end.value

    def keeps_the_rules(self, name, reason):
        """Assert that rows are candidates once, all of them if no limit applies; that vectors
        return only with the best round; that the last saved model is the final one."""
        rows = self.proposed()
        assert len(rows) == len(set(rows))
        if name == "basic" or (name in ("split-merge", "incremental") and reason in UNLIMITED):
            assert sorted(rows) == list(range(len(self.X)))
        restored = (
            len(self.saves) > 1 and self.saves[-1].record.number < self.saves[-2].record.number
        )
        assert restored or self.returned() == []
        assert len(self.heard) == len(self.said)
        assert self.said[-1] is self.saves[-1]
        assert [save.record.kind for save in self.saves].count("final") == 1
        assert self.saves[-1].record.kind == "final"

    def saved_consistently(self, save):
        """Assert that a saved model's first column is the bias and its vectors are distinct rows
        with weight."""
        labels = save.fit.labels
        rows = save.design.labels
        assert_array_equal(labels[labels != BIAS], rows)
        assert ((labels == BIAS).any()) == save.design.bias
        assert (labels[1:] != BIAS).all()
        assert self.w is None or (self.w[rows] > 0).all()
        assert_array_equal(save.design.centres, self.X[rows])
        assert len(np.unique(save.design.centres, axis=0)) == save.record.vectors

    def answer(self, instruction):
        """Return the answer to an instruction."""
        match instruction:
            case Gather(rows):
                rows = rows if self.w is None else rows[self.w[rows] > 0]
                return rows, self.X[rows]
            case Solve(fit, rule, solver):
                return Solved(*solvers.SOLVERS[solver](fit, rule))
            case Save():
                return None
            case ScorePass():
                return tile_statistics([instruction], ArraySource(*self.held_out), 0)[0]
            case Pass():
                source = ArraySource(self.X, self.t + self.scaling.t_shift, self.w)
                return tile_statistics([instruction], source, 0)[0]
        raise AssertionError(f"no answer to {instruction}")

    def sampled(self, pass_):
        """Return which rows a pass for errors reads."""
        rows = np.arange(len(self.X))
        return np.ones(len(rows), bool) if pass_.rows is None else np.isin(rows, pass_.rows)

    def resumes(self, name, options):
        """Assert that runs from the state after each line, pickled and loaded, give the same
        instructions."""
        expected = [spelled(turn) for turn in self.turns]
        for state, done in list(self.lines)[:-1]:
            self.run(name, options, state=pickle.loads(pickle.dumps(state)))
            assert [spelled(turn) for turn in self.turns] == expected[done:]

    @property
    def said(self):
        """Return all instructions in order."""
        return [instruction for turn in self.turns for instruction in turn]

    @property
    def heard(self):
        """Return all answers in order."""
        return [answer for answers in self.answers for answer in answers]

    def heard_of(self, kind):
        """Return all answers of one kind."""
        return [answer for answer in self.heard if isinstance(answer, kind)]

    def passes(self, kind):
        """Return all instructions of one kind."""
        return [instruction for instruction in self.said if isinstance(instruction, kind)]

    @property
    def saves(self):
        return [save for save in self.passes(Save) if save.model]

    @property
    def parts(self):
        """Return history lines of the parts of split-merge, in order."""
        return [one for one in self.said if isinstance(one, Save) and one.record.kind == "part"]

    def proposed(self):
        """Return row numbers that became candidates, in order: gathered, or found by errors or
        gains."""
        pools = {id(p.new) for p in self.passes(GramPass) if p.diagonal}
        rows = []
        for turn, answer, following in zip(self.turns, self.answers, self.turns[1:], strict=False):
            if isinstance(turn[0], Gather) and not (
                isinstance(following[0], GramPass) and id(following[0].new) in pools
            ):
                rows += turn[0].rows.tolist()
            elif isinstance(turn[0], ErrorPass):
                rows += answer[0].rows.tolist()
            elif (
                isinstance(turn[0], GramPass)
                and turn[0].diagonal
                and isinstance(following[0], GramPass)
            ):
                rows += [
                    row
                    for row in following[0].new.labels.tolist()
                    if row in set(turn[0].new.labels.tolist())
                ]
        return rows

    def returned(self):
        """Return row numbers that came back as columns of a saved model after they had been
        pruned."""
        gone = set()
        present = set()
        back = []
        for save in self.saves:
            if save.record.kind == "part":
                continue  # one of the parts that are merged later
            labels = set(save.design.labels.tolist())
            back += sorted(labels & gone)
            gone |= present - labels
            present = labels
        return back

    def candidates(self):
        """Return row numbers of all columns added by full Gram passes, in order."""
        return [int(row) for p in self.passes(GramPass) if not p.diagonal for row in p.new.labels]


def spelled(value):
    """Return a value as nested tuples, with arrays as bytes: equal only for identical bits."""
    if is_dataclass(value):
        return type(value).__name__, *(
            spelled(getattr(value, field.name)) for field in fields(value)
        )
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, list | tuple):
        return tuple(map(spelled, value))
    return value


def wave(n=120, seed=0, noise=0.1, d=2):
    """Return rows of a smooth function of d inputs plus noise."""
    rng = default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, d))
    return X, 3 + np.sin(1.5 * X[:, 0]) + 0.3 * X[:, -1] + noise * rng.normal(size=n)
