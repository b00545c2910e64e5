"""Any small problem with any options, for hypothesis."""

from __future__ import annotations

import numpy as np
from class_simulator import ClassSimulator, groups
from hypothesis import strategies as st
from simulator import Simulator, wave

from partirvm.strategies import STRATEGIES
from partirvm.strategies.problem import Options

FIT_ROWS = ("full", "sample", "growing")
NAMES = tuple(sorted(STRATEGIES))
SELECTIONS = ("error", "random", "gain")


KINDS = ((0, "gaussian"), (2, "bernoulli"), (3, "multinomial"), (3, "ovr"))
"""Numbers of classes, 0 for numbers, and likelihoods."""


@st.composite
def runs(draw, names=NAMES):
    """Any small problem with any options, for one of the strategies."""
    K, likelihood = draw(st.sampled_from(KINDS))
    n, seed = draw(st.integers(max(K + 1, 2), 50 if K else 70)), draw(st.integers(0, 50))
    if K:
        X, y = groups(n, K, seed=seed, spread=draw(st.sampled_from([0.1, 0.8, 3.0])))
    else:
        X, y = wave(n, seed=seed, noise=draw(st.sampled_from([0.5, 0.1, 1e-3])))
    if draw(st.booleans()):
        X = np.round(X)
    w = None
    if draw(st.booleans()):
        w = np.random.default_rng(n).choice([0.0, 1.0, 3.0], size=n, p=[0.2, 0.4, 0.4])
        w[:2] = 1.0  # two classes at least have a row
    held_out = (groups(30, K, seed=99) if K else wave(30, seed=99)) if draw(st.booleans()) else None
    facts = {
        "gamma": draw(st.sampled_from([0.05, 0.5, 5.0])),
        "w": w,
        "held_out": held_out,
        "bias": draw(st.booleans()),
        "shuffled": draw(st.booleans()),
    }
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
        fit_rows=draw(st.sampled_from(FIT_ROWS)),
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
