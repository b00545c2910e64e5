"""Missing or damaged chunks, changed data and unknown formats are never read as numbers."""

import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr
from by_default import some
from numpy.testing import assert_array_equal

from partirvm.data import ArraySource, ZarrSource, as_source, ingest
from partirvm.data.zarr_source import FORMAT
from partirvm.errors import ChangedDataError, FormatError, MissingDataError
from partirvm.storage import Folder, read_json, to_json


@pytest.fixture
def folder(tmp_path):
    number = np.arange(100.0)
    ingest(
        (np.column_stack([number, -number]), number**2, 1 + number % 2),
        tmp_path / "d.zarr",
        tile_rows=16,
    )
    return tmp_path / "d.zarr"


def truncate(chunk):
    chunk.write_bytes(chunk.read_bytes()[:-7])


def flip_a_bit(chunk):
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 4
    chunk.write_bytes(bytes(content))


DAMAGES = {
    "removed": Path.unlink,
    "truncated": truncate,
    "empty": lambda chunk: chunk.write_bytes(b""),
    "a bit": flip_a_bit,
    "zeros": lambda chunk: chunk.write_bytes(bytes(len(chunk.read_bytes()))),
}


ARRAYS = "X", "y", "weights", "row"


@pytest.mark.parametrize(
    ("damage", "array"),
    some(
        product(DAMAGES, ARRAYS),
        {
            ("removed", "X"),
            ("truncated", "X"),
            ("a bit", "y"),
            ("zeros", "weights"),
            ("removed", "row"),
        },
    ),
)
def test_damaged_chunks_are_named(damage, array, folder):
    (path,) = folder.glob(f"rows-*/{array}/c/{'3/0' if array == 'X' else '3'}")
    DAMAGES[damage](path)
    data = ZarrSource(folder)
    read = data.original_rows if array == "row" else data.tile
    with pytest.raises(
        MissingDataError, match=f"chunk 3 of the array '{array}'.*ingest the data again"
    ):
        read(3)
    read(2)
    if array == "X":
        with pytest.raises(MissingDataError, match="chunk 3"):
            data.gather([0, 50])
        assert_array_equal(data.gather([0, 99]).X[:, 0], -data.gather([0, 99]).X[:, 1])
    if array != "row":
        with pytest.raises(MissingDataError):
            data.verify()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"format": FORMAT + 1},
            FormatError,
            f"{FORMAT + 1}, this version reads format {FORMAT}: m",
        ),
        (
            {"format": FORMAT - 1},
            FormatError,
            f"{FORMAT - 1}, this version reads format {FORMAT}: m",
        ),
        ({"parts": []}, MissingDataError, "part 000000 of the data"),
    ],
)
def test_data_in_other_formats_is_refused(change, error, message, folder):
    (path,) = folder.glob("rows-*/attributes/group.json")
    head = read_json(Folder("", path.parent), path.name)
    path.write_bytes(to_json(path.name, {**head, **change}))
    with pytest.raises(error, match=message):
        ZarrSource(folder)


def test_values_changed_in_place_are_detected(folder):
    (place,) = folder.glob("rows-*/X")
    array = zarr.open_array(str(place), mode="r+")
    array[40, 1] = 1e6
    data = ZarrSource(folder)
    with pytest.raises(ChangedDataError, match="chunk 2 of the array 'X'"):
        data.verify()


def test_replaced_data_is_detected_by_earlier_readers(folder):
    old = ZarrSource(folder)
    known = old.fingerprint()
    sent = pickle.dumps(old)
    number = np.arange(100.0)
    ingest((np.column_stack([number, number]), number), folder, tile_rows=16, overwrite=True)
    assert ZarrSource(folder).fingerprint() != known
    with pytest.raises(ChangedDataError, match="replaced while in use"):
        pickle.loads(sent).tile(0)


def foreign_array(folder):
    array = zarr.open_group(str(folder / "own.zarr"), mode="a").create_array(
        "X", shape=(100, 2), dtype="f8", chunks=(30, 2), fill_value=0.0
    )
    array[:] = 1.0
    return array


def test_missing_shards_of_foreign_arrays_are_detected(tmp_path):
    array = zarr.open_group(str(tmp_path / "own.zarr"), mode="a").create_array(
        "X", shape=(100, 2), dtype="f8", chunks=(10, 2), shards=(30, 2), fill_value=0.0
    )
    array[:60] = 1.0
    with pytest.raises(MissingDataError, match=r"lacks 2 of its 4 chunks.*write_empty_chunks"):
        as_source(array, np.arange(100))
    array[:] = np.arange(200.0).reshape(100, 2)
    assert_array_equal(as_source(array, np.arange(100), tile_rows=16).tile(6).X, array[96:])


def test_undecodable_chunks_of_foreign_arrays_are_detected(tmp_path):
    source = ArraySource(foreign_array(tmp_path), np.arange(100), tile_rows=50)
    truncate(tmp_path / "own.zarr" / "X" / "c" / "3" / "0")
    source.tile(0)
    with pytest.raises(
        MissingDataError, match=r"rows 50 to 99 of the Zarr array X: cannot be read"
    ):
        source.tile(1)


@pytest.mark.parametrize(("changed", "grown"), [(None, True), (40, False), (3, False)])
def test_rows_were_appended_if_all_earlier_rows_are_the_same(tmp_path, changed, grown):
    """Row 40 is in the last tile of 42 rows, which is not full, and row 3 in a full one."""
    X = np.arange(60.0)[:, None]
    y = X[:, 0] ** 2
    options = {"tile_rows": 16, "shuffle": None}
    then = ingest((X[:42], y[:42]), tmp_path / "then.zarr", **options).fingerprint()
    if changed is not None:
        y[changed] += 1.0
    place = tmp_path / "now.zarr"
    assert not ingest((X[:42], y[:42]), place, **options).has_grown(then)
    assert ingest((X[42:], y[42:]), place, append=True).has_grown(then) == grown
