"""Every wrong input has its own message, and no ingest that fails leaves anything behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest

from partirvm.data import ZarrSource, ingest
from partirvm.errors import DataError, ExistsError, FormatError, LeaseError, MissingDataError, StorageError, UsageError

GOOD = "a,b,y\n1,2,3\n4,5,6\n7,8,10\n"


def csv(text: str, name: str = "t.csv") -> Callable[[Path], Any]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


def npz(**arrays: Any) -> Callable[[Path], Any]:
    def write(folder: Path) -> Path:
        np.savez(folder / "a.npz", **arrays)
        return folder / "a.npz"

    return write


def parquet(**columns: Any) -> Callable[[Path], Any]:
    def write(folder: Path) -> Path:
        pd.DataFrame(columns).to_parquet(folder / "t.parquet")
        return folder / "t.parquet"

    return write


def value(found: Any) -> Callable[[Path], Any]:
    return lambda folder: found


def files(**texts: str) -> Callable[[Path], Any]:
    def write(folder: Path) -> Path:
        for name, text in texts.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return write


X, Y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
TEXT = "a,b,y\n" + "1,2,3\n" * 300_000 + "1,red,3\n"

WRONG: list[tuple[str, Callable[[Path], Any], dict[str, Any], type[Exception], str]] = [
    ("missing value", csv("a,b,y\n1,2,3\n4,,6\n,8,9\n"), {"target": "y"}, DataError,
     r"2 values are missing or not finite, the first in row 1 \(counted from 0\), column 'b'"),
    ("infinite", csv("a,b,y\n1,2,3\n4,inf,6\n"), {"target": "y"}, DataError, "row 1.*column 'b'"),
    ("missing category", csv("a,b,y\n1,2,3\n4,,6\n"), {"target": "y", "categorical": ["b"]}, DataError, "column 'b'"),
    ("null in Parquet", parquet(a=[1.0, None, 3.0], y=[1, 2, 3]), {"target": "y"}, DataError, "row 1.*column 'a'"),
    ("missing weight", csv("a,w,y\n1,,3\n4,5,6\n"), {"target": "y", "weights": "w"}, DataError, "column 'w'"),
    ("NaN in arrays", value((np.where(X == 5, np.nan, X), Y)), {}, DataError, "1 values.*row 2.*column 'x1'"),
    ("negative weight", value((X, Y, Y - 1)), {}, DataError, "weight in row 0 .*negative"),
    ("zero weights", value((X, Y, 0 * Y)), {}, DataError, "are all zero: at least one row needs a positive weight"),
    ("text", csv("a,b,y\n1,red,3\n4,5,6\n"), {"target": "y"}, DataError, "column 'b' holds text.*--categorical b"),
    ("text far down", csv(TEXT), {"target": "y"}, DataError, "column 'b' holds text.*red.*--categorical b"),
    ("text in Parquet", parquet(a=["u", "v"], y=[1, 2]), {"target": "y"}, DataError, "'a' holds text"),
    ("text target", parquet(a=[1, 2], y=["u", "v"]), {"target": "y"}, DataError, "'y' holds text.*--classes"),
    ("dates", parquet(a=pd.to_datetime(["2020-01-01", "2020-01-02"]), y=[1, 2]), {"target": "y"}, DataError, "dates"),
    ("complex", value((X + 1j, Y)), {}, DataError, "complex"),
    ("text y in arrays", value((X, Y.astype(str))), {}, DataError, "column 'y' holds text"),
    ("mixed frame", value(pd.DataFrame({"a": [1, "u", 2.5], "y": [1, 2, 3]}, dtype=object)), {"target": "y"},
     DataError, "'a' holds values of several types|'a' holds text"),
    ("other columns", files(one_csv=GOOD, two_csv="a,c,y\n1,2,3\n"), {"target": "y"}, DataError,
     "two.csv lacks b and also has c"),
    ("duplicate name", csv("a,a,y\n1,2,3\n4,5,6\n"), {"target": "y"}, DataError, "'a' occurs twice"),
    ("duplicate in frame", value(pd.DataFrame(X, columns=["a", "a"])), {"target": "a"}, DataError, "'a' occurs twice"),
    ("unknown target", csv(GOOD), {"target": "yy"}, DataError, "no column 'yy' .target.; did you mean 'y'.*a, b, y"),
    ("unknown feature", csv(GOOD), {"target": "y", "features": ["a", "q"]}, DataError, "no column 'q' .feature."),
    ("no target", csv(GOOD), {}, UsageError, "no target is named.*a, b, y"),
    ("feature is target", csv(GOOD), {"target": "y", "features": ["a", "y"]}, UsageError, "both a feature"),
    ("target is weights", csv(GOOD), {"target": "y", "weights": "y"}, UsageError, "both the target and the weights"),
    ("feature twice", csv(GOOD), {"target": "y", "features": ["a", "a"]}, UsageError, "named twice"),
    ("categorical target", csv(GOOD), {"target": "y", "categorical": ["y"]}, UsageError, "pass --classes"),
    ("only a target", csv("y\n1\n2\n"), {"target": "y"}, DataError, "there is no feature column"),
    ("no rows", csv("a,b,y\n"), {"target": "y"}, DataError, "there are no rows"),
    ("one row", csv("a,b,y\n1,2,3\n"), {"target": "y"}, DataError, "only one row"),
    ("empty file", csv(""), {"target": "y"}, DataError, "the file is empty"),
    ("ragged", csv("a,b,y\n1,2,3\n1,2\n"), {"target": "y"}, DataError, "cannot be read .*Expected 3 columns, got 2"),
    ("lengths", value((X, Y[:-1])), {}, DataError, "X has 6 rows, but y has 5"),
    ("flat X", value((Y, Y)), {}, DataError, "two dimensions"),
    ("a cube of targets", value((X, X[:, :, None])), {}, DataError, "y must have shape .rows,. or .rows, targets."),
    ("no targets", value((X, X[:, :0])), {}, DataError, "y must have shape"),
    ("cube in npz", npz(X=X, y=X[:, :, None]), {}, DataError, "y must have shape"),
    ("target twice", csv(GOOD), {"target": ["y", "y"]}, UsageError, "target 'y' is named twice"),
    ("classes of two", csv(GOOD), {"target": "b,y", "classes": True}, UsageError, "classification has one target, but"),
    ("name of y1 twice", npz(X=X, y=X, y1=Y), {}, DataError, "'y1' occurs twice"),
    ("no X", npz(Z=X, y=Y), {}, DataError, "no array X in the archive.*Z, y"),
    ("no y", npz(X=X), {}, DataError, "no array y"),
    ("npz lengths", npz(X=X, y=Y[:4]), {}, DataError, "X has 6 rows, but y has 4"),
    ("npz names", npz(X=X, y=Y, columns=np.array(["a"])), {}, DataError, "2 columns, but `columns` has 1"),
    ("not an archive", csv("PK nothing", "a.npz"), {}, DataError, "a.npz: cannot be read"),
    ("not Parquet", csv("PAR1", "t.parquet"), {"target": "y"}, DataError, "t.parquet: cannot be read"),
    ("not text", lambda folder: (folder / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n") and folder / "t.csv",
     {"target": "b"}, DataError, "t.csv"),
    ("unknown ending", csv(GOOD, "t.xlsx"), {"target": "y"}, DataError, "the file type is unknown"),
    ("several kinds", files(one_csv=GOOD, two_pq="x"), {"target": "y"}, DataError, "several kinds"),
    ("no such file", lambda folder: folder / "gone.csv", {"target": "y"}, MissingDataError, "no such file"),
    ("empty folder", files(), {"target": "y"}, MissingDataError, "no file that ingest can read"),
    ("unknown protocol", value("nonsense://t.csv"), {"target": "y"}, UsageError, "'nonsense' are not opened"),
    ("a number", value(3), {}, UsageError, "cannot ingest a int"),
    ("one class", csv("a,y\n1,u\n2,u\n"), {"target": "y", "classes": True}, DataError, "only one class, 'u'"),
    ("negative seed", value((X, Y)), {"shuffle": -1}, UsageError, "it must be a seed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "options", "error", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_wrong_input(
    make: Callable[[Path], Any], options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = make(tmp_path / "in")
    with pytest.raises(error, match=f"(?s){message}"):
        ingest(source, tmp_path / "out" / "d.zarr", **options)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            {"x": range(20_000), "c": [f"{code:01000}" for code in range(20_000)], "y": range(20_000)},
            {"categorical": ["c"]},
            r"column 'c' has .* labels .* more than 16 MiB.* omit the column",
        ),
        ({"x" * 1001: [1, 2], "y": [1, 2]}, {}, "column name has 1,001 characters, .* at most 1,000"),
        (
            {"x": np.arange(600_000), "y": np.arange(600_000)},
            {"tile_rows": 2},
            r"300,000 tiles .* metadata .* larger tile_rows",
        ),
    ],
    ids=["labels", "names", "tiles"],
)
def test_metadata_that_no_process_could_open_are_refused(table, options, message, tmp_path: Path) -> None:
    """The attributes of DATA are read as a whole by every process."""
    with pytest.raises(DataError, match=message):
        ingest(pd.DataFrame(table), tmp_path / "d.zarr", target="y", **options)
    assert list(tmp_path.iterdir()) == []


def test_unknown_classes_in_a_test_set(tmp_path: Path) -> None:
    train = ingest((X, list("uvuvuv")), tmp_path / "train.zarr", classes=True)
    with pytest.raises(DataError, match=r"--like.* do not have: 'w'"):
        ingest((X, list("uvwuvu")), tmp_path / "test.zarr", like=train)
    assert not (tmp_path / "test.zarr").exists()


def test_what_stands_there_is_kept(tmp_path: Path) -> None:
    ingest((X, Y), tmp_path / "d.zarr")
    before = ZarrSource(tmp_path / "d.zarr").fingerprint()
    with pytest.raises(ExistsError, match="overwrite=True"):
        ingest((X + 1, Y), tmp_path / "d.zarr")
    with pytest.raises(DataError):
        ingest((X * np.nan, Y), tmp_path / "d.zarr", overwrite=True)
    assert ZarrSource(tmp_path / "d.zarr").fingerprint() == before


def test_only_data_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_text("a picture")
    with pytest.raises(ExistsError, match="is not DATA"):
        ingest((X, Y), tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "1.jpg").read_text() == "a picture"


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "denied")]
)
@pytest.mark.parametrize(
    "where", ["partirvm.data.external_sort.ExternalSorter.add", "partirvm.data.writer.create_arrays"]
)
def test_a_store_that_refuses(
    number: int, message: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(where, refuse)
    with pytest.raises(StorageError, match=f"(?i){message}"):
        ingest((X, Y), tmp_path / "d.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        ingest((X, Y), tmp_path / "file" / "d.zarr")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
@pytest.mark.parametrize("phase", ["read", "write"])
@pytest.mark.parametrize("url", ["{folder}/out/d.zarr", "memory://{folder}/d.zarr"])
def test_an_interrupted_ingest_leaves_nothing(error: type[BaseException], phase: str, url: str, tmp_path: Path) -> None:
    def interrupt(now: str, done: int, total: int | None) -> None:
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
    if phase == sys.argv[2]:
        print("now", flush=True)
        time.sleep(600)

ingest((np.random.default_rng(0).random((5000, 2)), np.arange(5000.0)), sys.argv[1], tile_rows=512, progress=wait)
"""


