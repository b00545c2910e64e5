"""Predictions have the same bits however many threads BLAS has."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor, save_model

PREDICT = """
import sys
import numpy as np
from partirvm import load_model

X = np.random.default_rng(1).uniform(-2, 2, size=(500, 2))
model = load_model("r.rvm")
found = [*model.predict_interval(X, 0.9), model.sample_y(X, 3, random_state=0), *model.predict(X, return_std=True)]
found.append(load_model("c.rvm").predict_proba(X))
sys.stdout.buffer.write(b"".join(np.ascontiguousarray(values).tobytes() for values in found))
"""


def predicted(folder, threads):
    """Bytes of predictions by a process whose BLAS has this number of threads."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = [sys.executable, "-c", PREDICT]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True).stdout


@pytest.mark.bits
def test_predictions_do_not_depend_on_the_threads_of_blas(tmp_path):
    """Means, standard deviations, intervals, samples and probabilities of models with some hundred vectors."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(1200, 2))
    y = np.sin(6 * X[:, 0]) * np.cos(6 * X[:, 1]) + 0.05 * rng.standard_normal(len(X))
    fixed = {"gamma": 8.0, "partition_size": 200, "max_rounds": 3, "random_state": 0}
    regression = RVMRegressor(noise="constant", **fixed).fit(X, y)
    assert regression.n_relevance_vectors_ > 150
    save_model(regression, str(tmp_path / "r.rvm"))
    save_model(RVMClassifier(**fixed).fit(X, y > 0), str(tmp_path / "c.rvm"))
    one = predicted(tmp_path, "1")
    assert len(one) == 8 * 500 * (2 + 2 + 3 + 2)
    assert predicted(tmp_path, "2") == one
    assert predicted(tmp_path, "4") == one
