"""Problems with several classes, drawn by hypothesis, for tests of updates and fits."""

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from numpy.random import default_rng

from partirvm.core import LINKS

seeds = st.integers(0, 2**32 - 1)


@st.composite
def problems(draw, least=1):
    """Draw columns of noise, some of which determine the class, and any α, which the outputs
    share."""
    likelihood = draw(st.sampled_from(list(LINKS)))
    rng = default_rng(draw(seeds))
    K = 2 if likelihood == "bernoulli" else draw(st.integers(2, 4))
    C = 1 if likelihood == "bernoulli" else K
    M = draw(st.integers(least, 6))
    Phi = rng.normal(size=(draw(st.integers(4 * M, 60)), M))
    truth = rng.normal(size=(M, K)) * (rng.random((M, 1)) < 0.6)
    codes = (Phi @ truth + rng.gumbel(size=(len(Phi), K))).argmax(axis=1).astype(float)
    alpha = 10.0 ** rng.uniform(-1, 3, size=(M, 1))
    w = draw(st.sampled_from([None, rng.choice([0.0, 1.0, 2.0], len(Phi))]))
    assume(w is None or w.any())
    return likelihood, Phi, codes, np.broadcast_to(alpha, (M, C)).copy(), w
