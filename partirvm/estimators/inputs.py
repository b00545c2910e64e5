"""Rows, targets, labels and weights that an estimator gets: converted, and checked as scikit-learn does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor
from sklearn.utils.validation import _check_sample_weight, validate_data

from partirvm.data import as_source
from partirvm.data.labels import coded, label_values, plain_labels
from partirvm.data.source import Source, default_names, numeric_array
from partirvm.errors import DataError, DataTypeError, PartirvmError, UsageError
from partirvm.model.input_rows import Levels, check_names, coded_frame, levels_of
from partirvm.types import Columns, Float, module_of, pandas_column, pandas_frame

Labels = NDArray[Any]

LAZY = ("zarr", "dask", "dask_expr", "distributed")
"""Packages whose arrays are not in memory."""


def in_memory(X: Any) -> bool:
    """Return whether scikit-learn can validate X: anything except paths, sources, Zarr and Dask arrays."""
    return not (isinstance(X, str | os.PathLike | Source) or module_of(X) in LAZY)


@contextmanager
def data_errors() -> Iterator[None]:
    """Turn the errors of scikit-learn and NumPy about invalid data into errors of partirvm."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except PartirvmError:
        raise
    except (ValueError, TypeError) as error:
        raise (DataError if isinstance(error, ValueError) else DataTypeError)(" ".join(str(error).split())) from error


def finite(name: str, values: Any) -> NDArray[Any]:
    """Targets or weights in memory as an array of finite numbers. Raises ``DataError`` for others."""
    numbers = numeric_array(name, pandas_column(values))
    require_finite(name, numbers)
    return numbers


def require_finite(name: str, values: NDArray[Any], columns: Any = None) -> None:
    """Raise ``DataError`` for values (n,) or (n, d) that are NaN or infinite: their count, the first row and column.

    ``columns`` are the names of the columns of a matrix of features; by default ``x0``, ``x1`` …
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    wrong = ~np.isfinite(np.atleast_1d(values))
    if wrong.any():
        row, *column = np.argwhere(wrong)[0].tolist()
        where = ""
        if name == "X":
            where = f", column {(f'x{column[0]}' if columns is None else str(columns[column[0]]))!r}"
        found = "NaN" if np.isnan(values).any() else "infinity or a value too large for dtype('float64')"
        raise DataError(
            f"Input {name} contains {found}: {int(wrong.sum()):,} such values, the first in row {row:,} (counted from "
            f"0){where}: remove these rows, or fill the values in"
        )


def rows_of(estimator: Any, X: Any, levels: Levels, *y: Any, reset: bool = False, **checks: Any) -> Any:
    """Rows in memory as an array (n, d), and targets if they are given; ``levels`` are those of the training rows."""
    if y:
        numbers = is_regressor(estimator)
        y = tuple(each if each is None else finite("y", each) if numbers else label_values(each) for each in y)
        checks |= {"y_numeric": numbers, "multi_output": numbers}
    with data_errors():
        X = coded_frame(X, levels)
        found = validate_data(estimator, X, *y, dtype=np.float64, ensure_all_finite=False, reset=reset, **checks)
    require_finite("X", found[0] if y else found, getattr(estimator, "feature_names_in_", None))
    return found


@dataclass(frozen=True)
class TrainingRows:
    """Rows of weight above zero: X (n, d), y (n,) or (n, T), weights (n,) or None, and the labels (K,) of codes y."""

    X: Float
    y: Any
    weights: Float | None
    columns: Columns
    labels: Labels | None


def training_rows(estimator: Any, X: Any, y: Any, sample_weight: Any, levels: Levels | None = None) -> TrainingRows:
    """Rows of weight above zero that are in memory, checked. With ``levels`` they have to be like the rows before."""
    more, X, weights = levels is not None, pandas_frame(X), None
    levels = levels_of(X) if levels is None else levels
    X, y = rows_of(estimator, X, levels, y, ensure_min_samples=1 if more else 2, reset=not more)
    if sample_weight is not None:
        weights = finite("sample_weight", sample_weight)
        if not weights.any():
            raise DataError("no row has a weight above zero: there is nothing to fit")
        given = weights if weights.ndim else float(weights)
        with data_errors():
            weights = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
        present = weights > 0
        if not present.all():
            X, y, weights = X[present], y[present], weights[present]
    y, labels = estimator._coded(y)
    names = tuple(getattr(estimator, "feature_names_in_", default_names(X.shape[1])))
    return TrainingRows(X, y, weights, Columns(names, categories=levels), labels)


def training_source(estimator: Any, X: Any, y: Any, sample_weight: Any, seed: int) -> tuple[Source, Labels | None]:
    """Return the training rows, and their class labels for classification. Sets the attributes of the features."""
    if in_memory(X):
        rows = training_rows(estimator, X, y, sample_weight)
        source, labels = as_source(rows.X, rows.y, rows.weights, seed=seed, columns=rows.columns), rows.labels
    else:
        y, labels = (y, None) if y is None else estimator._coded(y)
        source = as_source(X, y, sample_weight, seed=seed)
        if source.n_targets != 1 and labels is not None:
            raise UsageError(f"y has {source.n_targets} columns: one class of each row at a time")
        estimator.n_features_in_ = source.n_features
        estimator.__dict__.pop("feature_names_in_", None)
        names = [] if isinstance(X, Source) else list(getattr(X, "columns", ()))
        if names and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.array(names, dtype=object)
    if labels is not None:
        source.columns = replace(source.columns, classes=plain_labels(labels))
    return source, labels


def source_of(
    estimator: Any, given: Any, columns: Columns, labels: Labels | None = None, *, name: str = "validation"
) -> Source:
    """Return rows with the ``columns`` and classes of the training rows: (X, y), (X, y, sample_weight), or DATA."""
    if not isinstance(given, tuple | list):
        return as_source(given)
    if len(given) not in (2, 3):
        raise UsageError(f"{name} has {len(given)} parts: it must be (X, y) or (X, y, sample_weight), or DATA")
    X, y, *weights = given
    X = pandas_frame(X, f"the {name} X")
    check_names(X, columns.features)
    if in_memory(X):
        X, y = rows_of(estimator, X, columns.categories, y)
    return as_source(X, y if labels is None else coded(y, labels), *weights, columns=columns)
