"""A model on disk: a file of ``storage.codec`` with the model and the parameters of its estimator.
Never pickle.

A kernel or a basis may be a named function, "module:function". Reading a model imports nothing, but
its predictions import and run the function, so such a model is loaded only if the caller allows
code.
"""

import os
import posixpath
from functools import partial
from typing import Any, TypeAlias

from partirvm.core.link import LINKS
from partirvm.core.termination import Termination
from partirvm.errors import FormatError, UsageError
from partirvm.kernels import KERNELS
from partirvm.kernels.functions import require_no_code
from partirvm.local.cells import rows_of_cell
from partirvm.local.kriging import CORRELATIONS
from partirvm.model.base import FittedModel
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.model.soundness import require_sound
from partirvm.options.constraints import MOST_NEIGHBOURS
from partirvm.options.values import VALUES
from partirvm.quoting import quoted
from partirvm.storage import Where, open_folder, reading
from partirvm.storage.address import absolute, store_of
from partirvm.storage.codec import ADVICE, HEAD, Codec
from partirvm.storage.records import has_type, read_json
from partirvm.types import RESIDUAL_COLUMNS

KIND = "partirvm-model"
FORMAT = 18
CELLS = "cells"
"""Name of the folder with copied local residual rows."""

CODEC = Codec((*KERNELS.values(), *VALUES, Model, ClassModel, Termination))

AnyModel: TypeAlias = Model | ClassModel
"""A fitted model for regression or classification."""


def save_model(
    model: AnyModel,
    location: Where,
    about: Any = None,
    *,
    estimator: Any = None,
    copy: bool = False,
) -> None:
    """Write a model to a new folder or fsspec URL, with the plain values and arrays of its
    ``estimator``.

    Local residual rows in a job folder stay there, and the model refers to them; with ``copy``,
    they are copied into the model's folder. A call that was killed leaves a folder that does not
    load, which the next call replaces. Raises ``ExistsError``, ``StorageError``, and ``UsageError``
    for a function that exists only in this process, or for a reference to another store.
    """
    if (
        model.cells_place
        and not copy
        and store_of(model.cells_place) != store_of(os.fspath(location))
    ):
        raise UsageError(
            f"{location}: the local-residual rows are in {model.cells_place}: copy them with "
            "copy=True"
        )
    beside = None
    place = absolute(model.cells_place)
    if copy and isinstance(model, Model) and model.cells_place:
        cells = open_folder(location).place(CELLS)
        beside = CELLS, partial(model.own_residuals.cells.copied, cells)
        place = absolute(cells)
    model = model.with_cells_at(place)
    model.design.kernel.spec()  # raises UsageError for functions of this process
    if model.design.functions is not None:
        model.design.functions.spec()
    try:
        CODEC.write(
            {"model": model, "estimator": estimator},
            os.fspath(location),
            KIND,
            FORMAT,
            about,
            beside,
        )
    except TypeError as error:
        raise UsageError(f"the model cannot be saved: {error}") from error


def load_model(location: Where, *, allow_code: bool = False, cells: str = "") -> AnyModel:
    """Read a model from its folder or fsspec URL. No code from the file is run.

    ``cells`` is the folder of its local residual rows if these were moved with it. Raises
    ``MissingDataError`` if any part is missing or damaged, ``FormatError`` if the file is of
    another kind, and ``UsageError`` if its kernel or basis is a named function and ``allow_code``
    is false.
    """
    return load_saved(location, allow_code=allow_code, cells=cells)[0]


def load_saved(
    location: Where, *, allow_code: bool = False, cells: str = ""
) -> tuple[AnyModel, Any]:
    """Return the model and the values of the ``estimator``, None if it was saved without one."""
    location = os.fspath(location)
    open_folder(location)  # raises UsageError for the address
    try:
        found = CODEC.read(location, KIND, FORMAT)
    except UsageError as error:  # a value in the file that no option accepts
        raise FormatError(f"{location}: the model cannot be read ({error}): {ADVICE}") from error
    with reading(f"{location}: the model", ADVICE):
        _require_shapes(found["model"])
        if not allow_code:
            require_no_code(found["model"].design, location)
        require_sound(found["model"])
        return _with_cells(found["model"], location, cells), found["estimator"]


