"""Every wrong input gives a message, and a failed ingest leaves nothing behind."""

import errno
import gzip
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng

from partirvm.data import ZarrSource, ingest
from partirvm.data.writer import claimed, publication
from partirvm.data.zarr_source import open_data
from partirvm.errors import (
    DataError,
    ExistsError,
    LeaseError,
    LeaseLostError,
    MissingDataError,
    StorageError,
    UsageError,
)
from partirvm.storage import Folder, read_json, to_json

GOOD = "a,b,y\n1,2,3\n4,5,6\n7,8,10\n"


def csv(text, name="t.csv"):
    return raw(text.encode(), name)


def raw(data, name="t.csv"):
    def write(folder):
        (folder / name).write_bytes(data)
        return folder / name

    return write


def archive(*names):
    def write(folder):
        with zipfile.ZipFile(folder / "t.zip", "w") as file:
            for name in names:
                file.writestr(name, GOOD)
        return folder / "t.zip"

    return write


def npz(**arrays):
    def write(folder):
        np.savez(folder / "a.npz", **arrays)
        return folder / "a.npz"

    return write


def parquet(**columns):
    def write(folder):
        pq.write_table(pa.table(columns), folder / "t.parquet")
        return folder / "t.parquet"

    return write


def value(data):
    return lambda folder: data


def files(**texts):
    def write(folder):
        for name, text in texts.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return write


X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6.0)
TEXT = "a,b,y\n" + "1,2,3\n" * 30_000 + "1,red,3\n"
ROWS = b"a,y\n" + b"".join(b"%d,%d\n" % (k, k * k % 97) for k in range(5000))
ZIPPED = gzip.compress(ROWS)
LONG = "x" * 200_000
TARGET = {"target": "y"}
NUMBERS = {"target": "y", "categorical": "none"}
NAMED = pd.DataFrame(X, columns=["x0", "x1"])

