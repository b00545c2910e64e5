"""JSON of a job whose checksums agree, with a value of another type: a named error, or nothing depends on the value.

The default run tries one value of each kind of file. 600 random values (each part of each kind of file, each verb) are

    python -m pytest -m slow tests/integrity/test_wrong_types.py
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from partirvm import ingest, jobs
from partirvm.cli import main
from partirvm.jobs import checkpoint, store
from partirvm.options import Request
from tests.integrity import hostile as h

VALUES = [None, True, "", "x", [], {}, [[]], {"a": 1}, ["a"], "1", 0, -1, 1.5, *h.HUGE]

FILES = ("spec.json", "events/*.json", "lease/*.json", "models/*.json", "checkpoints/*.json", "specs/*.json")

GROUPS = {
    "checkpoints": (checkpoint.KIND, checkpoint.FORMAT),
    "specs": (store.SPEC_KIND, store.SPEC_FORMAT),
}

VERBS = (
    "resume job --max-rounds=2 --quiet",
    "update job --quiet",
    "status job",
    "report job out.html",
    "predict job d.zarr out.csv --quiet",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """DATA of 140 rows, the last 20 appended after a job of one round."""
    folder = tmp_path_factory.mktemp("made")
    X = np.random.default_rng(0).normal(size=(140, 2))
    y = np.sin(X[:, 0])
    ingest((X[:120], y[:120]), folder / "d.zarr", tile_rows=64)
    asked = Request(strategy="working-set", partition_size=10, max_rounds=1, seed=1, gamma=0.5)
    jobs.fit(str(folder / "d.zarr"), str(folder / "job"), asked)
    h.rewrite(folder / "job/spec.json", lambda spec: {**spec, "data": "d.zarr"})
    ingest((X[120:], y[120:]), folder / "d.zarr", append=True)
    return folder


@pytest.fixture
def case(made, tmp_path, monkeypatch):
    """A copy of it, in which the command runs."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(value, path, new):
    """A copy of a value with another part."""
    if not path:
        return new
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def newest(place, pattern):
    """The newest of the files of this name; the oldest ones of events and leases have most readers."""
    return sorted((place / "job").glob(pattern))[-1]


def only(place, name):
    """The newest group of a series, all others removed."""
    pointer = newest(place, f"{name}/*.json")
    for other in (place / "job" / name).iterdir():
        if not other.name.startswith(pointer.stem):
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    return pointer.with_suffix("")


def ends(verb, capsys):
    """Run a command, and return its message after it has ended as promised."""
    status = main(verb.split())
    said = capsys.readouterr().err
    assert status in (0, 2, 3) and "fault of the program" not in said, f"{verb}: status {status}: {said}"
    return said


@pytest.mark.parametrize(
    ("pattern", "path", "value", "verb", "match"),
    [
        ("lease/000001.json", ("marks", "events"), [0], "status job", r"lease/000001.json: damaged.*marks\.events"),
        ("lease/000001.over.json", ("wrote",), None, "status job", ""),
        ("lease/000001.over.json", ("wrote", "events"), "xxx", "status job", ""),
        ("events/000003.json", ("max_rounds",), [], "report job out.html", "max_rounds is not"),
        ("control/abort-000001.json", ("time",), [], "status job", ""),
    ],
)
def test_a_wrong_type_in_an_object(case, capsys, pattern, path, value, verb, match):
    """A named error of the object. Without the object that releases a lease, its process is asked for."""
    if pattern.startswith("control"):
        store.JobStore("job").request("abort", 1)
    h.rewrite(case / "job" / pattern, lambda old: put(old, path, value))
    assert match in (said := ends(verb, capsys)) or h_match(match, said)


def h_match(match, said):
    import re

    return re.search(match, said) is not None


@pytest.mark.parametrize("verb", ["resume job --max-rounds=2 --quiet", "update job --quiet"])
@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("checkpoints", ("state", "round"), np.arange(5)),
        ("checkpoints", ("waiting",), "x"),
    ],
)
def test_a_wrong_type_in_a_value(case, capsys, name, path, value, verb):
    """Of a checkpoint or a spec: the command names the file."""
    h.repack(only(case, name), *GROUPS[name], lambda old: put(old, path, value))
    assert f"job/{name}" in ends(verb, capsys)
