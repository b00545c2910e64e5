"""MLflow: estimators and models in its pyfunc flavour, which ``mlflow models serve`` serves with
intervals."""

import tempfile
from functools import partial
from types import SimpleNamespace
from typing import Any

from partirvm import __version__
from partirvm.data.frame_rows import checked_rows
from partirvm.estimators import load_model, save_model


def log_model(model: Any, name: str, example: Any, **options: Any) -> Any:
    """Log a fitted estimator or a model to MLflow under this name, and return MLflow's
    ``ModelInfo``.

    ``example`` is a few rows with the training columns, whose names and types MLflow stores. The
    files are written by ``partirvm.save_model``; nothing is pickled. A loaded model returns a data
    frame with the columns ``mean``, ``std``, ``lower`` and ``upper`` for regression, or ``label``,
    ``p_<class>``, ``lower_<class>`` and ``upper_<class>`` for classification. MLflow's ``params``
    are ``level``, the level of the intervals, and ``quantiles``, a list; each entry adds a column
    such as ``q0.9`` to a regression with one target. ``options`` are passed to
    ``mlflow.pyfunc.log_model``. Requires the package mlflow or mlflow-skinny.

    Examples
    --------
    >>> from partirvm.integrations.mlflow import log_model
    >>> info = log_model(model, "fares", frame[:5])  # doctest: +SKIP
    >>> model = mlflow.pyfunc.load_model(info.model_uri)  # doctest: +SKIP
    >>> model.predict(frame, params={"level": 0.9})  # doctest: +SKIP
    """
    import mlflow
    from mlflow.types import ParamSchema, ParamSpec

    signature = mlflow.models.infer_signature(example)
    signature.params = ParamSchema(
        [ParamSpec("level", "double", 0.95), ParamSpec("quantiles", "double", [], (-1,))]
    )
    options = {"signature": signature, "pip_requirements": [f"partirvm=={__version__}"], **options}
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, f"{folder}/model")
        return mlflow.pyfunc.log_model(
            name=name, loader_module=__name__, data_path=f"{folder}/model", **options
        )


def _load_pyfunc(path: str) -> Any:
    """Return the object that MLflow calls to predict."""
    model = load_model(path)
    return SimpleNamespace(predict=partial(_predictions, getattr(model, "model_", model)))


def _predictions(model: Any, data: Any, params: dict[str, Any] | None = None) -> Any:
    """Return a data frame of predictions for rows, as described in ``log_model``."""
    import pandas as pd

    X = checked_rows(data, model.columns)
    asked = {"level": 0.95, "quantiles": (), **(params or {})}
    values = model.predictive.values(X, model.multiples([asked["level"]]))[0]
    found = pd.DataFrame(values, columns=list(model.value_names(interval=True)))
    if model.columns.classes is not None:
        found.insert(0, "label", model.predict(X))
    elif len(asked["quantiles"]):
        found[[f"q{q:g}" for q in asked["quantiles"]]] = model.quantiles(asked["quantiles"])(X)[0]
    return found
