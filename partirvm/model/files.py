"""A model on disk: a sealed group (``storage.sealed``), arrays for numbers and JSON for the rest. Never pickle.

Arrays: ``centres`` (m, d) and ``labels`` (m,) of the relevance vectors; ``mean``, ``alpha`` (M,) and ``root`` (M, M),
for classifiers (M, C) and (C, M, M); ``x_shift``, ``x_scale`` (d,), ``t_shift``, ``t_scale`` (1,); for T targets
``mean`` (M, T), ``root`` (T, M, M), ``t_shift``, ``t_scale`` (T,); ``active``, the numbers of the basis functions in
the model; with local noise ``noise_centres`` (k, d) and ``noise_weights`` (k,). JSON: the specs of kernels and basis,
the names of columns, targets and classes, the evidence; for regression the noise variance and its priors, for
classification likelihood and moderation; the ``estimator`` that the model belongs to, if it was saved with one.

A kernel or a basis may be a named function, "module:function". Reading imports nothing; but predictions of the loaded
model import and run the function, so such a model is loaded only if the caller allows code.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np

from partirvm.core.left_out import Calibration
from partirvm.errors import FormatError
from partirvm.kernels import kernel_from_spec
from partirvm.kernels.bases import basis_from_spec
from partirvm.kernels.design import Design, LocalNoise
from partirvm.kernels.functions import require_no_code
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.model.label_arrays import plain_labels
from partirvm.storage.sealed import read_sealed, write_sealed
from partirvm.types import Columns, Scaling

KIND = "partirvm-model"
FORMAT = 9

NOISES = ("noise_variance", "evidence_noise")

ARRAYS = ("centres", "labels", "mean", "root", "alpha", "x_shift", "x_scale", "t_shift", "t_scale", "active")

NOISE_ARRAYS = {"noise_centres": "centres", "noise_weights": "weights"}

Saved: TypeAlias = Model | ClassModel


def save_model(
    model: Saved,
    location: str | os.PathLike[str],
    *,
    estimator: Any = None,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Write a model to a new folder or fsspec URL; ``estimator`` is JSON to store with it.

    Returns the digest of the file.

    Raises ``ExistsError`` if the folder exists, ``StorageError`` if it cannot be written.
    """
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
        "active": design.active,
    }
    if design.noise is not None:
        arrays |= {name: getattr(design.noise, field) for name, field in NOISE_ARRAYS.items()}
    about = {**_about(model), "estimator": estimator}
    return write_sealed(os.fspath(location), KIND, FORMAT, about, arrays, storage_options=storage_options)


def _about(model: Saved) -> dict[str, Any]:
    design, columns = model.design, model.columns
    if isinstance(model, ClassModel):
        own: dict[str, Any] = {"likelihood": model.likelihood, "moderate": model.moderate}
    else:
        own = {name: getattr(model, name) for name in ("overconfident", "known_noise", "known_alpha")}
        own |= {name: np.asarray(getattr(model, name)).tolist() for name in NOISES}
        noise = design.noise
        own["noise"] = None if noise is None else {"kernel": noise.kernel.spec(), "shift": noise.shift}
        own["calibration"] = None if model.calibration is None else asdict(model.calibration)
    return {
        "kernel": design.kernel.spec(),
        "basis": None if design.functions is None else design.functions.spec(),
        "bias": design.bias,
        "log_evidence": model.log_evidence,
        "n_rows": model.n_rows,
        "features": list(columns.features),
        "target": columns.target,
        "targets": list(columns.targets),
        "categories": {name: list(levels) for name, levels in columns.categories.items()},
        "classes": None if columns.classes is None else list(plain_labels(columns.classes)),
        **own,
    }


def load_model(
    location: str | os.PathLike[str],
    *,
    allow_code: bool = False,
    seal: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Saved:
    """Read a model from its folder or fsspec URL. No code of the file is run. ``seal`` is the digest of the file.

    Raises ``MissingDataError`` if there is no model, or another one, or any of it is damaged, ``FormatError`` for
    another kind of file, ``NewerFormatError`` if a newer version wrote it, ``UsageError`` if its kernel or basis is a
    named function and ``allow_code`` is false.
    """
    return load_saved(location, allow_code=allow_code, seal=seal, storage_options=storage_options)[0]


def load_saved(
    location: str | os.PathLike[str],
    *,
    allow_code: bool = False,
    seal: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> tuple[Saved, Any]:
    """The model, and the JSON of its ``estimator``; None if it was saved without one."""
    location = os.fspath(location)
    about, arrays = read_sealed(location, KIND, FORMAT, seal=seal, storage_options=storage_options)
    if not allow_code:
        require_no_code((about["kernel"], about["basis"], about.get("noise")), location)
    try:
        model = _model(about, arrays)
        _require_shapes(model)
        return model, about["estimator"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{location}: the model cannot be read: {error}") from error


def _model(about: dict[str, Any], arrays: dict[str, Any]) -> Saved:
    scaling = Scaling(arrays["x_shift"], arrays["x_scale"], arrays["t_shift"], arrays["t_scale"])
    design = Design(
        kernel_from_spec(about["kernel"]),
        scaling,
        arrays["centres"],
        arrays["labels"],
        about["bias"],
        functions=None if about["basis"] is None else basis_from_spec(about["basis"]),
        active=arrays["active"],
        noise=_noise(about.get("noise"), arrays),
    )
    columns = Columns(
        features=tuple(about["features"]),
        target=about["target"],
        categories={name: tuple(levels) for name, levels in about["categories"].items()},
        classes=None if about["classes"] is None else tuple(about["classes"]),
        targets=tuple(about["targets"]),
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
    if "likelihood" in about:
        return ClassModel(likelihood=about["likelihood"], moderate=about["moderate"], **common)
    calibration = about["calibration"]
    noise, evidence = (np.array(about[name]) if isinstance(about[name], list) else about[name] for name in NOISES)
    return Model(
        noise_variance=noise,
        evidence_noise=evidence,
        calibration=None if calibration is None else _calibration(calibration),
        overconfident=about["overconfident"],
        known_noise=about["known_noise"],
        known_alpha=tuple(about["known_alpha"]),
        **common,
    )


def _require_shapes(model: Saved) -> None:
    """Raise ``ValueError`` if the arrays do not belong together."""
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


def _noise(about: dict[str, Any] | None, arrays: dict[str, Any]) -> LocalNoise | None:
    if about is None:
        return None
    own = {field: arrays[name] for name, field in NOISE_ARRAYS.items()}
    return LocalNoise(kernel=kernel_from_spec(about["kernel"]), shift=about["shift"], **own)


def _calibration(about: dict[str, Any]) -> Calibration:
    return Calibration(**{**about, "quantiles": tuple(about["quantiles"])})