def versions_of(location: Where) -> dict[str, str]:
    """Return the package versions with which a model was saved; empty if it was saved without
    them."""
    about = read_json(open_folder(location), HEAD).get("about")
    versions = about.get("versions") if isinstance(about, dict) else None
    if not isinstance(versions, dict) or not has_type(versions, dict[str, str]):
        return {}
    return versions


def _with_cells(model: AnyModel, location: str, cells: str) -> AnyModel:
    """Return the model with the location of its cells: ``cells``, its own folder, or where they
    were in this store."""
    if model.cells_place and cells:
        return model.with_cells_at(f"{cells}/{posixpath.basename(model.cells_place)}")
    own = open_folder(location).at(CELLS)
    if model.cells_place and own.exists():
        return model.with_cells_at(own.place())
    if model.cells_place and store_of(model.cells_place) != store_of(location):
        raise FormatError(
            f"{location}: the local-residual rows are in another store: save the model with "
            "copy=True"
        )
    return model


def _require_shapes(model: AnyModel) -> None:
    """Raise ``TypeError`` for a value that is not a model, ``ValueError`` if its arrays are
    inconsistent."""
    if not isinstance(model, FittedModel):
        raise TypeError(f"it is a {type(model).__name__}")
    if isinstance(model, ClassModel) and model.likelihood not in LINKS:
        raise ValueError(f"its likelihood {quoted(model.likelihood)} is unknown to this process")
    design = model.design
    scaling = model.design.scaling
    (m, d) = design.centres.shape
    M = design.n_columns
    T = scaling.t_scale.shape
    square = (*model.mean.shape[:0:-1], M, M)
    inputs = d
    if isinstance(model, ClassModel) and model.ramp is not None:
        square = 1, M, M
    found = {"labels": (design.labels.shape, (m,)), "t_shift": (scaling.t_shift.shape, T)}
    found |= {"mean": (model.mean.shape[:1], (M,)), "root": (model.root.shape, square)}
    found["alpha"] = (model.alpha.shape, (M,))
    if model.relevance is not None:
        found["relevance"] = (model.relevance.shape, (d,))
    if scaling.features is not None:
        inputs = len(scaling.features.sources)
        found["warps"] = (scaling.features.centres.shape + scaling.features.spreads.shape, (d, d))
        if not all(0 <= j < d for j in scaling.features.sources.tolist()):
            raise ValueError("an input of its kernel comes from an unknown feature")
    found |= {name: (getattr(scaling, name).shape, (inputs,)) for name in ("x_shift", "x_scale")}
    if scaling.regressions is not None:
        found["regressions"] = (scaling.regressions.shape, (inputs, inputs))
    if design.noise is not None:
        k = len(design.noise.centres)
        noise = design.noise
        found |= {
            "noise_centres": (noise.centres.shape, (k, inputs)),
            "noise_weights": (noise.weights.shape, (k,)),
        }
    if isinstance(model, Model) and model.residuals is not None:
        residuals = model.residuals
        metric = model.residuals.metric
        cells = model.residuals.cells
        placed = (cells.records is None) == bool(cells.place)
        known = all(kernel.family in CORRELATIONS for kernel in residuals.kernels)
        levels = all(0 <= feature < inputs for feature, *_ in metric.levels)
        known = known and levels and cells.n_rows <= residuals.n_rows
        if not (
            placed and known and 0 < residuals.neighbours <= min(cells.n_rows - 1, MOST_NEIGHBOURS)
        ):
            raise ValueError(
                "its local residuals have wrong rows or neighbours, or an unknown feature or family"
            )
        count = -(-cells.n_rows // rows_of_cell(cells.width))
        found["axes"] = (metric.axes.shape[1:], (inputs,))
        found["boxes"] = (cells.boxes.shape, (count, 2, metric.width))
        found["records"] = (
            (cells.width,),
            (metric.width + len(scaling.t_scale) + RESIDUAL_COLUMNS,),
        )
        found |= {
            name: ((len(getattr(residuals, name)),), T) for name in ("kernels", "calibrations")
        }
        if cells.records is None:
            found["hashes"] = ((len(cells.hashes),), (count,))
        else:
            found["residuals"] = (cells.records.shape, (cells.n_rows, cells.width))
    for name, (shape, right) in found.items():
        if shape != right:
            raise ValueError(f"the array {name!r} has shape {shape} instead of {right}")
