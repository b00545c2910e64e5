"""Files run no code unless their reader says so: models, jobs and checkpoints whose kernel or basis
is a function."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from sklearn.base import clone
from written import ASKED

from partirvm import RVMRegressor, jobs, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.errors import UsageError
from partirvm.jobs.checkpoint import load_checkpoint, save_checkpoint
from partirvm.kernels import FunctionKernel, Gaussian, OnColumns, Sum
from partirvm.storage import Folder
from partirvm.storage.records import read_json, to_json

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
    """A folder with a module that leaves a trace when it is imported; it was never imported so
    far."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "own_code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("own_code", None)
    yield folder
    sys.modules.pop("own_code", None)


def forget(code):
    """As a process that has not fitted it: the module is not imported, and left no trace."""
    sys.modules.pop("own_code", None)
    (code / "imported").unlink(missing_ok=True)


@pytest.mark.parametrize("part", some(PARTS, {"part of a kernel", "basis"}))
def test_a_job_is_refused_until_its_reader_allows_code(part, code, data, tmp_path, capsys):
    """predict, evaluate, resume and load_model name the function and the flag; then they work. The
    fit needs none."""
    job = str(tmp_path / "job")
    jobs.fit(str(data), job, replace(ASKED, **{"gamma": "learn", **PARTS[part]}))
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
        said = capsys.readouterr().err
        assert "own_code:" in said
        assert "--allow-code" in said
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
    assert (
        load_model(job, allow_code=True).n_vectors
        == open_job(job).model(allow_code=True).n_vectors
        > 0
    )


@pytest.mark.parametrize(
    ("parameter", "fitted"), [("kernel", True), ("kernel", False), ("basis", False)]
)
def test_a_saved_estimator(parameter, fitted, code, tmp_path):
    """The same, of one that save_model wrote; also if only the next fit of its parameters has a
    function."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    asked = {parameter: f"own_code:{parameter}", "gamma": "learn" if parameter == "kernel" else 0.5}
    found = RVMRegressor(**asked) if fitted else RVMRegressor(gamma=0.5)
    save_model(found.fit(X, y).set_params(**asked), tmp_path / "m")
    forget(code)
    with pytest.raises(UsageError, match=rf"own_code:{parameter}.*allow_code=True"):
        load_model(tmp_path / "m")
    found = load_model(tmp_path / "m", allow_code=True)
    assert not (code / "imported").exists()
    _ = found.predict(X) if fitted else clone(found).fit(X, y)
    assert (code / "imported").exists()


def test_code_that_somebody_put_into_a_job(code, data, tmp_path):
    """Into its spec, into what a resume has changed, or into a checkpoint: refused, whatever else
    the job says."""
    job = tmp_path / "job"
    jobs.fit(str(data), str(job), ASKED)
    folder = Folder(str(job), job)
    spec = read_json(folder, "spec.json")
    last = f"events/{max((job / 'events').iterdir()).name}"
    kernel = {**spec["parameters"], "kernel": "own_code:kernel", "gamma": "learn"}
    for name, value in (
        ("spec.json", {**spec, "parameters": kernel}),
        (
            last,
            {**read_json(folder, last), "event": "queued", "changes": {"basis": "own_code:basis"}},
        ),
    ):
        whole = folder.read(name)
        folder.write(name, to_json(name, value))
        with pytest.raises(UsageError, match="own_code:"):
            open_job(job).resume(max_rounds=2)
        folder.write(name, whole)
    newest = max((job / "checkpoints").iterdir())
    group = str(newest)
    value = load_checkpoint(str(newest))
    about = read_json(Folder(group, newest), "group.json")["about"]
    problem = value.state.problem.with_kernel(FunctionKernel("own_code:kernel"))
    value = replace(value, state=replace(value.state, problem=problem))
    for each in (job / "checkpoints").iterdir():
        folder.remove(f"checkpoints/{each.name}")
    save_checkpoint(value, group, about)
    with pytest.raises(UsageError, match="own_code:kernel"):
        load_checkpoint(group)
    resumed = open_job(job).resume(max_rounds=2)
    assert str(resumed.wait(60)) == "failed"
    assert "own_code:kernel" in resumed.state().reason
    assert not (code / "imported").exists()
