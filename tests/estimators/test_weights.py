"""A common factor of the weights has no effect, a row of weight 0 is as if it were not there, and
the scale of a known noise matters."""

from itertools import product

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, ingest, open_job, submit

QUICK = {"effort": "quick", "reference": "none", "random_state": 0}
FIXED = {**QUICK, "gamma": 1.0, "residual": "none", "partition_size": 30, "max_rounds": 1}
KERNELS = {"learned": QUICK, "given": FIXED}


def rows(n=100, seed=0):
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    w = rng.uniform(0.2, 3.0, n)
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n) / np.sqrt(w)
    return X, y, w


NEW = default_rng(9).uniform(-2, 2, (60, 3))


def predicted(model):
    return np.column_stack(model.predict(NEW, return_std=True))


@pytest.mark.parametrize(
    "options", [pytest.param(QUICK, marks=pytest.mark.slow), FIXED], ids=["learned", "given"]
)
@pytest.mark.parametrize("factor", some([2.0**-7, 4096.0], {4096.0}))
def test_a_power_of_two_changes_no_bit(options, factor):
    X, y, w = rows()
    first = RVMRegressor(**options).fit(X, y, w)
    second = RVMRegressor(**options).fit(X, y, factor * w)
    assert_array_equal(predicted(first), predicted(second))
    unit = first.model_.design.scaling.weight_unit
    assert unit == pytest.approx(w.mean(), rel=1e-12)
    assert second.model_.design.scaling.weight_unit == factor * unit


@pytest.mark.parametrize(
    "options", [pytest.param(QUICK, marks=pytest.mark.slow), FIXED], ids=["learned", "given"]
)
@pytest.mark.parametrize("factor", some([0.01, 0.3, 100.0, 1e-40], {1e-40}))
def test_another_factor_changes_nothing_but_rounding(options, factor):
    X, y, w = rows()
    first = predicted(RVMRegressor(**options).fit(X, y, w))
    second = predicted(RVMRegressor(**options).fit(X, y, factor * w))
    assert_allclose(second, first, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weight", some([0.01, 1.0, 7.0], {0.01}))
def test_equal_weights_are_no_weights(weight):
    """The deviations, not only the means, equal those of a fit without weights."""
    X, y, _ = rows()
    plain = predicted(RVMRegressor(**FIXED).fit(X, y))
    weighted = predicted(RVMRegressor(**FIXED).fit(X, y, np.full(len(y), weight)))
    assert_allclose(weighted, plain, rtol=1e-9, atol=1e-9)


def test_weights_summing_to_one_with_two_targets_and_a_fixed_noise():
    X, y, w = rows()
    for options, t in ((FIXED, np.column_stack([y, y**2])), ({**FIXED, "noise": 0.01}, y)):
        first = RVMRegressor(**options).fit(X, t, w).predict(NEW, return_std=True)
        second = RVMRegressor(**options).fit(X, t, w / w.sum()).predict(NEW, return_std=True)
        assert_allclose(second[0], first[0], rtol=1e-9, atol=1e-9)
        assert_allclose(second[1], first[1], rtol=1e-9)


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize(
    ("kind", "kernel"),
    some(
        product(["array", "dask", "data"], KERNELS),
        {("array", "learned"), ("dask", "given"), ("data", "given")},
    ),
)
def test_a_row_of_weight_zero_is_removed(kind, kernel, tmp_path):
    X, y, w = rows()
    w[default_rng(2).random(len(w)) < 0.3] = 0.0
    w[0] = w[-1] = 0.0
    X[w == 0] = 50.0
    kept = w > 0
    options = KERNELS[kernel]
    found = fitted(kind, options, (X, y, w), tmp_path / "all.zarr")
    wanted = fitted(kind, options, (X[kept], y[kept], w[kept]), tmp_path / "kept.zarr")
    assert_array_equal(predicted(found), predicted(wanted))
    assert found.model_.digest() == wanted.model_.digest()


def fitted(kind, options, arrays, place):
    if kind == "dask":
        arrays = [da.from_array(array, chunks=(40, *array.shape[1:])) for array in arrays]
    if kind == "data":
        arrays = [ingest(tuple(arrays), place, shuffle=0)]
    return RVMRegressor(**options).fit(*arrays)


def test_data_for_scores_keep_rows_of_weight_zero(tmp_path):
    X, y, w = rows(50)
    w[::5] = 0.0
    table = pd.DataFrame(X, columns=list("abc")).assign(y=y, w=w)
    train = ingest(table, tmp_path / "train.zarr", target="y", weights="w")
    assert train.n_rows == 40
    assert "10 rows of weight 0 left out" in train.notes["w"]
    assert ingest(table, tmp_path / "test.zarr", weights="w", like=train).n_rows == 50


def test_the_scale_of_known_noise_matters(tmp_path):
    """With noise r, the variance of a row is σ²r²: r → cr changes σ to σ/c."""
    X, y, w = rows()
    deviations = []
    for factor in (1.0, 8.0):
        table = pd.DataFrame(X, columns=list("abc")).assign(y=y, r=factor / np.sqrt(w))
        data = ingest(table, tmp_path / f"{factor}.zarr", target="y", noise="r")
        assert data.has_known_noise
        model = RVMRegressor(**FIXED).fit(data)
        assert model.model_.design.scaling.weight_unit == 1.0
        deviations.append(np.sqrt(model.noise_variance_))
    assert deviations[0] == pytest.approx(8.0 * deviations[1], rel=0.02)


def test_an_update_keeps_the_unit_of_the_first_fit(tmp_path):
    X, y, w = rows()
    model = RVMRegressor(**FIXED).partial_fit(X, y, w)
    unit = model.model_.design.scaling.weight_unit
    model.partial_fit(X[:50], y[:50], 100.0 * w[:50])
    assert model.model_.design.scaling.weight_unit == unit
    ingest((X, y, w), tmp_path / "data.zarr")
    job = submit(RVMRegressor(**FIXED), tmp_path / "data.zarr", tmp_path / "job")
    job.wait()
    ingest((X[:50] + 0.01, y[:50], 100.0 * w[:50]), tmp_path / "data.zarr", append=True)
    updated = open_job(tmp_path / "job").update()
    updated.wait()
    assert updated.model().design.scaling.weight_unit == pytest.approx(unit, rel=1e-12)


def test_the_plan_names_the_unit():
    X, y, w = rows()
    model = RVMRegressor(**FIXED).fit(X, y, 10.0 * w / w.mean())
    assert any("divided by their mean, 10:" in note for note in model.plan_.notes)
