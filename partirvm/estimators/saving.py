"""Fitted estimators and models on disk: ``save_model`` and ``load_model``.

An estimator is its model's file with the estimator's parameters, and what its attributes hold beside the model, as JSON
in it (``jobs.codec``); one with a fit of its own for each target has a folder inside it for each, and their digests.
Never pickle.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partirvm.core.termination import Termination
from partirvm.errors import FormatError, MissingDataError, UsageError
from partirvm.estimators.base import RelevanceVectorMachine
from partirvm.estimators.classification import RVMClassifier
from partirvm.estimators.regression import RVMRegressor
from partirvm.jobs import Job
from partirvm.jobs.codec import Codec
from partirvm.kernels import KERNELS, Several
from partirvm.kernels.functions import require_no_code
from partirvm.model import ClassModel, Model
from partirvm.model import save_model as write_model
from partirvm.model.files import load_saved
from partirvm.options.value import Value
from partirvm.options.values import VALUES
from partirvm.setup.parameters import check_parameters, portable
from partirvm.storage.sealed import open_sealed, read_sealed, write_sealed

KIND = "partirvm-targets"
FORMAT = 2

CODEC = Codec((*KERNELS.values(), Several, Termination))
"""What parameters and attributes may hold beside plain values and arrays."""

VALUE = "option value"
"""Key of a dict that stands for a value of options."""

CLASSES = {kind.__name__: kind for kind in (RVMRegressor, RVMClassifier)}

Saved: TypeAlias = Model | ClassModel | RVMRegressor | RVMClassifier


def save_model(
    model: Saved, location: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> None:
    """Write a fitted estimator, or a model, to a folder or fsspec URL that must not exist yet.

    Of an estimator everything is kept but the ``client``, ``plan_``, and what ``partial_fit`` goes on from, which holds
    training rows. A ``kernel`` or ``basis`` that only this process has, such as a lambda or a transformer, cannot be
    kept, nor can a ``random_state`` that is no integer, nor a subclass of the two estimators. Nothing is pickled.

    Parameters
    ----------
    model : RVMRegressor, RVMClassifier, or the model of a job or of an estimator (``model_``)
    location : str or path
    storage_options : dict, optional
        Options of the fsspec file system.

    Raises
    ------
    UsageError
        For a parameter that cannot be kept, which it names, or an estimator of another class.
    ExistsError, StorageError
        If something is there already, or it cannot be written.
    NotFittedError
        For an estimator that is not fitted.
    """
    location = os.fspath(location)
    if isinstance(model, Model | ClassModel):
        write_model(model, location, storage_options=storage_options)
        return
    if not isinstance(model, RelevanceVectorMachine):
        raise UsageError(f"save_model was given a {type(model).__name__}: it takes a fitted estimator or a model")
    check_is_fitted(model)
    if not hasattr(model, "estimators_"):
        _write(model, location, storage_options)
        return

    def each() -> dict[str, list[str]]:
        folders = enumerate(model.estimators_)
        return {"digests": [_write(one, f"{location}/{number}", storage_options) for number, one in folders]}

    about = {"estimator": _encoded(model)}
    write_sealed(location, KIND, FORMAT, about, {}, inside=each, storage_options=storage_options)


def _write(one: Any, location: str, storage_options: dict[str, Any] | None) -> str:
    """Write an estimator of one model; returns the digest of the file."""
    return write_model(one.model_, location, estimator=_encoded(one), storage_options=storage_options)


def load_model(
    location: str | os.PathLike[str], *, allow_code: bool = False, storage_options: dict[str, Any] | None = None
) -> Saved:
    """Read back what ``save_model`` wrote, an estimator or a model; of a job's folder the model to use.

    A loaded estimator has parameters, metadata requests and the attributes of its fit, except that ``client`` is None
    and there is no ``plan_``. ``partial_fit`` of a loaded regressor raises ``UsageError``, because the file holds no
    training rows; ``fit`` works. A subclass of ``RVMRegressor`` or ``RVMClassifier`` cannot be saved, so that none is
    ever loaded.

    Parameters
    ----------
    location : str or path
        Folder or fsspec URL.
    allow_code : bool
        A model whose kernel or basis is a function, "module:function", imports and runs it when it predicts; an
        estimator with such a parameter, when it is fitted again. Both are refused unless this is true.
    storage_options : dict, optional
        Options of the fsspec file system.

    Raises
    ------
    MissingDataError
        If nothing is there, or any of it is missing or damaged; it is a ``FileNotFoundError``.
    FormatError, NewerFormatError
        If it is something else, or of another version of partirvm.
    UsageError
        If it needs ``allow_code``; it names the functions.
    """
    location = os.fspath(location)
    job = Job(location, storage_options=storage_options)
    if job.store.there():
        return job.store.model(allow_code=allow_code)
    if _is_of_targets(location, storage_options):
        about, _ = read_sealed(location, KIND, FORMAT, storage_options=storage_options)
        return _of_targets(location, about, allow_code, storage_options)
    model, saved = load_saved(location, allow_code=allow_code, storage_options=storage_options)
    if saved is None:
        return model
    found, value = _unfitted(saved, location, allow_code)
    found._take_saved(model, value)
    return found


def _is_of_targets(location: str, storage_options: dict[str, Any] | None) -> bool:
    return bool(open_sealed(location, "model", storage_options)[1].get("kind") == KIND)


def _of_targets(
    location: str, about: dict[str, Any], allow_code: bool, storage_options: dict[str, Any] | None
) -> RVMRegressor:
    found = cast(RVMRegressor, _unfitted(about["estimator"], location, allow_code)[0])
    found.estimators_ = []
    for number, digest in enumerate(about["digests"]):
        place = f"{location}/{number}"
        if open_sealed(place, "model", storage_options)[1].get("digest") != digest:
            raise MissingDataError(
                f"{place}: this is not the model of target {number} that was saved: restore the file, or make it again"
            )
        found.estimators_.append(load_model(place, allow_code=allow_code, storage_options=storage_options))
    return found._take_each()


def _encoded(estimator: RelevanceVectorMachine) -> dict[str, Any]:
    """An estimator but for its model, as JSON."""
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name != "client"}
    value: dict[str, Any] = {"class": type(estimator).__name__, "parameters": parameters}
    requests = getattr(estimator, "_metadata_request", None)
    value["requests"] = {} if requests is None else requests._serialize()
    if value["class"] not in CLASSES:
        raise UsageError(f"a {value['class']} cannot be kept in a file: only {' and '.join(CLASSES)} can")
    portable(check_parameters(estimator.parameters()))
    if not hasattr(estimator, "estimators_"):
        value |= estimator._beside_model()
    try:
        tree, arrays = CODEC.encode(_plain(value))
    except TypeError as error:
        raise UsageError(f"the estimator cannot be kept in a file: {str(error).removeprefix('value')}") from error
    return {"tree": tree, "arrays": [{"dtype": array.dtype.str, "values": array.tolist()} for array in arrays]}


def _plain(value: Any) -> Any:
    """Labels of NumPy's own types, such as the keys of ``class_weight``, as Python's; values of options by name."""
    if isinstance(value, Value):
        return {VALUE: type(value).__name__, "fields": _plain(value.get_params(deep=False))}
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return value.item() if isinstance(value, np.str_) else value


def _made(saved: Any) -> Any:
    """A parameter from what ``_plain`` made of it. Raises ``KeyError`` for a value that this version does not know."""
    if not (isinstance(saved, dict) and VALUE in saved):
        return saved
    fields = {name: _made(each) for name, each in saved["fields"].items()}
    return {kind.__name__: kind for kind in VALUES}[saved[VALUE]](**fields)


def _value(saved: dict[str, Any], location: str) -> Any:
    try:
        arrays = [np.array(each["values"], dtype=each["dtype"]) for each in saved["arrays"]]
        found = CODEC.decode(saved["tree"], arrays)
        parameters = {name: _made(each) for name, each in found["parameters"].items()}
        return {**found, "parameters": parameters}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{location}: the estimator cannot be read: {error}") from error


def _unfitted(
    saved: dict[str, Any], location: str, allow_code: bool
) -> tuple[RVMRegressor | RVMClassifier, dict[str, Any]]:
    """An estimator with its parameters and metadata requests, and the value that tells of it and its fit.

    Its parameters name the functions of the next fit, which may be others than those of its model.
    """
    value = _value(saved, location)
    if value["class"] not in CLASSES:
        raise FormatError(f"{location}: the estimator {value['class']!r} is unknown to this version of partirvm")
    parameters = value["parameters"]
    if not allow_code:
        require_no_code((parameters["kernel"], parameters["basis"]), location)
    found = CLASSES[value["class"]](**parameters)
    if value["requests"]:
        found._metadata_request = found.get_metadata_routing()
    for method, requests in value["requests"].items():
        for name, alias in requests.items():
            getattr(found._metadata_request, method).add_request(param=name, alias=alias)
    return found, value
