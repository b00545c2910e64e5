"""Rows arriving in chunks: a stream is fitted exactly, and misuse is refused."""

import pickle

import naive
import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from regressions import Dense

from partirvm import Radial, RVMRegressor, WorkingSet
from partirvm.errors import DataError, UsageError

OPTIONS = {
    "gamma": 0.5,
    "partition_size": 30,
    "reference": "none",
    "residual": "none",
    "random_state": 0,
}


def stream(n, seed=0):
    """Return rows of one function of two inputs."""
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(2 * X[:, 0]) * X[:, 1]
    return X, f + 0.1 * rng.normal(size=n), f


def fed(chunks, **options):
    """Return a regressor after ``partial_fit`` with each chunk."""
    model = RVMRegressor(**(OPTIONS | options))
    for X, y, w in chunks:
        model.partial_fit(X, y, sample_weight=w)
    return model


@pytest.mark.parametrize("targets", [1, 2])
def test_a_stream_is_fitted_exactly(targets):
    """Posterior and evidence equal dense formulas for all rows, with weights."""
    chunks = []
    for seed in range(3):
        X, y, f = stream(60, seed)
        t = y if targets == 1 else np.column_stack([y, f**2 + 0.2 * y])
        chunks.append((X, t, default_rng(seed).uniform(0.5, 2.0, len(X)) if seed else None))
    model = fed(chunks)
    X = np.concatenate([c[0] for c in chunks])
    y = np.concatenate([c[1] for c in chunks]).reshape(180, -1)
    w = np.concatenate([np.ones(60) if c[2] is None else c[2] for c in chunks])
    means = model.model_.mean.reshape(-1, targets)
    evidence = 0.0
    for k in range(targets):
        dense = Dense(model, X, y[:, k], target=k)
        mean, _ = naive.posterior(*dense.problem, w)
        assert_allclose(means[:, k], mean, rtol=1e-4, atol=1e-7)
        evidence += naive.log_evidence(*dense.problem, w) - len(X) * np.log(dense.scale)
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-7)
    assert model.model_.n_rows == len(X)


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_steps_are_repeatable_to_the_bit_and_misuse_is_refused():
    """The first call is a fit; the same chunks give the same bits."""
    X, y, _ = stream(100)
    first = RVMRegressor(**OPTIONS).partial_fit(X, y)
    fresh = RVMRegressor(**OPTIONS).fit(X, y)
    assert first.model_.digest() == fresh.model_.digest()
    more = stream(40, 1)
    again = fed([(X, y, None), (*more[:2], None)])
    first.partial_fit(*more[:2])
    assert first.model_.digest() == again.model_.digest()
    assert first.model_.n_rows == 140
    restored = pickle.loads(pickle.dumps(first)).partial_fit(X[:1], y[:1])
    first.partial_fit(X[:1], y[:1])
    assert restored.model_.digest() == first.model_.digest()
    assert first.model_.n_rows == 141
    with pytest.raises(UsageError, match="fit and files keep no rows"):
        fresh.partial_fit(*more[:2])
    with pytest.raises(ValueError, match="X has 1 features"):
        first.partial_fit(X[:, :1], y)
    with pytest.raises(DataError, match="dimension"):
        first.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(
        UsageError, match=r"strategy is 'working-set', but partial_fit began with 'auto'"
    ):
        again.set_params(strategy=WorkingSet("gain")).partial_fit(X, y)
    with pytest.raises(
        UsageError, match="X is str, but an estimator is updated with rows in memory"
    ):
        RVMRegressor().partial_fit("rows.zarr", None)
    digest = first.model_.digest()
    with pytest.raises(
        UsageError, match=r"gamma is 7\.0, but partial_fit began with 0\.5: set it back"
    ):
        first.set_params(gamma=7.0).partial_fit(*more[:2])
    assert first.model_.digest() == digest
    with pytest.raises(UsageError, match=r"gamma is 7\.0, but partial_fit began with 0\.5"):
        first.set_params(gamma="learn", kernel=Radial(gamma=7.0)).partial_fit(*more[:2])
    assert first.model_.digest() == digest
    first.set_params(kernel=Radial(gamma=OPTIONS["gamma"]), max_rounds=2).partial_fit(*more[:2])
    assert first.model_.n_rows == 181
    constant = RVMRegressor(**OPTIONS).partial_fit(X, np.ones(100))
    with pytest.raises(UsageError, match="constant target: fit all rows"):
        constant.partial_fit(X, y)


def test_a_step_runs_its_first_round_despite_the_time_limit():
    rng = default_rng(0)
    X = rng.uniform(-3, 3, size=(60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    model = RVMRegressor(gamma=1.0, random_state=0).partial_fit(X[:40], y[:40])
    model.set_params(time_limit=1e-6).partial_fit(X[40:], y[40:])
    assert np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.3