WRONG = [
    ("missing target", csv("a,b,y\n1,2,3\n4,,6\n,8,\n"), {"target": "y"}, DataError,
     r"row 1 is the first row.*y +no value in 1 row, the first is row 3  --drop-missing-targets"),
    ("no value at all", csv("a,b,y\n1,,3\n4,,6\n,,9\n"), {"target": "y"}, DataError, "b +no row has a value +--excl"),
    ("infinite", csv("a,b,y\n1,2,3\n4,inf,6\n"), {"target": "y"}, DataError, "b +infinite .*row 2 +--missing inf"),
    ("null in Parquet", parquet(a=[1, 2, 3], y=[1.0, None, 3.0]), TARGET, DataError, "y +no value .*row 2 "),
    ("negative weight", value((X, Y, Y - 1)), {}, DataError, "weights +no weight ≥ 0, or no noise > 0, in 1"),
    ("text", csv("a,b,y\n1,red,3\n4,5,6\n"), {**NUMBERS, "categorical": ["a"]}, DataError,
     "b +text, not numbers: 'red'.*--categorical a,b"),
    ("text far down", csv(TEXT), {"target": "y"}, DataError, "b +text, not numbers: 'red'.*30,001.*--missing red"),
    ("dates as target", parquet(a=[1, 2], y=pd.to_datetime(["2020-01-01", "2020-01-02"])), TARGET, DataError,
     "y +timestamp.*not numbers"),
    ("unknown to drop", csv(GOOD), {"target": "y", "exclude": ["c"]}, DataError, "no column 'c'"),
    ("other columns", files(one_csv=GOOD, two_csv="a,c,y\n1,2,3\n"), {"target": "y"}, DataError,
     r"two.csv and .*one.csv differ in \[b, c\]"),
    ("duplicate target", csv("a,y,y\n1,2,3\n4,5,6\n"), TARGET, DataError, "y +2 columns .*name.*--exclude y.1"),
    ("unknown target", csv(GOOD), {"target": "yy"}, DataError, "no column 'yy'.*a, b, y"),
    ("no target", csv(GOOD), {}, UsageError, "no target is named.*a, b, y.*To predict rows without a target.*`--like`"),
    ("feature is target", csv(GOOD), {"target": "y", "features": ["a", "y"]}, UsageError, "'y' can be only one of"),
    ("only a target", csv("y\n1\n2\n"), {"target": "y"}, DataError, "there is no feature column"),
    ("no rows", csv("a,b,y\n"), {"target": "y"}, DataError, "there are no rows"),
    ("one row", csv("a,b,y\n1,2,3\n"), {"target": "y"}, DataError, "only one row"),
    ("empty file", csv(""), {"target": "y"}, DataError, "cannot be read as CSV"),
    ("ragged", csv("a,b,y\n1,2,3\n1,2\n"), {"target": "y"}, DataError,
     r"1 row without 3 fields: line 3 \(2  check the separator"),
    ("no number of lines", csv(GOOD), {**TARGET, "skip_rows": "-1"}, UsageError, "skip_rows is '-1': pass the number"),
    ("archive of two", archive("a.csv", "b.csv"), TARGET, DataError, r"holds 2 files \(a.csv, b.csv\): unpack it"),
    ("not text", raw(b"a,y\n1,2\n\x00\x01,3\n"), TARGET, DataError, "this is not text"),
    ("not a workbook", csv(GOOD, "t.xlsx"), TARGET, DataError, "t.xlsx: cannot be read as a spreadsheet"),
    ("classes of two", csv(GOOD), {"target": "b,y", "classes": True}, UsageError, "classification has one target, but"),
    ("no X", npz(Z=X, y=Y), {}, DataError, "no array X in the archive.*Z, y"),
    ("not an archive", csv("PK nothing", "a.npz"), {}, DataError, "a.npz: cannot be read"),
    ("not Parquet", csv("PAR1", "t.parquet"), {"target": "y"}, DataError, "t.parquet: cannot be read"),
    ("unknown ending", csv(GOOD, "t.docx"), {"target": "y"}, MissingDataError, "no file here has a known extension"),
    ("no gzip", raw(ROWS, "t.csv.gz"), TARGET, DataError, "incorrect header check"),
    ("gzip checksum", raw(ZIPPED[:-8] + bytes(4) + ZIPPED[-4:], "t.csv.gz"), TARGET, DataError, "incorrect data check"),
    ("a long cell", csv(f"a,y\n1,2\n{LONG},3\n"), NUMBERS, DataError, r"'x{20,60}….*\(200,000 characters\)"),
    ("a red cell", raw(b"a,y\n1,2\n\x1b[31mred,3\n"), NUMBERS, DataError, r"'\\x1b\[31mred'"),
    ("lists", parquet(a=[[1.0], [2.0]], y=[1, 2]), TARGET, DataError, "a +list<.*not numbers"),
    ("lists as labels", parquet(a=[[1.0], [2.0]], y=[1, 2]), {"target": "y", "categorical": ["a"]}, DataError,
     "'a' holds values that cannot be labels"),
    ("complex numbers", value(pd.DataFrame({"a": X[:, 0] + 1j, "y": Y})), TARGET, DataError, "'a' holds values of m"),
    ("beyond 64 bits", value(pd.DataFrame({"a": pd.Series([2**70] * 6, dtype=object), "y": Y})), TARGET, DataError,
     "'a' holds .* beyond 64 bits"),
    ("mixed labels", value((X, np.array([1, "a"] * 3, dtype=object))), {"classes": True}, DataError,
     "'y' holds values of mixed types"),
    ("lengths", value((NAMED, Y[:-1])), {}, DataError, r"X has 6 rows, so y .* but has \(5,\)"),
    ("lengths of Dask", value((dd.from_pandas(NAMED, npartitions=3), Y, Y[1:])), {}, DataError, r"has \(5,\)"),
    ("targets of one name", value((NAMED, pd.DataFrame(X, columns=["p", "p"]))), {}, DataError, "several columns 'p'"),
    ("negative seed", value((X, Y)), {"shuffle": -1}, UsageError, "it must be a whole number ≥ 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [case[1:] for case in WRONG],
    ids=[case[0] for case in WRONG],
)
def test_wrong_input_gives_a_short_message_and_leaves_nothing(
    make, options, error, message, tmp_path
):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = make(tmp_path / "in")
    with pytest.raises(error, match=f"(?s){message}") as caught:
        ingest(source, tmp_path / "out" / "d.zarr", **options)
    assert list((tmp_path / "out").iterdir()) == []
    text = str(caught.value)
    assert text.replace("\n", "").isprintable()
    assert len(text) < 800
    if isinstance(source, Path) and error is DataError:
        assert source.name in text


def test_parquet_page_checksums_are_verified(tmp_path):
    values = default_rng(0).random(1000)
    place = tmp_path / "t.parquet"
    table = pa.table({"a": values, "y": values})
    pq.write_table(table, place, use_dictionary=False, compression="none", write_page_checksum=True)
    data = bytearray(place.read_bytes())
    data[data.index(values[500].tobytes())] ^= 1
    place.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"t\.parquet: cannot be read .*checksum"):
        ingest(place, tmp_path / "d.zarr", target="y")


def test_text_columns_with_many_values_are_left_out(tmp_path):
    """Each row has another value; a note explains how to use the column."""
    table = {"a": [f"car {k}" for k in range(60)], "b": ["u", "v"] * 30, "y": range(60)}
    data = ingest(pd.DataFrame(table), tmp_path / "d.zarr", target="y")
    assert data.columns.features == ("b",)
    assert data.notes["a"].startswith("text of 60 different values, left out")


