"""Jobs that earlier versions wrote stay readable; ``golden/make.py`` writes one of the present format."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from partirvm.jobs.state import Status
from partirvm.jobs.store import FORMAT, JobStore
from partirvm.model import load_model

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = sorted(path for path in GOLDEN.glob("format*"))
CLASSES = sorted(path for path in GOLDEN.glob("classes*"))


def check(folder):
    """A job is what its ``expected.json`` says, to the bit."""
    expected = json.loads((folder / "expected.json").read_text())
    store = JobStore(folder / "job")
    assert store.spec()["parameters"] == {"gamma": 0.5, "seed": 7}
    job = store.state()
    assert (job.status, job.reason, job.attempt, job.ended) == (Status.ABORTED, "flat", 1, 1785600000.0)
    assert job.plan["partition_size"] == 8
    assert [line["number"] for line in job.history] == [1, 2]
    assert store.requested(1) == "abort"
    assert str(store.holder().process) == "process 4711 on laptop.example"
    found = store.restore()
    assert found.about["history"] == 2
    state, (instruction,) = found.value["state"], found.value["instructions"]
    assert (type(state).__name__, state.phase.name, state.round) == (
        expected["state"], expected["phase"], expected["round"],
    )  # fmt: skip
    assert state.fit.statistics.labels.tolist() == expected["labels"]
    assert [value.hex() for value in state.fit.alpha.tolist()] == expected["alpha"]
    assert type(instruction).__name__ == expected["instruction"]
    assert instruction.start is not None
    for model in (store.model(), load_model(folder / "job")):
        assert [value.hex() for value in model.mean.tolist()] == expected["mean"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_jobs_of_every_format_so_far(folder):
    """Spec, events, model, checkpoint, lease."""
    check(folder)


def check_classes(folder):
    """A job of three classes is what its ``expected.json`` says, to the bit; its checkpoint."""
    expected = json.loads((folder / "expected.json").read_text())
    store = JobStore(folder / "job")
    assert store.spec()["parameters"]["class_weight"] == {"gold": 1.0}
    job = store.state()
    assert (job.status, job.reason, job.history[-1]["train_log_loss"]) == (
        Status.ABORTED, "flat", expected["log_loss"],
    )  # fmt: skip
    state = store.restore().value["state"]
    assert type(state).__name__ == expected["state"]
    assert (state.problem.codes.tolist(), str(state.problem.codes.dtype)) == (expected["codes"], expected["dtype"])
    assert (state.problem.likelihood, state.problem.n_classes) == ("multinomial", 3)
    assert state.fit.labels.tolist() == expected["labels"]
    assert [value.hex() for value in state.fit.alpha.ravel().tolist()] == expected["alpha"]
    for model in (store.model(), load_model(folder / "job")):
        assert model.classes == ("bronze", "gold", "silver")
        assert [value.hex() for value in model.mean.ravel().tolist()] == expected["mean"]


@pytest.mark.parametrize("folder", CLASSES, ids=lambda folder: folder.name)
def test_jobs_of_classes_of_every_format_so_far(folder):
    """Spec, events, model, checkpoint."""
    check_classes(folder)


def test_a_golden_job_goes_on(tmp_path):
    """It may be resumed: the next epoch, the next event."""
    shutil.copytree(FOLDERS[-1], tmp_path / "golden")
    store = JobStore(tmp_path / "golden" / "job")
    with store.acquire() as lease:
        store.record({"event": "queued", "reason": "resumed"})
        assert lease.epoch == 2
    assert store.state().attempt == 2
    assert store.requested(2) is None


def objects(folder):
    """Names of all that is in a job; whether a lease has had time for a heartbeat is no matter of formats."""
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.match("*.beat.json")}


def test_the_present_format_has_its_golden_job(tmp_path):
    """And its script still writes one."""
    for folders, name, kind, held in (
        (FOLDERS, "format", (), check),
        (CLASSES, "classes", ("classes",), check_classes),
    ):
        assert f"{name}{FORMAT}" in [folder.name for folder in folders]
        made = tmp_path / name
        made.mkdir()
        subprocess.run([sys.executable, str(GOLDEN / "make.py"), str(made), *kind], check=True)
        held(made)
        assert objects(made) == objects(folders[-1])
