"""Precision weights: 1/r² for noise of standard deviation σ·r, and the class weights of ``class_weight``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.checks import numeric_array
from partirvm.data.chunked import in_process
from partirvm.data.labels import plain_label
from partirvm.data.source import Float
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed_values, quoted


def noise_weights(noise: Any, weights: Any = None) -> Float:
    """Return the precision weights (N,) of rows with relative noise ``noise`` (N,), multiplied by ``weights`` (N,) if
    given. Arrays of Dask and Zarr are read whole.

    Raises ``DataError`` for a wrong shape or dtype, and for noise that is not positive and finite.

    >>> noise_weights([1.0, 2.0, 0.5], [1.0, 4.0, 0.0]).tolist()
    [1.0, 1.0, 0.0]
    """
    given = {"sample_noise": noise, "sample_weight": weights}
    noise, weights = (
        None if values is None else numeric_array(name, in_process(name, values, f"leave {name} out"))
        for name, values in given.items()
    )
    if noise.ndim != 1:
        raise DataError(f"sample_noise must have shape (rows,), found {noise.shape}.")
    if weights is not None and weights.shape != noise.shape:
        raise DataError(f"sample_noise has shape {noise.shape}, the weights {weights.shape}.")
    return weights_of_noise(noise) if weights is None else weights_of_noise(noise) * weights


def weights_of_noise(noise: NDArray[Any], first: int = 0, name: str = "sample_noise") -> Float:
    """Return 1/r² for a run of rows that begins at row ``first``. Raises ``DataError`` for the first invalid value."""
    noise = np.asarray(noise, dtype=np.float64)
    with np.errstate(all="ignore"):
        weights: Float = 1.0 / noise**2
    wrong = ~((noise > 0) & (weights > 0) & np.isfinite(weights))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise DataError(
            f"{name} is {noise[place]:g} in row {first + place:,} (counted from 0): noise and 1/noise² must be "
            "positive and finite. Remove the row, or set its weight to zero and its noise to any valid value."
        )
    return weights


def class_weights(class_weight: Any, classes: Sequence[Any], counts: Float | None = None) -> Float:
    """Return the weight of each of the K classes, shape (K,).

    "balanced" gives n / (K·count), as in scikit-learn: ``counts`` (K,) is the number of rows of each class or the sum
    of their weights, and n is the sum of ``counts``. A mapping gives the weight of a label, or of a label written as
    text. Classes without an entry in the mapping have the weight 1.

    Raises ``UsageError`` for unknown labels, negative weights and other types, and if fewer than two classes have a
    positive weight. Raises ``DataError`` for "balanced" if a class has no rows.

    >>> class_weights({"yes": 3}, ("no", "yes")).tolist()
    [1.0, 3.0]
    >>> class_weights("balanced", (0, 1), np.array([30.0, 10.0])).round(3).tolist()
    [0.667, 2.0]
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        assert counts is not None
        if not (counts > 0).all():
            empty = classes[int(np.argmin(counts))]
            raise DataError(f"class_weight='balanced', but no row of the class {quoted(empty)} has a positive weight")
        balanced: Float = counts.sum() / (len(classes) * counts)
        return balanced
    if not isinstance(class_weight, Mapping):
        raise UsageError(
            f"class_weight is {class_weight!r}: it must be None, 'balanced' or a dict of labels and weights"
        )
    places = {text_of_label(label): code for code, label in enumerate(classes)}
    weights = np.ones(len(classes))
    for label, weight in class_weight.items():
        if text_of_label(label) not in places:
            known = listed_values(classes)
            raise UsageError(f"class_weight names {quoted(label)}, but the classes of the data are {known}")
        weights[places[text_of_label(label)]] = _weight(label, weight)
    if (weights > 0).sum() < 2:
        raise UsageError("class_weight leaves fewer than two classes with positive weight: two classes are needed")
    return weights


def text_of_label(label: Any) -> str:
    """Convert a label to a JSON key; 1, 1.0 and "1" give equal keys.

    >>> text_of_label(1.0), text_of_label(True), text_of_label("a")
    ('1', 'True', 'a')
    """
    return str(plain_label(label))


def _weight(label: Any, weight: Any) -> float:
    try:
        value = float(weight)
    except (TypeError, ValueError):
        value = np.nan
    if not (np.isfinite(value) and value >= 0):
        raise UsageError(f"class_weight of {quoted(label)} is {weight!r}: it must be a number ≥ 0")
    return value
