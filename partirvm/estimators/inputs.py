"""Convert the rows, targets, labels and weights passed to an estimator, and check them as
scikit-learn does."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import is_regressor
from sklearn.utils.validation import _check_sample_weight, check_array, check_X_y, validate_data

from partirvm.core.moments import refuse_masked
from partirvm.data import ArraySource, as_source
from partirvm.data.arrays import client_of, computed, lengths_of, loaded_rows
from partirvm.data.frame_rows import FrameRows, frame_rows, in_order, new_rows
from partirvm.data.frames import is_frame, module_of, pandas_column, pandas_frame
from partirvm.data.labels import Labels, coded, label_values, plain_labels
from partirvm.data.row_groups import without_groups
from partirvm.data.source import Source, default_names, numeric_array, with_nan
from partirvm.data.unseen import with_known_codes
from partirvm.errors import DataError, DataTypeError, MemoryLimitError, PartirvmError, UsageError
from partirvm.execution import LocalExecutor
from partirvm.options.constraints import parse_bytes
from partirvm.quoting import format_bytes, quoted
from partirvm.types import Columns, Float, Int

LOADED_BYTES = 1 << 27
"""Maximum size in bytes of Zarr and Dask collections whose rows are read into memory, and shuffled.
Larger ones are read tile by tile in their own order: a tile of shuffled rows would need all
chunks. The limit must not depend on the memory of a machine, as the order of rows changes the
result."""


def in_memory(X: Any) -> bool:
    """Return True if ``loaded`` loads X, i.e. unless X is a path, a source, a Zarr array or a Dask
    collection other than a frame with text columns."""
    labels = (
        is_frame(X)
        and hasattr(X, "npartitions")
        and X.select_dtypes(exclude=["number", "bool"]).shape[1] > 0
    )
    lazy = module_of(X) in ("zarr", "dask", "dask_expr", "distributed") and not labels
    return not (lazy or isinstance(X, str | os.PathLike | Source))


def loaded(estimator: Any, X: Any) -> Any:
    """Convert sparse X to dense and Dask frames to pandas. Raises ``MemoryLimitError`` above a
    quarter of the limit."""
    lazy = hasattr(X, "npartitions")
    memory_limit = estimator.memory_limit
    if not (lazy or issparse(X)):
        return X
    size = 8 * X.shape[-1] * (sum(lengths_of(X)) if lazy else X.shape[0])
    limit = (
        LocalExecutor()
        .machine(None if memory_limit == "auto" else parse_bytes(memory_limit, "memory_limit"))
        .limit
    )
    if 4 * size > limit:
        takes = (
            f"{format_bytes(size)} as an array, over a quarter of the memory limit of "
            f"{format_bytes(limit)}"
        )
        advice = (
            "ingest the table, with categories in place of one-hot columns, or raise memory_limit"
        )
        raise MemoryLimitError(f"X takes {takes}: {advice}")
    return computed(X, client=client_of(X))[0] if lazy else X.toarray()


@contextmanager
def data_errors() -> Iterator[None]:
    """Turn scikit-learn and NumPy errors about invalid data into partirvm errors."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except PartirvmError:
        raise
    except (ValueError, TypeError) as error:
        raise (DataError if isinstance(error, ValueError) else DataTypeError)(
            " ".join(str(error).split())
        ) from error


def finite(name: str, values: Any, *, gaps: bool = False) -> NDArray[Any]:
    """Return targets or weights in memory as an array of finite numbers. A ``DataError`` names the
    first value that is not finite.

    Args:
        name: name of the values in messages.
        values: targets or weights.
        gaps: True if some of several targets of a row may be NaN.
    """
    numbers = numeric_array(name, pandas_column(values))
    wrong = ~np.isfinite(np.atleast_1d(numbers))
    if wrong.any() and gaps and numbers.ndim == 2 and numbers.shape[1] > 1:
        missing = np.isnan(numbers)
        if missing.all(axis=0).any():
            empty = int(np.argmax(missing.all(axis=0)))
            raise DataError(
                f"Input {name}: the target in column {empty} has no value: leave it out"
            )
        wrong &= ~missing
    if wrong.any():
        kind = (
            "NaN"
            if np.isnan(numbers).any()
            else "infinity or a value too large for dtype('float64')"
        )
        count = (
            f"{int(wrong.sum()):,} such values, the first in row {int(np.argwhere(wrong)[0, 0]):,} "
            "(counted from 0)"
        )
        raise DataError(
            f"Input {name} contains {kind}: {count}: remove these rows, or fill the values in"
        )
    return numbers


