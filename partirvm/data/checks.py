"""Checks of the shapes, lengths and dtypes of the user's data, before any row is read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from partirvm.core.moments import Moments, require_exact
from partirvm.data.source import Columns, Source
from partirvm.errors import DataError
from partirvm.quoting import listed_values, quoted

FARTHEST, HEAVIEST = 1e60, 1e100
"""Value or standard deviation, and mean weight, beyond which powers leave float64."""


def check_shapes(X: Any, t: Any = None, weights: Any = None) -> None:
    """Raise ``DataError`` for wrong shapes and dtypes of array-likes: X (N, d), t (N,) or (N, T), weights (N,)."""
    if len(X.shape) != 2:
        hint = "X.reshape(-1, 1) gives one feature, X.reshape(1, -1) one row" if len(X.shape) == 1 else "reshape X"
        raise DataError(f"X must have two dimensions (rows, features), found shape {X.shape}: {hint}.")
    n_rows, n_features = X.shape
    if n_features == 0:
        raise DataError(f"X has no features: its shape is {X.shape}.")
    check_row_count(n_rows, 2 if t is not None else 1)
    check_dtype("X", X.dtype)
    for name, values, most in (("y", t, 2), ("the weights", weights, 1)):
        if values is not None:
            check_dtype(name, values.dtype)
            check_beside(name, values, n_rows, most=most)


def check_beside(name: str, values: Any, n_rows: int, *, most: int) -> None:
    """Raise ``DataError`` unless values beside X have ``n_rows`` rows, and at most ``most`` dimensions."""
    if len(values.shape) not in range(1, most + 1) or 0 in values.shape[1:]:
        found = "(rows,) or (rows, targets)" if most == 2 else "(rows,)"
        raise DataError(f"{name} must have shape {found}, found {values.shape}.")
    if values.shape[0] != n_rows:
        raise DataError(f"X has {n_rows:,} rows, but {name} has {values.shape[0]:,}: the lengths must be equal.")


def check_row_count(n_rows: int, least: int, name: str = "the data") -> None:
    """Raise ``DataError`` for fewer than ``least`` rows: 2 to train a model, 1 for rows appended to DATA."""
    if n_rows >= least:
        return
    found = "there is only one row" if n_rows else "there are no rows"
    raise DataError(f"{name}: {found}." + f" At least {least} are needed." * (least > 1))


def require_target(source: Source) -> None:
    """Raise ``DataError`` for data without a target."""
    if source.n_targets == 0:
        raise DataError(
            f"{source}: the data have no target, and can be used only for prediction: ingest them from a source that "
            f"has the target {quoted(source.columns.target)}."
        )


def check_dtype(name: str, dtype: Any) -> None:
    """Raise ``DataError`` for complex numbers, text, dates and objects; real numbers and booleans are accepted."""
    kind, found, advice = getattr(dtype, "kind", "O"), "text, dates or objects", "convert the values to numbers"
    if kind == "c":
        found, advice = "complex numbers", "Complex data not supported: take real and imaginary part as two columns"
    if kind not in "fiub":
        raise DataError(
            f"{name} holds {found} ({dtype}), but real numbers are needed: {advice}, or ingest the table with its text "
            "columns named as categorical (`--categorical`)."
        )


def class_codes(source: Source, classes: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the model's code of each class of a source, or None if all codes are equal to the source's codes.

    Raises ``DataError`` if the target of the source is not a class, or not among the ``classes`` of the model.
    """
    found = source.columns.classes
    if found is None:
        raise DataError(
            f"{source}: the model is a classifier for {listed_values(classes)}, but the target of the data is numeric: "
            "ingest the data with like= (`--like`) and the DATA that the model was trained on, or with `--classes`"
        )
    unknown = [label for label in found if label not in classes]
    if unknown:
        raise DataError(
            f"{source}: the classes {listed_values(unknown)} of the data are not in the training data, whose "
            f"classes are {listed_values(classes)}. Leave such rows out, or train on rows of all classes"
        )
    codes = {label: code for code, label in enumerate(classes)}
    return None if found == tuple(classes) else tuple(codes[label] for label in found)


def check_range(moments: Moments, columns: Columns) -> None:
    """Raise ``DataError`` for weights or columns whose values are too large or too small for float64 arithmetic."""
    weight = moments.inputs.total / moments.inputs.n
    if not 1 / HEAVIEST <= weight <= HEAVIEST:
        raise DataError(
            f"the mean weight is {weight:.0e}, too far from 1: divide all weights by a power of ten "
            "(relative noise likewise), so that most are near 1"
        )
    inputs, targets = moments.inputs, moments.targets
    names = (*columns.features, *columns.target_names(len(targets.mean)))
    largest, deviation, constant = (
        np.concatenate([getattr(each, what) for each in (inputs, targets)])
        for what in ("largest", "deviation", "constant")
    )
    wrong = (largest > FARTHEST) | (~constant & (deviation < 1 / FARTHEST))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise DataError(
            f"the column {quoted(names[place])} has values up to {largest[place]:.0e} and the standard deviation "
            f"{deviation[place]:.0e}: multiply it by a power of ten, so that both are near 1"
        )


def check_weights(weights: Any) -> None:
    """Raise ``DataError`` for negative weights, or if all weights are zero."""
    negative = int((weights < 0).sum())
    if negative or not weights.any():
        found = f"hold {negative} negative values" if negative else "are all zero"
        raise DataError(f"the weights {found}: precision weights are zero or positive, and at least one is positive.")


def numeric_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Convert ``values`` to a NumPy array of real numbers of their dtype, or of float64 for objects."""
    if hasattr(values, "toarray"):
        raise DataError(f"{name} is a sparse matrix, but dense rows are needed: pass {name}.toarray().")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{name} is not a regular array: {error}.") from error
    if array.dtype.kind == "O" or np.ma.is_masked(values):
        require_exact(np.asanyarray(values), name)
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    check_dtype(name, array.dtype)
    return array
