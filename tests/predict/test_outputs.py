"""Output of ``predict`` is complete or absent, written by one process at a time, with labels
unchanged."""

import csv
import errno
import os
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import zarr
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from waiting import wait_for

from partirvm import ingest, jobs
from partirvm.errors import ExistsError, LeaseError, LeaseLostError, MissingDataError, StorageError
from partirvm.options import Request
from partirvm.predict import prediction
from partirvm.predict.output import write_output, written_labels
from partirvm.storage import open_folder, read_json, to_json

ASKED = {"strategy": "working-set", "selection": "error", "noise": "constant", "residual": "none"}
PARAMETERS = Request(gamma=0.3, partition_size=30, max_rounds=2, **ASKED)
TILES = 14
TILE = 40
ENDINGS = (".zarr", ".parquet", ".csv")
LABELS = (
    "=1+1",
    "+2",
    "-3",
    "@sum(a1)",
    'a"b',
    "a,b",
    "two\nlines",
    "cr\rx",
    "",
    "NA",
    "01",
    "\ttab",
    " spaces ",
    "ü",
)

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


def rows(n=TILES * TILE - 7, seed=0):
    rng = default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 100 + 20 * np.sin(X[:, 0]) + 5 * X[:, 1] + rng.normal(size=n)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a JOB, DATA of 14 tiles, the last one shorter, and its uninterrupted predictions."""
    place = tmp_path_factory.mktemp("outputs")
    ingest(rows(), place / "d.zarr", tile_rows=TILE, shuffle=3)
    jobs.fit(str(place / "d.zarr"), str(place / "job"), PARAMETERS)
    for ending in ENDINGS:
        predict(place, place / f"whole{ending}")
    return place


def predict(folder, out, **options):
    return prediction.predict(str(folder / "job"), str(folder / "d.zarr"), str(out), **options)


def content(path):
    """Return the bytes of a file, or of every file below a folder by name."""
    if path.is_file():
        return path.read_bytes()
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def alone(out):
    """Return True if nothing else is in the output's folder."""
    return [path.name for path in out.parent.iterdir()] == [out.name]


HELD = """
import sys, time
from partirvm.predict import prediction
really = prediction.tile_values
def held(function, source, number):
    while number > 9:
        time.sleep(600)
    return really(function, source, number)
prediction.tile_values = held
prediction.predict(*sys.argv[1:])
"""


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("ending", some(ENDINGS, {".csv"}))
def test_a_second_process_is_refused_until_the_first_is_killed(folder, tmp_path, ending):
    """The error names the first process, whose unfinished rows are removed."""
    out = tmp_path / f"out{ending}"
    partial = out.with_name(f".{out.name}.partial")
    command = [sys.executable, "-c", HELD, str(folder / "job"), str(folder / "d.zarr"), str(out)]
    with subprocess.Popen(command) as process:
        wait_for(partial.exists, "unfinished rows")
        with pytest.raises(
            LeaseError, match=rf"out\{ending} is in use by process {process.pid} on"
        ):
            predict(folder, out)
        os.kill(process.pid, signal.SIGKILL)
    assert not out.exists()
    predict(folder, out)
    assert content(out) == content(folder / f"whole{ending}")
    assert alone(out)


@pytest.mark.parametrize("ending", some(ENDINGS, {".csv"}))
def test_an_interrupted_prediction_leaves_nothing_behind(folder, tmp_path, ending):
    out = tmp_path / "new" / f"out{ending}"

    def leave(done, total):
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(folder, out, progress=leave)
    assert not list(out.parent.iterdir())
    predict(folder, out)
    assert content(out) == content(folder / f"whole{ending}")
    with pytest.raises(ExistsError):
        predict(folder, out)
    predict(folder, out, overwrite=True, interval=0.9)
    assert content(out) != content(folder / f"whole{ending}")
    assert alone(out)


def test_a_process_that_lost_its_lease_stops(folder, tmp_path):
    """It writes no output and does not touch that of its successor."""
    out = tmp_path / "out.csv"
    lease, partial = out.with_name(".out.csv.lease") / "lease", out.with_name(".out.csv.partial")

    def progress(done, total):
        if done == total:
            claim = read_json(open_folder(lease.parent), "lease/000001.json")
            (lease / "000002.json").write_bytes(to_json("lease/000002.json", claim))
            (partial / "successor").touch()

    with pytest.raises(LeaseLostError, match="taken over"):
        predict(folder, out, progress=progress)
    assert not out.exists()
    assert (partial / "successor").exists()
    assert not (lease / "000001.over.json").exists()


