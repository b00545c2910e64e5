"""Basis functions in jobs: what a spec and a model hold, a resume with them, what is refused, the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from sklearn.preprocessing import PolynomialFeatures

from partirvm import RVMClassifier, RVMRegressor, ingest, jobs, load_model, open_job, submit
from partirvm.cli import main
from partirvm.errors import FormatError, MissingDataError, UsageError
from partirvm.model import bases_of, save_model
from partirvm.options import Request
from partirvm.storage.records import digest

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
    """The same bits, of numbers and of classes; a basis that somebody has put there is refused."""
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
        group = zarr.open_group(place)
        group.attrs["basis"] = {"name": "splines"}
        with pytest.raises(MissingDataError, match="attributes of the model are damaged"):
            load_model(place)
        about = {name: value for name, value in group.attrs.asdict().items() if name != "digest"}
        group.attrs["digest"] = digest(about)
        with pytest.raises(FormatError, match="unknown basis"):
            load_model(place)


def test_what_only_this_process_has_is_refused(data, tmp_path):
    """Callables and transformers, alone or in a list; nothing is left behind."""
    for basis, title in ((lambda X: X**2, "<lambda>"), (["linear", PolynomialFeatures(2)], "PolynomialFeatures")):
        for begin in (jobs.fit, jobs.submit):
            with pytest.raises(UsageError, match=rf"{title}.* name it as 'module:function'"):
                begin(data, str(tmp_path / "job"), replace(ASKED, basis=basis))
        with pytest.raises(UsageError, match="which a job, a cluster or a model file cannot store"):
            submit(RVMRegressor(basis=basis), data, tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_by_the_command_line(data, tmp_path, capsys):
    """A fit of the features alone: told as JSON, in words and on the page; evaluated; the bits of the estimator."""
    job, page = str(tmp_path / "job"), tmp_path / "page.html"
    assert main(["plan", data, "--kernel", "none", "--basis", "linear"]) == 0
    assert "none: there is no kernel, 3 columns at once" in capsys.readouterr().out
    assert main(["fit", data, job, "--kernel", "none", "--basis", "linear", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["n_vectors"], told["rounds"], told["passes"]) == (0, 1, 3)
    model = RVMRegressor(kernel=None, basis="linear", random_state=0).fit(data)
    assert [each["name"] for each in told["basis"]] == ["bias", "x0", "x1"]
    np.testing.assert_array_equal([each["weights"][0] for each in told["basis"]], model.basis_weights_)
    assert main(["evaluate", job, data, "--quiet"]) == 0
    X, y = (zarr.open_group(data)[name][...] for name in ("X", "y"))
    expected = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert json.loads(capsys.readouterr().out)["rmse"] == pytest.approx(expected, rel=1e-9)
    assert main(["report", job, str(page)]) == 0
    text = page.read_text()
    assert "<h2>Basis</h2>" in text
    assert "without a kernel no row is a candidate" in text
    assert f"x1</th><td>{model.basis_weights_[2]:.3g}</td><td>{model.basis_relevance_[2]:.3g}</td>" in text
    capsys.readouterr()
    assert main(["fit", data, job, "--basis", "linear,numpy:tanh", "--gamma", "1", "--overwrite", "--quiet"]) == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("basis"))
    assert " of 5 functions: " in line
    assert " x1 (" in line
    assert main(["resume", job, "--basis", "linear"]) == 2
    assert "No such option" in capsys.readouterr().err
    for asked, said in (
        (["--basis", "square"], "basis is 'square'"),
        (["--kernel", "none"], "needs a kernel, or basis functions"),
    ):
        assert main(["fit", data, str(tmp_path / "other"), *asked]) == 2
        assert said in capsys.readouterr().err
