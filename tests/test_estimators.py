"""RVMRegressor: scikit-learn's rules, every kind of input, known answers, units, and what bad input gets."""

from __future__ import annotations

import gc
import pickle
import warnings
import weakref

import dask.array as da
import dask.dataframe as dd
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from partirvm import RVMRegressor, ingest, plan
from partirvm.core.termination import Termination
from partirvm.data import as_source
from partirvm.errors import (
    DataError,
    DataWarning,
    LimitWarning,
    MemoryLimitError,
    NoiseFloorWarning,
    PartirvmError,
    UsageError,
)


def sinc(n=100, noise=0.1, seed=0):
    """Tipping's example: sin(x)/x on [−10, 10] with noise of this sd."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, size=(n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.normal(size=n)


def plane(n=300, d=3, noise=0.1, seed=0):
    """A smooth function of several inputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 5 + np.sin(X[:, 0]) + 0.5 * X[:, -1] + noise * rng.normal(size=n)


MAY_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": (
        "sample weights are precisions: a row of weight 2 has noise variance σ²/2 and is still one of N rows, two "
        "equal rows are two of them; MacKay's σ² divides by N − Σγ"
    ),
}
"""Checks that an RVM need not pass, each with its reason."""


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@parametrize_with_checks(
    [RVMRegressor(random_state=0), RVMRegressor(strategy="working-set", partition_size=20, random_state=0)]
)
def test_scikit_learns_checks(estimator, check):
    """All of ``sklearn.utils.estimator_checks``, for both strategies."""
    try:
        check(estimator)
    except AssertionError:
        if check.func.__name__ in MAY_FAIL:
            pytest.xfail(MAY_FAIL[check.func.__name__])
        raise


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2])
def test_sinc(strategy, noise):
    """Noise sd within 20 % of the truth, few vectors, an error well below the noise (Tipping 2001, §4.1)."""
    X, y = sinc(200, noise)
    model = RVMRegressor(gamma=4.0, strategy=strategy, partition_size=50, random_state=0).fit(X, y)
    test = np.linspace(-9.5, 9.5, 300)[:, None]
    truth = np.sinc(test[:, 0] / np.pi)
    mean, std = model.predict(test, return_std=True)
    assert model.noise_variance_**0.5 == pytest.approx(noise, rel=0.2)
    assert 3 <= model.n_relevance_vectors_ <= 20
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.5 * noise
    fresh = truth + noise * np.random.default_rng(9).normal(size=300)
    assert np.mean(np.abs(fresh - mean) <= 1.96 * std) == pytest.approx(0.95, abs=0.04)
    assert (std**2 >= model.noise_variance_).all()


def phi(model, X):
    """The design of a fitted model by pairwise differences, standardised by the model's own moments."""
    s = model.model_.design.scaling
    centres = (model.relevance_vectors_ - s.x_shift) / s.x_scale
    kernels = naive.gaussian((X - s.x_shift) / s.x_scale, centres, np.array(model.model_.design.kernel.gamma))
    return np.hstack([np.ones((len(X), int(model.model_.design.bias))), kernels])


