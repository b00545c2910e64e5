"""Rows as models take them, and labels: names and numbers are checked, and labels of categorical columns become codes.

Arrays contain codes, and data frames contain labels. pandas is not imported; only methods of data frames are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import refuse_masked
from partirvm.errors import DataError
from partirvm.quoting import listed_values, quoted
from partirvm.types import Columns, Float, pandas_frame

Levels = dict[str, tuple[Any, ...]]
"""Type of the levels of each categorical column by name, in the order of the codes."""


def checked_rows(X: Any, columns: Columns) -> Float:
    """Return X, an array, nested lists or a data frame with labels, as a float64 array; ``DataError`` for others."""
    X = pandas_frame(X)
    check_names(X, columns.features)
    coded = coded_frame(X, columns.categories)
    try:
        rows = np.asarray(coded, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X cannot be converted to rows of numbers: {error}") from error
    if not np.isfinite(rows).all():
        raise DataError("X has values that are NaN or infinite: remove or fill them")
    return rows


def check_names(X: Any, features: tuple[str, ...]) -> None:
    """Raise ``DataError`` if the columns of a data frame differ from named ``features``."""
    found = tuple(str(name) for name in getattr(X, "columns", features))
    if found != features and features != tuple(f"x{column}" for column in range(len(features))):
        raise DataError(
            f"the model was trained on the features [{listed_values(features)}], but the given rows have "
            f"[{listed_values(found)}]: they must be the same, in the same order"
        )


def levels_of(frame: Any) -> Levels:
    """Return all levels of the categorical columns of a pandas data frame; empty for other inputs."""
    found: Levels = {}
    for name, dtype in zip(getattr(frame, "columns", ()), getattr(frame, "dtypes", ()), strict=False):
        if hasattr(dtype, "categories"):
            found[str(name)] = plain_labels(dtype.categories.tolist())
    return found


def coded_frame(X: Any, levels: Levels) -> Any:
    """Replace the labels of these columns of a data frame by codes. Other inputs are returned unchanged.

    Unknown labels get the code after the last level, and a missing label becomes NaN. Raises ``DataError`` for columns
    that cannot be used (all are listed).
    """
    X = pandas_frame(X)
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        refuse_masked(X, "X")
        return X
    for name in levels_of(X):
        if name not in levels:
            raise DataError(f"the column {quoted(name)} is categorical, but the model was trained on it as numbers")
    names = [str(name) for name in X.columns]
    wrong = [name for place, name in enumerate(names) if name not in levels and not _numbers(X.iloc[:, place])]
    if wrong:
        raise DataError(
            f"the data frame has text, dates or objects, not numbers, in the column{'s' * (len(wrong) > 1)} "
            f"{listed_values(wrong)}: make text categorical with astype('category'), code dates as numbers such as "
            "days since the first, or leave these columns out"
        )
    X = X.copy() if levels else X
    for name in [name for name in X.columns if str(name) in levels]:
        X[name] = _codes(X[name], levels[str(name)])
    return X


def _numbers(column: Any) -> bool:
    """Return True for a column of numbers, and of text that is numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "fiubcmM":
        return kind not in "mM"
    try:
        column.dropna().astype(float)
    except (TypeError, ValueError):
        return False
    return True


def _codes(column: Any, levels: tuple[Any, ...]) -> NDArray[np.float64]:
    """Return the codes of a column of labels (n,), with NaN for missing labels."""
    codes = column.astype(object).map({level: float(code) for code, level in enumerate(levels)})
    return np.asarray(codes.mask(codes.isna() & column.notna(), len(levels)), dtype=np.float64)


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
                f"the label {quoted(label)} ({type(label).__name__}) of a class or category cannot be stored: labels "
                "are text, finite numbers or booleans"
            )
    return found


def label_array(labels: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return plain labels as an array (K,) of their common type, str, bool, int64 or float64, or otherwise of objects.

    Integers mixed with floats become floats if the conversion is exact, since DATA store 1.0 as 1.

    >>> [label_array(some).dtype.kind for some in (["a", "b"], [True, False], [1, 2], [0.5, 1], ["a", 1])]
    ['U', 'b', 'i', 'f', 'O']
    """
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 or kinds == {int, float}:
        found = np.array(labels)
        if found.dtype.kind in "Ubif" and found.tolist() == list(labels):
            return found
    return np.array(labels, dtype=object)
