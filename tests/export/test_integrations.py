"""Pipelines of skl2onnx, and models that MLflow serves, predict what the estimators predict."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from partirvm import RVMClassifier, RVMRegressor

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=150), "b": RNG.normal(size=150), "c": RNG.choice(["x", "y", "z"], 150)})
TARGET = np.sin(FRAME["a"]) + (FRAME["c"] == "x") * FRAME["b"] + 0.1 * RNG.normal(size=150)


@pytest.mark.parametrize(("kind", "most"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("classes", [None, [0.0], [-0.5, 0.5]])
@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_becomes_onnx(classes: Any, kind: str, most: float) -> None:
    skl2onnx, runtime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    from partirvm.skl2onnx import register

    register()
    kinds = skl2onnx.common.data_types
    number = {"float64": kinds.DoubleTensorType, "float32": kinds.FloatTensorType}[kind]([None, 1])
    given = [("a", number), ("b", number), ("c", kinds.StringTensorType([None, 1]))]
    parts = [("scaled", StandardScaler(), ["a", "b"]), ("coded", OneHotEncoder(sparse_output=False), ["c"])]
    estimator = RVMRegressor(random_state=0) if classes is None else RVMClassifier(random_state=0)
    y = TARGET if classes is None else np.digitize(TARGET, classes)
    pipeline = Pipeline([("columns", ColumnTransformer(parts)), ("rvm", estimator)]).fit(FRAME, y)
    option = {"outputs": ("mean", "std")} if classes is None else {"zipmap": False}
    made = skl2onnx.convert_sklearn(pipeline, initial_types=given, options={type(estimator): option})
    inputs = {name: FRAME[[name]].to_numpy(object if name == "c" else kind) for name in FRAME}
    found = runtime.InferenceSession(made.SerializeToString()).run(None, inputs)
    if classes is None:
        expected = np.column_stack(pipeline.predict(FRAME, return_std=True))
        np.testing.assert_allclose(np.hstack(found), expected, rtol=0, atol=most * TARGET.std())
    else:
        np.testing.assert_array_equal(found[0], pipeline.predict(FRAME))
        np.testing.assert_allclose(found[1], pipeline.predict_proba(FRAME), rtol=0, atol=most)


@pytest.mark.filterwarnings("ignore")
def test_mlflow_serves_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow, uvicorn, _ = (pytest.importorskip(name) for name in ("mlflow", "uvicorn", "sqlalchemy"))
    from mlflow.pyfunc import scoring_server

    from partirvm.mlflow import log_model

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    experiment = mlflow.create_experiment("any", artifact_location=(tmp_path / "files").as_uri())
    model = RVMRegressor(random_state=0).fit(FRAME, TARGET)
    classifier = RVMClassifier(random_state=0).fit(FRAME, np.where(TARGET > 0, "high", "low"))
    with mlflow.start_run(experiment_id=experiment):
        places = [log_model(each, "any", FRAME[:3]).model_uri for each in (model, classifier)]
    found = mlflow.pyfunc.load_model(places[1]).predict(FRAME)
    np.testing.assert_array_equal(found["label"], classifier.predict(FRAME))
    np.testing.assert_array_equal(found[["p_high", "p_low"]], classifier.predict_proba(FRAME))
    app = scoring_server.init(mlflow.pyfunc.load_model(places[0]))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    asked = {"level": 0.9, "quantiles": [0.05, 0.5]}
    body = json.dumps({"dataframe_split": FRAME[:4].to_dict("split"), "params": asked}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, headers)
    served = pd.DataFrame(json.load(urllib.request.urlopen(request, timeout=60))["predictions"])
    server.should_exit = True
    expected = np.column_stack([*model.predict(FRAME[:4], return_std=True), *model.predict_interval(FRAME[:4], 0.9)])
    np.testing.assert_allclose(served[["mean", "std", "lower", "upper"]], expected, rtol=1e-12)
    np.testing.assert_allclose(served[["q0.05", "q0.5"]], expected[:, [2, 0]], rtol=1e-9)
