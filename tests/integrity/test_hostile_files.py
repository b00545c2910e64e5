"""For forged files with valid checksums, no code runs, memory is limited, and every error is named.

Each case is a file or folder and one command; its process detects imports of a canary, programs,
connections, pickles and peak memory. To run 150 cases:

    python -m pytest -m slow tests/integrity/test_hostile_files.py
"""

import multiprocessing
import os
import random
import shutil

import numpy as np
import pytest
from numpy.random import default_rng

from partirvm import RVMClassifier, RVMRegressor, ingest, jobs, save_model
from partirvm.data import zarr_source
from partirvm.jobs import checkpoint
from partirvm.model import files
from partirvm.options import Request
from tests.integrity import hostile as h

LIMIT, SECONDS = 512, 90
"""MiB of a process in addition to those at its start, and seconds of a case."""

READ = ["status job", "report job out.html", "evaluate job d.zarr", "predict job d.zarr out.csv"]
READ += ["load job", "jobs ."]
CONTINUE = ["resume job --max-rounds=2", "update job", "relevance job", "compare job job"]
ON_DATA = ["fit d.zarr new --gamma=0.5 --max-rounds=1", "plan d.zarr", "fit d.zarr new --verify"]
ON_DATA.insert(2, "predict job d.zarr out.zarr")
KINDS = {}


def kind(count):
    """Return a decorator that registers a function from folder, generator and number to a
    command."""

    def add(make):
        KINDS[make.__name__] = (make, count)
        return make

    return add


@kind(40)
def objects_of_a_job(case, rng, number):
    """Forge a field of a spec, event, claim or group head: it is missing, wrong or huge."""
    groups = "models/*/group.json", "checkpoints/*/group.json"
    names = "spec.json", "events/*.json", "events/*.json", "lease/*.json", *groups
    path = rng.choice(sorted((case / "job").glob(names[number % len(names)])))
    h.rewrite(path, lambda value: h.forged(value, rng))
    return rng.choice([*READ, *CONTINUE])


@kind(35)
def models(case, rng, number):
    """Forge the head or the value of a model, an estimator, or one with several targets."""
    groups = [case / name for name in ("model", "classes", "targets")]
    group = (*groups, *(case / "job/models").glob("*-000001"))[number % 4]
    if number % 3:
        h.repack(group, files.KIND, files.FORMAT, lambda *value: h.forged_value(*value, rng))
    else:
        h.rewrite(group / h.HEAD, lambda value: h.forged(value, rng))
    return {"targets": "load targets", "model": "load model", "classes": "load classes"}.get(
        group.name, rng.choice(READ)
    )


@kind(25)
def checkpoints(case, rng, number):
    """Forge the value of a checkpoint."""
    groups = sorted(path for path in (case / "job" / "checkpoints").iterdir() if path.is_dir())
    group = groups[number % len(groups)]
    for other in (case / "job" / "checkpoints").iterdir():
        if not other.name.startswith(group.name):
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    h.repack(group, checkpoint.KIND, checkpoint.FORMAT, lambda *value: h.forged_value(*value, rng))
    return rng.choice([*CONTINUE, "report job out.html", "status job"])


@kind(25)
def data(case, rng, number):
    """Forge the attributes of DATA."""
    (group,) = (case / "d.zarr").glob("rows-*/attributes")
    h.repack(
        group, zarr_source.KIND, zarr_source.FORMAT, lambda *value: h.forged_value(*value, rng)
    )
    commands = [*ON_DATA, "ingest t.csv d.zarr --append", "evaluate job d.zarr", "update job"]
    return [*commands, "resume job --max-rounds=2"][number % 8]


RAW = [
    b"{", b"[]", b"", b"\0" * 9, b"\xff\xfe", b"[" * 10**5, b'{"a":' * 10**5, b'{"attributes": 5}',
    b'{"attributes": {"kind": "partirvm-model", "format": NaN}}', b'{"attributes": {"format": 1e400}}',
    b'{"attributes": {"format": ' + b"9" * 5000 + b"}}", b" " * (63 << 20) + b"{}",
    b'{"attributes": [' + b"0," * (20 << 20) + b"0]}",
]  # fmt: skip


