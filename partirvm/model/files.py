"""A model on disk: one Zarr group, arrays for numbers and JSON attributes for the rest. Never pickle, never code.

Arrays: ``centres`` (m, d) and ``labels`` (m,) of the relevance vectors; ``mean``, ``alpha`` (M,) and ``root`` (M, M),
of classes (M, C) and (C, M, M), a chunk for each linear predictor; ``x_shift``, ``x_scale`` (d,), ``t_shift``,
``t_scale`` (1,); of T targets ``mean`` (M, T), ``root`` (T, M, M), ``t_shift``, ``t_scale`` (T,). Attributes: ``kind``,
``format``, the kernel's spec, the column names and class labels, the evidence; the noise of a regression and what is
known of it, likelihood and moderation of a classification. They are written last: a group without them is not a model.
NaN is a lost chunk in every array; ∞ occurs in the ``alpha`` of classes alone.

Format 1 is a regression, format 2 a classification, format 3 either with basis functions of its own: their spec is
``basis``, and ``active`` are the numbers of those that the model has. Format 4 is a regression of several targets, with
or without these, whose names are ``targets`` where they have any. Versions that know only a lower one refuse it.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np

from partirvm.core.left_out import Spread
from partirvm.errors import ExistsError, FormatError, MissingDataError
from partirvm.kernels import kernel_from_spec
from partirvm.kernels.bases import basis_from_spec
from partirvm.kernels.design import Design
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.model.labels import plain_labels
from partirvm.storage import open_folder, reading, storing
from partirvm.storage.folder import read_json
from partirvm.storage.snapshots import Snapshots
from partirvm.types import Columns, Scaling

KIND = "partirvm-model"
NUMBERS, CLASSES, WITH_BASIS, TARGETS = 1, 2, 3, 4
"""Formats."""

FORMAT = TARGETS
"""The newest format that is read."""

ARRAYS = ("centres", "labels", "mean", "root", "alpha", "x_shift", "x_scale", "t_shift", "t_scale")


def save_model(
    model: Model | ClassModel, location: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> None:
    """Write a model to a folder or fsspec URL that must not exist yet.

    Raises ``ExistsError`` if something is there, ``StorageError`` if it cannot be written.
    """
    import zarr

    location = os.fspath(location)
    design, scaling = model.design, model.design.scaling
    arrays = {
        "centres": design.centres,
        "labels": design.labels,
        "mean": model.mean,
        "root": model.root,
        "alpha": model.alpha,
        "x_shift": scaling.x_shift,
        "x_scale": scaling.x_scale,
        "t_shift": scaling.t_shift,
        "t_scale": scaling.t_scale,
    }
    attributes = _attributes(model)
    with storing(location):
        try:
            group = zarr.open_group(location, mode="w-", storage_options=storage_options)
        except (FileExistsError, zarr.errors.ContainsGroupError, zarr.errors.ContainsArrayError) as error:
            raise ExistsError(f"{location}: there is something here already, a model is never written over") from error
        for name, values in arrays.items():
            fill = -1 if name == "labels" else np.nan
            chunks = tuple(1 if axis == 0 and values.ndim == 3 else max(n, 1) for axis, n in enumerate(values.shape))
            array = group.create_array(
                name, shape=values.shape, dtype=values.dtype, chunks=chunks,
                fill_value=fill, config={"write_empty_chunks": True},
            )  # fmt: skip
            if values.size:
                array[...] = values
        group.update_attributes(attributes)


def _attributes(model: Model | ClassModel) -> dict[str, Any]:
    design, columns = model.design, model.columns
    if isinstance(model, ClassModel):
        own: dict[str, Any] = {"format": CLASSES, "likelihood": model.likelihood, "moderate": model.moderate}
    else:
        names = ("noise_variance", "overconfident", "known_noise", "evidence_noise", "known_alpha")
        own = {"format": NUMBERS, **{name: getattr(model, name) for name in names}}
        own["spread"] = None if model.spread is None else asdict(model.spread)
    if design.functions is not None:
        own |= {"format": WITH_BASIS, "basis": design.functions.spec(), "active": design.active.tolist()}
    if isinstance(model, Model) and model.n_targets > 1:
        own |= {"format": TARGETS, "noise_variance": np.asarray(model.noise_variance).tolist()}
    return {
        "kind": KIND,
        "kernel": design.kernel.spec(),
        "bias": design.bias,
        "log_evidence": model.log_evidence,
        "n_rows": model.n_rows,
        "features": list(columns.features),
        "target": columns.target,
        "categories": {name: list(levels) for name, levels in columns.categories.items()},
        "classes": None if columns.classes is None else list(plain_labels(columns.classes)),
        **({"targets": list(columns.targets)} if columns.targets else {}),
        **own,
    }


def load_model(
    location: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> Model | ClassModel:
    """Read a model back, or the one to use of a job, given its folder or fsspec URL. Runs no code from the file.

    A kernel that is a named function (``partirvm.kernels.NamedFunction``), or a basis, is imported once the model
    predicts: in a file from strangers, look at ``model.design.kernel`` and ``model.design.functions`` first.

    Raises ``MissingDataError`` if there is none or an array is damaged, ``FormatError`` if it is something else or was
    written by a newer version.
    """
    given = os.fspath(location).rstrip("/")
    location = _model_of(given, storage_options)
    try:
        return _load(location, storage_options)
    except MissingDataError:
        newer = _model_of(given, storage_options)
        if newer == location:
            raise
        return _load(newer, storage_options)  # a running job has replaced it meanwhile


def _load(location: str, storage_options: dict[str, Any] | None) -> Model | ClassModel:
    """A model, whose damage of any kind is an error that names the place."""
    with reading(f"{location}: the model", "was it damaged? Copy it again, or fit anew"):
        return _loaded(location, storage_options)


def _loaded(location: str, storage_options: dict[str, Any] | None) -> Model | ClassModel:
    import zarr

    try:
        group = zarr.open_group(location, mode="r", storage_options=storage_options)
    except (FileNotFoundError, KeyError) as error:
        raise MissingDataError(f"{location}: no model here") from error
    about: dict[str, Any] = dict(group.attrs)
    if about.get("kind") != KIND:
        raise FormatError(f"{location}: this is not a partirvm model (kind {about.get('kind')!r})")
    if about["format"] > FORMAT:
        raise FormatError(
            f"{location}: the model has format {about['format']}, this version reads up to {FORMAT}: upgrade partirvm"
        )
    classifies = "likelihood" in about
    arrays = {name: _read(group, name, location, infinite=classifies and name == "alpha") for name in ARRAYS}
    scaling = Scaling(arrays["x_shift"], arrays["x_scale"], arrays["t_shift"], arrays["t_scale"])
    design = Design(
        kernel_from_spec(about["kernel"]),
        scaling,
        arrays["centres"],
        arrays["labels"].astype(np.int64),
        about["bias"],
        functions=basis_from_spec(about["basis"]) if "basis" in about else None,
        active=np.array(about.get("active", ()), dtype=np.int64),
    )
    columns = Columns(
        features=tuple(about["features"]),
        target=about["target"],
        categories={name: tuple(levels) for name, levels in about["categories"].items()},
        classes=None if about["classes"] is None else tuple(about["classes"]),
        targets=tuple(about.get("targets", ())),
    )
    common: dict[str, Any] = {
        "design": design,
        "mean": arrays["mean"],
        "root": arrays["root"],
        "alpha": arrays["alpha"],
        "log_evidence": about["log_evidence"],
        "n_rows": about["n_rows"],
        "columns": columns,
    }
    if classifies:
        return ClassModel(likelihood=about["likelihood"], moderate=about["moderate"], **common)
    noise, spread = about["noise_variance"], about.get("spread")  # files of earlier versions lack that and others
    return Model(
        noise_variance=np.array(noise) if isinstance(noise, list) else noise,
        spread=None if spread is None else Spread(spread["top"], tuple(spread["quantiles"])),
        overconfident=about.get("overconfident", False),
        known_noise=about.get("known_noise", False),
        evidence_noise=about.get("evidence_noise"),
        known_alpha=tuple(about.get("known_alpha", ())),
        **common,
    )


def _model_of(location: str, storage_options: dict[str, Any] | None) -> str:
    """The place of a job's model; of anything else the place itself."""
    folder = open_folder(location, storage_options)
    name = Snapshots(folder, "models").current()
    if name is None and folder.exists("model.json"):
        try:
            name = str(read_json(folder, "model.json")["path"])  # a job of format 1
        except KeyError as error:
            raise FormatError(f"{location}/model.json: damaged, it names no model") from error
    return location if name is None else f"{location}/{name}"


def _read(group: Any, name: str, location: str, *, infinite: bool = False) -> np.ndarray[Any, Any]:
    try:
        values = np.asarray(group[name][...])
    except Exception as error:
        raise MissingDataError(f"{location}: array {name!r} of the model is missing or damaged: {error}") from error
    if (np.isnan(values) if infinite else ~np.isfinite(values)).any():
        raise MissingDataError(f"{location}: array {name!r} of the model has lost a chunk")
    if name == "labels" and (values < 0).any():
        raise MissingDataError(f"{location}: array {name!r} of the model has lost a chunk")
    return values
