"""Declarations in files are checked before they are used: shapes, moments, events, pointers."""

import json
import shutil
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hostile import rewrite
from numpy.testing import assert_array_equal
from written import REQUEST, edit, rows_in

from partirvm import ingest, jobs, open_job
from partirvm.core import Moments
from partirvm.data import ZarrSource, zarr_source
from partirvm.errors import ChangedDataError, FormatError, PartirvmError
from partirvm.jobs import JobStore, attached, checkpoint, load_checkpoint, save_checkpoint
from partirvm.jobs.checkpoint import FORMAT, KIND
from partirvm.process import peak_memory
from partirvm.storage import codec, read_group
from partirvm.storage.codec import HEAD
from partirvm.types import Columns


@pytest.fixture
def job(data, tmp_path):
    """Return a finished job of two rounds."""
    jobs.fit(str(data), str(tmp_path / "job"), replace(REQUEST, max_rounds=2))
    return tmp_path / "job"


def write_attributes(data, attributes):
    """Replace the newest attributes of DATA, with valid checksums."""
    place = rows_in(data) / "attributes"
    shutil.rmtree(place)
    zarr_source.CODEC.write(attributes, str(place), zarr_source.KIND, zarr_source.FORMAT)


@pytest.mark.parametrize(
    "change",
    [
        {"n_rows": 10**12},
        {"tile_rows": 0},
        {"hashes": {}},
        {"segments": ((0, "../other"),)},
        {"segments": ((1, f"rows-{32 * 'a'}"),)},
        {"moments": Moments.of(np.zeros((5, 3)), np.zeros((5, 1)))},
        {"columns": Columns(("a",))},
    ],
    ids=str,
)
def test_contradictory_attributes_are_refused(change, data):
    """This holds even with valid checksums."""
    write_attributes(data, replace(zarr_source.open_data(str(data))[1], **change))
    with pytest.raises(FormatError, match="contradict each other"):
        ZarrSource(data)


@pytest.mark.parametrize("change", ["moments", "features"])
def test_changed_attributes_count_as_changed_data(change, data, job):
    """They are consistent, but differ from those at the job's start: other names, or another
    mean."""
    attributes = zarr_source.open_data(str(data))[1]
    inputs = replace(attributes.moments.inputs, mean=attributes.moments.inputs.mean + 0.5)
    moments = replace(attributes.moments, inputs=inputs)
    columns = replace(attributes.columns, features=("a", "b"))
    changes = {"moments": moments} if change == "moments" else {"columns": columns}
    write_attributes(data, replace(attributes, **changes))
    with pytest.raises(ChangedDataError, match="names, categories, classes, moments"):
        open_job(job).requeue(max_rounds=3)


def test_array_metadata_are_not_trusted(data):
    """Neither readers nor an append allocate the terabytes that they declare."""
    before = ZarrSource(data).tile(1).X
    edit(rows_in(data) / "X" / "zarr.json", lambda about: about["shape"].__setitem__(-1, 10**12))
    tracemalloc.start()
    assert_array_equal(ZarrSource(data).tile(1).X, before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
    assert ingest((np.zeros((3, 2)), np.zeros(3), np.ones(3)), data, append=True).n_rows == 203


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ([10**12], "<f8"),
        ([10**18], "<f8"),
        ([10**12, 10**12], "<f8"),
        ([-5], "<f8"),
        ([20_001], "<f8"),
        ([9], "|O"),
    ],
)
def test_a_shape_with_a_valid_checksum_is_not_trusted(shape, dtype, tmp_path):
    """Only the stored parts determine the size of an array."""
    save_checkpoint({"big": np.zeros(20_000)}, str(tmp_path / "m"))
    part = tmp_path / "m" / "000000"
    header = json.dumps([dtype, shape, "C"], separators=(",", ":")).encode()
    data = part.read_bytes().replace(b'["<f8",[20000],"C"]', header)
    part.write_bytes(data)
    size = len(data) - 160_000
    rewrite(
        tmp_path / "m" / HEAD,
        lambda head: {**head, "json": size, "parts": [[len(data), codec._hash(data)]]},
    )
    before = peak_memory()
    with pytest.raises(PartirvmError, match=f"{tmp_path}/m: .*the checkpoint"):
        load_checkpoint(str(tmp_path / "m"))
    assert peak_memory() - before < 50_000_000


@pytest.mark.slow
def test_a_checkpoint_with_a_missing_or_wrong_field_is_refused(job):
    """The decoder or ``attached`` refuses it, although checksums are valid."""
    spec = JobStore(job).restore().spec
    reader = checkpoint.codec()
    tree, arrays = read_group(str(max((job / "checkpoints").iterdir())), KIND, FORMAT)
    for node in list(objects_of(tree)):
        values = node["fields"]
        for field in values:
            without = {key: value for key, value in values.items() if key != field}
            for node["fields"] in (without, {**values, field: [[]]}):
                try:
                    decoded = reader.decode(tree, arrays)
                except Exception:  # readers name the location of any error
                    continue
                with suppress(PartirvmError):
                    attached(decoded.state, spec.problem, spec.options)
        node["fields"] = values


def objects_of(tree):
    """Yield the dataclasses in encoded JSON."""
    if isinstance(tree, dict) and "object" in tree:
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from objects_of(part)
