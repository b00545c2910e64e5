"""Any small problem with any options, for hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from simulator import Simulator, wave

from partirvm.strategies import STRATEGIES
from partirvm.strategies.problem import Options

FIT_ROWS = ("full", "sample", "growing")
NAMES = tuple(sorted(STRATEGIES))
SELECTIONS = ("error", "random", "gain")


@st.composite
def runs(draw, names=NAMES, likelihoods=FIT_ROWS):
    """Any small problem with any options, for one of the strategies."""
    n = draw(st.integers(2, 70))
    X, y = wave(n, seed=draw(st.integers(0, 50)), noise=draw(st.sampled_from([0.5, 0.1, 1e-3])))
    if draw(st.booleans()):
        X = np.round(X)
    w = None
    if draw(st.booleans()):
        w = np.random.default_rng(n).choice([0.0, 1.0, 3.0], size=n, p=[0.2, 0.4, 0.4])
        w[:2] = 1.0
    simulator = Simulator(
        X,
        y,
        gamma=draw(st.sampled_from([0.05, 0.5, 5.0])),
        w=w,
        held_out=draw(st.sampled_from([None, wave(30, seed=99)])),
        bias=draw(st.booleans()),
        noise_variance=draw(st.sampled_from([None, 0.04])),
        shuffled=draw(st.booleans()),
    )
    options = Options(
        partition_size=draw(st.integers(1, 40)),
        selection=draw(st.sampled_from(SELECTIONS)),
        stop_fraction=draw(st.sampled_from([0.0, 0.5, 0.9])),
        max_rounds=draw(st.sampled_from([None, 1, 3])),
        max_vectors=draw(st.sampled_from([None, 1, 10])),
        max_columns=draw(st.sampled_from([None, 60])),
        fit_rows=draw(st.sampled_from(likelihoods)),
        sample_rows=draw(st.integers(5, 80)),
        batch=draw(st.sampled_from([1, 1000, 1_000_000])),
        max_iterations=60,
        seed=draw(st.integers(0, 5)),
        solver=draw(st.sampled_from(("fixed-point", "fixed-point", "auto", "fast"))),
    )
    return draw(st.sampled_from(names)), simulator, options
