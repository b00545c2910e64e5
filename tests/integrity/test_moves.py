"""Moved or older files, and chunks with wrong sizes, give named errors, never other numbers."""

import shutil
import struct
import tracemalloc
from dataclasses import replace
from itertools import product

import google_crc32c
import pytest
from by_default import some
from written import REQUEST, rows, rows_in, swap

from partirvm import ingest, jobs, load_model, open_job
from partirvm.cli import main
from partirvm.data import ZarrSource
from partirvm.errors import ChangedDataError, MissingDataError, PartirvmError
from partirvm.jobs import JobStore


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Return the folders of two jobs on the same DATA with different kernels, which no test
    changes."""
    top = tmp_path_factory.mktemp("jobs")
    ingest(rows(0), top / "d.zarr", tile_rows=64)
    for name, gamma in (("job", 0.5), ("other", 2.0)):
        jobs.fit(str(top / "d.zarr"), str(top / name), replace(REQUEST, gamma=gamma, max_rounds=3))
    return top / "job", top / "other"


@pytest.mark.parametrize(
    ("how", "array"),
    some(
        product(["swapped", "of other DATA"], ["X", "y", "weights", "row"]),
        {("swapped", "X"), ("of other DATA", "row")},
    ),
)
def test_moved_tiles_are_detected(how, array, data, tmp_path, capsys):
    """Every read of the tile and --verify detect the move; other tiles can be read."""
    chunks = [
        rows_in(data) / array / "c" / name
        for name in (("0/0", "1/0") if array == "X" else ("0", "1"))
    ]
    if how == "swapped":
        swap(*chunks)
    else:
        ingest(rows(1), tmp_path / "other.zarr", tile_rows=64, shuffle=1)
        shutil.copy(
            rows_in(tmp_path / "other.zarr") / chunks[1].relative_to(rows_in(data)), chunks[1]
        )
    source = ZarrSource(data)
    reads = (
        [lambda: source.original_rows(1)]
        if array == "row"
        else [lambda: source.tile(1), source.verify]
    )
    reads += [lambda: source.gather([100])] if array != "row" else [source.verify]
    for read in reads:
        with pytest.raises(ChangedDataError, match=f"chunk [01] of the array '{array}'"):
            read()
    source.tile(2)
    source.original_rows(2)
    assert main(["fit", str(data), str(tmp_path / "new"), "--quiet", "--verify"]) == 2
    assert f"of the array '{array}'" in capsys.readouterr().err


@pytest.mark.parametrize("array", some(["X", "row"], {"X"}))
def test_an_append_does_not_accept_a_moved_tile(array, data):
    """The last tile, which is not full, must have its old checksum."""
    names = ("0/0", "3/0") if array == "X" else ("0", "3")
    shutil.copy(*(rows_in(data) / array / "c" / name for name in names))
    with pytest.raises(ChangedDataError, match=f"chunk 3 of the array '{array}'"):
        ingest(rows(2, 20), data, append=True)


@pytest.mark.parametrize("series", some(["models", "checkpoints"], {"models"}))
def test_swapped_models_and_checkpoints_are_detected(series, both, tmp_path):
    job = shutil.copytree(both[0], tmp_path / "job")
    names = sorted(path.name for path in (job / series).iterdir())[-2:]
    swap(*(job / series / name for name in names))
    if series == "models":
        with pytest.raises(PartirvmError, match=f"models/{names[1]}"):
            load_model(job)
    else:
        restored = JobStore(job).restore()
        assert restored is None or restored.history < 2


@pytest.mark.parametrize(
    ("how", "series"),
    some(
        product(["parts", "folder", "series"], ["models", "checkpoints"]),
        {("parts", "models"), ("folder", "checkpoints"), ("series", "checkpoints")},
    ),
)
def test_models_and_checkpoints_of_another_job_are_detected(how, series, both, tmp_path):
    """They are moved with or without their heads."""
    job = tmp_path / "job"
    other = both[1]
    shutil.copytree(both[0], job)
    target, foreign = (max((place / series).iterdir()) for place in (job, other))
    if how == "parts":
        shutil.copytree(
            foreign, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("group.json")
        )
    else:
        if how == "series":
            target = job / series
            foreign = other / series
        shutil.rmtree(target)
        shutil.copytree(foreign, target)
    store = JobStore(job)
    read = {"models": store.model, "checkpoints": store.restore}[series]
    if series == "checkpoints" and how != "series":
        assert read().history < 3
        return
    with pytest.raises(PartirvmError, match=rf"{series}/0"):
        read()


@pytest.mark.parametrize("field", some([4, 8], {4}))
def test_the_header_of_a_chunk_is_not_trusted(field, data):
    """It declares another size or other blocks, with a valid checksum."""
    path = rows_in(data) / "X" / "c" / "1" / "0"
    content = bytearray(path.read_bytes()[:-4])
    struct.pack_into("<I", content, field, 1 << 30)
    path.write_bytes(bytes(content) + struct.pack("<I", google_crc32c.value(bytes(content))))
    tracemalloc.start()
    with pytest.raises(MissingDataError, match="chunk 1 of the array 'X'"):
        ZarrSource(data).tile(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Return DATA that was appended to twice, the second time for an update, and other DATA."""
    tops = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for number, top in enumerate(tops):
        for k, n in enumerate((150, 20, 20)):
            if (number, k) == (0, 2):
                jobs.fit(str(top / "d.zarr"), str(top / "job"), REQUEST)
            options = {"append": True} if k else {"tile_rows": 64}
            ingest(rows(10 * number + k, n), top / "d.zarr", **options)
    assert str(open_job(tops[0] / "job").update().wait(60)) == "done"
    return tops


@pytest.fixture
def top(intact, tmp_path):
    """Return a copy to change."""
    return shutil.copytree(intact[0], tmp_path / "top")


@pytest.mark.parametrize(
    "how", ["swapped", "of other DATA", "older attributes", "pointer of other DATA"]
)
def test_a_moved_append_is_refused(how, top, intact):
    """It raises an error and is not ignored."""
    data = top / "d.zarr"
    other = intact[1] / "d.zarr"
    last = rows_in(data)
    before = rows_in(data, -2)
    if how == "swapped":
        swap(before, last)
    elif how == "of other DATA":
        shutil.rmtree(last)
        shutil.copytree(rows_in(other), last)
    elif how == "older attributes":
        swap(before / "attributes", last / "attributes")
    else:
        shutil.copy(other / "versions" / "000003.json", data / "versions" / "000003.json")
    with pytest.raises(PartirvmError, match=r"belong to another group|no data here"):
        ZarrSource(data)


@pytest.mark.timeout(30)
def test_a_missing_event_is_an_error_on_resume(top):
    """The next holder does not keep trying forever."""
    path = top / "job" / "events" / "000002.json"
    path.unlink()
    with pytest.raises(MissingDataError, match=r"events/000002\.json is missing"):
        open_job(top / "job").resume(max_rounds=3)