@pytest.mark.parametrize("options", [{"strategy": "basic"}, {"strategy": "working-set", "partition_size": 40}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_posterior_and_evidence_are_the_papers(options, weighted, standardize):
    """At the α and σ² found: mean, sd and evidence of the dense formulas (eqs. 15, 21, 22) in the target's units."""
    X, y = plane(150)
    X = X * [1.0, 30.0, 0.1] + [0, 100, 5]
    w = np.random.default_rng(1).uniform(0.2, 3.0, size=150) if weighted else None
    gamma = 0.3 if standardize else [0.3, 0.0003, 30.0]
    model = RVMRegressor(gamma=gamma, standardize=standardize, random_state=0, **options)
    model.fit(X, y, sample_weight=w)
    scaling = model.model_.design.scaling
    shift, scale = scaling.t_shift[0], scaling.t_scale[0]
    np.testing.assert_allclose(shift, np.average(y, weights=w), rtol=1e-12)
    expected_sd = np.sqrt(np.average((y - shift) ** 2, weights=w)) if standardize else 1.0
    np.testing.assert_allclose(scale, expected_sd, rtol=1e-12)
    Phi, t = phi(model, X), (y - shift) / scale
    alpha, beta = model.model_.alpha, scale**2 / model.noise_variance_
    test = plane(40, seed=5)[0] * [1.0, 30.0, 0.1] + [0, 100, 5]
    mean, variance = naive.predict_by_rows(phi(model, test), Phi, t, alpha, beta, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found, std = model.predict(test, return_std=True)
    np.testing.assert_allclose(found, shift + scale * mean, atol=1e-6 * y.std())
    np.testing.assert_allclose(std, scale * np.sqrt(variance), rtol=1e-6)
    evidence = naive.log_evidence(Phi, t, alpha, beta, w) - len(y) * np.log(scale)
    np.testing.assert_allclose(model.log_evidence_, evidence, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*far from every relevance vector:partirvm.errors.DataWarning")
def test_the_basic_strategy_ends_where_the_dense_loop_ends():
    """All rows as candidates and MacKay's updates to their end: predictions, noise and evidence of ``naive.rvm``."""
    X, y = sinc(80, 0.1)
    model = RVMRegressor(gamma=0.5, strategy="basic", standardize=False, tol=1e-10, random_state=0).fit(X, y)
    Phi = np.hstack([np.ones((80, 1)), naive.gaussian(X, X, 0.5)])
    t = y - y.mean()
    kept, alpha, beta = naive.rvm(Phi, t, beta=10 / t.var())
    mean, _ = naive.posterior(Phi[:, kept], t, alpha, beta)
    np.testing.assert_allclose(model.predict(X), y.mean() + Phi[:, kept] @ mean, atol=0.02 * y.std())
    np.testing.assert_allclose(model.noise_variance_, 1 / beta, rtol=0.03)
    assert model.log_evidence_ >= naive.log_evidence(Phi[:, kept], t, alpha, beta) - 0.5


@pytest.mark.parametrize("cx", [1e-3, 50.0])
@pytest.mark.parametrize("cy", [1e-4, 300.0])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_units_do_not_matter(cx, cy, offset):
    """Other units of X and y: predictions follow, the evidence falls by N·log c (density of y), σ² rises by c²."""
    X, y = plane(120)
    options = {"gamma": 0.3, "strategy": "working-set", "partition_size": 40, "max_rounds": 2, "random_state": 0}
    one = RVMRegressor(**options).fit(X, y)
    other = RVMRegressor(**options).fit(offset + cx * X, offset + cy * y)
    np.testing.assert_allclose(other.predict(offset + cx * X) - offset, cy * one.predict(X), atol=1e-4 * cy * y.std())
    np.testing.assert_allclose(other.noise_variance_, cy**2 * one.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(other.log_evidence_, one.log_evidence_ - 120 * np.log(cy), atol=0.05)


def test_without_standardisation_gamma_is_in_the_inputs_own_units():
    """standardize=False with X·c and gamma/c² is the same problem; α and evidence too."""
    X, y = plane(120)
    options = {
        "strategy": "working-set",
        "partition_size": 40,
        "max_rounds": 2,
        "random_state": 0,
        "standardize": False,
    }
    one = RVMRegressor(gamma=0.3, **options).fit(X, y)
    other = RVMRegressor(gamma=0.3 / 64, **options).fit(8 * X, y)
    np.testing.assert_array_equal(other.predict(8 * X), one.predict(X))
    np.testing.assert_array_equal(other.alpha_, one.alpha_)
    assert other.log_evidence_ == one.log_evidence_


def test_gamma_scale_is_one_over_d_var():
    """gamma="scale" is 1/(d·var) of what the kernel sees, as in scikit-learn's SVR; "auto" means the same."""
    X, y = plane(100, d=4)
    X = X * [1, 2, 3, 4]
    raw = RVMRegressor(gamma="scale", standardize=False, random_state=0).fit(X, y)
    np.testing.assert_allclose(raw.model_.design.kernel.gamma, [1 / (4 * X.var())], rtol=1e-12)
    for name in ("scale", "auto"):
        scaled = RVMRegressor(gamma=name, random_state=0).fit(X, y)
        np.testing.assert_allclose(scaled.model_.design.kernel.gamma, [1 / 4], rtol=1e-12)


@pytest.mark.parametrize("standardize", [True, False])
def test_a_given_noise_is_kept_in_the_targets_unit(standardize):
    """noise_variance=v: noise_variance_ is v, and it is what the predictive variance is at least."""
    X, y = sinc(100)
    model = RVMRegressor(gamma=2.0, noise_variance=0.03, standardize=standardize, random_state=0).fit(X, 7 * y)
    assert model.noise_variance_ == pytest.approx(0.03, rel=1e-12)
    assert (model.predict(X, return_std=True)[1] ** 2 >= 0.03 * (1 - 1e-12)).all()


def test_without_an_intercept_there_is_no_bias():
    """fit_intercept=False: as many weights as vectors, and intercept_ is the target's mean."""
    X, y = plane(100)
    model = RVMRegressor(fit_intercept=False, random_state=0).fit(X, y)
    assert not model.model_.design.bias
    assert model.intercept_ == pytest.approx(y.mean())
    assert len(model.weights_) == len(model.alpha_) == model.n_relevance_vectors_ == len(model.relevance_vectors_)


def test_the_attributes_make_the_prediction():
    """mean = intercept_ + sd(y)·Σ_m weights_m k(x, z_m), z_m rows of X in its own units."""
    X, y = plane(200)
    model = RVMRegressor(gamma=0.3, partition_size=50, random_state=0).fit(X, y)
    kernels = naive.gaussian(X / X.std(axis=0), model.relevance_vectors_ / X.std(axis=0), 0.3)
    np.testing.assert_allclose(model.predict(X), model.intercept_ + y.std() * kernels @ model.weights_, atol=1e-9)
    assert {tuple(row) for row in model.relevance_vectors_} <= {tuple(row) for row in X}
    assert model.n_features_in_ == 3
    assert isinstance(model.termination_, Termination)
    last = model.history_[-1]
    assert (last["kind"], last["vectors"]) == ("final", model.n_relevance_vectors_)
    assert last["train_rmse"] == pytest.approx(np.sqrt(np.mean((y - model.predict(X)) ** 2)), rel=1e-6)
    assert last["log_evidence"] == pytest.approx(model.log_evidence_)


def test_a_zero_weight_is_an_absent_row():
    """Rows of weight zero, however absurd, change no prediction."""
    X, y = sinc(100)
    w = np.ones(100)
    w[::7] = 0
    spoiled = np.where(w > 0, y, 1e6)
    options = {"gamma": 2.0, "strategy": "basic", "random_state": 0}
    with_weights = RVMRegressor(**options).fit(X, spoiled, sample_weight=w)
    without = RVMRegressor(**options).fit(X[w > 0], y[w > 0])
    np.testing.assert_allclose(with_weights.predict(X), without.predict(X), atol=1e-10)
    assert with_weights.log_evidence_ == pytest.approx(without.log_evidence_, abs=1e-8)


def test_precise_rows_count_for_more():
    """Half of the rows with a tenth of the noise: by their precisions as weights the noise of weight 1 is found."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-10, 10, size=(400, 1))
    w = np.where(np.arange(400) % 2, 100.0, 1.0)
    y = np.sinc(X[:, 0] / np.pi) + 0.3 / np.sqrt(w) * rng.normal(size=400)
    model = RVMRegressor(gamma=4.0, partition_size=60, random_state=0).fit(X, y, sample_weight=w)
    assert model.noise_variance_**0.5 == pytest.approx(0.3, rel=0.1)
    test = np.linspace(-9, 9, 200)[:, None]
    assert np.sqrt(np.mean((model.predict(test) - np.sinc(test[:, 0] / np.pi)) ** 2)) < 0.02


def kinds(folder):
    """The same rows as every kind of input, in the same order."""
    X, y = plane(150)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    group = zarr.open_group(str(folder / "own.zarr"), mode="w")
    for name, values in (("X", X), ("y", y)):
        array = group.create_array(name, shape=values.shape, dtype="f8", chunks=(40, *values.shape[1:]))
        array[:] = values
    return {
        "list": (X.tolist(), y.tolist()),
        "fortran": (np.asfortranarray(X), y),
        "pandas": (frame, pd.Series(y, name="height")),
        "zarr": (group["X"], group["y"]),
        "dask array": (da.from_array(X, chunks=(40, 3)), da.from_array(y, chunks=40)),
        "dask array, numpy y": (da.from_array(X, chunks=(40, 3)), y),
        "dask frame": (dd.from_pandas(frame, npartitions=3), da.from_array(y, chunks=50)),
        "data": (str(ingest((X, y), folder / "rows.zarr", shuffle=None).url), None),
        "path": (folder / "rows.zarr", None),
    }


KINDS = ["list", "fortran", "pandas", "zarr", "dask array", "dask array, numpy y", "dask frame", "data", "path"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_model(tmp_path, kind):
    """Every row is a candidate, so that the order of rows does not matter: the dense answer to rounding."""
    X, y = plane(150)
    options = {"gamma": 0.3, "strategy": "basic", "random_state": 0}
    expected = RVMRegressor(**options).fit(X, y)
    given = kinds(tmp_path)[kind]
    found = RVMRegressor(**options).fit(*given)
    assert found.n_features_in_ == 3
    np.testing.assert_allclose(found.log_evidence_, expected.log_evidence_, atol=1e-3)
    mean, std = found.predict(given[0], return_std=True)
    wanted, spread = expected.predict(X, return_std=True)
    np.testing.assert_allclose(mean, wanted, atol=1e-3 * y.std())
    np.testing.assert_allclose(std, spread, rtol=1e-2)


def test_predictions_of_data_come_in_the_order_before_shuffling(tmp_path):
    """DATA is shuffled on disk; predictions are not."""
    X, y = plane(150)
    model = RVMRegressor(gamma=0.3, random_state=0).fit(X, y)
    data = ingest((X, y), tmp_path / "rows.zarr", shuffle=4, tile_rows=32)
    np.testing.assert_allclose(model.predict(data.url), model.predict(X), atol=1e-12)


def test_rows_in_memory_and_tiles_are_predicted_to_the_same_bits():
    """One BLAS thread for both, whatever is set around them."""
    X, y = plane(4000, d=3)
    model = RVMRegressor(strategy="working-set", partition_size=60, max_rounds=1, random_state=0).fit(X, y)
    in_memory = model.predict(X, return_std=True)
    tiles = model.predict(as_source(X, tile_rows=len(X)), return_std=True)
    np.testing.assert_array_equal(in_memory[0], tiles[0])
    np.testing.assert_array_equal(in_memory[1], tiles[1])


def test_names_and_number_of_features_follow_each_fit(tmp_path):
    """Of pandas and Dask frames; a refit on rows without names forgets those of the fit before."""
    X, y = plane(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RVMRegressor(random_state=0).fit(dd.from_pandas(frame, npartitions=2), da.from_array(y, chunks=30))
    assert (model.n_features_in_, list(model.feature_names_in_)) == (3, ["a", "b", "c"])
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])
    model.fit(dd.from_pandas(frame[["b", "a"]], npartitions=2), da.from_array(y, chunks=30))
    assert (model.n_features_in_, list(model.feature_names_in_)) == (2, ["b", "a"])
    ingest((X, y), tmp_path / "d.zarr")
    for rows in ((da.from_array(X, chunks=30), da.from_array(y, chunks=30)), (str(tmp_path / "d.zarr"),), (X, y)):
        model.fit(frame, y).fit(*rows)
        assert model.n_features_in_ == 3
        assert not hasattr(model, "feature_names_in_")


def test_validation_may_be_a_list_and_its_columns_must_be_those_of_the_training(tmp_path):
    """[X, y] as (X, y); a frame of other columns or another order is refused, whatever kinds the two are."""
    X, y = plane(80)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    made = RVMRegressor(random_state=0)
    pair = made.fit(X, y, validation=(X, y)).history_[-1]["held_out_rmse"]
    assert made.fit(X, y, validation=[X, y]).history_[-1]["held_out_rmse"] == pair
    ingest(frame.assign(y=y), tmp_path / "d.zarr", target="y")
    out_of_core = dd.from_pandas(frame, npartitions=2), da.from_array(y, chunks=40)
    for training in ((frame, y), out_of_core, (str(tmp_path / "d.zarr"),)):
        for other in (frame[["b", "a", "c"]], frame.rename(columns={"c": "d"})):
            for held_out in (other, dd.from_pandas(other, npartitions=2)):
                with pytest.raises(DataError, match="validation data have the features"):
                    made.fit(*training, validation=(held_out, y))
        for held_out in (frame, dd.from_pandas(frame, npartitions=2), X):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="X .* feature names")
                assert made.fit(*training, validation=(held_out, y)).history_[-1]["held_out_rmse"] > 0
    made.fit(X, y, validation=(dd.from_pandas(frame, npartitions=2), y))


def test_weights_copy_rows_only_if_some_are_absent(monkeypatch):
    """All positive: the source gets the array that was given; all zero: DataError."""
    X, y = plane(60)
    given = []

    def spy(X, *rest, **options):
        given.append(X)
        return as_source(X, *rest, **options)

    monkeypatch.setattr("partirvm.estimators.as_source", spy)
    RVMRegressor(random_state=0).fit(X, y, sample_weight=np.full(60, 2.0))
    assert np.shares_memory(given[0], X)
    with pytest.raises(DataError, match="no row has a weight above zero"):
        RVMRegressor().fit(X, y, sample_weight=np.zeros(60))


def test_a_plan_of_what_is_no_path():
    """UsageError that says what is wanted."""
    X, y = plane(40)
    for data, validation, name in ((X, None, "data is of type ndarray"), ("d.zarr", (X, y), "validation is of type")):
        with pytest.raises(UsageError, match=name):
            plan(RVMRegressor(), data, validation=validation)


def test_feature_names():
    """Of a data frame; another order or other names are refused, a bare array warns as scikit-learn does."""
    X, y = plane(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RVMRegressor(random_state=0).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


def test_validation_ends_up_in_the_history():
    """Held-out rmse and nlpd of every round, by the formulas at the last one."""
    X, y = plane(400)
    test, truth = plane(100, seed=8)
    model = RVMRegressor(gamma=0.3, partition_size=60, max_rounds=3, random_state=0).fit(X, y, validation=(test, truth))
    assert all(np.isfinite(entry["held_out_rmse"]) for entry in model.history_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        mean, std = model.predict(test, return_std=True)
    last = model.history_[-1]
    assert last["held_out_rmse"] == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))
    surprise = 0.5 * np.log(2 * np.pi * std**2) + (truth - mean) ** 2 / (2 * std**2)
    assert last["held_out_nlpd"] == pytest.approx(surprise.mean())


def test_validation_data_on_disk(tmp_path):
    """DATA as validation beside DATA, and the same scores."""
    X, y = plane(400)
    held = plane(100, seed=8)
    train, test = ingest((X, y), tmp_path / "train.zarr"), ingest(held, tmp_path / "test.zarr")
    options = {"gamma": 0.3, "partition_size": 60, "max_rounds": 2, "random_state": 0}
    found = RVMRegressor(**options).fit(train.url, validation=test.url).history_
    again = RVMRegressor(**options).fit(train.url, validation=held).history_
    assert found[-1]["held_out_rmse"] == pytest.approx(again[-1]["held_out_rmse"], rel=1e-10)


@pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")
def test_clone_pickle_pipeline_and_grid_search():
    """The conveniences of scikit-learn; a pickle predicts the same bits and holds no client."""
    X, y = plane(120)
    client = object()
    cloned = clone(RVMRegressor(gamma=[0.1, 0.2, 0.3], client=client))
    assert cloned.client is client
    assert cloned.gamma == [0.1, 0.2, 0.3]
    model = RVMRegressor(random_state=0).fit(X, y)
    model.client = client
    restored = pickle.loads(pickle.dumps(model))
    assert restored.client is None
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    pipeline = make_pipeline(StandardScaler(), RVMRegressor(random_state=0)).fit(X, y)
    assert pipeline.score(X, y) > 0.9
    search = GridSearchCV(RVMRegressor(random_state=0), {"gamma": [1.0, 0.3]}, cv=3).fit(X, y)
    assert search.best_params_ == {"gamma": 0.3}


def test_no_reference_to_the_rows_is_kept():
    """After the fit nothing keeps X or y alive, and a pickle is small."""
    X, y = plane(5000, d=20)
    X, y = X.copy(), y.copy()
    gone = [weakref.ref(X), weakref.ref(y)]
    model = RVMRegressor(gamma=0.05, partition_size=20, max_rounds=1, random_state=0).fit(X, y)
    size = X.nbytes
    del X, y
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert len(pickle.dumps(model)) < size / 10


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
def test_the_same_seed_gives_the_same_bits(strategy):
    """And another seed another working set."""
    X, y = plane(200)
    options = {"strategy": strategy, "partition_size": 30, "max_rounds": 2, "gamma": 0.3}
    first, second, other = (RVMRegressor(random_state=seed, **options).fit(X, y) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.weights_, second.weights_)
    assert first.log_evidence_ == second.log_evidence_
    if strategy == "working-set":
        assert {*map(tuple, first.relevance_vectors_)} != {*map(tuple, other.relevance_vectors_)}


def test_score_is_r2():
    """1 − Σ(y − ŷ)²/Σ(y − ȳ)²."""
    X, y = plane(100)
    model = RVMRegressor(random_state=0).fit(X, y)
    r = y - model.predict(X)
    assert model.score(X, y) == pytest.approx(1 - (r @ r) / ((y - y.mean()) @ (y - y.mean())))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("kernel", "laplace", "gaussian"),
        ("kernel", None, "gaussian"),
        ("gamma", 0.0, "positive"),
        ("gamma", -1.0, "positive"),
        ("gamma", float("nan"), "positive"),
        ("gamma", [1.0, 2.0], "3 features"),
        ("gamma", [0.0, 0.0, 0.0], "positive"),
        ("gamma", "wide", "scale"),
        ("gamma", None, "scale"),
        ("strategy", "greedy", "working-set"),
        ("partition_size", 0, "whole number"),
        ("partition_size", 2.5, "whole number"),
        ("partition_size", "large", "whole number"),
        ("likelihood", "half", "full"),
        ("selection", "best", "random"),
        ("solver", "newton", "fixed-point"),
        ("noise_variance", 0.0, "> 0"),
        ("noise_variance", "guess", "> 0"),
        ("noise_variance", float("inf"), "> 0"),
        ("stop_fraction", 1.0, "< 1"),
        ("stop_fraction", -0.1, "≥ 0"),
        ("max_vectors", 0, "whole number"),
        ("max_rounds", -1, "whole number"),
        ("max_rounds", True, "whole number"),
        ("time_limit", "soon", "1h"),
        ("time_limit", -5, "1h"),
        ("memory_limit", "lots", "512MiB"),
        ("memory_limit", 0, "512MiB"),
        ("tol", 0.0, "> 0"),
        ("tol", "small", "> 0"),
    ],
)
def test_each_parameter_that_cannot_be_is_named(name, value, says):
    """UsageError, a ValueError, with the parameter's name and what it may be; nothing is fitted."""
    X, y = plane(30)
    estimator = RVMRegressor(**{name: value, "random_state": 0})
    with pytest.raises(UsageError, match=name) as caught:
        estimator.fit(X, y)
    assert says in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert not hasattr(estimator, "model_")


def spoiled(row, column, value):
    X, y = plane(50)
    X[row, column] = value
    return X, y


@pytest.mark.parametrize("container", ["dask", "zarr", "source"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_out_of_core(tmp_path, container, value):
    """Count, first row and the name of its column, found by a pass over the tiles."""
    X, y = spoiled(33, 1, value)
    X[40, 2] = np.nan
    given = X
    if container == "dask":
        given = da.from_array(X, chunks=(20, 3))
    if container == "zarr":
        group = zarr.open_group(str(tmp_path / "own.zarr"), mode="w")
        given = group.create_array("X", shape=X.shape, dtype="f8", chunks=(20, 3))
        given[:] = X
    if container == "source":
        from partirvm.data import as_source

        given, y = as_source(X, y), None
    with pytest.raises(DataError, match=r"2 values .* row 33, column 'x1'"):
        RVMRegressor().fit(given, y)


@pytest.mark.parametrize(
    ("X", "y", "says"),
    [
        pytest.param(*spoiled(3, 0, np.nan), "NaN", id="NaN"),
        pytest.param(*spoiled(3, 0, np.inf), "infinity", id="inf"),
        pytest.param(np.ones((5, 2)), [1, 2, np.nan, 4, 5], "NaN", id="NaN target"),
        pytest.param(np.array([["a", "b"]] * 5), np.arange(5.0), "could not convert", id="text"),
        pytest.param(
            pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), [1.0, 2.0], "could not convert", id="text column"
        ),
        pytest.param(np.ones((0, 2)), np.ones(0), "0 sample", id="no rows"),
        pytest.param(np.ones((1, 2)), np.ones(1), "1 sample|minimum of 2", id="one row"),
        pytest.param(np.ones((5, 0)), np.ones(5), "0 feature", id="no features"),
        pytest.param(np.ones(5), np.ones(5), "2D array", id="one dimension"),
        pytest.param(np.ones((5, 2)), np.ones(4), "inconsistent", id="another length"),
        pytest.param(np.ones((5, 2)), None, "requires y", id="no target"),
    ],
)
def test_arrays_that_cannot_be_used(X, y, says):
    """What scikit-learn's own validation says; always a ValueError."""
    with pytest.raises(ValueError, match=says):
        RVMRegressor().fit(X, y)


@pytest.mark.parametrize(
    ("X", "y", "says"),
    [
        pytest.param(da.ones((0, 2)), np.ones(0), "no rows", id="no rows"),
        pytest.param(da.ones((1, 2)), np.ones(1), "one row", id="one row"),
        pytest.param(da.ones((5, 2)), np.ones(4), "5 rows, but y has 4", id="another length"),
        pytest.param(da.from_array(np.array([["a", "b"]] * 5)), np.ones(5), "text", id="text"),
        pytest.param(da.ones(5), np.ones(5), "two dimensions", id="one dimension"),
        pytest.param(da.ones((5, 2)), np.ones((5, 3)), "3 columns: one target", id="several targets"),
    ],
)
def test_out_of_core_arrays_that_cannot_be_used(X, y, says):
    """The same rows through Dask: DataError (or UsageError) of partirvm."""
    with pytest.raises(PartirvmError, match=says) as caught:
        RVMRegressor().fit(X, y)
    assert isinstance(caught.value, ValueError)


def test_a_wrong_number_of_features_at_prediction():
    """In memory as scikit-learn says it, out of core as partirvm does."""
    X, y = plane(40)
    model = RVMRegressor(random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="2 features"):
        model.predict(X[:, :2])
    with pytest.raises(DataError, match="3 features"):
        model.predict(da.from_array(X[:, :2], chunks=20))


def test_validation_of_other_features():
    """Refused before anything is fitted."""
    X, y = plane(40)
    with pytest.raises(ValueError, match="2 features"):
        RVMRegressor().fit(X, y, validation=(X[:, :2], y))
    with pytest.raises(UsageError, match="3 parts"):
        RVMRegressor().fit(X, y, validation=(X, y, y))


@pytest.mark.parametrize("w", [np.zeros(40), -np.ones(40), np.ones(39), np.full(40, np.nan)])
def test_weights_that_cannot_be(w):
    """All zero, negative, of another length, not finite: a ValueError."""
    X, y = plane(40)
    with pytest.raises(ValueError, match=r"weight|NaN|row|sample"):
        RVMRegressor().fit(X, y, sample_weight=w)


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
def test_a_constant_feature_warns_and_changes_nothing(strategy):
    """Named in a DataWarning; predictions are those without it (gamma is given, so the kernel is the same)."""
    X, y = plane(100, d=2)
    constant = np.column_stack([X, np.full(100, 0.1)])
    options = {"gamma": 0.3, "strategy": strategy, "partition_size": 30, "max_rounds": 2, "random_state": 0}
    with pytest.warns(DataWarning, match="constant features.*x2"):
        model = RVMRegressor(**options).fit(constant, y)
    np.testing.assert_allclose(model.predict(constant), RVMRegressor(**options).fit(X, y).predict(X), atol=1e-6)


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
@pytest.mark.parametrize("value", [0.0, 7.3, -1e9])
def test_a_constant_target_warns_and_is_returned(strategy, value):
    """A model of no vectors whose mean is the constant, with a finite sd."""
    X, _ = plane(50)
    with pytest.warns(DataWarning, match="target 'y' is constant"):
        model = RVMRegressor(strategy=strategy, partition_size=20, random_state=0).fit(X, np.full(50, value))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=1e-12)
    assert np.isfinite(std).all()
    assert model.n_relevance_vectors_ == 0
    assert model.termination_ is Termination.CONSTANT


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
def test_duplicate_rows_make_a_correct_fit(strategy):
    """Every row five times: a warning, no vector twice, and σ² is that of the rows about the curve."""
    X, _ = sinc(60, 0.1)
    X = np.vstack([X] * 5)
    y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(1).normal(size=300)
    with pytest.warns(DataWarning, match="candidates had the same inputs"):
        model = RVMRegressor(gamma=4.0, strategy=strategy, partition_size=40, random_state=0).fit(X, y)
    assert len(np.unique(model.relevance_vectors_, axis=0)) == model.n_relevance_vectors_
    assert model.noise_variance_**0.5 == pytest.approx(0.1, rel=0.2)


def test_rows_that_are_all_the_same():
    """Nothing to learn from: the prediction is the mean of the targets, σ² their variance."""
    y = np.random.default_rng(0).normal(5, 2, size=40)
    with pytest.warns(DataWarning) as caught:
        model = RVMRegressor(random_state=0).fit(np.ones((40, 2)), y)
    texts = " ".join(str(warning.message) for warning in caught)
    assert all(part in texts for part in ("constant features", "39 candidates", "no relevance vector"))
    np.testing.assert_allclose(model.predict(np.ones((1, 2))), y.mean())
    np.testing.assert_allclose(model.noise_variance_, y.var(), rtol=0.05)


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
def test_noise_free_data_warn_of_the_floor(strategy):
    """A target in the span of two kernels: NoiseFloorWarning, σ² = 1e-8·var(y), and a mean that is right."""
    X = np.linspace(-3, 3, 150)[:, None]
    y = 5 + naive.gaussian(X, X[[40, 110]], 2.0 / X.var()) @ [3.0, -2.0]
    with pytest.warns(NoiseFloorWarning, match="noise_variance"):
        model = RVMRegressor(gamma=2.0, strategy=strategy, partition_size=50, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.noise_variance_, 1e-8 * y.var(), rtol=1e-6)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3)


def test_far_rows_warn_at_prediction():
    """Their number, a prediction of about the mean; rows near the vectors do not warn."""
    X, y = plane(100)
    model = RVMRegressor(gamma=0.3, random_state=0).fit(X, y)
    far = np.vstack([X[:5], np.full((2, 3), 1e3)])
    with pytest.warns(DataWarning, match="2 of 7 rows are far"):
        mean = model.predict(far)
    np.testing.assert_allclose(mean[5:], model.intercept_)
    with pytest.warns(DataWarning, match="2 of 7 rows are far"):
        model.predict(da.from_array(far, chunks=4))
    model.predict(model.relevance_vectors_)


def test_a_memory_limit_that_cannot_hold_is_refused():
    """Need, have and what to change; a MemoryError; nothing fitted."""
    X, y = plane(100)
    with pytest.raises(MemoryLimitError, match=r"needs .*MiB.*limit is 20 MiB.*(raise|lower)") as caught:
        RVMRegressor(memory_limit="20MiB").fit(X, y)
    assert isinstance(caught.value, MemoryError)


def test_limits_end_a_fit_with_a_usable_model():
    """max_rounds, max_vectors and time_limit: the reason is a value with advice, the model predicts."""
    X, y = plane(1000, noise=0.01)
    options = {"gamma": 0.5, "partition_size": 40, "strategy": "working-set", "random_state": 0}
    rounds = RVMRegressor(max_rounds=2, **options).fit(X, y)
    assert rounds.termination_ is Termination.ROUNDS
    assert "max_rounds" in rounds.termination_.advice
    vectors = RVMRegressor(max_vectors=50, **options).fit(X, y)
    assert vectors.termination_ is Termination.VECTORS
    assert vectors.n_relevance_vectors_ <= 50
    late = RVMRegressor(time_limit=1e-6, **options).fit(X, y)
    assert late.termination_ is Termination.TIME
    assert [entry["kind"] for entry in late.history_] == ["round"]
    assert np.isfinite(late.predict(X[:3])).all()


def test_a_plan_without_a_fit(tmp_path):
    """``plan(estimator, DATA)``: rows, candidates and passes as the fit will have them, and it prints."""
    X, y = plane(500)
    data = ingest((X, y), tmp_path / "rows.zarr")
    estimator = RVMRegressor(gamma=0.3, partition_size=60, max_rounds=3, selection="random", random_state=0)
    made = plan(estimator, data.url)
    assert (made.shape.n_rows, made.partition_size, made.max_rounds) == (500, 60, 3)
    assert "P = 60" in str(made)
    assert not hasattr(estimator, "model_")
    fitted = estimator.fit(data.url)
    assert fitted.plan_.partition_size == 60
    assert sum(entry["passes"] for entry in fitted.history_) >= made.passes


def test_the_limit_of_memory_ends_rounds_with_a_warning(monkeypatch):
    """Columns that do not fit any more: LimitWarning, Termination.MEMORY, a usable model."""
    from partirvm.service import fitting

    made = fitting.make_plan
    from dataclasses import replace

    monkeypatch.setattr(fitting, "make_plan", lambda *args, **kw: replace(made(*args, **kw), max_columns=70))
    X, y = plane(1000, noise=0.01)
    with pytest.warns(LimitWarning, match="memory_limit"):
        model = RVMRegressor(gamma=0.5, partition_size=40, strategy="working-set", random_state=0).fit(X, y)
    assert model.termination_ is Termination.MEMORY
    assert model.n_relevance_vectors_ <= 70
