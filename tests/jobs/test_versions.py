"""Jobs and models from other package versions: one warning; status and page show both versions."""

import importlib.metadata
import json
import shutil
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
REQUEST = Request(
    gamma=1.0, strategy="working-set", partition_size=10, max_rounds=1, residual="none"
)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Return a folder with DATA, a job and a model of partirvm 0.0.7."""
    folder = tmp_path_factory.mktemp("old")
    real = importlib.metadata.version
    X = np.linspace(-3, 3, 60)[:, None]
    ingest((X, np.sin(X[:, 0])), folder / "d.zarr", shuffle=0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            importlib.metadata, "version", lambda name: OLD if name == "partirvm" else real(name)
        )
        fit(str(folder / "d.zarr"), str(folder / "job"), REQUEST)
        save_model(RVMRegressor(gamma=1.0).fit(X, np.sin(X[:, 0])), folder / "model")
    return folder


@pytest.fixture
def old_folder(made_once, tmp_path):
    """Return a copy of the folder; its job has the place of the DATA that was copied."""
    return shutil.copytree(made_once, tmp_path / "old")


def test_equal_versions_give_no_warning(tmp_path):
    X = np.linspace(-3, 3, 60)[:, None]
    save_model(RVMRegressor(gamma=1.0).fit(X, np.sin(X[:, 0])), tmp_path / "model")
    load_model(tmp_path / "model")


def resumed(folder):
    open_job(folder / "job").resume(max_rounds=2).wait()


def updated(folder):
    X = np.linspace(-2, 2, 30)[:, None]
    ingest((X, np.sin(X[:, 0])), folder / "d.zarr", append=True)
    open_job(folder / "job").update(data=folder / "d.zarr").wait()


def predicted(folder):
    main(["predict", str(folder / "job"), str(folder / "d.zarr"), str(folder / "p.csv")])


def scored(folder):
    main(["evaluate", str(folder / "job"), str(folder / "d.zarr")])


USES = [resumed, updated, predicted, scored, lambda folder: load_model(folder / "job")]
USES.append(lambda folder: load_model(folder / "model"))


@pytest.mark.parametrize(
    "use", USES, ids=["resume", "update", "predict", "evaluate", "model of a job", "model"]
)
def test_one_warning_names_both_versions(old_folder, use, capsys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use(old_folder)
    texts = [str(entry.message) for entry in caught if entry.category is VersionWarning]
    texts += [line for line in capsys.readouterr().err.splitlines() if "package versions" in line]
    assert len(texts) == 1
    assert f"partirvm {OLD} then, {NOW} now" in texts[0]


@pytest.mark.usefixtures("without_charts")
def test_status_and_page_show_both_versions(old_folder, capsys):
    """They do so before and after a run of the present version, but not for a job with a single
    version."""
    place = str(old_folder / "job")
    for run in (False, True):
        if run:
            with pytest.warns(VersionWarning):
                resumed(old_folder)
        assert main(["status", place]) == 0
        status = capsys.readouterr().out
        last = f"last run with partirvm {NOW if run else OLD}"
        page = open_job(place).report().html
        for text in (status, page):
            text = " ".join(text.split())
            assert f"made with partirvm {OLD}; {last}; this process has partirvm {NOW}" in text
    fit(str(old_folder / "d.zarr"), str(old_folder / "new"), REQUEST)
    assert main(["status", str(old_folder / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"] == ""
    assert "Versions differ" not in open_job(old_folder / "new").report().html
