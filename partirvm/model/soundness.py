"""The check of every model that was read: finite arrays of the right shapes and ranges, and finite
predictions.

Checksums detect damage, not values that somebody chose. So every array of a model must be float64
or int64 and finite wherever it lies, positions must be within their ranges, and the model must
predict finite values at a few rows of its own. After that, a model predicts, or raises one of the
package's own errors.
"""

import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import PartirvmError
from partirvm.kernels.design import Design
from partirvm.kernels.permission import functions_of
from partirvm.local.cells import NUMBER
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.quoting import quoted
from partirvm.types import AS_IT_IS, FeatureMap, Float, Scaling

TARGET_MAPS = ("none", "log", "asinh")
"""Kinds of ``TargetMap``."""

WITH_GAPS = ("Model.design.centres", "ClassModel.design.centres")
"""Arrays in which NaN is a missing value."""

NO_LEVELS = ("unknown", "missing")
"""The last rows of each table of levels."""

LEVEL = 0.95
"""Level of the interval that a model that was read predicts at once."""


def require_sound(model: Model | ClassModel) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless the model predicts finite values; its shapes
    were checked before."""
    for name, array in _arrays(model, type(model).__name__):
        # a vector may be a row with missing values
        _require_array(
            name,
            np.nan_to_num(array, posinf=np.inf, neginf=-np.inf) if name in WITH_GAPS else array,
        )
    _require_scaling(model.design.scaling, len(model.columns.features))
    _require_design(model.design)
    _require("alpha", (model.alpha > 0).all(), "must be above 0")
    if isinstance(model, Model):
        _require_regression(model)
    else:
        classes = model.columns.classes or ()
        _require(
            "classes",
            len(classes) >= 2 and len(set(classes)) == len(classes),
            "must be two or more labels",
        )
        width = model.mean.shape[-1]
        known = (len(classes),) if len(classes) > 2 or model.ramp is not None else (1, 2)
        _require("mean", model.mean.ndim == 2 and width in known, "has another number of classes")
    if not list(
        functions_of(model.design)
    ):  # a user's function is not called before the model is used
        _require_predictions(model)


def _arrays(value: Any, name: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield each array of a model with its place."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, tuple | list):
        for position, each in enumerate(value):
            yield from _arrays(each, f"{name}[{position}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name), f"{name}.{field.name}")


def _require(name: str, right: Any, problem: str) -> None:
    if not right:
        raise ValueError(f"its {name} {problem}")


def _require_array(name: str, array: NDArray[Any]) -> None:
    """Raise ``ValueError`` unless an array has plain numbers, all of them finite."""
    _require(
        name, array.dtype in (np.float64, np.int64), f"has the type {quoted(str(array.dtype))}"
    )
    _require(name, np.isfinite(array).all(), "has values that are not finite")


def _require_positions(name: str, positions: NDArray[Any], count: int) -> None:
    """Raise ``ValueError`` unless all are integers from 0 to ``count`` − 1."""
    _require(
        name, positions.dtype == np.int64 and positions.ndim == 1, "must be a list of integers"
    )
    _require(name, ((positions >= 0) & (positions < count)).all(), f"must be from 0 to {count - 1}")


def _require_scaling(scaling: Scaling, d: int) -> None:
    """Raise ``ValueError`` for a scaling of ``d`` features that cannot be applied."""
    _require("x_scale", (scaling.x_scale > 0).all(), "must be above 0")
    _require(
        "t_scale", scaling.t_scale.ndim == 1 and (scaling.t_scale > 0).all(), "must be above 0"
    )
    _require("target map", scaling.target.kind in TARGET_MAPS, "is of an unknown kind")
    _require(
        "target map",
        scaling.target == AS_IT_IS or scaling.target.spread > 0,
        "must have a spread above 0",
    )
    if scaling.blank is not None:
        _require(
            "blank", scaling.blank.shape == scaling.x_shift.shape, "has another number of inputs"
        )
    if scaling.features is None:
        _require(
            "x_shift", len(scaling.x_shift) == d, f"has another number of inputs than {d} features"
        )
    else:
        _require_features(scaling.features, d)


def _require_features(features: FeatureMap, d: int) -> None:
    """Raise ``ValueError`` for a map of ``d`` features that cannot be applied."""
    _require("warps", features.spreads.shape == (d,), f"has another number of features than {d}")
    _require("warps", (features.spreads >= 0).all(), "must have spreads of 0 or more")
    _require_positions("gaps", features.gaps, d)
    _require_positions("numbers", features.numbers, d)
    _require(
        "moments",
        features.moments.shape == (2, len(features.numbers)),
        "has another number of features",
    )
    _require("moments", (features.moments[1] > 0).all(), "must have deviations above 0")
    _require_levels("tables", features.tables, d, 3)
    _require_levels("effects", features.effects, d, 3)
    _require_levels("doubts", features.doubts, d, 2)
    _require_levels("variances of levels", features.variances, d, 3)
    group = max(len(features.numbers), 1)
    for _, weights in features.effects:
        _require("effects", (weights.shape[2] - 1) % group == 0, "has another number of functions")
    for _, variances in features.doubts:
        _require("doubts", (variances >= 0).all(), "must be 0 or more")
    share = features.share
    _require(
        "share of the noise",
        isinstance(share, float) and 0.0 < share < np.inf,
        "must be a number above 0",
    )


def _require_levels(
    name: str, pairs: tuple[tuple[int, Float], ...], d: int, dimensions: int
) -> None:
    """Raise ``ValueError`` unless each of ``d`` features has at most one table of its levels.

    Parameters
    ----------
    name : of the tables, for messages
    pairs : a feature's position and its table, by block, level, and further dimensions
    d : number of features
    dimensions : number of dimensions of each table
    """
    positions = [feature for feature, _ in pairs]
    known = all(type(feature) is int and 0 <= feature < d for feature in positions)
    _require(name, known and len(set(positions)) == len(positions), "belong to unknown features")
    for _, table in pairs:
        _require(
            name,
            table.dtype == np.float64 and table.ndim == dimensions,
            "must be numbers by block and level",
        )
        _require(name, table.size > 0 and table.shape[1] > len(NO_LEVELS), "have an empty table")


def _require_design(design: Design) -> None:
    """Raise ``ValueError`` for columns that do not exist."""
    _require("centres", design.centres.dtype == np.float64, "must be numbers")
    _require_positions("labels", design.labels, 1 << 62)
    _require_positions(
        "active", design.active, 0 if design.functions is None else design.functions.size
    )
    _require("active", (np.diff(design.active) > 0).all(), "must be increasing")
    for function, size in () if design.functions is None else design.functions.parts:
        right = size >= 0 and (function != "linear" or size == design.centres.shape[1])
        _require("basis", right, "has another number of functions than features")
    if design.origin is not None:
        _require(
            "origin",
            design.origin.shape == (design.scaling.n_inputs,),
            "has another number of inputs",
        )


def _require_regression(model: Model) -> None:
    """Raise ``ValueError`` for noise that is no variance, and for local residuals without rows."""
    T = len(model.design.scaling.t_scale)
    _require(
        "mean", model.mean.shape[1:] == (() if T == 1 else (T,)), "has another number of targets"
    )
    for name in ("noise_variance", "evidence_noise"):
        noise = np.asarray(getattr(model, name))
        right = noise.shape == (() if T == 1 else (T,))
        _require(
            name,
            right and np.isfinite(noise).all() and (noise >= 0).all(),
            "must be 0 or more for each target",
        )
    prior = np.asarray(model.prior_variance)
    sized = prior.shape in ((), (T,))
    _require(
        "prior_variance",
        sized and np.isfinite(prior).all() and (prior >= 0).all(),
        "must be 0 or more for each target",
    )
    _require("reach", 0 <= model.reach <= 1, "must be from 0 to 1")
    _require(
        "reach",
        not model.reach or (model.n_vectors and model.design.kernel.local),
        "needs local vectors",
    )
    _require_positions("known_alpha", np.array(model.known_alpha, np.int64), model.design.n_columns)
    if model.residuals is None:
        return
    _require(
        "boxes",
        (model.residuals.cells.boxes[:, 0] <= model.residuals.cells.boxes[:, 1]).all(),
        "are reversed",
    )
    for kernel in model.residuals.kernels:
        numbers = [kernel.variance, kernel.length, kernel.noise, kernel.inflation, kernel.least]
        _require(
            "kernel of residuals",
            np.isfinite(numbers).all() and min(numbers) >= 0,
            "has numbers below 0",
        )
        _require(
            "kernel of residuals",
            kernel.length > 0 and kernel.freedom > 0,
            "has numbers that are not above 0",
        )
    records = model.residuals.cells.records
    if records is not None:
        numbers_of_rows = records[:, NUMBER]
        _require(
            "row numbers", (numbers_of_rows == np.rint(numbers_of_rows)).all(), "must be integers"
        )
        _require("row numbers", (numbers_of_rows >= 0).all(), "must be 0 or more")


def _require_predictions(model: Model | ClassModel) -> None:
    """Raise ``ValueError`` unless the model predicts finite values at some of its vectors, and
    numbers for gaps."""
    own = model
    if (
        isinstance(model, Model)
        and model.residuals is not None
        and model.residuals.cells.records is None
    ):
        own = model.sparse()  # its rows are elsewhere, and are checked when they are read
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            multiples = own.multiples([LEVEL])[:, 0]
            for rows in _rows(model.design):
                values = own.predictive.values(rows, multiples)[0]
                _require("predictions", np.isfinite(values).all(), "are not finite")
        except PartirvmError as error:
            raise ValueError(f"it cannot predict: {error}") from error


def _rows(design: Design) -> list[Float]:
    """Return rows in raw units: some vectors, and one without any value."""
    d = design.centres.shape[1]
    some = design.centres[:: max(len(design.centres) - 1, 1)]
    return [some if len(some) else np.zeros((1, d)), np.full((1, d), np.nan)]
