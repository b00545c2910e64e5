"""What honest users hand in: other encodings, torn archives, nested columns, addresses where nobody answers."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from partirvm.cli.running import ExitStatus, status_of
from partirvm.data import ingest
from partirvm.errors import DataError

ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (k, k * k % 97) for k in range(5000))
ZIPPED = gzip.compress(ROWS)
LONG = "x" * 200_000

FILES = {
    "no gzip": ("t.csv.gz", ROWS, "incorrect header check"),
    "no zstd": ("t.csv.zst", ROWS, "ZSTD decompress failed"),
    "gzip cut short": ("t.csv.gz", ZIPPED[:-20], "Truncated"),
    "gzip with another checksum": ("t.csv.gz", ZIPPED[:-8] + bytes(4) + ZIPPED[-4:], "incorrect data check"),
    "gzip with something behind": ("t.csv.gz", ZIPPED + b"behind", "incorrect header check"),
    "UTF-16": ("t.csv", ROWS.decode().encode("utf-16"), "not UTF-8: convert it, for example with `iconv"),
    "Latin-1 in the header": ("t.csv", "ä,y\n1,2\n3,4\n".encode("latin-1"), "not UTF-8"),
    "semicolons": ("t.csv", b"a;y\n1;2\n2;3\n", "separated by ';', but ingest reads commas"),
    "a header alone": ("t.csv", b"a,y", "no rows"),
    "a long cell": ("t.csv", f"a,y\n1,2\n{LONG},3\n".encode(), r"'x{60}…' \(200,000 characters\) \(line 3\)"),
    "a cell that turns red": ("t.csv", b"a,y\n1,2\n\x1b[31mred,3\n", r"'\\x1b\[31mred'"),
    "a long name": ("t.csv", f"{LONG},y\n1,2\nred,3\n".encode(), r"column 'x{60}…' \(200,000 characters\)"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_cannot_be_read(case, tmp_path):
    """One line that names the file, exit status 2, and nothing left behind."""
    name, data, message = FILES[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        ingest(tmp_path / name, tmp_path / "d.zarr", target="y")
    assert name in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 800
    assert status_of(caught.value) is ExitStatus.USAGE
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_parquet_page_with_another_checksum(tmp_path):
    """Where a writer has left checksums, they are looked at."""
    values = np.random.default_rng(0).random(1000)
    place, table = tmp_path / "t.parquet", pa.table({"a": values, "y": values})
    pq.write_table(table, place, use_dictionary=False, compression="none", write_page_checksum=True)
    data = bytearray(place.read_bytes())
    data[data.index(values[500].tobytes())] ^= 1
    place.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"t\.parquet: cannot be read .*checksum"):
        ingest(place, tmp_path / "d.zarr", target="y")


@pytest.mark.parametrize("squeezed", [False, True])
def test_an_archive_with_a_changed_byte(squeezed, tmp_path):
    X = np.random.default_rng(0).random((300, 3))
    (np.savez_compressed if squeezed else np.savez)(tmp_path / "t.npz", X=X, y=X[:, 0])
    data = bytearray((tmp_path / "t.npz").read_bytes())
    data[3000] ^= 1
    (tmp_path / "t.npz").write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"t\.npz: cannot be read"):
        ingest(tmp_path / "t.npz", tmp_path / "d.zarr")


X, Y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
NESTED = pa.table({"a": [[1.0], [2.0]], "y": [1, 2]})
STRUCT = pa.table({"a": [{"u": 1}, {"u": 2}], "y": [1, 2]})

VALUES = {
    "a column of lists": (NESTED, {}, "'a' holds values of the type list<.*not numbers"),
    "a column of structs": (STRUCT, {}, "'a' holds values of the type struct<"),
    "lists as labels": (NESTED, {"categorical": ["a"]}, "'a' holds values that cannot be labels"),
    "periods as labels": (
        pd.DataFrame({"a": pd.period_range("2020", periods=6), "y": Y}), {"categorical": ["a"]}, "'a' holds values tha",
    ),
    "complex numbers": (pd.DataFrame({"a": X[:, 0] + 1j, "y": Y}), {}, "'a' holds values of several types"),
    "integers beyond 64 bits": (
        pd.DataFrame({"a": pd.Series([2**70] * 6, dtype=object), "y": Y}), {}, "'a' holds .* not fit into 64 bits",
    ),
    "mixed labels": ((X, np.array([1, "a"] * 3, dtype=object)), {"classes": True}, "'y' holds values of several types"),
    "a sparse matrix": ((sparse.csr_array(X), Y), {}, "X is a sparse matrix"),
}  # fmt: skip


@pytest.mark.parametrize("case", VALUES)
def test_values_that_are_neither_numbers_nor_labels(case, tmp_path):
    source, options, message = VALUES[case]
    if isinstance(source, pa.Table):
        pq.write_table(source, tmp_path / "t.parquet")
        source = tmp_path / "t.parquet"
    target = {} if isinstance(source, tuple) else {"target": "y"}
    with pytest.raises(DataError, match=message):
        ingest(source, tmp_path / "d.zarr", **target, **options)