def _require_no_infinity(X: Any, columns: Columns | None) -> None:
    """Raise ``DataError`` with the place of the first infinite value of an array (n, d)."""
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f" or X.ndim != 2:
        return
    wrong = np.isinf(X)
    if not wrong.any():
        return
    row, column = np.argwhere(wrong)[0]
    names = default_names(X.shape[1])
    if columns is not None and len(columns.features) == X.shape[1]:
        names = columns.features
    raise DataError(
        f"Input X contains infinity: {int(wrong.sum()):,} values are infinite, the first in row "
        f"{row:,} (counted from 0), column {quoted(names[column])}: fill them in, or leave these "
        "rows out"
    )


def _with_plain_gaps(X: Any) -> Any:
    """Return rows in memory; in an array or in lists, each mark of a missing value is NaN."""
    refuse_masked(X, "X")
    if isinstance(X, list | tuple) and "pandas" in sys.modules:
        with suppress(ValueError):  # a later check describes rows of different lengths
            return with_nan(np.asarray(X))
    return with_nan(X) if isinstance(X, np.ndarray) else X


def _require_no_dates(columns: Columns | None) -> None:
    """Raise ``DataError`` if the rows of the fit had dates, which an array cannot have."""
    if columns is not None and columns.given != columns.features:
        raise DataError(
            "the model was trained on dates: pass the rows as a data frame with these columns"
        )


def _read_frame(estimator: Any, X: Any, columns: Columns | None) -> FrameRows:
    """Return the rows of a pandas frame, read like a file or like the rows of the fit."""
    if columns is None:
        return new_rows(X, estimator.columns)
    return FrameRows(frame_rows(X, columns), columns)


def rows_of(
    estimator: Any,
    X: Any,
    columns: Columns | None,
    y: Any = None,
    *,
    reset: bool = False,
    gaps: bool = False,
    **checks: Any,
) -> tuple[Float, Columns, Any]:
    """Return rows in memory as an array (n, d), their columns and checked targets; ``columns`` come
    from the fit.

    Args:
        estimator: the estimator, for messages and its memory limit.
        X: rows in memory.
        columns: the columns of the fit; None if these rows define them.
        y: targets or labels.
        reset: True if the estimator's number and names of features are set.
        gaps: True if some of several targets of a row may be NaN.
        checks: further arguments of scikit-learn's checks.
    """
    checks |= {"dtype": np.float64, "ensure_all_finite": "allow-nan", "estimator": estimator}
    if y is not None:
        numbers = is_regressor(estimator)
        y = finite("y", y, gaps=gaps) if numbers else label_values(y)
        checks |= {"y_numeric": numbers, "multi_output": numbers}
    frame = X = _with_plain_gaps(loaded(estimator, pandas_frame(X)))
    with data_errors():
        if is_frame(X):
            reading = _read_frame(estimator, X, columns)
            X = reading.rows
            columns = reading.columns
            frame = in_order(frame, columns)
        else:
            _require_no_dates(columns)
        _require_no_infinity(X, columns)
        if y is None and not reset:
            rows = check_array(X, input_name="X", **checks)
        elif gaps and y is not None and np.isnan(y).any():
            missing = np.isnan(y)
            rows, y = check_X_y(X, np.where(missing, 0.0, y), **checks)
            y = np.where(missing, np.nan, y)
        else:
            rows, y = check_X_y(X, y, **checks)
        rows = np.ascontiguousarray(rows)  # products round differently in Fortran order
        if columns is not None and rows.shape[1] == len(columns.features):
            rows = with_known_codes(rows, columns)
        validate_data(
            estimator, frame if is_frame(frame) else rows, reset=reset, skip_check_array=True
        )
    return rows, columns or Columns(default_names(rows.shape[1])), y


@dataclass(frozen=True)
class TrainingRows:
    """Rows with positive weight.

    Attributes:
        X: the inputs (n, d).
        y: targets (n,) or (n, T), or class codes (n,).
        weights: the weights (n,), or None.
        columns: the columns of X.
        labels: the labels (K,) of the codes, or None.
        groups: the codes (n,) of the rows' groups, or None.
    """

    X: Float
    y: Any
    weights: Float | None
    columns: Columns
    labels: Labels | None
    groups: Int | None = None


