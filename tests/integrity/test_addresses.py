"""Addresses choose no code and no host on their own: every verb opens only the protocols of the
list, and no chains.

A protocol of fsspec is a class that is imported from this machine, and may read any file, host or
template. The tests register a protocol whose module leaves a trace when it is imported. The default
run takes a part of the cases, the rest is

    python -m pytest -m slow tests/integrity/test_addresses.py
"""

import os
import shutil

import numpy as np
import pytest
from by_default import some
from fsspec.registry import known_implementations
from written import ASKED

from partirvm import ingest, jobs, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import UsageError
from partirvm.storage import Folder, open_folder
from partirvm.storage.records import read_json, to_json

TRACE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
from fsspec.implementations.local import LocalFileSystem
class Canary(LocalFileSystem):
    protocol = "canary"
"""

ADDRESSES = [
    "canary://{}",
    "file://{}::canary://x",
    "zip://x::file://{}",
    " reference://{}",
    "s3://a::reference://b",
    "data:application/json,{{}}",
    "http://127.0.0.1:9/{}",
    "python://os",
    "file%3A//{}://x",
]

VERBS = [
    "ingest @ {out}/d.zarr --target y",
    "ingest {table} @ --target y",
    "plan {data} --validation @",
    "fit @ {out}/job",
    "predict @ {data} {out}/p.csv",
    "predict {job} {data} @.csv",
    "predict {job} {data} {out}/p.csv --augment @",
    "resume @",
    "resume {job} --max-rounds 3 --data @",
    "update {job} --validation @",
    "status @",
    "report {job} @.html",
]


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    """The file that appears when the protocol ``canary`` is opened."""
    folder = tmp_path_factory.mktemp("canary")
    (folder / "canary_protocol.py").write_text(TRACE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setitem(known_implementations, "canary", {"class": "canary_protocol.Canary"})
        yield folder / "imported"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, DATA and a job with held-out DATA that can be resumed; and a folder for outputs."""
    folder = tmp_path_factory.mktemp("made")
    X = np.random.default_rng(0).normal(size=(120, 2))
    np.savetxt(
        folder / "t.csv",
        np.column_stack([X, np.sin(X[:, 0])]),
        delimiter=",",
        header="a,b,y",
        comments="",
    )
    data = str(folder / "d.zarr")
    job = str(folder / "job")
    ingest(str(folder / "t.csv"), data, target="y", tile_rows=64)
    jobs.fit(data, job, ASKED, validation=data)
    return {"table": str(folder / "t.csv"), "data": data, "job": job, "out": str(folder / "out")}


@pytest.mark.parametrize("verb", some(VERBS, VERBS[::2]))
def test_a_verb_refuses(verb, made, canary, capsys):
    """A protocol beyond the list and a chain, at every place where a command takes an address."""
    before = open_job(made["job"]).state()
    for address in (f"canary://{made['data']}", f"file://{made['data']}::canary://x"):
        assert main(verb.format(**made).replace("@", address).split()) == 2
        assert address.partition("://")[0] in (said := capsys.readouterr().err)
        assert "--allow-protocol canary" in said or "'::'" in said
    assert not canary.exists()
    assert not os.path.exists(made["out"])  # noqa: PTH110
    assert open_job(made["job"]).state() == before


@pytest.mark.parametrize("address", some(ADDRESSES, ADDRESSES[::3]))
def test_an_address_is_refused(address, made, canary):
    """Wherever Python takes an address."""
    place = address.format(*[made["data"]] * 2)
    for call in (
        lambda: open_folder(place),
        lambda: ZarrSource(place),
        lambda: open_job(place),
        lambda: load_model(place),
        lambda: save_model(open_job(made["job"]).model(), place),
        lambda: ingest(place, made["out"]),
        lambda: ingest(made["table"], place, target="y"),
    ):
        with pytest.raises(UsageError, match=r"allow-protocol|'::'"):
            call()
    assert not canary.exists()


def test_plain_paths_and_listed_protocols(made, tmp_path):
    """Paths with colons, percent signs and spaces are paths."""
    for name in ("a:b", "reference:", "a%3A%3Ab", "two words", "s3:"):
        data = tmp_path / name / "d.zarr"
        ingest(made["table"], data, target="y")
        assert ZarrSource(data).n_rows == ZarrSource(f"file://{data}").n_rows == 120
    ingest(made["table"], "memory://listed/d.zarr", target="y")
    assert ZarrSource("memory://listed/d.zarr").n_rows == 120


def lie(job, name, **told):
    """Change an object of a job, with a valid checksum."""
    folder = Folder(str(job), job)
    folder.write(name, to_json(name, {**read_json(folder, name), **told}))


@pytest.fixture(
    params=[(where, place) for where in ("spec.json", "events") for place in ("data", "validation")]
)
def elsewhere(request, made, tmp_path):
    """A job whose spec, or a request in its last event, names DATA of another store; and their
    address."""
    where, place = request.param
    job = tmp_path / "job"
    elsewhere = f"memory://{where}{place}/d.zarr"
    shutil.copytree(made["job"], job)
    ingest(made["table"], elsewhere, target="y", tile_rows=64, overwrite=True)
    name = (
        where
        if where == "spec.json"
        else f"events/{sorted(path.name for path in (job / where).iterdir())[-1]}"
    )
    lie(job, name, **{place: elsewhere}, **({} if where == "spec.json" else {"event": "queued"}))
    return job, place, elsewhere


def test_a_job_that_names_another_store(elsewhere, capsys):
    """Resume and update name the address and the option."""
    job, _, address = elsewhere
    before = open_job(job).state()
    for verb in (["resume", str(job), "--max-rounds=2"], ["update", str(job)]):
        assert main([*verb, "--quiet"]) == 2
        said = capsys.readouterr().err
        assert address in said
        assert f"--allow-data {address}" in said
    with pytest.raises(UsageError, match=f"--allow-data {address}"):
        open_job(job).resume(max_rounds=2, allow_data="memory://other")
    assert open_job(job).state() == before
