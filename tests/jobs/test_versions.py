"""Jobs and models that were made with other package versions: one warning, and both versions in
status and page."""

import importlib.metadata
import json
import warnings

import numpy as np
import pytest

import partirvm
from partirvm import RVMRegressor, ingest, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.errors import VersionWarning
from partirvm.jobs import fit
from partirvm.options import Request

OLD = "0.0.7"
NOW = partirvm.__version__
ASKED = Request(gamma=1.0, strategy="working-set", partition_size=10, max_rounds=1, residual="none")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A folder with DATA, a job and a saved model of partirvm 0.0.7, which this process is no
    longer."""
    real = importlib.metadata.version
    X = np.linspace(-3, 3, 60)[:, None]
    ingest((X, np.sin(X[:, 0])), tmp_path / "d.zarr", shuffle=0)
    with monkeypatch.context() as patched:
        patched.setattr(
            "partirvm.process.version", lambda name: OLD if name == "partirvm" else real(name)
        )
        fit(str(tmp_path / "d.zarr"), str(tmp_path / "job"), ASKED)
        save_model(RVMRegressor(gamma=1.0).fit(X, np.sin(X[:, 0])), tmp_path / "model")
    return tmp_path


def test_the_same_versions_are_no_warning(tmp_path):
    X = np.linspace(-3, 3, 60)[:, None]
    save_model(RVMRegressor(gamma=1.0).fit(X, np.sin(X[:, 0])), tmp_path / "model")
    load_model(tmp_path / "model")


def resumed(folder):
    open_job(folder / "job").resume(max_rounds=2).wait()


def updated(folder):
    X = np.linspace(-2, 2, 30)[:, None]
    ingest((X, np.sin(X[:, 0])), folder / "d.zarr", append=True)
    open_job(folder / "job").update().wait()


def predicted(folder):
    main(["predict", str(folder / "job"), str(folder / "d.zarr"), str(folder / "p.csv")])


def scored(folder):
    main(["evaluate", str(folder / "job"), str(folder / "d.zarr")])


USES = [resumed, updated, predicted, scored, lambda folder: load_model(folder / "job")]
USES.append(lambda folder: load_model(folder / "model"))


@pytest.mark.parametrize(
    "use", USES, ids=["resume", "update", "predict", "evaluate", "model of a job", "model"]
)
def test_one_warning_names_both_versions(made, use, capsys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use(made)
    texts = [str(each.message) for each in caught if each.category is VersionWarning]
    texts += [line for line in capsys.readouterr().err.splitlines() if "package versions" in line]
    assert len(texts) == 1
    assert f"partirvm {OLD} then, {NOW} now" in texts[0]


def test_status_and_page_show_both_versions(made, capsys):
    """Before and after a run with the present version; a job of one version shows no such line."""
    place = str(made / "job")
    for run in (False, True):
        if run:
            with pytest.warns(VersionWarning):
                resumed(made)
        assert main(["status", place]) == 0
        status = capsys.readouterr().out
        last = f"last run with partirvm {NOW if run else OLD}"
        page = open_job(place).report().html
        for text in (status, page):
            text = " ".join(text.split())
            assert f"made with partirvm {OLD}; {last}; this process has partirvm {NOW}" in text
    fit(str(made / "d.zarr"), str(made / "new"), ASKED)
    assert main(["status", str(made / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"] == ""
    assert "Versions differ" not in open_job(made / "new").report().html