def training_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    columns: Columns | None = None,
    groups: Int | None = None,
    *,
    gaps: bool = False,
) -> TrainingRows:
    """Check rows in memory and return those with positive weight; with ``columns``, they must match
    earlier rows.

    Args:
        estimator: the estimator.
        X: rows in memory.
        y: targets or labels.
        sample_weight: weights of the rows, or None.
        columns: the columns of earlier rows, which these rows must match.
        groups: the codes of the rows' groups, or None.
        gaps: True if some of several targets of a row may be NaN.
    """
    if not in_memory(X):
        raise UsageError(
            f"X is {type(X).__name__}, but an estimator is updated with rows in memory: use a job "
            "instead"
        )
    more = columns is not None
    weights = None
    X, columns, y = rows_of(
        estimator, X, columns, y, ensure_min_samples=1 if more else 2, reset=not more, gaps=gaps
    )
    if sample_weight is not None:
        weights = finite("sample_weight", sample_weight)
        weight = weights if weights.ndim else float(weights)
        with data_errors():
            weights = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
        present = weights > 0
        if present.any() and not present.all():  # a source whose weights are all 0 is refused
            X = X[present]
            y = y[present]
            weights = weights[present]
            groups = None if groups is None else groups[present]
    y, labels = estimator._coded(y)
    return TrainingRows(X, y, weights, columns, labels, groups)


def small_in_memory(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return Zarr and Dask collections of rows in memory if they take at most ``LOADED_BYTES``, so
    that they are shuffled as arrays in memory are; otherwise return them unchanged.

    Args:
        X: rows of any kind.
        y: targets or labels, or None.
        sample_weight: weights of the rows, or None.
    """
    if in_memory(X) or isinstance(X, str | os.PathLike | Source) or X.ndim != 2:
        return X, y, sample_weight
    if hasattr(X, "compute_chunk_sizes") and any(map(np.isnan, X.shape)):
        X = X.compute_chunk_sizes()
    n_rows = sum(lengths_of(X)) if is_frame(X) else X.shape[0]
    if 8 * n_rows * math.prod(X.shape[1:]) > LOADED_BYTES:
        return X, y, sample_weight
    return loaded_rows("X", X), loaded_rows("y", y), loaded_rows("the weights", sample_weight)


def training_source(
    estimator: Any, X: Any, y: Any, sample_weight: Any, seed: int, groups: Any = None
) -> tuple[Source, Labels | None]:
    """Return the training rows and, for classification, their class labels. Sets the feature
    attributes.

    Args:
        estimator: the estimator.
        X: rows of any kind.
        y: targets or labels.
        sample_weight: weights of the rows, or None.
        seed: the seed for the order of rows in memory.
        groups: groups of the rows, or None.
    """
    X, codes = without_groups(X, groups)
    X, y, sample_weight = small_in_memory(X, y, sample_weight)
    if in_memory(X):
        rows = training_rows(
            estimator, X, y, sample_weight, groups=codes, gaps=is_regressor(estimator)
        )
        source = as_source(
            rows.X, rows.y, rows.weights, groups=rows.groups, seed=seed, columns=rows.columns
        )
        labels = rows.labels
    else:
        y, labels = (y, None) if y is None else estimator._coded(y)
        source = as_source(X, y, sample_weight, groups=codes, seed=seed)
        estimator.n_features_in_ = len(source.columns.given)
        estimator.__dict__.pop("feature_names_in_", None)
        names = [] if isinstance(X, Source) else list(getattr(X, "columns", ()))
        if names and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.array(names, dtype=object)
    if labels is not None:
        source.columns = replace(source.columns, classes=plain_labels(labels))
    return source, labels


def has_gaps(source: Source) -> bool:
    """Return True if the targets of rows in memory are fitted in several groups."""
    return isinstance(source, ArraySource) and len(source.groups_of_targets()) > 1


def source_of(
    estimator: Any,
    rows: Any,
    columns: Columns,
    labels: Any = None,
    *,
    name: str = "validation",
    gaps: bool = False,
) -> Source:
    """Return (X, y), (X, y, sample_weight) or a dataset as a source with the training ``columns``
    and classes.

    Args:
        estimator: the estimator.
        rows: a dataset, or X, y and optionally weights.
        columns: the columns of the fit.
        labels: the class labels, for a classification.
        name: the name of the argument, for messages.
        gaps: True if some of several targets of a row may be NaN.
    """
    if not isinstance(rows, tuple | list):
        return as_source(rows)
    if len(rows) not in (2, 3):
        raise UsageError(
            f"{name} has {len(rows)} parts: it must be (X, y), (X, y, sample_weight), or a dataset"
        )
    X, y, *weights = rows
    if X is None or y is None:
        raise UsageError(f"{name} rows need both X and y: {'X' if X is None else 'y'} is None")
    X = pandas_frame(X, f"the {name} X")
    if in_memory(X):
        X, _, y = rows_of(estimator, X, columns, y, gaps=gaps)
    elif hasattr(X, "columns"):
        X = in_order(X, columns)
    return as_source(X, y if labels is None else coded(y, labels), *weights, columns=columns)