@pytest.mark.parametrize("phase", ["read", "write"])
def test_a_killed_ingest_leaves_no_data_and_the_next_one_cleans_up(phase: str, tmp_path: Path) -> None:
    place = tmp_path / "d.zarr"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(place), phase], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        with pytest.raises(MissingDataError):
            ZarrSource(place)
        with pytest.raises(LeaseError, match=f"is in use by process {process.pid}"):
            ingest((X, Y), place)
        lease, partial = sorted(tmp_path.iterdir())
        process.send_signal(signal.SIGKILL)
    assert (lease.name, partial.name.partition("-")[0]) == (".d.zarr.lease", ".d.zarr.partial")
    assert not place.exists()
    for found in (partial, partial / "data"):
        with pytest.raises((MissingDataError, FormatError)):
            ZarrSource(found)
    data = ingest((X, Y), place)
    assert list(tmp_path.iterdir()) == [place]
    data.verify()


KILLED_BETWEEN_RENAMES = """
import os, signal, sys
from pathlib import Path
import numpy as np
from partirvm.data import ingest

def rename(self, target, rename=Path.rename):
    if self.name == "data":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)

Path.rename = rename
ingest((np.random.default_rng(0).random((50, 2)), np.arange(50.0)), sys.argv[1], overwrite=True)
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_data_put_aside_by_a_killed_overwrite_come_back(overwrite: bool, tmp_path: Path) -> None:
    place = tmp_path / "d.zarr"
    before = ingest((X, Y), place).fingerprint()
    killed = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_RENAMES, str(place)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not place.exists()
    with pytest.raises(DataError if overwrite else ExistsError):
        ingest((X * np.nan, Y), place, overwrite=overwrite)
    assert list(tmp_path.iterdir()) == [place]
    assert ZarrSource(place).fingerprint() == before
    ZarrSource(place).verify()


def test_data_put_aside_come_back_when_the_new_ones_cannot_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, rename = tmp_path / "d.zarr", Path.rename
    before = ingest((X, Y), place).fingerprint()

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "data":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StorageError, match="denied"):
        ingest((X + 1, Y), place, overwrite=True)
    assert list(tmp_path.iterdir()) == [place]
    assert ZarrSource(place).fingerprint() == before


def test_an_ingest_of_another_name_leaves_leftovers_alone(tmp_path: Path) -> None:
    leftover = tmp_path / f".other.zarr.partial-{'0' * 32}"
    leftover.mkdir()
    ingest((X, Y), tmp_path / "d.zarr")
    assert leftover.exists()
