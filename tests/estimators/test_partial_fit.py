"""Rows that come in chunks: what is exact, what is approximated of rows that are gone, and what is refused."""

from __future__ import annotations

import pickle

import naive
import numpy as np
import pytest

from partirvm import Radial, RVMRegressor, WorkingSet
from partirvm.errors import DataError, DataWarning, UsageError
from partirvm.jobs import partial_fit

OPTIONS = {"gamma": 0.5, "partition_size": 40, "random_state": 0}


def stream(n, seed=0, low=-2.0, high=2.0):
    """Rows of one function of two inputs, the first between these bounds."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(low, high, n), rng.uniform(-2, 2, n)])
    f = np.sin(2 * X[:, 0]) * X[:, 1]
    return X, f + 0.1 * rng.normal(size=n), f


def design_of(model, X, gamma=0.5):
    """The design of a model at raw rows, densely."""
    scaling, bias = model.model_.design.scaling, model.model_.design.bias
    rows, centres = scaling.inputs(X), scaling.inputs(model.relevance_vectors_)
    return np.column_stack([np.ones((len(X), int(bias))), naive.gaussian(rows, centres, gamma)])


def fed(chunks, **options):
    model = RVMRegressor(**(OPTIONS | options))
    for X, y, w in chunks:
        model.partial_fit(X, y, sample_weight=w)
    return model


@pytest.mark.parametrize("targets", [1, 2])
def test_a_stream_that_is_kept_is_fitted_exactly(targets):
    """Up to ``SAMPLE`` rows: statistics, posterior and evidence are those of all rows, taken densely, with weights."""
    chunks = []
    for seed in range(3):
        X, y, f = stream(120, seed)
        t = y if targets == 1 else np.column_stack([y, f**2 + 0.2 * y])
        chunks.append((X, t, np.random.default_rng(seed).uniform(0.5, 2.0, len(X)) if seed else None))
    model = fed(chunks)
    X, y = np.concatenate([c[0] for c in chunks]), np.concatenate([c[1] for c in chunks]).reshape(360, -1)
    w = np.concatenate([np.ones(120) if c[2] is None else c[2] for c in chunks])
    Phi, scaling, alpha = design_of(model, X), model.model_.design.scaling, model.model_.alpha
    t, evidence = scaling.targets(y), 0.0
    assert len(model._memory.sample) == 360
    for k in range(targets):
        noise = np.atleast_1d(model.model_.evidence_noise)[k]
        beta = scaling.t_scale[k] ** 2 / noise
        mean, _ = naive.posterior(Phi, t[:, k], alpha, beta, w)
        np.testing.assert_allclose(model.model_.mean.reshape(len(mean), -1)[:, k], mean, rtol=1e-4, atol=1e-7)
        evidence += naive.log_evidence(Phi, t[:, k], alpha, beta, w) - len(X) * np.log(scaling.t_scale[k])
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-7)
    assert model.model_.n_rows == len(X)


@pytest.mark.parametrize("kept", [False, True])
def test_a_single_row_joins(kept):
    """After a plain fit, whose rows are gone, and after a first step. The row is where a vector is, and so brings no
    column: posterior and evidence are those of all rows, densely."""
    X, y, _ = stream(100)
    model = RVMRegressor(**OPTIONS)
    (model.partial_fit if kept else model.fit)(X, y)
    X_new, y_new = model.relevance_vectors_[:1], np.array([y.mean() + 0.5])
    with pytest.warns(DataWarning, match="had the same inputs as another row"):
        model.partial_fit(X_new, y_new)
    X, y = np.concatenate([X, X_new]), np.concatenate([y, y_new])
    Phi, scaling, alpha = design_of(model, X), model.model_.design.scaling, model.model_.alpha
    t, beta = scaling.targets(y[:, None])[:, 0], scaling.t_scale[0] ** 2 / model.model_.evidence_noise
    mean, _ = naive.posterior(Phi, t, alpha, beta)
    np.testing.assert_allclose(model.model_.mean, mean, rtol=1e-4, atol=1e-7)
    evidence = naive.log_evidence(Phi, t, alpha, beta) - 101 * np.log(scaling.t_scale[0])
    assert model.log_evidence_ == pytest.approx(evidence, rel=1e-7)
    assert model.model_.n_rows == 101


def test_kept_vectors_stay_exact_when_rows_are_gone(monkeypatch):
    """Of vectors that were there before a chunk, the statistics are those of all rows, though few can be read again."""
    monkeypatch.setattr(partial_fit, "SAMPLE", 50)
    chunks = [stream(150, seed)[:2] for seed in range(2)]
    model = RVMRegressor(**(OPTIONS | {"gamma": 4.0, "max_rounds": 1, "noise": "constant"})).partial_fit(*chunks[0])
    early = {tuple(row) for row in model.relevance_vectors_.tolist()}
    model.partial_fit(*chunks[1])
    memory = model._memory
    assert len(memory.sample) == 50
    statistics = memory.past.statistics
    assert statistics.n == 250
    X, y = (np.concatenate([chunk[part] for chunk in chunks]) for part in (0, 1))
    Phi, t = design_of(model, X, 4.0), model.model_.design.scaling.targets(y[:, None])
    bias, rows = int(model.model_.design.bias), model.relevance_vectors_.tolist()
    old = np.array([bias + k for k, row in enumerate(rows) if tuple(row) in early])
    assert 2 < len(old) < len(rows)
    here = design_of(model, memory.sample.X, 4.0), model.model_.design.scaling.targets(memory.sample.t)
    exact, left = naive.gram(Phi, t), naive.gram(*here)
    gram, projection = exact[0] - left[0], exact[1] - left[1]
    pairs = np.ix_(old, old)
    np.testing.assert_allclose(statistics.gram[pairs], gram[pairs], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(statistics.projection[old], projection[old], rtol=1e-6, atol=1e-6)
    assert np.abs(statistics.gram - gram).max() > 1e-9, "nothing was approximated"
    assert np.linalg.eigvalsh(statistics.gram).min() > -1e-8 * np.abs(statistics.gram).max()


def test_a_stream_that_moves_on_forgets_nothing(monkeypatch):
    """Chunks from left to right: the left is predicted in the end as it was, the right as well as by a fit of all."""
    monkeypatch.setattr(partial_fit, "SAMPLE", 60)
    edges = np.linspace(-2, 2, 5)
    chunks = [(*stream(150, seed, *edges[seed : seed + 2])[:2], None) for seed in range(4)]
    model = fed(chunks[:1])
    X, _, f = stream(300, 9, *edges[:2])

    def error(model, X, f):
        return np.sqrt(((model.predict(X) - f) ** 2).mean())

    before = error(model, X, f)
    for X_new, y_new, w in chunks[1:]:
        model.partial_fit(X_new, y_new, w)
    assert error(model, X, f) < 1.5 * before
    X, _, f = stream(600, 10)
    rows, y = (np.concatenate([chunk[part] for chunk in chunks]) for part in (0, 1))
    whole = RVMRegressor(**OPTIONS).fit(rows, y)
    assert error(model, X, f) < 2 * error(whole, X, f) + 0.02
    assert len(pickle.dumps(model)) < 300_000


def test_a_stream_that_outgrows_its_sample(monkeypatch):
    """Rows are gone from the third chunk on; every row is counted once, and a constant chunk does no harm."""
    monkeypatch.setattr(partial_fit, "SAMPLE", 250)
    chunks = [(*stream(100, seed)[:2], None) for seed in range(4)]
    model = fed(chunks)
    memory = model._memory
    assert len(memory.sample) == 250
    assert memory.past.statistics.n == 150
    assert model.model_.n_rows == 400
    model.partial_fit(stream(20, 9)[0], np.full(20, chunks[0][1].mean()))
    assert model.model_.n_rows == 420


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_steps_and_refusals():
    """The first call is a fit, to the bit; the same chunks give the same bits; what cannot be is refused by name."""
    X, y, f = stream(200)
    first = RVMRegressor(**OPTIONS).partial_fit(X, y)
    whole = RVMRegressor(**OPTIONS).fit(X, y)
    assert first.model_.digest() == whole.model_.digest()
    more = stream(90, 1)
    again = fed([(X, y, None), (*more[:2], None)])
    first.partial_fit(*more[:2])
    assert first.model_.digest() == again.model_.digest()
    assert first.model_.n_rows == 290
    first.partial_fit(X[:1], y[:1])
    assert first.model_.n_rows == 291
    whole.partial_fit(*more[:2])  # all rows of a plain fit are gone
    assert whole.model_.n_rows == 290
    assert np.sqrt(((whole.predict(X) - f) ** 2).mean()) < 0.06
    with pytest.raises(ValueError, match="X has 1 features"):
        first.partial_fit(X[:, :1], y)
    with pytest.raises(DataError, match="y has 2 targets, the rows before had 1"):
        first.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(UsageError, match=r"WorkingSet\.fit_rows is 'sample', but partial_fit needs statistics of all"):
        RVMRegressor(strategy=WorkingSet(fit_rows="sample")).partial_fit(X, y)
    with pytest.raises(UsageError, match="partial_fit takes rows in memory, X is str"):
        RVMRegressor().partial_fit("rows.zarr", None)
    digest = first.model_.digest()
    with pytest.raises(UsageError, match=r"gamma is 7\.0, and was 0\.5 at the first rows: partial_fit keeps it"):
        first.set_params(gamma=7.0).partial_fit(*more[:2])
    assert first.model_.digest() == digest
    with pytest.raises(UsageError, match=r"Radial\.gamma is 7\.0, and was 0\.5 at the first rows"):
        first.set_params(gamma="auto", kernel=Radial(gamma=7.0)).partial_fit(*more[:2])
    assert first.model_.digest() == digest
    first.set_params(kernel=Radial(gamma=OPTIONS["gamma"]), tol=1e-5).partial_fit(*more[:2])
    assert first.model_.n_rows == 381
    constant = RVMRegressor(**OPTIONS).partial_fit(X, np.ones(200))
    with pytest.raises(DataError, match="the target of the first rows was constant"):
        constant.partial_fit(X, y)


def test_each_target_by_itself():
    """Independent fits go on one by one."""
    X, y, f = stream(150)
    t = np.column_stack([y, f**2])
    model = (
        RVMRegressor(multi_output="independent", **OPTIONS).partial_fit(X[:100], t[:100]).partial_fit(X[100:], t[100:])
    )
    alone = RVMRegressor(**OPTIONS).partial_fit(X[:100], t[:100, 1]).partial_fit(X[100:], t[100:, 1])
    np.testing.assert_array_equal(model.predict(X)[:, 1], alone.predict(X))


def test_a_step_does_not_judge_the_fit_by_the_rows_at_hand():
    """Two odd rows after 150 sound ones: the noise stays what it was, nearly, and nothing is called overconfident."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(150, 1))
    model = RVMRegressor(gamma=1.0, random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=150))
    before = model.noise_variance_
    model.partial_fit([[0.5], [-1.0]], np.sin([0.5, -1.0]) + np.array([0.3, -0.3]))
    assert model.noise_variance_ == pytest.approx(before, rel=0.2)
    assert not model.history_[-1]["overconfident"]


def test_a_step_has_its_first_round_whatever_the_time_limit():
    """The limit of seconds ends a step, not before it has a model."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    model = RVMRegressor(gamma=1.0, random_state=0).partial_fit(X[:40], y[:40])
    model.set_params(time_limit=1e-6).partial_fit(X[40:], y[40:])
    assert np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.3


def test_a_model_that_has_grown_is_augmented_with_all_rows():
    """Those of both chunks, whose mean is not that of the first; far away the deviation is that of the targets."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(80, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    model = RVMRegressor(gamma=1.0, fit_intercept=False, random_state=0).partial_fit(X[:40], y[:40])
    model.partial_fit(X[40:], y[40:])
    std = model.predict([[90.0]], return_std=True, augment=(X, y))[1]
    assert std[0] == pytest.approx(np.sqrt(model.model_.predictive.noise_variance + y.var()), rel=1e-6)
