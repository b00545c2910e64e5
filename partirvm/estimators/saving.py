"""Fitted estimators and models on disk: ``save_model`` and ``load_model``.

The file of an estimator is the file of its model with the parameters and the other attributes as JSON
(``jobs.codec``). An estimator of several independent targets is a folder with the digests of its fits, and one folder
inside it for each target. Nothing is pickled.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partirvm.core.termination import Termination
from partirvm.errors import FormatError, UsageError
from partirvm.estimators.base import RelevanceVectorMachine
from partirvm.estimators.classification import RVMClassifier
from partirvm.estimators.regression import RVMRegressor
from partirvm.jobs import Job
from partirvm.jobs.codec import Codec, plain
from partirvm.kernels import KERNELS, WITH_GAMMA
from partirvm.kernels.functions import require_no_code
from partirvm.model import ClassModel, Model
from partirvm.model import save_model as write_model
from partirvm.model.files import load_saved
from partirvm.options.values import VALUES, Value
from partirvm.setup.parameters import check_parameters, portable
from partirvm.storage.records import require
from partirvm.storage.sealed import open_sealed, read_sealed, write_sealed

KIND = "partirvm-targets"
FORMAT = 3

CODEC = Codec((*KERNELS.values(), Termination))
"""Encoder of the types that parameters and attributes may contain in addition to plain values and arrays."""

VALUE = "option value"
"""Key of a dict that represents an option value."""

VALUE_OF = {"class": str, "parameters": {"kernel": Any, "basis": Any}, "requests": {"*": {}}}
"""The schema of the content of a file."""

CLASSES = {kind.__name__: kind for kind in (RVMRegressor, RVMClassifier)}

Saved: TypeAlias = Model | ClassModel | RVMRegressor | RVMClassifier


def save_model(
    model: Saved, location: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> None:
    """Write a fitted estimator, or a model, to a folder or fsspec URL that must not exist yet.

    Everything of an estimator is saved except ``client``, ``plan_`` and the training rows that ``partial_fit`` needs.
    Three things cannot be saved: a ``kernel`` or ``basis`` that only this process has, such as a lambda or a
    transformer; a ``random_state`` that is not an integer; a subclass of the two estimators. Nothing is pickled.

    Parameters
    ----------
    model : RVMRegressor, RVMClassifier, or the model of a job or of an estimator (``model_``)
    location : str or path
    storage_options : dict, optional
        Options of the fsspec file system.

    Raises
    ------
    UsageError
        For a parameter that cannot be saved (the message names it), or an estimator of another class.
    ExistsError, StorageError
        If the location exists already, or cannot be written.
    NotFittedError
        For an estimator that is not fitted.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, load_model, save_model
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> model = RVMRegressor(gamma=2.0).fit(X, np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/sinc.rvm")
    ...     again = load_model(f"{folder}/sinc.rvm")
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
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
        folders = enumerate(cast(RVMRegressor, model).estimators_)
        return {"digests": [_write(one, f"{location}/{number}", storage_options) for number, one in folders]}

    about = {"estimator": _encoded(model)}
    write_sealed(location, KIND, FORMAT, about, {}, inside=each, storage_options=storage_options)


def _write(one: Any, location: str, storage_options: dict[str, Any] | None) -> str:
    """Write an estimator of one model and return the digest of the file."""
    return write_model(one.model_, location, estimator=_encoded(one), storage_options=storage_options)


def load_model(
    location: str | os.PathLike[str], *, allow_code: bool = False, storage_options: dict[str, Any] | None = None
) -> Saved:
    """Load an estimator or a model that ``save_model`` wrote, or the latest usable model from the folder of a job.

    A loaded estimator has parameters, metadata requests and the attributes of its fit, except that ``client`` is None
    and there is no ``plan_``. ``partial_fit`` of a loaded regressor raises ``UsageError``, because the file holds no
    training rows; ``fit`` works. A subclass of ``RVMRegressor`` or ``RVMClassifier`` cannot be
    saved.

    Parameters
    ----------
    location : str or path
        Folder or fsspec URL.
    allow_code : bool
        Allow kernels and basis functions given as "module:function". A model imports and runs such a function to
        predict, an estimator to fit. Without ``allow_code`` both are refused.
    storage_options : dict, optional
        Options of the fsspec file system.

    Raises
    ------
    MissingDataError
        If the location does not exist, or a file is missing or damaged; a ``FileNotFoundError``.
    FormatError, NewerFormatError
        If the location holds something else, or a file of another version of partirvm.
    UsageError
        If ``allow_code`` is needed; the message names the functions.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, load_model, save_model
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> model = RVMRegressor(gamma=2.0).fit(X, np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/sinc.rvm")
    ...     again = load_model(f"{folder}/sinc.rvm")
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    """
    location = os.fspath(location)
    job = Job(location, storage_options=storage_options)
    if job.store.there():
        return job.store.model(allow_code=allow_code)
    if _is_of_targets(location, storage_options):
        about, _ = read_sealed(location, KIND, FORMAT, storage_options=storage_options)
        return _of_targets(location, about, allow_code, storage_options)
    return _load(location, allow_code, storage_options)


def _load(location: str, allow_code: bool, storage_options: dict[str, Any] | None, seal: str | None = None) -> Saved:
    """Load a model, or an estimator of one model; ``seal`` is the digest of the file."""
    model, saved = load_saved(location, allow_code=allow_code, seal=seal, storage_options=storage_options)
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
        found.estimators_.append(_load(f"{location}/{number}", allow_code, storage_options, digest))
    return found._take_each()


def _encoded(estimator: RelevanceVectorMachine) -> dict[str, Any]:
    """Encode an estimator without its model as JSON."""
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
    """Convert NumPy strings, such as keys of ``class_weight``, to Python strings, and option values to dicts."""
    if isinstance(value, Value):
        return {VALUE: type(value).__name__, "fields": _plain(value.get_params(deep=False))}
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return value.item() if isinstance(value, np.str_) else value


def _made(saved: Any) -> Any:
    """Restore a parameter that ``_plain`` converted. Raises ``KeyError`` for an unknown option value."""
    if not (isinstance(saved, dict) and VALUE in saved):
        return saved
    fields = {name: _made(each) for name, each in saved["fields"].items()}
    return {kind.__name__: kind for kind in (*VALUES, *WITH_GAMMA.values())}[saved[VALUE]](**fields)


def _value(saved: dict[str, Any], location: str) -> Any:
    try:
        arrays = [np.array(each["values"], dtype=plain(each["dtype"])) for each in saved["arrays"]]
        found = CODEC.decode(saved["tree"], arrays)
        require(found, VALUE_OF, location)
        parameters = {name: _made(each) for name, each in found["parameters"].items()}
        return {**found, "parameters": parameters}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{location}: the estimator cannot be read: {error}") from error


def _unfitted(
    saved: dict[str, Any], location: str, allow_code: bool
) -> tuple[RVMRegressor | RVMClassifier, dict[str, Any]]:
    """Return the estimator with its parameters and metadata requests, and the decoded content of its file.

    The parameters name the functions of the next fit; the model may use other functions.
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
