"""A model on disk: a file of ``storage.codec`` with the model and the parameters of its estimator. Never pickle.

A kernel or a basis may be a named function, "module:function". Reading imports nothing; but predictions of the loaded
model import and run the function, so such a model is loaded only if the caller allows code.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from partirvm.core.link import LINKS
from partirvm.core.termination import Termination
from partirvm.errors import FormatError, UsageError
from partirvm.kernels.functions import require_no_code
from partirvm.model.base import DESIGN_CLASSES, FittedModel
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.options.values import VALUES
from partirvm.quoting import quoted
from partirvm.storage.codec import Codec
from partirvm.types import Columns

KIND = "partirvm-model"
FORMAT = 11

CODEC = Codec((*DESIGN_CLASSES, *VALUES, Model, ClassModel, Columns, Termination))

Saved: TypeAlias = Model | ClassModel


def save_model(
    model: Saved,
    location: str | os.PathLike[str],
    about: dict[str, Any] | None = None,
    *,
    estimator: dict[str, Any] | None = None,
) -> None:
    """Write a model to a new folder or fsspec URL, with plain values and arrays of its ``estimator``.

    Raises ``ExistsError``, ``StorageError``, and ``UsageError`` for a function that exists only in this process.
    """
    model.design.kernel.spec()  # raises UsageError for functions of this process
    if model.design.functions is not None:
        model.design.functions.spec()
    try:
        CODEC.write({"model": model, "estimator": estimator}, os.fspath(location), KIND, FORMAT, about)
    except TypeError as error:
        raise UsageError(f"the model cannot be kept in a file: {error}") from error


def load_model(location: str | os.PathLike[str], *, allow_code: bool = False) -> Saved:
    """Read a model from its folder or fsspec URL. No code of the file is run.

    Raises ``MissingDataError`` if any of it is missing or damaged, ``FormatError`` for another
    kind of file, ``UsageError`` if its kernel or basis is a named function and ``allow_code`` is false.
    """
    return load_saved(location, allow_code=allow_code)[0]


def load_saved(location: str | os.PathLike[str], *, allow_code: bool = False) -> tuple[Saved, Any]:
    """The model, and the values of the ``estimator``; None if it was saved without one."""
    location = os.fspath(location)
    found = CODEC.read(location, KIND, FORMAT)
    try:
        _require_shapes(found["model"])
        if not allow_code:
            require_no_code(found["model"].design, location)
        return found["model"], found["estimator"]
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{location}: the model cannot be read: {error}") from error


def _require_shapes(model: Saved) -> None:
    """Raise ``TypeError`` for another value than a model, ``ValueError`` if its arrays do not belong together."""
    if not isinstance(model, FittedModel):
        raise TypeError(f"it is a {type(model).__name__}")
    if isinstance(model, ClassModel) and model.likelihood not in LINKS:
        raise ValueError(f"its likelihood {quoted(model.likelihood)} is unknown to this process")
    design, scaling = model.design, model.design.scaling
    (m, d), M, T = design.centres.shape, design.n_columns, scaling.t_scale.shape
    square = (*model.mean.shape[:0:-1], M, M)
    found = {
        "labels": (design.labels.shape, (m,)),
        "x_shift": (scaling.x_shift.shape, (d,)),
        "x_scale": (scaling.x_scale.shape, (d,)),
        "t_shift": (scaling.t_shift.shape, T),
        "mean": (model.mean.shape[:1], (M,)),
        "root": (model.root.shape, square),
        "alpha": (model.alpha.shape[:1], (M,)),
    }
    if design.noise is not None:
        k = len(design.noise.centres)
        found["noise_centres"] = (design.noise.centres.shape, (k, d))
        found["noise_weights"] = (design.noise.weights.shape, (k,))
    for name, (shape, right) in found.items():
        if shape != right:
            raise ValueError(f"the array {name!r} has shape {shape} in place of {right}")
