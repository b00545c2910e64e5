"""Labels of every type, every kind of input, class weights, and what is refused."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.special import expit, softmax
from sklearn.datasets import make_blobs, make_moons

from partirvm import RVMClassifier, RVMRegressor, ingest
from partirvm.errors import DataError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")
OPTIONS = {"gamma": 0.8, "strategy": "basic", "random_state": 0}


def moons(n=120):
    """Two half moons with noise, and class codes."""
    return make_moons(n, noise=0.25, random_state=0)


def blobs(n=120):
    """Three overlapping groups, and class codes."""
    return make_blobs(n, centers=[[0, 0], [3, 0], [0, 3]], random_state=1)


LABELS = {
    "str": np.array(["b", "c"]),
    "bool": np.array([False, True]),
    "int8": np.array([-3, 7], dtype=np.int8),
    "whole floats": np.array([0.0, 1.0]),
    "object": np.array(["b", "c"], dtype=object),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_as_they_are(kind):
    """Of y's own type; the same model whatever they are called."""
    X, codes = moons()
    y = LABELS[kind][codes]
    model = RVMClassifier(**OPTIONS).fit(X, y)
    np.testing.assert_array_equal(model.classes_, LABELS[kind])
    assert model.classes_.dtype == model.predict(X).dtype == LABELS[kind].dtype
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.85
    np.testing.assert_array_equal(
        model.predict_proba(X), RVMClassifier(**OPTIONS).fit(X, codes).predict_proba(X)
    )


def test_two_classes_by_the_formulas():
    """f = Σ w k(x, z) + bias of the attributes; its sigmoid; the sign; logarithms."""
    X, codes = moons()
    model = RVMClassifier(**OPTIONS, standardize=False, moderate=False).fit(X, codes)
    Z = model.relevance_vectors_
    assert model.weights_.shape == model.alpha_.shape == (model.n_relevance_vectors_,) == (len(Z),)
    f = np.exp(-0.8 * ((X[:, None] - Z) ** 2).sum(axis=2)) @ model.weights_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), f, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expit(f), atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), f > 0)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))
    assert {each["train_rmse"] for each in model.history_} == {None}


@pytest.mark.parametrize("likelihood", ["multinomial", "pooled"])
def test_three_classes_by_the_formulas(likelihood):
    """One predictor for each class; softmax, of indicators after the ramp."""
    X, codes = blobs()
    model = RVMClassifier(**OPTIONS, standardize=False, moderate=False, likelihood=likelihood).fit(
        X, codes
    )
    Z = model.relevance_vectors_
    assert (model.weights_.shape, model.alpha_.shape) == ((3, len(Z)), (len(Z),))
    assert model.intercept_.shape == (3,)
    f = np.exp(-0.8 * ((X[:, None] - Z) ** 2).sum(axis=2)) @ model.weights_.T + model.intercept_
    ramp = model.model_.ramp
    f = f if ramp is None else ramp.power * np.log(np.logaddexp(0.0, f / ramp.width))
    np.testing.assert_allclose(model.decision_function(X), f, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), softmax(f, axis=1), atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), f.argmax(axis=1))
    assert model.score(X, codes) > 0.9


