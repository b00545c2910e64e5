"""Labels of every type are converted to codes and back; class weights follow scikit-learn."""

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.class_weight import compute_class_weight

from partirvm.data import label_array
from partirvm.data.labels import class_weights, coded, find_classes, plain_labels
from partirvm.errors import DataError, MissingDataError, UsageError

KINDS = {
    "str": np.array(["b", "a", "c", "b", "a"]),
    "bool": np.array([True, False, True, True, False]),
    "int": np.array([7, -2, 7, 30, -2], dtype=np.int8),
    "whole floats": np.array([1.0, 0.0, 2.0, 2.0, 1.0]),
    "objects": np.array(["b", "a", "c", "b", "a"], dtype=object),
}


def in_every_store(labels, folder):
    """Return the same labels in memory, in Zarr and in Dask, in blocks of two."""
    dask = da.from_array(labels, chunks=2)
    if labels.dtype.kind == "O":
        return [labels, dask]
    array = zarr.create_array(
        str(folder / "y.zarr"),
        shape=labels.shape,
        dtype=labels.dtype,
        chunks=2,
        config={"write_empty_chunks": True},
    )
    array[:] = labels
    return [labels, dask, array]


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize("kind", KINDS)
def test_classes_and_codes_equal_those_of_numpy(tmp_path, kind):
    """They equal ``np.unique`` with its inverse, in the dtype of y; slices of codes are codes,
    too."""
    labels = KINDS[kind]
    expected, inverse = np.unique(labels, return_inverse=True)
    for y in in_every_store(labels, tmp_path):
        classes = find_classes(y)
        assert_array_equal(classes, expected)
        assert classes.dtype == expected.dtype
        codes = coded(y, classes)
        assert codes.dtype == np.float64
        assert codes.shape == (5,)
        assert_array_equal(np.asarray(codes), inverse)
        assert_array_equal(np.asarray(codes[1:4]), inverse[1:4])


def test_invalid_labels_are_refused(tmp_path):
    """These are continuous numbers, missing labels, mixed types, one class, and missing chunks."""
    for y, message in (
        ([0.5, 1.0], "continuous"),
        ([np.inf, 1.0], "infinity"),
        ([np.nan, 1.0, 2.0], "1 missing"),
        (np.array(["a", None, "b"], dtype=object), "1 missing"),
        (np.array(["a", 1], dtype=object), "mix several types"),
        (["a", "a"], "one class"),
        ([], "no labels"),
    ):
        with pytest.raises(DataError, match=message):
            find_classes(y)
    holes = zarr.create_array(
        str(tmp_path / "holes.zarr"), shape=(100,), dtype="i8", chunks=10, fill_value=0
    )
    holes[:50] = 1
    with pytest.raises(MissingDataError, match=r"lacks 5.*write_empty_chunks"):
        find_classes(holes)
    with pytest.raises(
        DataError, match="'c' in y is not among the classes of the training data: 'a', 'b'"
    ):
        coded(np.array(["a", "c"]), np.array(["a", "b"]))
    with pytest.raises(DataError, match=r"different type|not among the classes"):
        coded(np.array([1, 2]), np.array(["a", "b"], dtype=object))
    with pytest.raises(DataError, match="label 5"):
        coded(da.from_array(np.array([0, 5]), chunks=1), np.array([0, 1]))


def test_labels_survive_json():
    """Labels that would become equal in JSON are refused."""
    assert plain_labels(np.array([0.0, 1.0])) == (0, 1)
    assert [type(label) for label in plain_labels(np.array([False, True]))] == [bool, bool]
    for kind, labels in KINDS.items():
        if kind != "objects":
            classes = np.unique(labels)
            assert_array_equal(label_array(plain_labels(classes)), classes)
    with pytest.raises(DataError, match="have the same text"):
        plain_labels(np.array([1, "1"], dtype=object))


def test_class_weights_follow_scikit_learn():
    """They are "balanced" or a mapping, in which missing labels have weight 1."""
    labels = KINDS["str"][[0, 0, 0, 1, 2, 3, 4]]
    classes, counts = np.unique(labels, return_counts=True)
    for weights in ("balanced", {"a": 2.0, "b": 0.5, "c": 1}, {"c": 3}):
        expected = compute_class_weight(weights, classes=classes, y=labels)
        assert_allclose(
            class_weights(weights, tuple(classes.tolist()), counts.astype(float)), expected
        )
    assert class_weights({"0": 2, 1.0: 3}, (0, 1), np.ones(2)).tolist() == [2.0, 3.0]
    assert class_weights({"True": 2}, (False, True), np.ones(2)).tolist() == [1.0, 2.0]


def test_invalid_class_weights_are_refused():
    """These are unknown labels, negative and all-zero weights, and other strings."""
    for weights, message in (
        ({"d": 1.0}, "names 'd', but the classes are 'a', 'b'"),
        ({"a": -1.0}, "of 'a' is -1.0"),
        ({"a": "much"}, "'much'"),
        ({"a": np.nan}, "nan"),
        ({"a": 0, "b": 0}, "fewer than two classes"),
        ({"a": 0}, "fewer than two classes"),
        ("even", "'even'"),
        (2.0, "2.0"),
    ):
        with pytest.raises(UsageError, match=message):
            class_weights(weights, ("a", "b"), np.ones(2))
    with pytest.raises(UsageError, match=r"of 'b' is .*inf"):
        class_weights("balanced", ("a", "b"), np.array([3.0, 0.0]))
