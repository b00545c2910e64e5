"""What files declare of themselves is checked before it is used: shapes, moments, numbers of events, pointers."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from written import ASKED, edit

from partirvm import RVMRegressor, ingest, jobs, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.data.layout import DataAttributes
from partirvm.errors import ChangedDataError, FormatError, MissingDataError, PartirvmError
from partirvm.execution.process import peak_memory
from partirvm.jobs.checkpoint import CODEC, FORMAT, KIND, attached, load_checkpoint, save_checkpoint
from partirvm.jobs.store import JobStore
from partirvm.storage import sealed
from partirvm.storage.codec import read_encoded
from partirvm.storage.records import digest


@pytest.fixture
def job(data, tmp_path):
    """A job of two rounds on them, that is done."""
    jobs.fit(str(data), str(tmp_path / "job"), replace(ASKED, max_rounds=2))
    return tmp_path / "job"


@pytest.mark.parametrize("change", ["moments", "features"])
def test_other_attributes_are_other_data(change, data, job):
    """Attributes that are whole, but not those that the job began with: the same rows under another name, or mean."""
    head = json.loads((data / "zarr.json").read_text())
    found = DataAttributes.from_json(dict(head["attributes"]), "data")
    inputs = replace(found.moments.inputs, mean=found.moments.inputs.mean + 0.5)
    columns = replace(found.columns, features=("a", "b"))
    other = replace(found, **({"moments": replace(found.moments, inputs=inputs)} if change == "moments" else {}))
    other = replace(other, **({"columns": columns} if change == "features" else {}))
    edit(data / "zarr.json", lambda head: head.update(attributes=other.to_json()))
    with pytest.raises(ChangedDataError, match="names, categories, classes, moments"):
        open_job(job).requeue(max_rounds=3)


@pytest.mark.parametrize("kind", ["model", "checkpoint", "DATA"])
def test_no_metadata_of_an_array_are_believed(kind, data, tmp_path):
    """Terabytes that they declare are not allocated: neither readers nor an append use them."""
    if kind == "model":
        X = np.random.default_rng(0).normal(size=(60, 2))
        save_model(RVMRegressor(gamma=0.5).fit(X, X[:, 0]), tmp_path / "m")
        place, name, read = tmp_path / "m", "packed", lambda place: load_model(place).model_.mean
    elif kind == "checkpoint":
        save_checkpoint({"big": np.arange(20_000)}, str(tmp_path / "c"))
        place, name, read = tmp_path / "c", "a0", lambda place: load_checkpoint(str(place))["big"]
    else:
        place, name, read = data, "X", lambda place: ZarrSource(place).tile(1).X
    before = read(place)
    edit(place / name / "zarr.json", lambda about: about["shape"].__setitem__(-1, 10**12))
    tracemalloc.start()
    np.testing.assert_array_equal(read(place), before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
    if kind == "DATA":
        assert ingest((np.zeros((3, 2)), np.zeros(3), np.ones(3)), data, append=True).n_rows == 203


@pytest.mark.parametrize("kind", ["model", "checkpoint"])
def test_no_shape_is_believed_because_the_seal_agrees(kind, tmp_path):
    """The digest is renewed, so that only the chunks in the store tell how large the array is; so with 10^18 rows."""
    if kind == "model":
        X = np.random.default_rng(0).normal(size=(60, 2))
        save_model(RVMRegressor(gamma=0.5).fit(X, X[:, 0]), tmp_path / "m")
        place, name, read = tmp_path / "m", "packed", load_model
    else:
        save_checkpoint({"big": np.zeros(20_000)}, str(tmp_path / "m"))
        place, name, read = tmp_path / "m", "a0", lambda place: load_checkpoint(str(place))
    for shape, dtype in (([10**12], "<f8"), ([10**18], "<f8"), ([10**12, 10**12], "<f8"), ([-5], "<f8"), ([9], "|O")):

        def agree(head, shape=shape, dtype=dtype):
            attributes = head["attributes"]
            attributes["arrays"][name] |= {"shape": shape, "dtype": dtype}
            del attributes["digest"]
            attributes["digest"] = digest(attributes)

        edit(place / "zarr.json", agree)
        before = peak_memory()
        with pytest.raises(MissingDataError, match=rf"{place}: array '{name}' of the {kind}.* cannot be read"):
            read(place)
        assert peak_memory() - before < 50_000_000


@pytest.mark.parametrize("shape", [(3, 40), (40, 3, 5), (1000,), (0, 5), (5, 0), ()])
def test_no_chunk_is_larger_than_the_bound(shape, tmp_path, monkeypatch):
    """Every array comes back, and any chunk that is lost is named."""
    monkeypatch.setattr(sealed, "CHUNK", 1024)
    array = np.random.default_rng(0).normal(size=shape)
    sealed.write_sealed(str(tmp_path / "g"), "partirvm-model", 1, {}, {"a": array})
    files = sorted(path for path in (tmp_path / "g" / "a").rglob("*") if path.is_file() and path.name != "zarr.json")
    assert all(path.stat().st_size <= 1024 for path in files)
    assert len(files) >= array.nbytes / 1024
    np.testing.assert_array_equal(sealed.read_sealed(str(tmp_path / "g"), "partirvm-model", 1)[1]["a"], array)
    for path in files[::3]:
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(MissingDataError, match=f"{path.relative_to(tmp_path / 'g' / 'a').as_posix()} is missing"):
            sealed.read_sealed(str(tmp_path / "g"), "partirvm-model", 1)
        path.write_bytes(content)


def test_a_number_in_an_event_that_changed(job, tmp_path, capsys):
    """The event is still JSON: its checksum tells. status, report, resume and evaluate end with status 2."""
    event = next(path for path in sorted((job / "events").iterdir()) if '"event": "fit"' in path.read_text())
    text = event.read_text()
    event.write_text(text.replace('"vectors": ', '"vectors": 1'))
    with pytest.raises(FormatError, match=rf"{event.name}: damaged"):
        JobStore(job).events()
    page = str(tmp_path / "p.html")
    for verb in (["status", str(job)], ["resume", str(job), "--max-rounds=3"], ["report", str(job), page]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert event.name in said
        assert "fault of the program" not in said


def test_a_pointer_that_is_gone(job, tmp_path):
    """The events name the last model: the one before it is not given for it."""
    pointer = max((job / "models").glob("*.json"))
    pointer.unlink()
    for read in (load_model, lambda place: open_job(place).model()):
        with pytest.raises(MissingDataError, match=rf"{pointer.name}, the pointer to the last model, is missing"):
            read(job)


def test_a_claim_that_is_gone(job):
    """Without it nobody can tell whose events count."""
    (job / "lease" / "000001.json").unlink()
    with pytest.raises(MissingDataError, match="claim of epoch 1 is missing"):
        open_job(job).state()


def test_a_checkpoint_without_a_field(job):
    """Its seal agrees: every field in turn is missing, or a list. Decoding or ``attached`` refuses what is wrong."""
    spec = JobStore(job).restore().spec
    pointer = max((job / "checkpoints").glob("*.json"))
    tree, arrays = read_encoded(str(pointer.with_suffix("")), KIND, FORMAT)
    for number, (name, values) in enumerate(tree["objects"]):
        for field in values:
            without = {key: value for key, value in values.items() if key != field}
            for other in (without, {**values, field: [[]]}):
                objects = [*tree["objects"][:number], [name, other], *tree["objects"][number + 1 :]]
                try:
                    found = CODEC.decode({**tree, "objects": objects}, arrays)
                except Exception:  # readers name the place of any error
                    continue
                with suppress(PartirvmError):
                    attached(found.state, spec.problem, spec.options)
