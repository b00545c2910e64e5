"""Pipelines, sparse rows, and estimators in skl2onnx, MLflow, skops, shap, optuna and MAPIE."""

import json
import threading
import time
import urllib.request
from itertools import product

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from waiting import PATIENCE

from partirvm import RVMClassifier, RVMRegressor

RNG = default_rng(0)
FRAME = pd.DataFrame(
    {"a": RNG.normal(size=150), "b": RNG.normal(size=150), "c": RNG.choice(["x", "y", "z"], 150)}
)
TARGET = np.sin(FRAME["a"]) + (FRAME["c"] == "x") * FRAME["b"] + 0.1 * RNG.normal(size=150)
NUMBERS = FRAME[["a", "b"]].to_numpy()

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("quick_learning")]


MOST = {"float64": 1e-10, "float32": 1e-4}
"""Greatest error by type, in standard deviations of the target or as a probability."""


@pytest.mark.parametrize(
    ("classes", "kind"),
    some(product([None, (0.0,), (-0.5, 0.5)], MOST), {(None, "float64"), ((-0.5, 0.5), "float32")}),
)
def test_a_pipeline_is_converted_to_onnx(classes, kind):
    skl2onnx = pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    from partirvm.integrations.skl2onnx import register

    register()
    kinds = skl2onnx.common.data_types
    number = {"float64": kinds.DoubleTensorType, "float32": kinds.FloatTensorType}[kind]([None, 1])
    given = [("a", number), ("b", number), ("c", kinds.StringTensorType([None, 1]))]
    parts = [
        ("scaled", StandardScaler(), ["a", "b"]),
        ("coded", OneHotEncoder(sparse_output=False), ["c"]),
    ]
    estimator = RVMRegressor(random_state=0) if classes is None else RVMClassifier(random_state=0)
    y = TARGET if classes is None else np.digitize(TARGET, classes)
    pipeline = Pipeline([("columns", ColumnTransformer(parts)), ("rvm", estimator)]).fit(FRAME, y)
    option = {"outputs": ("mean", "std")} if classes is None else {"zipmap": False}
    made = skl2onnx.convert_sklearn(
        pipeline, initial_types=given, options={type(estimator): option}
    )
    inputs = {name: FRAME[[name]].to_numpy(object if name == "c" else kind) for name in FRAME}
    found = runtime.InferenceSession(made.SerializeToString()).run(None, inputs)
    if classes is None:
        expected = np.column_stack(pipeline.predict(FRAME, return_std=True))
        assert_allclose(np.hstack(found), expected, rtol=0, atol=MOST[kind] * TARGET.std())
    else:
        assert_array_equal(found[0], pipeline.predict(FRAME))
        assert_allclose(found[1], pipeline.predict_proba(FRAME), rtol=0, atol=MOST[kind])


LOGGED = {
    "regression": lambda: RVMRegressor(random_state=0).fit(FRAME, TARGET),
    "two classes": lambda: RVMClassifier(random_state=0).fit(
        FRAME, np.where(TARGET > 0, "high", "low")
    ),
    "three classes": lambda: RVMClassifier(random_state=0).fit(
        FRAME, np.digitize(TARGET, [-0.5, 0.5])
    ),
    "several targets": lambda: RVMRegressor(random_state=0).fit(
        FRAME, pd.DataFrame({"t": TARGET, "u": FRAME["b"] - TARGET})
    ),
    "local residuals": lambda: RVMRegressor(residual="local", random_state=0).fit(FRAME, TARGET),
    "a model": lambda: RVMRegressor(random_state=0).fit(FRAME, TARGET).model_,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGGED)
