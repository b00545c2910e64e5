"""Predictions that are interrupted: at any instruction, by anybody; the next run goes on and writes the same bytes."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import subprocess
import sys
import tracemalloc
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from by_default import some
from waiting import Clock, wait_for

from partirvm import ingest, jobs
from partirvm.errors import (
    ClusterError,
    DataError,
    ExistsError,
    LeaseError,
    LeaseLostError,
    MissingDataError,
    StorageError,
)
from partirvm.execution.dask import DaskExecutor
from partirvm.options import Request
from partirvm.predict import prediction
from partirvm.storage import destination, open_folder
from partirvm.storage import lease as lease_module
from partirvm.storage.folder import read_json, to_json

PARAMETERS = Request(
    gamma=0.3, partition_size=30, max_rounds=2, strategy="working-set", selection="error", noise="constant"
)
TILES, TILE = 30, 40
ENDINGS = (".zarr", ".parquet", ".csv")
CHUNKS = "tiles-*/c/*/0"
"""Files of the tiles in a partial folder."""

pytestmark = pytest.mark.filterwarnings("ignore:.*far from every:partirvm.errors.DataWarning")


def rows(n=TILES * TILE - 7, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 100 + 20 * np.sin(X[:, 0]) + 5 * X[:, 1] + rng.normal(size=n)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two JOBs, DATA of 30 tiles, the last one short, and what is predicted of them without interruption."""
    place = tmp_path_factory.mktemp("partial")
    ingest(rows(), place / "d.zarr", tile_rows=TILE, shuffle=3)
    ingest(rows(seed=1), place / "other.zarr", tile_rows=TILE, shuffle=3)
    jobs.fit(str(place / "d.zarr"), str(place / "job"), PARAMETERS)
    jobs.fit(str(place / "other.zarr"), str(place / "other-job"), PARAMETERS)
    for ending in ENDINGS:
        prediction.predict(str(place / "job"), str(place / "d.zarr"), str(place / f"whole{ending}"))
    return place


def content(path):
    """Bytes of a file, or of every file below a folder by its name."""
    if path.is_file():
        return path.read_bytes()
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def predict(folder, out, *, job="job", data="d.zarr", **options):
    """Predict in this process; the notes that were made, and how many tiles were predicted."""
    notes, seen = [], []

    def progress(done, total):
        seen.append((done, total))
        if options.get("leave") and done >= options["leave"][0]:
            raise options["leave"][1]

    chosen = {name: value for name, value in options.items() if name != "leave"}
    assert prediction.predict(
        str(folder / job), str(folder / data), str(out), progress=progress, note=notes.append, **chosen
    )
    return notes, len({done for done, _ in seen if done})


def interrupted(folder, out, at=10, **options):
    """Leave a prediction after some tiles, by Ctrl-C. Returns its partial folder."""
    with pytest.raises(KeyboardInterrupt) as caught:
        predict(folder, out, leave=(at, KeyboardInterrupt()), **options)
    assert f"{at - 1} of {TILES} tiles are kept beside {out}" in caught.value.__notes__[0]
    assert not out.exists()
    return out.with_name(f".{out.name}.partial")


def chunk(partial, number):
    """The file of a tile."""
    (tiles,) = partial.glob("tiles-*")
    return tiles / "c" / str(number) / "0"


def alone(out):
    """Whether nothing is beside the output."""
    return [path.name for path in out.parent.iterdir()] == [out.name]


MOTHER = """
import itertools, os, signal, sys, time
import zarr, pyarrow.csv, pyarrow.parquet
from partirvm.predict import resumable, prediction
from partirvm.storage import destination
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

def predict(folder, out, where):
    if where == "held":
        really = prediction.PredictTile.__call__
        def held(self, source, number):
            if number > 9:
                time.sleep(600)
            return really(self, source, number)
        prediction.PredictTile.__call__ = held
    elif where == "ordering":
        prediction.ExternalSorter.blocks = die
    elif where == "written":
        destination.flush = die
    elif where == "named":
        destination.sync = die
    else:
        kind, number = where.split(":")
        numbers, really = itertools.count(1), prediction.PredictTile.__call__
        def tile(self, source, n):
            hear("tile")
            return really(self, source, n)
        def hear(event, *arguments):
            if event == kind and next(numbers) == int(number):
                die()
        prediction.PredictTile.__call__ = tile
        sys.addaudithook(hear)
    prediction.predict(f"{folder}/job", f"{folder}/d.zarr", out)

print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            predict(*line.split())
        finally:
            os._exit(1)
    print(pid, flush=True)
"""


