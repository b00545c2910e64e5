"""Several widths at once, from options to models: what P counts, evidence, lists of kernels."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from benchmarks.estimator_parameters import grouped
from partirvm import RVMRegressor
from partirvm.kernels import Gaussian

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
WIDTHS = (0.5, 40.0)
ASKED = {"gamma": 0.5, "gamma_multiples": (1, 80), "partition_size": 61, "random_state": 0}


def rows(n=400, seed=0):
    """Hills as wide as the map, and a steep one."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    steep = 3 * np.exp(-40 * ((X - 1) ** 2).sum(axis=1))
    return X, np.sin(X[:, 0]) + steep + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("strategy", ["basic", "working-set", "incremental", "split-merge"])
def test_every_strategy_offers_both_widths(strategy):
    """P functions of P // K rows join at a time; the evidence is that of the columns that are left, by its formula."""
    X, y = rows(150)
    y = y + 0.4 * np.random.default_rng(0).normal(size=150)
    model = RVMRegressor(standardize=False, **grouped({**ASKED, "strategy": strategy, "partition_size": 41})).fit(X, y)
    design = model.model_.design
    assert [kernel.gamma for kernel in design.kernels] == [(WIDTHS[0],), (pytest.approx(WIDTHS[1]),)]
    assert set(design.which.tolist()) == {0, 1}
    assert len(set(design.labels.tolist())) == len(design.labels)
    joined = [entry["candidates"] for entry in model.history_ if entry["kind"] in ("round", "part")]
    if strategy == "working-set":
        assert joined[0] == 40
    if strategy != "basic":
        assert model.plan_.partitions == -(-150 // 20)
    Phi = np.hstack(
        [
            np.ones((150, int(design.bias))),
            *(naive.gaussian(X, design.centres[[m]], WIDTHS[k]) for m, k in enumerate(design.which)),
        ]
    )
    beta = 1 / model.model_.evidence_noise
    evidence = naive.log_evidence(Phi, y - y.mean(), model.model_.alpha, beta, np.ones(150))
    np.testing.assert_allclose(model.log_evidence_, evidence, rtol=1e-5)


def test_a_list_is_the_same():
    """To the bit; names in it take gamma; of a list of one nothing is new."""
    X, y = rows(200)
    asked = {**ASKED, "max_rounds": 2, "selection": "gain", "strategy": "working-set"}
    one = RVMRegressor(**grouped({**asked, "gamma_multiples": (1, 2)})).fit(X, y)
    left = {name: value for name, value in asked.items() if name not in ("gamma", "gamma_multiples")}
    listed = grouped(left)
    gamma = one.kernel_.kernels[1].gamma
    two = RVMRegressor(**listed, kernel=[Gaussian(0.5), {"name": "gaussian", "gamma": gamma}]).fit(X, y)
    np.testing.assert_array_equal(one.weights_, two.weights_)
    mixed = RVMRegressor(**listed, gamma=0.5, kernel=["gaussian", Gaussian(gamma)]).fit(X, y)
    np.testing.assert_array_equal(one.weights_, mixed.weights_)
    alone = RVMRegressor(**listed, kernel=[Gaussian(0.5)]).fit(X, y)
    assert alone.kernel_ == Gaussian(0.5)