def test_an_output_that_appears_in_the_meantime_is_not_replaced(folder, tmp_path):
    out = tmp_path / "out.csv"
    with pytest.raises(ExistsError):
        predict(folder, out, progress=lambda done, total: out.write_text("another's"))
    assert out.read_text() == "another's"
    assert alone(out)


def test_an_output_inside_an_input_is_refused(folder):
    for given in ("job", "d.zarr/versions"):
        with pytest.raises(ValueError, match="or lies inside it"):
            predict(folder, folder / given / "out.csv")
    store = open_folder("memory://a/")
    assert open_folder("memory://a/b.csv").is_inside(store)
    assert not any(
        open_folder(other).is_inside(store) for other in ("memory://ab/c.csv", "/a/b.csv")
    )


def test_a_full_disk_raises_an_error_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(handle):
        if os.fstat(handle).st_ino in {file.stat().st_ino for file in tmp_path.rglob("output.csv")}:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="no space"):
        predict(folder, tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


def test_a_missing_chunk_of_data_leaves_no_output(folder, tmp_path):
    ingest(rows(), tmp_path / "d.zarr", tile_rows=TILE, shuffle=3)
    out = tmp_path / "new" / "out.csv"
    next((tmp_path / "d.zarr").glob("rows-*/X/c/12/0")).unlink()
    with pytest.raises(MissingDataError, match="chunk 12"):
        prediction.predict(str(folder / "job"), str(tmp_path / "d.zarr"), str(out))
    assert list(out.parent.iterdir()) == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_rows(folder, tmp_path, monkeypatch):
    """Peak allocations are compared for 6,000 rows and for five times as many."""
    monkeypatch.setattr(prediction, "SORT_MEMORY", 1 << 19)
    peaks = []
    for n in (6000, 30_000):
        data = ingest(rows(n), tmp_path / f"{n}.zarr", tile_rows=2048)
        found = []
        for again in range(2):  # threads from other tests may allocate memory meanwhile
            tracemalloc.start()
            prediction.predict(str(folder / "job"), data.url, str(tmp_path / f"{n}-{again}.csv"))
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        peaks.append(min(found))
    assert peaks[1] < peaks[0] + (1 << 20)


def test_labels_survive_csv(tmp_path):
    """The labels and the column names are read by pandas and by the csv module."""
    place = tmp_path / "p.csv"
    n = len(LABELS)
    columns = {f"p_{label}": row for label, row in zip(LABELS, np.eye(n) / 3, strict=True)}
    table = {"label": written_labels(LABELS), **columns}
    write_output(open_folder(str(place)), tmp_path / "part.csv", [table], n, lambda: None)
    names = list(table)
    with place.open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == names
    assert [line[0] for line in lines] == list(LABELS)
    found = pd.read_csv(place, dtype={"label": str}, keep_default_na=False)
    assert list(found.columns) == names
    assert found["label"].tolist() == list(LABELS)
    assert_array_equal(found[names[1:]].to_numpy(), np.eye(n) / 3)


def test_integers_beyond_2_to_the_53_are_exact_in_csv(tmp_path):
    labels = (2**53, 2**53 + 1, 2**63 - 1)
    place = tmp_path / "p.csv"
    write_output(
        open_folder(str(place)),
        tmp_path / "part.csv",
        [{"label": written_labels(labels)}],
        3,
        lambda: None,
    )
    assert place.read_text().split() == ['"label"', *map(str, labels)]


KINDS = {
    "numbers": [0.5, 1.5], "text": ["red", "missing"], "empty text": ["", "red"], "integers": [0, -(2**63)],
    "switches": [True, False],
}  # fmt: skip


@pytest.mark.parametrize("labels", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_chunk_is_never_read_as_predictions(tmp_path, labels, damage):
    """A missing chunk would give NaN or no label; a changed one has a wrong checksum."""
    known = written_labels(labels)
    place = tmp_path / "p.zarr"
    table = {"label": known[[0, 1, 1]], "p_1": np.array([0.25, 0.5, 0.75])}
    write_output(
        open_folder(str(place)),
        tmp_path / "part.zarr",
        [table],
        3,
        lambda: None,
        set(known.tolist()),
    )
    group = zarr.open_group(str(place), mode="r")
    assert_array_equal(group["label"][:], known[[0, 1, 1]])
    for name in table:
        chunk = place / name / "c" / "0"
        data = chunk.read_bytes()
        if damage == "missing":
            chunk.unlink()
            values = group[name][:].tolist()
            assert not set(values) & {0, "", *known.tolist()}
            assert name == "label" or np.isnan(values).all()
        else:
            chunk.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
            with pytest.raises(ValueError, match="checksum"):
                group[name][:]