@pytest.fixture(scope="module")
def begin(folder):
    """Starts a real process that predicts, of a mother that has imported everything; returns its number."""
    process = subprocess.Popen(
        [sys.executable, "-c", MOTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"

    def begin(out, where):
        process.stdin.write(f"{folder} {out} {where}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield begin
    process.kill()
    process.communicate()


def gone(pid):
    """Whether a process has ended; its mother lets go of it at once."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def test_intervals_go_on_as_well_and_only_with_their_own_level(folder, tmp_path):
    """The same bytes after Ctrl-C; tiles of another level, or of none, are not taken for those of this one."""
    prediction.predict(str(folder / "job"), str(folder / "d.zarr"), str(tmp_path / "whole.csv"), interval=0.9)
    for at, level, note in ((10, 0.9, "continuing"), (10, 0.8, "replacing"), (10, None, "replacing")):
        out = tmp_path / f"{level}" / "out.csv"
        out.parent.mkdir()
        interrupted(folder, out, at, interval=level)
        notes, _ = predict(folder, out, interval=0.9)
        assert note in notes[0]
        assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("ending", some(ENDINGS, {".csv"}))
def test_kill_9_again_and_again(folder, begin, tmp_path, ending):
    """At random tiles of real processes, then where they open some file, each a little later, until one comes to its
    end: the bytes of a run that nobody killed."""
    out, draw = tmp_path / f"out{ending}", random.Random(ending)
    partial = out.with_name(f".{out.name}.partial")
    kept, kills = [0], 0
    while not out.exists():
        pid = begin(out, f"tile:{draw.randint(5, 9)}" if kills < 3 else f"open:{draw.randint(1, 200 * kills)}")
        wait_for(lambda pid=pid: gone(pid), "the end of a process")
        kills += 1
        if not out.exists():
            kept.append(len(list(partial.glob(CHUNKS))))
        assert kills < 100
    assert content(out) == content(folder / f"whole{ending}")
    assert kept == sorted(kept), "a tile was lost"
    assert 0 < kept[1] < kept[3] < TILES
    if partial.exists():  # killed after it was named
        predict(folder, out, overwrite=True)
        assert content(out) == content(folder / f"whole{ending}")
    assert alone(out)


@pytest.mark.parametrize(
    ("ending", "where"),
    some(
        itertools.product(ENDINGS, ["ordering", "written", "named"]),
        {(".csv", "ordering"), (".parquet", "written"), (".zarr", "named")},
    ),
)
def test_kill_9_after_the_last_tile(folder, begin, tmp_path, ending, where):
    """No tile is predicted again; an output that has its name is whole."""
    out = tmp_path / f"out{ending}"
    pid = begin(out, where)
    wait_for(lambda: gone(pid))
    named = where == "named"
    assert out.exists() == named
    if named:
        assert content(out) == content(folder / f"whole{ending}")
        with pytest.raises(ExistsError):
            predict(folder, out)
    notes, predicted = predict(folder, out, overwrite=named)
    assert predicted == 0
    assert notes == [f"continuing an interrupted prediction: {TILES} of {TILES} tiles are done"]
    assert content(out) == content(folder / f"whole{ending}")
    assert alone(out)


@pytest.mark.parametrize("ending", ENDINGS)
def test_ctrl_c_again_and_again(folder, tmp_path, ending):
    """Every run goes on where the one before was left, and says so."""
    out = tmp_path / f"out{ending}"
    for at in (5, 11, 23):
        interrupted(folder, out, at)
    notes, predicted = predict(folder, out)
    assert notes == [f"continuing an interrupted prediction: 22 of {TILES} tiles are done"]
    assert predicted == TILES - 22
    assert content(out) == content(folder / f"whole{ending}")
    assert alone(out)


@pytest.mark.parametrize("change", [{"job": "other-job"}, {"data": "other.zarr"}])
def test_another_model_or_other_data_start_anew(folder, tmp_path, change):
    """Not one tile of the interrupted prediction is in the output."""
    out, expected = tmp_path / "out.csv", tmp_path / "expected" / "out.csv"
    predict(folder, expected, **change)
    interrupted(folder, out)
    notes, predicted = predict(folder, out, **change)
    assert notes == ["replacing an interrupted prediction of other data or another model"]
    assert predicted == TILES
    assert content(out) == content(expected)
    assert not out.with_name(".out.csv.partial").exists()


def test_the_same_rows_in_another_order_start_anew(folder, tmp_path):
    """A shuffle by another seed."""
    out = tmp_path / "out.csv"
    ingest(rows(), tmp_path / "d.zarr", tile_rows=TILE, shuffle=4)
    interrupted(folder, out)
    (tmp_path / "job").symlink_to(folder / "job")
    _, predicted = predict(tmp_path, out)
    assert predicted == TILES


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def flip(path):
    found = bytearray(path.read_bytes())
    found[77] ^= 1
    path.write_bytes(found)


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, zero, empty, Path.unlink])
def test_a_damaged_tile_is_predicted_again(folder, tmp_path, damage):
    """And no other."""
    out = tmp_path / "out.csv"
    damage(chunk(interrupted(folder, out), 4))
    notes, predicted = predict(folder, out)
    assert notes == [f"continuing an interrupted prediction: 8 of {TILES} tiles are done"]
    assert predicted == TILES - 8
    assert content(out) == content(folder / "whole.csv")


def test_damaged_metadata_are_written_anew(folder, tmp_path):
    """The name of the array, its checksums and its marks say of what a tile is."""
    out = tmp_path / "out.csv"
    partial = interrupted(folder, out)
    (attributes,) = partial.glob("tiles-*/zarr.json")
    attributes.write_text(attributes.read_text()[:50])
    notes, predicted = predict(folder, out)
    assert notes == [f"continuing an interrupted prediction: 9 of {TILES} tiles are done"]
    assert predicted == TILES - 9
    assert content(out) == content(folder / "whole.csv")


def test_two_at_once(folder, begin, tmp_path, monkeypatch):
    """The second is told who is at work, and disturbs nothing; once that one is killed it goes on at once."""
    out = tmp_path / "out.csv"
    partial = out.with_name(".out.csv.partial")
    pid = begin(out, "held")
    wait_for(lambda: len(list(partial.glob(CHUNKS))) == 10)
    with pytest.raises(LeaseError, match=rf"out\.csv is in use by process {pid} on"):
        predict(folder, out)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid))
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    notes, predicted = predict(folder, out)
    assert clock.naps == 0, "a dead holder keeps nobody waiting"
    assert notes
    assert predicted == TILES - 10
    assert content(out) == content(folder / "whole.csv")
    assert alone(out)


def test_one_that_was_taken_for_dead_ends(folder, tmp_path):
    """LeaseLostError, no output, and what its successor has stays."""
    out = tmp_path / "out.csv"
    lease = out.with_name(".out.csv.lease") / "lease"

    def progress(done, total):
        if done == total:
            claim = read_json(open_folder(lease.parent), "lease/000001.json")
            (lease / "000002.json").write_bytes(to_json("lease/000002.json", claim))

    with pytest.raises(LeaseLostError, match="taken over"):
        prediction.predict(str(folder / "job"), str(folder / "d.zarr"), str(out), progress=progress)
    assert not out.exists()
    assert len(list(out.with_name(".out.csv.partial").glob(CHUNKS))) == TILES
    assert not (lease / "000001.over.json").exists()


def test_an_output_that_appears_meanwhile_is_not_replaced(folder, tmp_path, monkeypatch):
    """Another process wrote it between the look at the output and the lease: ExistsError, and nothing is left."""
    out, really = tmp_path / "out.csv", prediction.partial_prediction

    @contextmanager
    def late(*arguments):
        with really(*arguments) as partial:
            out.write_text("another's")
            yield partial

    monkeypatch.setattr(prediction, "partial_prediction", late)
    with pytest.raises(ExistsError):
        predict(folder, out)
    assert out.read_text() == "another's"
    assert alone(out)


def test_a_full_disk_loses_no_tile(folder, tmp_path, monkeypatch):
    """StorageError when the output is written; with room again nothing is predicted twice."""
    out = tmp_path / "out.csv"

    def full(path):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(destination, "flush", full)
    with pytest.raises(StorageError, match="the disk is full") as caught:
        predict(folder, out)
    monkeypatch.undo()
    assert f"{TILES} of {TILES} tiles are kept" in caught.value.__notes__[0]
    left = [path.name for path in out.with_name(".out.csv.partial").iterdir()]
    assert [name.partition("-")[0] for name in left] == ["tiles"]
    assert predict(folder, out)[1] == 0
    assert content(out) == content(folder / "whole.csv")


def test_wrong_input_leaves_nothing(folder, tmp_path):
    """Other features, and a chunk of DATA that is missing before anything was predicted."""
    X, y = rows()
    ingest((np.column_stack([X, X]), y), tmp_path / "wide.zarr", tile_rows=TILE)
    ingest((X, y), tmp_path / "d.zarr", tile_rows=TILE, shuffle=3)
    out = tmp_path / "new" / "out.csv"
    with pytest.raises(DataError, match="have 4"):
        prediction.predict(str(folder / "job"), str(tmp_path / "wide.zarr"), str(out))
    assert not out.parent.exists()
    lost = tmp_path / "d.zarr" / "X" / "c" / "0" / "0"
    lost.rename(tmp_path / "lost")
    with pytest.raises(MissingDataError):
        prediction.predict(str(folder / "job"), str(tmp_path / "d.zarr"), str(out))
    assert list(out.parent.iterdir()) == []


def test_a_missing_chunk_in_the_middle_can_be_restored(folder, tmp_path):
    """MissingDataError; what was predicted before it is kept."""
    ingest(rows(), tmp_path / "d.zarr", tile_rows=TILE, shuffle=3)
    (tmp_path / "job").symlink_to(folder / "job")
    lost, out = tmp_path / "d.zarr" / "X" / "c" / "20" / "0", tmp_path / "out.csv"
    lost.rename(tmp_path / "lost")
    with pytest.raises(MissingDataError, match="chunk 20"):
        predict(tmp_path, out)
    (tmp_path / "lost").rename(lost)
    notes, _ = predict(tmp_path, out)
    assert notes == [f"continuing an interrupted prediction: 20 of {TILES} tiles are done"]
    assert content(out) == content(folder / "whole.csv")


def test_far_rows_of_all_runs_are_counted(folder, tmp_path):
    """Those of tiles that an earlier run predicted too."""
    X, y = rows()
    X[:] += 1e3
    ingest((X, y), tmp_path / "d.zarr", tile_rows=TILE)
    (tmp_path / "job").symlink_to(folder / "job")
    interrupted(tmp_path, tmp_path / "out.csv")
    with pytest.warns(UserWarning, match=f"{len(X):,} of {len(X):,} rows are far"):
        predict(tmp_path, tmp_path / "out.csv")


def test_memory_does_not_grow_with_the_rows(folder, tmp_path, monkeypatch):
    """Peak of what this process allocates, at 20,000 rows and at five times as many."""
    monkeypatch.setattr(prediction, "SORT_MEMORY", 1 << 20)
    peaks = []
    for n in (20_000, 100_000):
        data, found = ingest(rows(n), tmp_path / f"{n}.zarr", tile_rows=4096), []
        for again in range(2):  # threads of other tests may allocate meanwhile
            tracemalloc.start()
            prediction.predict(str(folder / "job"), data.url, str(tmp_path / f"{n}-{again}.csv"))
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        peaks.append(min(found))
    assert peaks[1] < peaks[0] + (2 << 20)


@pytest.mark.slow
def test_on_a_cluster(folder, tmp_path, monkeypatch):
    """A worker killed in the middle; then all workers lost, and the rest predicted here: always the same bytes."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(prediction, "executor_for", lambda client: DaskExecutor(client, 1.0) if client else here(None))
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, protocol="tcp://", dashboard_address=":0",
            memory_limit="2GiB",
        ) as local,
        Client(local, timeout="120s", set_as_default=False) as client,
    ):  # fmt: skip
        job, data = str(folder / "job"), str(folder / "d.zarr")
        pids = list(client.run(os.getpid).values())

        def kill(done, total):
            if done == 7 and pids:
                os.kill(pids.pop(), signal.SIGKILL)
                pids.clear()

        out = tmp_path / "one.parquet"
        prediction.predict(job, data, str(out), client=client, progress=kill)
        assert not pids
        assert content(out) == content(folder / "whole.parquet")
        assert alone(out)

        def lose(done, total):
            if done == 12 and local.workers:
                local.scale(0)

        out = tmp_path / "two.parquet"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the cluster's own farewell
            with pytest.raises(ClusterError) as caught:
                prediction.predict(job, data, str(out), client=client, progress=lose)
        assert "tiles are kept" in caught.value.__notes__[0]
    notes, predicted = predict(folder, out)
    assert notes
    assert 0 < predicted <= TILES - 12
    assert content(out) == content(folder / "whole.parquet")


here = prediction.executor_for


def test_tiles_are_read_by_zarr(folder, tmp_path):
    """The format: number before shuffling, mean, sd, far; NaN where nothing was predicted; what it is of."""
    partial = interrupted(folder, tmp_path / "out.csv")
    (tiles,) = partial.glob("tiles-*")
    array = zarr.open_array(str(tiles), mode="r")
    stored = array[:].reshape(TILES, TILE + 1, 4)  # a mark, then rows
    assert len({*stored[:9, 0].ravel()}) == 9
    found = stored[:9, 1:].reshape(-1, 4)
    expected = zarr.open_group(str(folder / "whole.zarr"), mode="r")
    np.testing.assert_array_equal(found[:, 1], expected["mean"][:][found[:, 0].astype(int)])
    assert np.isnan(stored[9:]).all()
    assert set(array.attrs) == {
        *("kind", "format", "model", "data", "shuffle", "n_rows", "tile_rows", "columns", "versions"),
    }


@pytest.mark.parametrize("ending", ["csv", "parquet", "zarr"])
def test_what_is_done_already_is_left_alone(folder, tmp_path, ending, monkeypatch):
    """Said so; another model, an output that was touched since, and ``overwrite`` are not that."""
    said: list[str] = []
    output, data = tmp_path / f"p.{ending}", str(folder / "d.zarr")

    def predict(job, **options):
        return prediction.predict(str(folder / job), data, str(output), note=said.append, **options)

    rows = predict("job")
    with monkeypatch.context() as patched:
        patched.setattr(prediction, "_write", None)
        assert predict("job") == rows
        with pytest.raises(ExistsError):
            predict("other-job")
    assert len(said) == 1
    assert "is complete for this model" in said[0]
    os.utime(output / "zarr.json" if ending == "zarr" else output, ns=(1, 1))
    with pytest.raises(ExistsError):
        predict("job")
    assert predict("job", overwrite=True) == rows
    assert len(said) == 1


@pytest.mark.parametrize("name", ["mean/c/0", "std/zarr.json"])
def test_an_output_that_lost_a_file_is_not_done(folder, tmp_path, name):
    """Each file of OUTPUT counts, not the metadata of its group alone: what is said to be done is whole."""
    output, data = tmp_path / "p.zarr", str(folder / "d.zarr")
    prediction.predict(str(folder / "job"), data, str(output))
    (output / name).unlink()
    with pytest.raises(ExistsError):
        prediction.predict(str(folder / "job"), data, str(output))