def test_models_from_mlflow_predict_the_same_bits(kind, tmp_path, monkeypatch):
    """Rows have missing numbers and unknown labels."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    from partirvm.integrations.mlflow import log_model

    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    fitted = LOGGED[kind]()
    new = FRAME[:20].copy()
    new.loc[3, "a"] = np.nan
    new.loc[5, "c"] = "unknown"
    with mlflow.start_run():
        place = log_model(fitted, "any", FRAME[:3]).model_uri
    single = kind in ("regression", "local residuals", "a model")
    params = {"level": 0.8, "quantiles": [0.1]} if single else {}
    found = mlflow.pyfunc.load_model(place).predict(new, params=params)
    assert len(found) == 20
    if "classes" in kind:
        assert_array_equal(found["label"], fitted.predict(new))
        assert_array_equal(
            found[[f"p_{each}" for each in fitted.classes_]], fitted.predict_proba(new)
        )
    elif kind == "several targets":
        assert_array_equal(found[["mean_0", "mean_1"]], fitted.predict(new))
    else:
        estimator = LOGGED["regression"]() if kind == "a model" else fitted
        moments = np.column_stack(estimator.predict(new, return_std=True))
        assert_array_equal(found[["mean", "std"]], moments)
        assert_array_equal(
            found[["lower", "upper"]], np.column_stack(estimator.predict_interval(new, 0.8))
        )
        assert_allclose(found["q0.1"], found["lower"], rtol=1e-12)


@pytest.mark.usefixtures("processes")
def test_mlflow_serves_intervals(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow, uvicorn, io, _ = (
        pytest.importorskip(name) for name in ("mlflow", "uvicorn", "skops.io", "sqlalchemy")
    )
    from mlflow.pyfunc import scoring_server

    from partirvm.integrations.mlflow import log_model

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    experiment = mlflow.create_experiment("any", artifact_location=(tmp_path / "files").as_uri())
    model = RVMRegressor(random_state=0).fit(FRAME, TARGET)
    classifier = RVMClassifier(random_state=0).fit(FRAME, np.where(TARGET > 0, "high", "low"))
    with mlflow.start_run(experiment_id=experiment):
        places = [log_model(each, "any", FRAME[:3]).model_uri for each in (model, classifier)]
        trusted = io.get_untrusted_types(data=io.dumps(model))
        own = mlflow.sklearn.log_model(model, name="own", skops_trusted_types=trusted).model_uri
    assert_array_equal(mlflow.sklearn.load_model(own).predict(FRAME), model.predict(FRAME))
    found = mlflow.pyfunc.load_model(places[1]).predict(FRAME)
    assert_array_equal(found["label"], classifier.predict(FRAME))
    assert_array_equal(found[["p_high", "p_low"]], classifier.predict_proba(FRAME))
    app = scoring_server.init(mlflow.pyfunc.load_model(places[0]))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    asked = {"level": 0.9, "quantiles": [0.05, 0.5]}
    body = json.dumps({"dataframe_split": FRAME[:4].to_dict("split"), "params": asked}).encode()
    place = f"http://127.0.0.1:{port}/invocations"
    request = urllib.request.Request(place, body, {"Content-Type": "application/json"})
    served = pd.DataFrame(
        json.load(urllib.request.urlopen(request, timeout=PATIENCE))["predictions"]
    )
    server.should_exit = True
    expected = np.column_stack(
        [*model.predict(FRAME[:4], return_std=True), *model.predict_interval(FRAME[:4], 0.9)]
    )
    assert_allclose(served[["mean", "std", "lower", "upper"]], expected, rtol=1e-12)
    assert_allclose(served[["q0.05", "q0.5"]], expected[:, [2, 0]], rtol=1e-9)


def test_pipelines_predict_intervals_for_sparse_rows():
    """Sparse rows give the same bits as dense ones."""
    coded = make_column_transformer(
        (OneHotEncoder(), ["c"]), remainder="passthrough", sparse_threshold=1.0
    )
    pipeline = make_pipeline(coded, RVMRegressor(random_state=0)).fit(FRAME, TARGET)
    rows = pipeline[:-1].transform(FRAME)
    model = pipeline[-1]
    same = RVMRegressor(random_state=0).fit(rows.toarray(), TARGET)
    assert_array_equal(pipeline.predict(FRAME), same.predict(rows.toarray()))
    expected = np.column_stack([model.predict(rows), *model.predict_interval(rows, 0.9)])[
        :, [1, 0, 2]
    ]
    assert_allclose(model.predict_quantiles(rows, (0.05, 0.5, 0.95)), expected, rtol=1e-12)

    class Quantiles(RVMRegressor):  # the guide's pattern for libraries that call only ``predict``
        def predict(self, X):
            return self.predict_quantiles(X, (0.05, 0.5, 0.95))

    left_out = make_pipeline(coded, Quantiles(gamma=1.0, random_state=0))
    found = cross_val_predict(left_out, FRAME, TARGET, cv=KFold(2))
    assert_array_equal(found[:75], left_out.fit(FRAME[75:], TARGET[75:]).predict(FRAME[:75]))


@pytest.mark.parametrize(
    "model", [RVMRegressor(random_state=0), RVMClassifier(gamma=1.0, random_state=0)]
)
def test_skops_loads_estimators(model):
    """Only partirvm's own types must be trusted."""
    io = pytest.importorskip("skops.io")
    stored = io.dumps(model.fit(FRAME, TARGET if isinstance(model, RVMRegressor) else TARGET > 0))
    trusted = io.get_untrusted_types(data=stored)
    assert {name.partition(".")[0] for name in trusted} == {"partirvm"}
    found = io.loads(stored, trusted=trusted)
    assert_array_equal(found.predict(FRAME), model.predict(FRAME))
    assert (found.termination_, found.history_) == (model.termination_, model.history_)


