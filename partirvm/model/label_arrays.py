"""Conversion of class labels to JSON values, and to arrays of the common type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from partirvm.errors import DataError
from partirvm.quoting import quoted

INTEGERS = np.iinfo(np.int64)


def plain_labels(labels: Iterable[Any]) -> tuple[Any, ...]:
    """Return labels as Python str, int, float or bool. NumPy scalars are converted.

    Raises ``DataError`` for any other type, and for NaN and infinite numbers.

    >>> plain_labels(np.array([1, 2])), plain_labels(["a", np.bool_(True), 0.5])
    ((1, 2), ('a', True, 0.5))
    """
    found = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
    for label in found:
        if not isinstance(label, (str, bool, int, float)) or (isinstance(label, float) and not np.isfinite(label)):
            raise DataError(
                f"the class label {quoted(label)} ({type(label).__name__}) cannot be stored: labels are text, finite "
                "numbers or booleans"
            )
    return found


def label_array(labels: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return plain labels as an array (K,) of their common type, str, bool, int64 or float64, or otherwise of objects.

    Integers mixed with floats become floats if the conversion is exact, since DATA store 1.0 as 1.

    >>> [label_array(some).dtype.kind for some in (["a", "b"], [True, False], [1, 2], [0.5, 1], ["a", 1])]
    ['U', 'b', 'i', 'f', 'O']
    """
    kinds = {type(label) for label in labels}
    if kinds == {str}:
        return np.array(labels, dtype=np.str_)
    if kinds == {bool}:
        return np.array(labels, dtype=np.bool_)
    if kinds == {int} and all(INTEGERS.min <= label <= INTEGERS.max for label in labels):
        return np.array(labels, dtype=np.int64)
    if kinds == {float} or (kinds == {int, float} and all(label == float(label) for label in labels)):
        return np.array(labels, dtype=np.float64)
    found = np.empty(len(labels), dtype=object)
    found[:] = labels
    return found
