"""MLflow: fitted estimators and models as models of its pyfunc flavour, which ``mlflow models serve`` serves."""

import tempfile
from typing import Any

import numpy as np

from partirvm import __version__
from partirvm.data.convert import checked_rows
from partirvm.estimators import load_model, save_model


def log_model(model: Any, name: str, **options: Any) -> Any:
    """Log a fitted estimator or a model to MLflow under this name, and return MLflow's ``ModelInfo``.

    The files are those of ``partirvm.save_model``: nothing is pickled. A loaded model predicts data frames with the
    columns of the training rows, and returns a data frame: ``mean``, ``std``, ``lower`` and ``upper`` of a regression,
    ``label``, ``p_<class>``, ``lower_<class>`` and ``upper_<class>`` of a classification. MLflow's ``params`` are
    ``level``, that of the intervals, and for regressions ``quantiles``, a list, each of which adds a column such as
    ``q0.9``. ``options`` are those of ``mlflow.pyfunc.log_model``. Needs the package mlflow, or mlflow-skinny.

    Examples
    --------
    >>> from partirvm.mlflow import log_model
    >>> info = log_model(model, "fares")  # doctest: +SKIP
    >>> mlflow.pyfunc.load_model(info.model_uri).predict(frame, params={"level": 0.9})  # doctest: +SKIP
    """
    import mlflow

    options = {"signature": signature_of(model), "pip_requirements": [f"partirvm=={__version__}"], **options}
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, f"{folder}/model", copy=True)
        return mlflow.pyfunc.log_model(name=name, loader_module=__name__, data_path=f"{folder}/model", **options)


def signature_of(model: Any) -> Any:
    """Return MLflow's signature of a model: its columns as they were given, and its parameters."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    columns = getattr(model, "model_", model).columns
    kinds = dict.fromkeys(columns.dates, "datetime")
    kinds |= {name: "string" for name, labels in columns.categories.items() if all(isinstance(x, str) for x in labels)}
    inputs = [ColSpec(kinds.get(name, "double"), name, required=False) for name in columns.given]
    params = [ParamSpec("level", "double", 0.95), ParamSpec("quantiles", "double", [], shape=(-1,))]
    return ModelSignature(Schema(inputs), params=ParamSchema(params))


class Predictor:
    """What MLflow calls to predict."""

    def __init__(self, model: Any) -> None:
        self.model = getattr(model, "model_", model)

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """Return predictions at a data frame, as ``log_model`` says."""
        import pandas as pd

        model, asked = self.model, {"level": 0.95, "quantiles": (), **(params or {})}
        X, classes = checked_rows(data, model.columns), model.columns.classes is not None
        values = model.predictive.values(X, model.multiples([asked["level"]])[:, 0])[0]
        found = pd.DataFrame(values, columns=list(model.value_names(interval=True)))
        if classes:
            found.insert(0, "label", model.predict(X))
        for q in () if classes else asked["quantiles"]:
            multiples = np.sign(q - 0.5) * model.multiples([max(abs(2 * q - 1), 1e-12)])[:, 0]
            found[f"q{q:g}"] = model.predictive.values(X, multiples)[0][:, -1]
        return found


def _load_pyfunc(path: str) -> Predictor:
    """Return the model of MLflow's folder; MLflow calls it."""
    return Predictor(load_model(path))
