"""Commands open only listed protocols and no chained addresses: an address cannot select code.

An fsspec protocol is a class that is imported, and that may read any file or host. The tests
register one whose module leaves a trace when it is imported.
"""

import os
import shutil

import numpy as np
import pytest
from by_default import some
from fsspec.registry import known_implementations
from numpy.random import default_rng
from written import REQUEST

from partirvm import ingest, jobs, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import UsageError
from partirvm.storage import Folder, open_folder, read_json, to_json

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
    """Yield the file that appears when the protocol ``canary`` is opened."""
    folder = tmp_path_factory.mktemp("canary")
    (folder / "canary_protocol.py").write_text(TRACE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setitem(known_implementations, "canary", {"class": "canary_protocol.Canary"})
        yield folder / "imported"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return the places of a table, DATA, a job that can be resumed, and a folder for outputs."""
    folder = tmp_path_factory.mktemp("made")
    X = default_rng(0).normal(size=(120, 2))
    table = np.column_stack([X, np.sin(X[:, 0])])
    np.savetxt(folder / "t.csv", table, delimiter=",", header="a,b,y", comments="")
    data = str(folder / "d.zarr")
    job = str(folder / "job")
    ingest(str(folder / "t.csv"), data, target="y", tile_rows=64)
    jobs.fit(data, job, REQUEST, validation=data)
    return {"table": str(folder / "t.csv"), "data": data, "job": job, "out": str(folder / "out")}


@pytest.mark.parametrize("verb", some(VERBS, VERBS[::2]))
def test_commands_refuse_unlisted_protocols_and_chains(verb, places, canary, capsys):
    """This holds wherever a command accepts an address."""
    before = open_job(places["job"]).state()
    for address in (f"canary://{places['data']}", f"file://{places['data']}::canary://x"):
        assert main(verb.format(**places).replace("@", address).split()) == 2
        assert address.partition("://")[0] in (stderr := capsys.readouterr().err)
        assert "--allow-protocol canary" in stderr or "'::'" in stderr
    assert not canary.exists()
    assert not os.path.exists(places["out"])  # noqa: PTH110
    assert open_job(places["job"]).state() == before


@pytest.mark.parametrize("address", some(ADDRESSES, ADDRESSES[::3]))
def test_functions_refuse_unlisted_protocols_and_chains(address, places, canary):
    """This holds wherever Python code accepts an address."""
    place = address.format(*[places["data"]] * 2)
    for call in (
        lambda: open_folder(place),
        lambda: ZarrSource(place),
        lambda: open_job(place),
        lambda: load_model(place),
        lambda: save_model(open_job(places["job"]).model(), place),
        lambda: ingest(place, places["out"]),
        lambda: ingest(places["table"], place, target="y"),
    ):
        with pytest.raises(UsageError, match=r"allow-protocol|'::'"):
            call()
    assert not canary.exists()


def test_paths_and_listed_protocols_are_opened(places, tmp_path):
    """Paths may have colons, percent signs and spaces."""
    for name in ("a:b", "reference:", "a%3A%3Ab", "two words", "s3:"):
        data = tmp_path / name / "d.zarr"
        ingest(places["table"], data, target="y")
        assert ZarrSource(data).n_rows == ZarrSource(f"file://{data}").n_rows == 120
    ingest(places["table"], "memory://listed/d.zarr", target="y")
    assert ZarrSource("memory://listed/d.zarr").n_rows == 120


def forge(job, name, **changes):
    """Change an object of a job, with a valid checksum."""
    folder = Folder(str(job), job)
    folder.write(name, to_json(name, {**read_json(folder, name), **changes}))


@pytest.fixture(
    params=[(where, place) for where in ("spec.json", "events") for place in ("data", "validation")]
)
def elsewhere(request, places, tmp_path):
    """Return a job whose spec or last event names DATA in another store, the entry, and the
    address."""
    where, place = request.param
    job = tmp_path / "job"
    elsewhere = f"memory://{where}{place}/d.zarr"
    shutil.copytree(places["job"], job)
    ingest(places["table"], elsewhere, target="y", tile_rows=64, overwrite=True)
    if where == "spec.json":
        forge(job, where, **{place: elsewhere})
    else:
        last = max(path.name for path in (job / where).iterdir())
        forge(job, f"events/{last}", event="queued", **{place: elsewhere})
    return job, place, elsewhere


def test_a_job_that_names_another_store_needs_permission(elsewhere, capsys):
    """The errors of resume and update give the address and the option."""
    job, _, address = elsewhere
    before = open_job(job).state()
    for verb in (["resume", str(job), "--max-rounds=2"], ["update", str(job)]):
        assert main([*verb, "--quiet"]) == 2
        stderr = capsys.readouterr().err
        assert address in stderr
        assert f"--allow-data {address}" in stderr
    with pytest.raises(UsageError, match=f"--allow-data {address}"):
        open_job(job).resume(max_rounds=2, allow_data="memory://other")
    assert open_job(job).state() == before
