"""Conversion of labels of any type to class codes 0 … K−1, and precision weights of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.arrays import in_process
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, listed_values, quoted
from partirvm.types import Float, pandas_column

Labels = NDArray[Any]


def find_classes(y: Any) -> Labels:
    """Return the distinct labels of y (N,) in sorted order, (K,), of its dtype: an array of NumPy, Zarr or Dask.

    Raises ``DataError`` for missing labels, continuous values, labels of several types and fewer than two classes.
    """
    from sklearn.utils.multiclass import check_classification_targets

    labels = _checked(in_process("y", y))
    try:
        classes = np.unique(labels)
        # each value twice: scikit-learn warns of more classes than half of the rows
        with np.errstate(invalid="ignore"):
            check_classification_targets(np.repeat(classes, 2) if labels.ndim == 1 else labels)
    except (TypeError, ValueError) as error:
        raise DataError(f"the labels in y are no classes, or mix several types: {error}") from error
    if len(classes) < 2:
        found = f"only one class, {quoted(classes.tolist()[0])}" if len(classes) else "no labels"
        raise DataError(f"y has {found}: classification needs at least two classes.")
    return classes


def label_values(y: Any) -> Labels:
    """Return labels in memory as an array; numbers and booleans of dtype object get a numeric or boolean dtype."""
    labels = np.asarray(pandas_column(y), dtype=object if isinstance(y, list | tuple) else None)
    plain = np.array(labels.tolist()) if labels.dtype.kind == "O" else labels
    return _checked(labels if plain.dtype.kind in "US" else plain)


def _checked(labels: Labels) -> Labels:
    """Return the labels. Raises ``DataError`` for missing labels: NaN, None, NA, NaT."""
    missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(labels.shape, dtype=bool)
    if labels.dtype.kind == "O":
        absent = "None", "nan", "<NA>", "NaT"
        missing = np.array([not isinstance(label, str) and str(label) in absent for label in labels.flat], dtype=bool)
    if missing.any():
        raise DataError(
            f"y has {int(missing.sum()):,} missing labels, the first in row {int(np.argmax(missing)):,}: remove these "
            "rows, or give missing labels a separate class."
        )
    return labels


def coded(y: Any, classes: Labels) -> Float:
    """Return the codes of labels: a float64 array of the shape of y. Labels of Zarr and Dask are read whole."""
    labels, known = in_process("y", y), listed_values(classes.tolist())
    try:
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    except TypeError as error:
        raise DataError(f"the labels in y have a different type from the classes {known}") from error
    if unknown := labels[classes[places] != labels].tolist():
        raise DataError(f"the label {quoted(unknown[0])} in y is not among the classes of the training data: {known}")
    return places.astype(np.float64)


def plain_label(label: Any) -> Any:
    """Convert a label to a JSON value; 1.0 becomes 1."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, int) and abs(label) >= 1 << 63:  # beyond the integers that are stored
        return str(label)
    return label if label is None or isinstance(label, str | bool | int | float) else str(label)


def plain_labels(classes: Labels) -> tuple[Any, ...]:
    """Convert labels to the values of ``Columns.classes``. Raises ``DataError`` if two labels have the same text."""
    plain = tuple(map(plain_label, classes.tolist()))
    if len(set(map(str, plain))) < len(plain):
        raise DataError(f"several labels in y have the same text: {listed(plain)}: rename these labels.")
    return plain


def class_weights(class_weight: Any, classes: Sequence[Any], counts: Float) -> Float:
    """Return the weight of each of the K classes, shape (K,).

    "balanced" gives n / (K·count), as in scikit-learn: ``counts`` (K,) is the sum of the weights of the rows of each
    class, and n is the sum of ``counts``. A mapping gives the weight of a label, which may be written as text; other
    classes have the weight 1.
    """
    texts = list(map(text_of_label, classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        with np.errstate(divide="ignore"):
            given = dict(zip(texts, counts.sum() / (len(classes) * counts), strict=True))
    elif isinstance(class_weight, Mapping):
        given = {text_of_label(label): weight for label, weight in class_weight.items()}
    else:
        raise UsageError(f"class_weight is {class_weight!r}: it must be None, 'balanced' or weights by label")
    for label, weight in given.items():
        if label not in texts:
            raise UsageError(f"class_weight names {quoted(label)}, but the classes are {listed_values(classes)}")
        if not isinstance(weight, int | float | np.number) or not 0 <= weight < np.inf:
            raise UsageError(f"class_weight of {quoted(label)} is {weight!r}: it must be finite and at least 0")
    weights = np.array([given.get(text, 1.0) for text in texts], dtype=np.float64)
    if (weights > 0).sum() < 2:
        raise UsageError("class_weight leaves fewer than two classes with positive weight: two classes are needed")
    return weights


def text_of_label(label: Any) -> str:
    """Convert a label to a JSON key; 1, 1.0 and "1" give equal keys."""
    return str(plain_label(label))
