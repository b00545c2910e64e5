"""Basis functions in jobs: what a spec and a model hold, a resume with them, what is refused, the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor, ingest, jobs, load_model, open_job
from partirvm.model import bases_of, save_model
from partirvm.options import Request

BASIS = ["linear", "numpy:tanh"]
NAMES = ["bias", "x0", "x1", "tanh[0]", "tanh[1]"]
ASKED = Request(strategy="working-set", partition_size=40, max_rounds=2, gamma="scale", basis=BASIS, seed=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows as DATA on disk, of several tiles."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(500, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=500)
    place = tmp_path_factory.mktemp("data") / "rows.zarr"
    ingest((X, y), place, tile_rows=200)
    return str(place)


@pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")
def test_a_job_holds_its_basis(data, tmp_path):
    """As JSON in its spec; a resume goes on with it, to the bits of a fit without a break; the model on disk has it."""
    whole = jobs.fit(data, str(tmp_path / "whole"), replace(ASKED, max_rounds=4)).model
    jobs.fit(data, str(tmp_path / "job"), ASKED)
    assert json.loads(Path(tmp_path, "job", "spec.json").read_text())["parameters"]["basis"] == BASIS
    resumed = open_job(tmp_path / "job").resume(max_rounds=4, allow_code=True)
    resumed.wait()
    model = resumed.model(allow_code=True)
    assert whole is not None
    assert model.design.n_leading > 1
    for name in ("mean", "alpha", "root"):
        np.testing.assert_array_equal(getattr(model, name), getattr(whole, name))
    np.testing.assert_array_equal(model.design.active, whole.design.active)
    inline = RVMRegressor(
        strategy="working-set", partition_size=40, max_rounds=4, gamma="scale", basis=BASIS, random_state=1
    ).fit(data)
    np.testing.assert_array_equal(inline.model_.mean, whole.mean)
    told = resumed.bases()
    assert [each["name"] for each in told] == NAMES == list(bases_of(model).names)
    np.testing.assert_array_equal([each["weights"][0] for each in told], inline.basis_weights_)
    np.testing.assert_array_equal([each["relevance"] for each in told], inline.basis_relevance_)


@pytest.mark.filterwarnings("ignore:.*far from every relevance vector")
def test_models_on_disk(data, tmp_path):
    """The same bits, of numbers and of classes."""
    rng = np.random.default_rng(1)
    X, noise = rng.normal(size=(60, 2)), rng.normal(size=60)
    for model in (
        RVMRegressor(kernel=None, basis=BASIS).fit(X, X[:, 0] + np.tanh(X[:, 1])),
        RVMClassifier(basis="linear", gamma=1.0).fit(X, X[:, 0] > 0.3),
        RVMRegressor(gamma=0.1).fit(X, X[:, 0] + np.tanh(X[:, 1]) + 0.1 * noise),
    ):
        place = tmp_path / f"model-{id(model)}"
        save_model(model.model_, place)
        loaded = load_model(place, allow_code=True)
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        assert loaded.digest() == model.model_.digest()