def test_more_labels_than_attributes_can_hold_are_refused(tmp_path):
    """Every process reads all attributes of DATA."""
    table = {
        "x": range(20_000),
        "c": [f"{code:01000}" for code in range(20_000)],
        "y": range(20_000),
    }
    with pytest.raises(DataError, match=r"c +1\d,\d{3} or more different labels, too"):
        ingest(pd.DataFrame(table), tmp_path / "d.zarr", target="y", categorical=["c"])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_ingest_keeps_existing_data(tmp_path):
    ingest((X, Y), tmp_path / "d.zarr")
    before = ZarrSource(tmp_path / "d.zarr").fingerprint()
    with pytest.raises(ExistsError, match="overwrite=True"):
        ingest((X + 1, Y), tmp_path / "d.zarr")
    with pytest.raises(DataError):
        ingest((X * np.nan, Y), tmp_path / "d.zarr", overwrite=True)
    assert ZarrSource(tmp_path / "d.zarr").fingerprint() == before


def test_only_data_is_overwritten(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_text("a picture")
    with pytest.raises(ExistsError, match="is not a partirvm dataset"):
        ingest((X, Y), tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "1.jpg").read_text() == "a picture"


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "no space left"), (errno.EROFS, "read-only"), (errno.EACCES, "denied")],
)
@pytest.mark.parametrize(
    "where", ["partirvm.data.writer.ExternalSorter.add", "partirvm.data.writer.create_blosc"]
)
def test_a_store_failure_is_a_storage_error_and_leaves_nothing(
    number, message, where, tmp_path, monkeypatch
):
    def refuse(*arguments, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(where, refuse)
    with pytest.raises(StorageError, match=f"(?i){message}"):
        ingest((X, Y), tmp_path / "d.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
@pytest.mark.parametrize("phase", ["read", "write"])
@pytest.mark.parametrize("url", ["{folder}/out/d.zarr", "memory://{folder}/d.zarr"])
def test_an_interrupted_ingest_leaves_nothing_behind(error, phase, url, tmp_path):
    def interrupt(now, done, total):
        if now == phase:
            raise error

    place = url.format(folder=tmp_path)
    with pytest.raises(error):
        ingest((X, Y), place, progress=interrupt)
    filesystem, path = fsspec.core.url_to_fs(place)
    assert not filesystem.exists(path)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


KILLED = """
import sys, time
import numpy as np
from partirvm.data import ingest

def wait(phase, done, total):
    if phase == "write":
        print("now", flush=True)
        time.sleep(600)

ingest((np.random.default_rng(0).random((5000, 2)), np.arange(5000.0)), sys.argv[1], tile_rows=512, progress=wait)
"""


@pytest.mark.usefixtures("processes")
def test_a_killed_ingest_leaves_no_data_and_the_next_one_cleans_up(tmp_path):
    place = tmp_path / "d.zarr"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(place)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        with pytest.raises(MissingDataError):
            ZarrSource(place)
        with pytest.raises(LeaseError, match=f"is in use by process {process.pid}"):
            ingest((X, Y), place)
        process.send_signal(signal.SIGKILL)
    assert [path.name.partition("-")[0] for path in place.iterdir()] == ["rows"]
    with pytest.raises(MissingDataError):
        ZarrSource(place)
    data = ingest((X, Y), place)
    assert list(tmp_path.iterdir()) == [place]
    assert sorted(path.name.partition("-")[0] for path in place.iterdir()) == ["rows", "versions"]
    data.verify()


def test_every_spelling_of_a_path_uses_the_same_lease(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for spelling in (".", f"../{tmp_path.name}", f"file://{tmp_path}/"):
        with claimed(str(tmp_path)), pytest.raises(LeaseError, match="in use"), claimed(spelling):
            pass
    assert not list(tmp_path.iterdir())


def test_a_writer_that_has_lost_its_lease_publishes_nothing(tmp_path):
    """Another process has taken over and writes its group: this one would take its version."""
    place = tmp_path / "d.zarr"
    before = ingest((X, Y), place).fingerprint()
    with publication(str(place), overwrite=True) as late:
        leases = Folder("leases", tmp_path / ".d.zarr.lease")
        claim = {**read_json(leases, "lease/000001.json"), "epoch": 2, "token": "of another"}
        leases.create("lease/000002.json", to_json("lease/000002.json", claim))
        with pytest.raises(LeaseLostError, match="taken over"):
            late.commit(open_data(str(place))[1])
    assert Folder("d", place).list("versions") == ["000001.json"]
    assert ZarrSource(place).fingerprint() == before


def test_a_writer_that_resumes_too_late_publishes_nothing(tmp_path):
    """Another writer published after this one last checked its lease."""
    place = tmp_path / "d.zarr"
    folder = Folder("d", tmp_path / "d.zarr")
    before = ingest((X, Y), place).fingerprint()
    first = read_json(folder, "versions/000001.json")
    for later in ("versions/000002.json", "versions/000003.json"):
        with publication(str(place), overwrite=True) as late:
            folder.create(later, to_json(later, first))
            with pytest.raises(LeaseLostError, match="published"):
                late.commit(open_data(str(place))[1])
        assert ZarrSource(place).fingerprint() == before
        folder.remove(later)