@kind(16)
def metadata(case, rng, number):
    """Forge the head of any object, or replace it by another kind of file."""
    place, words = (
        ("model/group.json", "load model"),
        ("d.zarr/versions/000001.json", ON_DATA[0]),
        ("job/spec.json", "status job"),
    )[number % 3]
    path = case / place
    path.unlink()
    if number < len(RAW):
        path.write_bytes(RAW[number])
    elif number == len(RAW):
        os.mkfifo(path)
    else:
        path.symlink_to(("/dev/zero", "/etc/passwd", "/proc/self/mem")[number % 3])
    return words


HEADERS = [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2)}\n",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (1000000000000, 2)}\n",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-5, 2)}\n",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (5, 1000000000000)}\n",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3, 2)}\n",
    "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (3, 2)}\n",
    "__import__('os').system('touch /tmp/canary')\n",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 2)}\n",
    "(" * 9000 + "\n",
]


@kind(12)
def archives(case, rng, number):
    """Forge archives with objects, with wrong headers, and compressed 1,000 to 1."""
    if number < len(HEADERS):
        members = {
            "X": h.npy(HEADERS[number], b"\0" * 4096),
            "y": h.npy(HEADERS[number].replace(", 2)", ",)"), b"\0" * 99),
        }
    elif number == len(HEADERS):
        members = {"X": h.pickled(), "y": h.pickled()}
    elif number == len(HEADERS) + 1:
        members = {"X": h.npy(HEADERS[1].replace("1000000000000", "60000000"), bytes(960 << 20))}
    else:
        header = "{'descr': '<U100000000', 'fortran_order': False, 'shape': (2,)}\n"
        members = {
            "X": h.npy(HEADERS[0].replace("1000000000000", "5"), b"\0" * 80),
            "columns": h.npy(header, bytes(800_000_000)),
        }
    h.npz(case / "t.npz", **members)
    return "ingest t.npz new.zarr --memory-limit=1GiB"


QUICK = {"objects_of_a_job": (30,), "models": (12, 17), "metadata": (13,), "data": (24,)}
QUICK["archives"] = (4,)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Return a folder with a table, DATA, a job that can be resumed, and three estimators."""
    folder = tmp_path_factory.mktemp("made")
    rng = default_rng(0)
    X = rng.normal(size=(120, 2))
    (folder / "t.csv").write_text("x0,x1,y\n1,2,3\n")
    ingest((X, np.sin(X[:, 0])), folder / "d.zarr", tile_rows=64)
    request = Request(strategy="working-set", partition_size=10, max_rounds=1, seed=1, gamma=0.5)
    jobs.fit(str(folder / "d.zarr"), str(folder / "job"), request)
    h.rewrite(folder / "job/spec.json", lambda spec: {**spec, "data": "d.zarr"})
    noise = 0.1 * rng.normal(size=(120, 2))
    save_model(RVMRegressor(gamma=0.5).fit(X, X[:, 0] + noise[:, 0]), folder / "model")
    save_model(RVMClassifier(gamma=0.5).fit(X, X[:, 0] > 0), folder / "classes")
    save_model(RVMRegressor(gamma=0.5).fit(X, X + noise), folder / "targets")
    return folder


@pytest.fixture(scope="module")
def context():
    """Return the context for processes forked from one that has imported the package."""
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(
        ["partirvm.cli", "partirvm.estimators", "tests.integrity.hostile"]
    )
    return forkserver


def failures(cases, originals, context, folder):
    """Return the cases that fail; a command with a memory limit may use all of it."""
    failed = []
    for name, number in cases:
        case = folder / f"{name}-{number}"
        shutil.copytree(originals, case)
        command = KINDS[name][0](case, random.Random(f"{name}-{number}"), number)
        outcome, *details = h.observe(context, command.split(), case, LIMIT, SECONDS)
        _, actions, memory = details
        limit = 1024 if "--memory-limit=1GiB" in command else LIMIT
        if outcome not in ("error", "result") or actions or memory > limit:
            failed.append((name, number, command, outcome, *details))
        shutil.rmtree(case)
    return failed


def test_selected_hostile_files_are_harmless(originals, context, tmp_path):
    cases = [(name, number) for name, numbers in QUICK.items() for number in numbers]
    assert failures(cases, originals, context, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KINDS)
def test_hostile_files_are_harmless(name, originals, context, tmp_path):
    cases = [(name, number) for number in range(KINDS[name][1])]
    assert failures(cases, originals, context, tmp_path) == []
