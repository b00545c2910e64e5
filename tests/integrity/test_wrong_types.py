"""JSON of a job whose checksums agree, with a value of another type: a named error, or nothing depends on the value.

Random values: ``tests/integrity/test_hostile_files.py``.
"""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from partirvm import ingest, jobs
from partirvm.cli import main
from partirvm.jobs import checkpoint, store
from partirvm.options import Request
from tests.integrity import hostile as h

GROUPS = {
    "checkpoints": (checkpoint.KIND, checkpoint.FORMAT),
    "specs": (checkpoint.SPEC_KIND, checkpoint.SPEC_FORMAT),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """DATA of 120 rows and a job of one round."""
    folder = tmp_path_factory.mktemp("made")
    X = np.random.default_rng(0).normal(size=(120, 2))
    ingest((X, np.sin(X[:, 0])), folder / "d.zarr", tile_rows=64)
    asked = Request(strategy="working-set", partition_size=10, max_rounds=1, seed=1, gamma=0.5)
    jobs.fit(str(folder / "d.zarr"), str(folder / "job"), asked)
    h.rewrite(folder / "job/spec.json", lambda spec: {**spec, "data": "d.zarr"})
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
    assert status in (0, 2), said
    return said


@pytest.mark.parametrize(
    ("pattern", "path", "value", "verb", "match"),
    [
        ("lease/000001.json", ("marks", "events"), [0], "status job", r"lease/000001.json: damaged.*marks\.events"),
        ("events/000003.json", ("max_rounds",), [], "report job out.html", "max.rounds is not"),
        ("control/abort-000001.json", ("time",), [], "status job", ""),
    ],
)
def test_a_wrong_type_in_an_object(case, capsys, pattern, path, value, verb, match):
    """A named error of the object. Without the object that releases a lease, its process is asked for."""
    if pattern.startswith("control"):
        store.JobStore("job").request("abort", 1)
    h.rewrite(case / "job" / pattern, lambda old: put(old, path, value))
    assert re.search(match, ends(verb, capsys))


@pytest.mark.parametrize(
    ("series", "name", "field", "value", "verb"),
    [
        ("checkpoints", "WorkingSetState", "round", {"array": 0}, "update"),
        ("checkpoints", "WorkingSetState", "candidates", "x", "update"),
        ("checkpoints", "WorkingSetState", "learned", "x", "update"),
        ("specs", "Options", "max_columns", {"dict": []}, "update"),
        ("specs", "Problem", "target_scale", None, "resume"),
    ],
)
def test_a_wrong_type_in_a_value(case, capsys, series, name, field, value, verb):
    """Of a checkpoint or a spec: the error names the value."""
    if verb == "update":
        X = np.random.default_rng(1).normal(size=(20, 2))
        ingest((X, np.sin(X[:, 0])), case / "d.zarr", append=True)
    h.repack(only(case, series), *GROUPS[series], lambda *old: h.with_field(*old, name, field, value))
    words = {"update": "update job --quiet", "resume": "resume job --max-rounds=2 --quiet"}[verb]
    assert re.search(field.replace("_", "."), ends(words, capsys))
