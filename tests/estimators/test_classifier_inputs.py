"""Labels of every type, every kind of input, class weights, and refused inputs."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax
from sklearn.datasets import make_blobs, make_moons

from partirvm import RVMClassifier, RVMRegressor, ingest
from partirvm.errors import DataError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")
OPTIONS = {"gamma": 0.8, "strategy": "basic", "random_state": 0}


def moons(n=70):
    """Return two noisy half moons, and class codes."""
    return make_moons(n, noise=0.25, random_state=0)


def blobs(n=80):
    """Return three overlapping groups, and class codes."""
    return make_blobs(n, centers=[[0, 0], [3, 0], [0, 3]], random_state=1)


LABELS = {
    "str": np.array(["b", "c"]),
    "bool": np.array([False, True]),
    "int8": np.array([-3, 7], dtype=np.int8),
    "whole floats": np.array([0.0, 1.0]),
    "object": np.array(["b", "c"], dtype=object),
}


@pytest.fixture(scope="module")
def of_codes():
    """Return probabilities by a fit to class codes."""
    X, codes = moons()
    return RVMClassifier(**OPTIONS).fit(X, codes).predict_proba(X)


@pytest.mark.parametrize("kind", some(LABELS, {"str", "int8", "bool"}))
def test_predicted_labels_have_the_type_of_y(kind, of_codes):
    """The model does not depend on the class names."""
    X, codes = moons()
    y = LABELS[kind][codes]
    model = RVMClassifier(**OPTIONS).fit(X, y)
    assert_array_equal(model.classes_, LABELS[kind])
    assert model.classes_.dtype == model.predict(X).dtype == LABELS[kind].dtype
    assert model.score(X, y) == np.mean(model.predict(X) == y) > 0.85
    assert_array_equal(model.predict_proba(X), of_codes)


def test_two_classes_follow_the_formulas():
    """From the attributes follow f = Σ w k(x, z) + bias, its sigmoid, its sign, and logarithms."""
    X, codes = moons()
    model = RVMClassifier(**OPTIONS, standardize=False, moderate=False).fit(X, codes)
    Z = model.relevance_vectors_
    assert model.weights_.shape == model.alpha_.shape == (model.n_relevance_vectors_,) == (len(Z),)
    f = np.exp(-0.8 * ((X[:, None] - Z) ** 2).sum(axis=2)) @ model.weights_ + model.intercept_
    assert_allclose(model.decision_function(X), f, atol=1e-10)
    assert_allclose(model.predict_proba(X)[:, 1], expit(f), atol=1e-10)
    assert_array_equal(model.predict(X), f > 0)
    assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))
    assert {entry["train_rmse"] for entry in model.history_} == {None}


@pytest.mark.parametrize("likelihood", ["multinomial", "pooled"])
def test_three_classes_follow_the_formulas(likelihood):
    """There is one predictor for each class, and a softmax, for pooled classes after the ramp."""
    X, codes = blobs()
    model = RVMClassifier(**OPTIONS, standardize=False, moderate=False, likelihood=likelihood).fit(
        X, codes
    )
    Z = model.relevance_vectors_
    assert (model.weights_.shape, model.alpha_.shape) == ((3, len(Z)), (len(Z),))
    assert model.intercept_.shape == (3,)
    f = np.exp(-0.8 * ((X[:, None] - Z) ** 2).sum(axis=2)) @ model.weights_.T + model.intercept_
    ramp = model.model_.ramp
    if ramp is not None:
        curve = ramp.power * np.log(np.logaddexp(0.0, f / ramp.width))
        correction = ramp.correction
        f = curve if correction is None else curve + f @ correction.slopes + correction.offsets
    assert_allclose(model.decision_function(X), f, atol=1e-9)
    assert_allclose(model.predict_proba(X), softmax(f, axis=1), atol=1e-9)
    assert_array_equal(model.predict(X), f.argmax(axis=1))
    assert model.score(X, codes) > 0.9


def inputs_of_each_kind(X, y, folder):
    """Return the same rows as every kind of input, in the same order."""
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
    """Every row is a candidate, so that the order of the rows does not matter."""
    X, codes = moons(60)
    labels = np.array(["no", "yes"])
    y = labels[codes]
    expected = RVMClassifier(**OPTIONS).fit(X, y)
    for kind, inputs in inputs_of_each_kind(X, y, tmp_path).items():
        model = RVMClassifier(**OPTIONS).fit(*inputs)
        assert model.classes_.tolist() == labels.tolist(), kind
        assert model.n_features_in_ == 2
        assert_allclose(
            model.predict_proba(inputs[0]), expected.predict_proba(X), atol=1e-3, err_msg=kind
        )
        assert_array_equal(model.predict(inputs[0]), expected.predict(X), err_msg=kind)


@pytest.mark.slow
def test_class_weights_multiply_sample_weights(tmp_path):
    """ "balanced" and a dictionary, in memory and for DATA, are factors of sample weights."""
    X, codes = moons()
    keep = (codes == 0) | (np.arange(len(codes)) % 4 == 0)
    X = X[keep]
    codes = codes[keep]
    y = np.array(["no", "yes"])[codes]
    data = ingest((X, y), tmp_path / "d.zarr", classes=True, shuffle=None).url
    for class_weight, factors in (
        ("balanced", len(y) / (2 * np.bincount(codes))),
        ({"yes": 3.0}, np.array([1.0, 3.0])),
    ):
        expected = RVMClassifier(**OPTIONS).fit(X, y, sample_weight=factors[codes])
        weighted = RVMClassifier(**OPTIONS, class_weight=class_weight).fit(X, y)
        assert_allclose(weighted.predict_proba(X), expected.predict_proba(X), atol=1e-12)
        on_disk = RVMClassifier(**OPTIONS, class_weight=class_weight).fit(data)
        assert_allclose(on_disk.predict_proba(X), expected.predict_proba(X), atol=1e-3)
    w = default_rng(0).uniform(0, 2, len(y))
    factors = w.sum() / (2 * np.bincount(codes, w))
    expected = RVMClassifier(**OPTIONS).fit(X, y, sample_weight=w * factors[codes])
    balanced = RVMClassifier(**OPTIONS, class_weight="balanced").fit(X, y, sample_weight=w)
    assert_allclose(balanced.predict_proba(X), expected.predict_proba(X), atol=1e-12)
    plain = RVMClassifier(**OPTIONS).fit(X, y)
    assert weighted.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()


def test_inputs_that_no_classifier_accepts_are_refused(tmp_path):
    """These are numeric targets as classes and the reverse, one class, unknown labels, and weights
    of sum zero."""
    X, codes = moons()
    numbers = ingest((X, X[:, 0]), tmp_path / "n.zarr").url
    classes = ingest((X, codes), tmp_path / "c.zarr", classes=True).url
    other = ingest((X, codes + 1), tmp_path / "o.zarr", classes=True).url
    classifier = RVMClassifier(**OPTIONS)
    chunked = (da.from_array(X), da.from_array(codes))
    first = (codes == 0).astype(float)
    for estimator, inputs, options, error, message in (
        (classifier, (numbers,), {}, UsageError, "classes=True"),
        (RVMRegressor(), (classes,), {}, UsageError, "RVMClassifier"),
        (classifier, (chunked[0], da.from_array(X[:, 0])), {}, DataError, "continuous"),
        (classifier, (X, np.zeros(len(X))), {}, DataError, "one class"),
        (classifier, (X, codes), {"sample_weight": first}, DataError, "one class"),
        (classifier, chunked, {"sample_weight": da.from_array(first)}, DataError, "one class"),
        (classifier, (X, codes), {"sample_weight": 0 * first}, DataError, "(?i)weights .*zero"),
        (
            classifier,
            (X, codes),
            {"X_val": X, "y_val": np.where(codes == 0, 0, 9)},
            DataError,
            "label 9 in y is not",
        ),
        (classifier, (classes,), {"X_val": other}, DataError, "`--like`"),
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
        with pytest.raises(error, match=message):
            estimator.fit(*inputs, **options)
    assert not hasattr(classifier, "classes_")
