"""Models, jobs and checkpoints run the functions they name only if the reader allows it."""

import sys
from dataclasses import replace

import pytest
from by_default import some
from numpy.random import default_rng
from sklearn.base import clone
from written import REQUEST

from partirvm import RVMRegressor, jobs, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.errors import UsageError
from partirvm.jobs import load_checkpoint, save_checkpoint
from partirvm.kernels import FunctionKernel, Gaussian, OnColumns, Sum
from partirvm.storage import Folder, read_json, to_json

MODULE = """
from pathlib import Path
import numpy as np
with (Path(__file__).parent / "imported").open("a") as file:
    file.write("x")
def kernel(X, Z):
    return np.exp(-((X[:, None] - Z[None]) ** 2).sum(axis=2))
def basis(X):
    return np.sin(X)
"""

PARTS = {
    "kernel": {"kernel": "own_code:kernel"},
    "part of a kernel": {
        "kernel": Sum((Gaussian(0.5), OnColumns(FunctionKernel("own_code:kernel"), (0,))))
    },
    "basis": {"gamma": 0.5, "basis": ["linear", "own_code:basis"]},
}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Yield a folder with a module that leaves a trace when it is imported."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "own_code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("own_code", None)
    yield folder
    sys.modules.pop("own_code", None)


def forget(code):
    """Remove the module from the imported ones, as in a process that has not fitted it."""
    sys.modules.pop("own_code", None)
    (code / "imported").unlink(missing_ok=True)


@pytest.mark.parametrize("part", some(PARTS, {"part of a kernel", "basis"}))
def test_a_job_is_refused_until_its_reader_allows_code(part, code, data, tmp_path, capsys):
    """Errors name the function and the flag; the fit itself needs neither."""
    job = str(tmp_path / "job")
    jobs.fit(str(data), job, replace(REQUEST, **{"gamma": "learn", **PARTS[part]}))
    forget(code)
    before = open_job(job).state()
    output = str(tmp_path / "p.csv")
    verbs = (
        ["predict", job, str(data), output],
        ["evaluate", job, str(data)],
        ["resume", job, "--max-rounds=2"],
    )
    for verb in verbs:
        assert main([*verb, "--quiet"]) == 2
        stderr = capsys.readouterr().err
        assert "own_code:" in stderr
        assert "--allow-code" in stderr
    for call in (
        lambda: load_model(job),
        lambda: open_job(job).model(),
        lambda: open_job(job).resume(max_rounds=2),
        lambda: open_job(job).update(),
    ):
        with pytest.raises(UsageError, match=r"own_code:\w+.*--allow-code, or allow_code=True"):
            call()
    assert open_job(job).state() == before
    assert not (code / "imported").exists()
    for verb in verbs:
        assert main([*verb, "--quiet", "--allow-code"]) == 0, capsys.readouterr().err
    assert (code / "imported").exists()
    models = load_model(job, allow_code=True), open_job(job).model(allow_code=True)
    assert models[0].n_vectors == models[1].n_vectors > 0


@pytest.mark.parametrize(
    ("parameter", "fitted"), [("kernel", True), ("kernel", False), ("basis", False)]
)
def test_a_saved_estimator_is_refused_until_its_reader_allows_code(
    parameter, fitted, code, tmp_path
):
    """This also holds if only its parameters name a function."""
    rng = default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    options = {
        parameter: f"own_code:{parameter}",
        "gamma": "learn" if parameter == "kernel" else 0.5,
    }
    estimator = RVMRegressor(**options) if fitted else RVMRegressor(gamma=0.5)
    save_model(estimator.fit(X, y).set_params(**options), tmp_path / "m")
    forget(code)
    with pytest.raises(UsageError, match=rf"own_code:{parameter}.*allow_code=True"):
        load_model(tmp_path / "m")
    estimator = load_model(tmp_path / "m", allow_code=True)
    assert not (code / "imported").exists()
    _ = estimator.predict(X) if fitted else clone(estimator).fit(X, y)
    assert (code / "imported").exists()


def test_code_inserted_into_a_job_is_refused(code, data, tmp_path):
    """It is inserted into the spec, the changes of a resume, or a checkpoint."""
    job = tmp_path / "job"
    jobs.fit(str(data), str(job), REQUEST)
    folder = Folder(str(job), job)
    spec = read_json(folder, "spec.json")
    last = f"events/{max((job / 'events').iterdir()).name}"
    kernel = {**spec["parameters"], "kernel": "own_code:kernel", "gamma": "learn"}
    event = read_json(folder, last) | {"event": "queued", "changes": {"basis": "own_code:basis"}}
    for name, value in (("spec.json", {**spec, "parameters": kernel}), (last, event)):
        original = folder.read(name)
        folder.write(name, to_json(name, value))
        with pytest.raises(UsageError, match="own_code:"):
            open_job(job).resume(max_rounds=2)
        folder.write(name, original)
    newest = max((job / "checkpoints").iterdir())
    group = str(newest)
    value = load_checkpoint(str(newest))
    about = read_json(Folder(group, newest), "group.json")["about"]
    problem = value.state.problem.with_kernel(FunctionKernel("own_code:kernel"))
    value = replace(value, state=replace(value.state, problem=problem))
    for path in (job / "checkpoints").iterdir():
        folder.remove(f"checkpoints/{path.name}")
    save_checkpoint(value, group, about)
    with pytest.raises(UsageError, match="own_code:kernel"):
        load_checkpoint(group)
    resumed = open_job(job).resume(max_rounds=2)
    assert str(resumed.wait(60)) == "failed"
    assert "own_code:kernel" in resumed.state().reason
    assert not (code / "imported").exists()