def kinds(X, y, folder):
    """The same rows as every kind of input, in the same order."""
    group = zarr.open_group(str(folder / "own.zarr"), mode="w")
    for name, values in (("X", X), ("y", y)):
        options = {"chunks": (40, *values.shape[1:]), "config": {"write_empty_chunks": True}}
        group.create_array(name, shape=values.shape, dtype=values.dtype, **options)[:] = values
    frame = pd.DataFrame(X, columns=["a", "b"])
    return {
        "lists": (X.tolist(), y.tolist()),
        "zarr": (group["X"], group["y"]),
        "zarr, numpy y": (group["X"], y),
        "dask": (da.from_array(X, chunks=(40, 2)), da.from_array(y, chunks=30)),
        "dask, zarr y": (da.from_array(X, chunks=(40, 2)), group["y"]),
        "dask frame": (
            dd.from_pandas(frame, npartitions=3),
            dd.from_pandas(pd.Series(y), npartitions=3),
        ),
        "data": (ingest((X, y), folder / "rows.zarr", classes=True, shuffle=None).url, None),
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
def test_every_kind_of_input_gives_the_same_model(tmp_path):
    """Every row is a candidate, so that the order of rows does not matter. Other labels:
    data/test_labels."""
    X, codes = moons(60)
    labels = np.array(["no", "yes"])
    y = labels[codes]
    expected = RVMClassifier(**OPTIONS).fit(X, y)
    for kind, given in kinds(X, y, tmp_path).items():
        found = RVMClassifier(**OPTIONS).fit(*given)
        assert found.classes_.tolist() == labels.tolist(), kind
        assert found.n_features_in_ == 2
        np.testing.assert_allclose(
            found.predict_proba(given[0]), expected.predict_proba(X), atol=1e-3, err_msg=kind
        )
        np.testing.assert_array_equal(found.predict(given[0]), expected.predict(X), err_msg=kind)


@pytest.mark.slow
def test_class_weights_are_sample_weights(tmp_path):
    """ "balanced" and a dict, in memory and of DATA: the bits of the products as sample weights."""
    X, codes = moons()
    keep = (codes == 0) | (np.arange(len(codes)) % 4 == 0)
    X = X[keep]
    codes = codes[keep]
    y = np.array(["no", "yes"])[codes]
    data = ingest((X, y), tmp_path / "d.zarr", classes=True, shuffle=None).url
    for asked, each in (
        ("balanced", len(y) / (2 * np.bincount(codes))),
        ({"yes": 3.0}, np.array([1.0, 3.0])),
    ):
        expected = RVMClassifier(**OPTIONS).fit(X, y, sample_weight=each[codes])
        found = RVMClassifier(**OPTIONS, class_weight=asked).fit(X, y)
        np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-12)
        on_disk = RVMClassifier(**OPTIONS, class_weight=asked).fit(data)
        np.testing.assert_allclose(on_disk.predict_proba(X), expected.predict_proba(X), atol=1e-3)
    w = np.random.default_rng(0).uniform(0, 2, len(y))
    each = w.sum() / (2 * np.bincount(codes, w))
    expected = RVMClassifier(**OPTIONS).fit(X, y, sample_weight=w * each[codes])
    balanced = RVMClassifier(**OPTIONS, class_weight="balanced").fit(X, y, sample_weight=w)
    np.testing.assert_allclose(balanced.predict_proba(X), expected.predict_proba(X), atol=1e-12)
    plain = RVMClassifier(**OPTIONS).fit(X, y)
    assert found.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()


def test_what_is_refused(tmp_path):
    """Numbers as classes and classes as numbers, one class, unknown labels, weights that leave
    nothing."""
    X, codes = moons()
    numbers = ingest((X, X[:, 0]), tmp_path / "n.zarr").url
    classes = ingest((X, codes), tmp_path / "c.zarr", classes=True).url
    other = ingest((X, codes + 1), tmp_path / "o.zarr", classes=True).url
    made = RVMClassifier(**OPTIONS)
    chunked = (da.from_array(X), da.from_array(codes))
    first = (codes == 0).astype(float)
    for estimator, given, options, error, says in (
        (made, (numbers,), {}, UsageError, "classes=True"),
        (RVMRegressor(), (classes,), {}, UsageError, "RVMClassifier"),
        (made, (chunked[0], da.from_array(X[:, 0])), {}, DataError, "continuous"),
        (made, (X, np.zeros(len(X))), {}, DataError, "one class"),
        (made, (X, codes), {"sample_weight": first}, DataError, "one class"),
        (made, chunked, {"sample_weight": da.from_array(first)}, DataError, "one class"),
        (made, (X, codes), {"sample_weight": 0 * first}, DataError, "(?i)weights .*zero"),
        (
            made,
            (X, codes),
            {"X_val": X, "y_val": np.where(codes == 0, 0, 9)},
            DataError,
            "label 9 in y is not",
        ),
        (made, (classes,), {"X_val": other}, DataError, "`--like`"),
        (RVMClassifier(solver="fast"), (X, codes), {}, UsageError, "use 'fixed-point'"),
        (RVMClassifier(class_weight={"x": 1.0}), (X, codes), {}, UsageError, "names 'x'"),
        (
            RVMClassifier(class_weight={0: 0.0}),
            (classes,),
            {},
            UsageError,
            "fewer than two classes",
        ),
    ):
        with pytest.raises(error, match=says):
            estimator.fit(*given, **options)
    assert not hasattr(made, "classes_")