def test_shap_values_equal_those_from_explain():
    shap = pytest.importorskip("shap")
    model = RVMRegressor("gaussian", random_state=0).fit(NUMBERS, TARGET)
    expected = model.explain(NUMBERS[:5], NUMBERS[:50])["values"]
    assert_allclose(shap.Explainer(model, NUMBERS[:50])(NUMBERS[:5]).values, expected, atol=1e-9)
    classes = RVMClassifier("gaussian", random_state=0).fit(NUMBERS, TARGET > 0)
    found = shap.Explainer(classes, NUMBERS[:50])(NUMBERS[:5])
    total = found.values.sum(axis=1) + found.base_values
    assert_allclose(total, classes.predict_proba(NUMBERS[:5]), atol=1e-9)


def test_optuna_optimises_an_estimator():
    """The best parameters reproduce the best score."""
    optuna = pytest.importorskip("optuna")

    def score(**parameters):
        model = RVMRegressor("gaussian", random_state=0, **parameters)
        return float(cross_val_score(model, NUMBERS, TARGET, cv=2).mean())

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(
        lambda trial: score(gamma=trial.suggest_float("gamma", 0.01, 100.0, log=True)), n_trials=3
    )
    scores = [trial.value for trial in study.trials]
    assert len(set(scores)) == 3
    assert study.best_value == max(scores) == score(**study.best_params)


def test_mapie_gives_conformal_intervals():
    """They are the mean ± the ⌈0.9 (40 + 1)⌉-th smallest of 40 absolute errors."""
    regression = pytest.importorskip("mapie.regression")
    model = RVMRegressor(random_state=0).fit(NUMBERS[:80], TARGET[:80])
    conformal = regression.SplitConformalRegressor(model, confidence_level=0.9, prefit=True)
    X = NUMBERS[80:120]
    y = TARGET[80:120]
    mean, ends = conformal.conformalize(X, y).predict_interval(NUMBERS[120:])
    half = np.sort(np.abs(y - model.predict(X)))[int(np.ceil(0.9 * 41)) - 1]
    assert_allclose(ends[:, :, 0], np.stack([mean - half, mean + half], axis=1))
