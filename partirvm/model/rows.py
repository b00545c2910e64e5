"""Functions on rows for regression and classification models: checks, panels of the design, and hashes.

Rows are processed in panels, and products are computed for pieces of panels (``core.predictive``). So the prediction of
a row does not depend on the other rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.predictive import ROWS
from partirvm.errors import DataError
from partirvm.frames import pandas_frame
from partirvm.kernels.design import Design
from partirvm.model.coded_frames import coded_frame
from partirvm.quoting import listed_values
from partirvm.types import PANEL_ROWS, Columns

Float = NDArray[np.float64]

HEIGHT = PANEL_ROWS - PANEL_ROWS % ROWS
"""Number of rows of a panel, a multiple of the piece size, so that only the last piece is copied."""

FAR = 1e-4
"""Nearness (largest kernel value as a fraction of its peak) below which a row is far from all relevance vectors."""


def checked_rows(X: Any, columns: Columns) -> Float:
    """Return X, an array, nested lists or a data frame, as a float64 array.

    Categorical columns of a data frame contain labels, not codes. Raises ``DataError`` for other feature names and for
    non-numeric values.
    """
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


def panels(design: Design, X: Float) -> Iterator[tuple[slice, Float]]:
    """Yield panels of raw inputs X (n, d): the slice of rows, and the writable block (rows, M) of the design.

    Raises ``DataError`` if X has another number of features than the design.
    """
    n_features = len(design.scaling.x_shift)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise DataError(f"the model was trained on {n_features} features, but the given rows have shape {X.shape}")
    for start in range(0, len(X), HEIGHT):
        rows = slice(start, start + HEIGHT)
        yield rows, design.block(X[rows])


def check_predictions(X: Float, columns: Columns, mean: Float, variance: Float | None) -> None:
    """Raise ``DataError``, naming the first row, if predictions (n, …) at finite inputs X (n, d) are not finite."""
    wrong = ~np.isfinite(mean).reshape(len(X), -1).all(axis=1)
    if variance is not None:
        wrong |= np.isnan(variance).reshape(len(X), -1).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        column = int(np.argmax(np.abs(X[row])))
        raise DataError(
            f"the predictions of {int(wrong.sum()):,} of {len(X):,} rows are not finite, the first is row {row:,} "
            f"(counted from 0) with {columns.features[column]!r} = {X[row, column]:.3g}: the inputs are too large for "
            "the kernel or basis; leave these rows out, or check their units"
        )


def nearness(design: Design, block: Float, heights: Float) -> Float | float:
    """Return the largest kernel value of each row (n,), relative to the kernel's peak. ``block`` is overwritten.

    Without local kernels the value is 1.
    """
    if not (len(design.centres) and design.kernel.local):
        return 1.0
    kernels = block[:, design.n_leading :]
    kernels /= heights
    return np.asarray(kernels.max(axis=1))


def digest(facts: Any, design: Design, arrays: Iterable[Float]) -> str:
    """Return a hash of the JSON ``facts``, of the design except its kernel and bias, and of these arrays."""
    scaling = design.scaling
    if design.functions is not None:
        facts = [*facts, design.functions.spec(), design.active.tolist()]
    found = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16)
    of_design = (scaling.x_shift, scaling.x_scale, scaling.t_shift, scaling.t_scale, design.centres)
    several = (design.which,) if len(design.kernels) > 1 else ()
    if design.noise is not None:
        arrays = (*arrays, design.noise.centres, design.noise.weights, np.array(design.noise.shift))
        found.update(json.dumps(design.noise.kernel.spec(), sort_keys=True).encode())
    for array in (*of_design, *several, *arrays):
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array))
    return found.hexdigest()
