"""A model on disk: a ``storage.codec`` file with the model and its estimator's parameters. Pickle
is never used.

A kernel or a basis may be a named function, "module:function". Reading a model imports nothing, but
its predictions import and run the function, so such a model is loaded only if the caller allows
code.
"""

import os
import posixpath
from functools import partial
from typing import Any, TypeAlias

from partirvm.core.termination import Termination
from partirvm.errors import FormatError, UsageError
from partirvm.kernels import KERNELS
from partirvm.kernels.functions import require_no_code
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.model.soundness import require_shapes, require_sound
from partirvm.options.values import VALUES, ColumnOptions
from partirvm.storage import Where, open_folder, reading
from partirvm.storage.address import absolute, store_of
from partirvm.storage.codec import ADVICE, HEAD, Codec
from partirvm.storage.records import has_type, read_json

KIND = "partirvm-model"
"""Kind of a ``storage.codec`` group that contains a model."""

FORMAT = 24
"""Version of the format of models."""

CELLS = "cells"
"""Name of the folder with copied local residual rows."""

CODEC = Codec((*KERNELS.values(), *VALUES, ColumnOptions, Model, ClassModel, Termination))

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
    """Write a model to a new folder or fsspec URL.

    A call that was killed leaves a folder that cannot be loaded; the next call replaces it. Raises
    ``ExistsError``, ``StorageError``, and ``UsageError`` for a function that exists only in this
    process, or for a reference to another store.

    Args:
        model: the model.
        location: the folder or URL.
        about: facts about the writer, as plain JSON, such as the versions of packages.
        estimator: plain values and arrays of the model's estimator.
        copy: True if local residual rows in a job folder are copied into the model's folder;
            otherwise, the model refers to the job folder.
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
    copies = None
    place = absolute(model.cells_place)
    if copy and model.cells_place:
        cells = open_folder(location).place(CELLS)
        copies = CELLS, partial(model.copy_cells, cells)
        place = absolute(cells)
    model = model.with_cells_at(place)
    model.design.kernel.spec()  # raises UsageError for functions that exist only in this process
    if model.design.functions is not None:
        model.design.functions.spec()
    try:
        CODEC.write(
            {"model": model, "estimator": estimator},
            os.fspath(location),
            KIND,
            FORMAT,
            about,
            copies,
        )
    except TypeError as error:
        raise UsageError(f"the model cannot be saved: {error}") from error


def load_model(location: Where, *, allow_code: bool = False, cells: str = "") -> AnyModel:
    """Read a model from its folder or fsspec URL. No code from the file is run.

    ``cells`` is the folder of its local residual rows if they were moved with the model. Raises
    ``MissingDataError`` if any part is missing or damaged, ``FormatError`` if the file is of
    another kind, and ``UsageError`` if its kernel or basis is a named function and ``allow_code``
    is false.
    """
    return load_saved(location, allow_code=allow_code, cells=cells)[0]


def load_saved(
    location: Where, *, allow_code: bool = False, cells: str = ""
) -> tuple[AnyModel, Any]:
    """Return the model and the values of the ``estimator``, or None if it was saved without one."""
    location = os.fspath(location)
    open_folder(location)  # raises UsageError for the address
    try:
        saved = CODEC.read(location, KIND, FORMAT)
    except UsageError as error:  # a value in the file that no option accepts
        raise FormatError(f"{location}: the model cannot be read ({error}): {ADVICE}") from error
    with reading(f"{location}: the model", ADVICE):
        model = saved["model"]
        require_shapes(model)
        if not allow_code:
            require_no_code(model.design, location)
        require_sound(model)
        return _with_cells(model, location, cells), saved["estimator"]


def versions_of(location: Where) -> dict[str, str]:
    """Return the package versions with which a model was saved; empty if it was saved without
    them."""
    about = read_json(open_folder(location), HEAD).get("about")
    versions = about.get("versions") if isinstance(about, dict) else None
    if not isinstance(versions, dict) or not has_type(versions, dict[str, str]):
        return {}
    return versions


def _with_cells(model: AnyModel, location: str, cells: str) -> AnyModel:
    """Return the model with the location of its cells: ``cells``, the model's folder, or their
    unchanged location in this store."""
    if model.cells_place and cells:
        return model.with_cells_at(f"{cells}/{posixpath.basename(model.cells_place)}")
    copied = open_folder(location).at(CELLS)
    if model.cells_place and copied.exists():
        return model.with_cells_at(copied.place())
    if model.cells_place and store_of(model.cells_place) != store_of(location):
        raise FormatError(
            f"{location}: the local-residual rows are in another store: save the model with "
            "copy=True"
        )
    return model
