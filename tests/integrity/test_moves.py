"""Whole files in the wrong place, and chunks that are larger than they say: a named error, never other numbers.

One case of each mechanism runs by default, the whole matrix by

    python -m pytest -m "slow or not slow" tests/integrity/test_moves.py
"""

from __future__ import annotations

import shutil
import struct
import tracemalloc
from itertools import product

import google_crc32c
import numpy as np
import pytest
from by_default import some

from partirvm import ingest, jobs, load_model
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import ChangedDataError, MissingDataError, PartirvmError
from partirvm.jobs.store import JobStore
from partirvm.options import Request

ASKED = Request(gamma=0.5, strategy="working-set", partition_size=10, max_rounds=3, seed=1)


def rows(seed, n=200):
    """X (n, 2), y (n,) and weights (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n), rng.uniform(0.5, 2.0, n)


def swap(one, other):
    """Exchange the names of two files or folders."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.fixture
def data(tmp_path):
    """DATA of four tiles."""
    ingest(rows(0), tmp_path / "d.zarr", tile_rows=64)
    return tmp_path / "d.zarr"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folders of two jobs on the same DATA with other kernels; nobody changes them."""
    top = tmp_path_factory.mktemp("jobs")
    ingest(rows(0), top / "d.zarr", tile_rows=64)
    for name, gamma in (("job", 0.5), ("other", 2.0)):
        jobs.fit(str(top / "d.zarr"), str(top / name), Request(**{**vars(ASKED), "gamma": gamma}))
    return top / "job", top / "other"


@pytest.mark.parametrize(
    ("how", "array"),
    some(
        product(["swapped", "of other DATA"], ["X", "y", "weights", "row"]),
        {("swapped", "X"), ("of other DATA", "row")},
    ),
)
def test_tiles_in_the_wrong_place(how, array, data, tmp_path, capsys):
    """Every way to read the tile tells, and --verify; other tiles can be read."""
    chunks = [data / array / "c" / name for name in (("0/0", "1/0") if array == "X" else ("0", "1"))]
    if how == "swapped":
        swap(*chunks)
    else:
        ingest(rows(1), tmp_path / "other.zarr", tile_rows=64, shuffle=1)
        shutil.copy(tmp_path / "other.zarr" / chunks[1].relative_to(data), chunks[1])
    source = ZarrSource(data)
    reads = [lambda: source.original_rows(1)] if array == "row" else [lambda: source.tile(1), source.verify]
    reads += [lambda: source.gather([100])] if array == "X" else [source.verify]
    reads += [lambda: source.weights_of([100])] if array == "weights" else []
    for read in reads:
        with pytest.raises(ChangedDataError, match=f"chunk [01] of the array '{array}'"):
            read()
    source.tile(2)
    source.original_rows(2)
    assert main(["fit", str(data), str(tmp_path / "new"), "--quiet", "--verify"]) == 2
    assert f"of the array '{array}'" in capsys.readouterr().err


@pytest.mark.parametrize("array", some(["X", "row"], {"X"}))
def test_an_append_does_not_confirm_a_tile_in_the_wrong_place(array, data):
    """The last tile, which is not full, gets a new checksum: it is refused if it does not have the old one."""
    shutil.copy(*(data / array / "c" / name for name in (("0/0", "3/0") if array == "X" else ("0", "3"))))
    with pytest.raises(ChangedDataError, match=f"chunk 3 of the array '{array}'"):
        ingest(rows(2, 20), data, append=True)


@pytest.mark.parametrize("series", some(["models", "checkpoints"], {"models"}))
def test_folders_of_a_series_in_the_wrong_place(series, both, tmp_path):
    """Swapped, alone or with their pointers: no other model, no other checkpoint."""
    intact = both[0]
    names = sorted(path.name for path in (intact / series).iterdir() if path.is_dir())[-2:]
    for number, pointers in enumerate((False, True)):
        job = tmp_path / f"job{number}"
        shutil.copytree(intact, job)
        swap(*(job / series / name for name in names))
        if pointers:
            swap(*(job / series / f"{name}.json" for name in names))
        if series == "models":
            with pytest.raises(PartirvmError, match=f"models/{names[1]}"):
                load_model(job)
            continue
        restored = JobStore(job).restore()
        assert restored is None or restored.about["history"] < 2, restored.about
        assert any(names[1] in each for each in restored.damaged)


@pytest.mark.parametrize(
    ("how", "series"),
    some(
        product(["folder", "folder and pointer", "series"], ["models", "checkpoints", "specs"]),
        {("folder", "models"), ("folder and pointer", "checkpoints"), ("series", "specs")},
    ),
)
def test_folders_of_another_job(how, series, both, tmp_path):
    """Copied over those of a job, with the pointer or without."""
    job, other = tmp_path / "job", both[1]
    shutil.copytree(both[0], job)
    mine, theirs = ([*sorted((place / series).glob("*.json"))] for place in (job, other))
    if how == "series":
        shutil.rmtree(job / series)
        shutil.copytree(other / series, job / series)
    else:
        for path in (mine[-1], mine[-1].with_suffix("")):
            found = theirs[-1] if path.suffix else theirs[-1].with_suffix("")
            if path.is_dir():
                shutil.rmtree(path)
                shutil.copytree(found, path)
            elif "pointer" in how:
                shutil.copy(found, path)
    store = JobStore(job)
    read = {"models": store.model, "checkpoints": store.restore, "specs": store.fit_spec}[series]
    if series == "checkpoints" and how != "series":
        assert read().about["history"] < 3
        return
    with pytest.raises(PartirvmError, match=rf"{series}/0"):
        read()


@pytest.mark.parametrize("field", some([4, 8], {4}))
def test_a_chunk_of_data_is_not_believed(field, data):
    """The header of a Blosc chunk claims another size, or other blocks: its checksum is valid."""
    path = data / "X" / "c" / "1" / "0"
    content = bytearray(path.read_bytes()[:-4])
    struct.pack_into("<I", content, field, 1 << 30)
    path.write_bytes(bytes(content) + struct.pack("<I", google_crc32c.value(bytes(content))))
    tracemalloc.start()
    with pytest.raises(MissingDataError, match="chunk 1 of the array 'X'"):
        ZarrSource(data).tile(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
