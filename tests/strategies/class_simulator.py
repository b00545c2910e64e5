"""The simulator for classes: each answer is a complete Newton fit."""

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy.special import expit, softmax
from simulator import Simulator, wave

from partirvm.likelihoods import LIKELIHOODS, ErrorPass, LogisticPass, Newton
from partirvm.spec import Options, Solved
from partirvm.strategies import STRATEGIES


@dataclass
class ClassSimulator(Simulator):
    """``y`` (N,) are codes of ``n_classes``; ``logistic`` are the passes of the fits in the last
    run."""

    n_classes: int = 2
    likelihood: str = "bernoulli"
    logistic: list[LogisticPass] = field(default_factory=list)

    def __post_init__(self):
        super().__post_init__()
        self.y = self.y.astype(float)
        self.scaling = replace(self.scaling, t_shift=np.zeros(1))
        self.empty = replace(self.empty, scaling=self.scaling)
        self.t = self.y[:, None]

    @property
    def problem(self):
        kind = {
            "likelihood": LIKELIHOODS[self.likelihood],
            "n_classes": self.n_classes,
            "codes": self.y.astype(np.int8),
        }
        return replace(super().problem, target_variance=1.0, noise_variance=None, **kind)

    def answer(self, instruction):
        """Return the answer to an instruction."""
        if not isinstance(instruction, Newton):
            return super().answer(instruction)
        course = instruction
        while course.reason is None:
            self.logistic.append(course.next_pass)
            course = course.advance(super().answer(course.next_pass))
        return Solved(course.fit, course.reason)

    def probabilities(self, f):
        """Return (N, K) from predictors (N, C): sigmoid or softmax."""
        if self.likelihood == "bernoulli":
            return np.hstack([1 - expit(f), expit(f)])
        return np.asarray(softmax(f, axis=1))

    def weight(self, rows):
        """Return weights of the rows of a pass."""
        w = np.ones(len(self.y)) if self.w is None else self.w
        return w if rows is None else w[rows]

    def found(self):
        """Return row numbers found by error passes, in order."""
        pairs = zip(self.turns, self.answers, strict=False)
        return [
            row
            for turn, answer in pairs
            if isinstance(turn[0], ErrorPass)
            for row in answer[0].rows.tolist()
        ]

    def candidates(self):
        """Return row numbers of the columns that fits began with."""
        return [int(row) for task in self.passes(Newton) for row in task.design.labels]


def groups(n=120, K=2, seed=0, spread=0.8):
    """Return rows about two places for each of K classes in random proportions; the first K rows
    have all classes."""
    rng = default_rng(seed)
    shares = np.arange(1, K + 1) / (K * (K + 1) / 2)
    codes = np.r_[np.arange(K), rng.choice(K, size=max(n - K, 0), p=shares)][:n]
    angle = 2 * np.pi * (codes / K + rng.integers(2, size=n)) / 2
    places = 1.5 * np.column_stack([np.cos(angle), np.sin(angle)])
    return places + spread * rng.normal(size=(n, 2)), codes.astype(float)


def usable(save, simulator):
    """Assert that the class model is consistent, its numbers finite, its covariances complete."""
    simulator.saved_consistently(save)
    fit = save.fit
    M = len(fit.labels)
    if simulator.likelihood == "pooled":
        C = simulator.n_classes
        mean = fit.posterior.mean
        roots = fit.posterior.root()
    else:
        C = simulator.problem.n_outputs
        mean = fit.mean
        roots = fit.roots()
    assert mean.shape == (M, C)
    assert roots.shape[-2:] == (M, M)
    for value in (mean, roots, fit.alpha, fit.log_evidence, save.record.train_log_loss):
        assert np.isfinite(value).all()


NAMES = tuple(sorted(STRATEGIES))
SELECTIONS = ("error", "random", "gain")
KINDS = ((0, "gaussian"), (2, "bernoulli"), (3, "multinomial"), (3, "pooled"))
"""Numbers of classes, 0 for regression, and likelihoods."""


@st.composite
def runs(draw, names=NAMES):
    """Draw any small problem with any options, for one of the strategies."""
    K, likelihood = draw(st.sampled_from(KINDS))
    n = draw(st.integers(max(K + 1, 2), 50 if K else 70))
    seed = draw(st.integers(0, 50))
    if K:
        X, y = groups(n, K, seed=seed, spread=draw(st.sampled_from([0.1, 0.8, 3.0])))
    else:
        X, y = wave(n, seed=seed, noise=draw(st.sampled_from([0.5, 0.1, 1e-3])))
    if draw(st.booleans()):
        X = np.round(X)
    w = None
    if draw(st.booleans()):
        w = default_rng(n).choice([0.0, 1.0, 3.0], size=n, p=[0.2, 0.4, 0.4])
        w[:2] = 1.0  # at least two classes have a row
    held_out = (groups(30, K, seed=99) if K else wave(30, seed=99)) if draw(st.booleans()) else None
    facts = {"gamma": draw(st.sampled_from([0.05, 0.5, 5.0])), "w": w, "held_out": held_out}
    facts |= {"bias": draw(st.booleans()), "shuffled": draw(st.booleans())}
    if K:
        simulator = ClassSimulator(X, y, **facts, n_classes=K, likelihood=likelihood)
    else:
        simulator = Simulator(X, y, **facts, noise_variance=draw(st.sampled_from([None, 0.04])))
    options = Options(
        partition_size=draw(st.integers(3 if K else 1, 40)),
        selection=draw(st.sampled_from(SELECTIONS)),
        stop_fraction=draw(st.sampled_from([0.0, 0.5, 0.9])),
        max_rounds=draw(st.sampled_from([None, 1, 3])),
        max_vectors=draw(st.sampled_from([None, 2, 10])),
        max_columns=draw(st.sampled_from([None, 60])),
        fit_rows=draw(st.sampled_from(("full", "sample", "growing"))),
        sample_rows=draw(st.integers(5, 80)),
        batch=draw(st.sampled_from([1, 1000, 1_000_000])),
        tol=1e-5 if K else 1e-7,
        max_iterations=60,
        max_passes=30,
        moderate=draw(st.booleans()),
        seed=draw(st.integers(0, 5)),
        solver="fixed-point" if K else draw(st.sampled_from(("fixed-point", "auto", "fast"))),
    )
    return draw(st.sampled_from(names)), simulator, options
