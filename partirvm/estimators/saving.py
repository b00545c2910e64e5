"""Fitted estimators and models on disk: ``save_model`` and ``load_model``.

An estimator is saved in the file of its model, which also holds its parameters and other attributes
(``storage.codec``). Nothing is pickled.
"""

import os
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partirvm.errors import DataWarning, UsageError, warn
from partirvm.estimators.classification import RVMClassifier
from partirvm.estimators.regression import RVMRegressor
from partirvm.jobs import Job
from partirvm.kernels.functions import require_no_code
from partirvm.model import ClassModel, FittedModel, GroupedModel, Model
from partirvm.model import save_model as write_model
from partirvm.model.files import load_saved, versions_of
from partirvm.process import package_versions, warn_of_versions
from partirvm.resolve.kernel import portable
from partirvm.resolve.resolve import check_parameters
from partirvm.storage import reading

STORED = {
    "history_",
    "termination_",
    "n_features_in_",
    "feature_names_in_",
    "classes_",
    "_input_variance",
}
"""Attributes saved with the model; the others are derived from these and the model."""

CLASSES = {kind.__name__: kind for kind in (RVMRegressor, RVMClassifier)}

Saved: TypeAlias = Model | ClassModel | RVMRegressor | RVMClassifier


def save_model(model: Saved, location: str | os.PathLike[str], *, copy: bool = True) -> None:
    """Write a fitted estimator or a model to a folder or fsspec URL that must not exist yet.

    Everything in an estimator is saved except ``client``, ``plan_``, metadata requests, and the
    training rows that ``partial_fit`` needs. A job's model may keep the rows of its local residuals
    in the job folder (its ``repr`` shows the location): the saved model contains a copy of them, so
    that the job can be updated or removed. Without ``copy``, it refers to the rows in the job,
    which the second later update of the job removes; a ``DataWarning`` says so. Three things cannot
    be saved: a ``kernel`` or ``basis`` that exists only in this process, such as a lambda; a
    ``random_state`` that is not an integer; and a subclass of the two estimators. Nothing is
    pickled.

    Raises ``UsageError`` for objects that cannot be saved (the message names them) and, without
    ``copy``, for local residual rows in another store, ``MissingDataError`` if rows to be copied
    are missing or damaged, ``ExistsError`` if the location exists, ``StorageError`` if it cannot be
    written, and ``NotFittedError`` before a fit.

    Examples
    --------
    >>> import tempfile
    >>> from partirvm import RVMRegressor, load_model, save_model
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100)
    >>> model = RVMRegressor(gamma=2.0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/sinc.rvm")
    ...     again = load_model(f"{folder}/sinc.rvm")
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    """
    if isinstance(model, FittedModel):
        _write(model, location, copy=copy)
        return
    check_is_fitted(model)
    kind = type(model).__name__
    if kind not in CLASSES:
        raise UsageError(f"a {kind} cannot be saved: only {' and '.join(CLASSES)} can")
    if isinstance(model.model_, GroupedModel):
        raise UsageError(
            "targets with gaps, or with groups of rows, have a model for each group of targets: "
            "save each of estimators_"
        )
    portable(check_parameters(model.parameters()))
    attributes = {name: value for name, value in vars(model).items() if name in STORED}
    for attribute, value in attributes.items():
        # arrays of strings or objects are stored with their kind
        if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
            attributes[attribute] = value.dtype.kind, tuple(value.tolist())
    parameters = {
        name: value for name, value in model.get_params(deep=False).items() if name != "client"
    }
    saved = {"class": kind, "parameters": parameters, "attributes": attributes}
    _write(model.model_, location, estimator=saved, copy=copy)


def _write(
    model: Model | ClassModel,
    location: str | os.PathLike[str],
    *,
    copy: bool,
    estimator: Any = None,
) -> None:
    """Write a model, and warn if it needs rows that remain in a job folder.

    Args:
        model: the model.
        location: the folder or URL.
        copy: True if local residual rows are copied.
        estimator: the values of the estimator, if it is saved as well.
    """
    write_model(model, location, {"versions": package_versions()}, estimator=estimator, copy=copy)
    if model.cells_place and not copy:
        warn(
            f"the saved model needs the rows in {model.cells_place}, which later updates of the "
            "job remove: save it with copy=True to keep them",
            DataWarning,
        )


def load_model(location: str | os.PathLike[str], *, allow_code: bool = False) -> Saved:
    """Load an estimator or a model written by ``save_model``, or the latest usable model from a job
    folder.

    A loaded estimator has the parameters and attributes of its fit, except that ``client`` is None
    and there is no ``plan_``. ``partial_fit`` of a loaded regressor raises ``UsageError``, because
    the file holds no training rows; ``fit`` works. ``location`` is a folder or an fsspec URL.
    ``allow_code`` permits kernels and basis functions given as "module:function", which a model
    imports and runs to predict, and an estimator to fit.

    Raises
    ------
    MissingDataError
        If the location does not exist, or a file is missing or damaged. This is also a
        ``FileNotFoundError``.
    FormatError
        If the location contains something else, or a file written by another version of partirvm.
    UsageError
        If ``allow_code`` is needed; the message names the functions.

    Examples
    --------
    >>> from partirvm import load_model
    >>> model = load_model("sinc.rvm")  # doctest: +SKIP
    """
    location = os.fspath(location)
    job = Job(location)
    if job.store.exists():
        job_model = job.store.model(allow_code=allow_code)
        warn_of_versions(
            f"{location}: the model", job.state().versions or job.state().request["versions"]
        )
        return job_model
    model, saved = load_saved(location, allow_code=allow_code)
    warn_of_versions(f"{location}: the model", versions_of(location))
    if saved is None:
        return model
    with reading(f"{location}: the estimator", "save it again with this version of partirvm"):
        parameters = saved["parameters"]
        attributes = saved["attributes"]
        # the parameters name the functions of the next fit; the model may use others
        if not allow_code:
            require_no_code((parameters["kernel"], parameters["basis"]), location)
        estimator = CLASSES[saved["class"]](**parameters)
        for name in STORED & attributes.keys():
            value = attributes[name]
            if isinstance(value, tuple):  # strings and objects with their dtype kind
                value = np.array(value[1], dtype=value[0])
            setattr(estimator, name, value)
        variance = estimator._input_variance
        if np.shape(variance) != (model.design.scaling.n_inputs,):
            raise ValueError("the variance of its inputs has another number of inputs")
        classes = model.columns.classes
        if classes is not None and np.shape(getattr(estimator, "classes_", ())) != (len(classes),):
            raise ValueError("its classes_ have another number of labels than the model")
        estimator._take(model, variance)  # type: ignore[arg-type]
        return estimator
