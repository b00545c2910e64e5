"""Small jobs, and assertions that two jobs ended in the same way."""

from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from waiting import wait_for

from partirvm import ingest
from partirvm.jobs import JobStore, Status, create, open_job
from partirvm.model import ClassModel
from partirvm.options import Request

TILE = 512
ROUNDS = {"gamma": 2.0, "strategy": "working-set", "partition_size": 40}

CASES = {
    "working-set": Request(**ROUNDS, max_rounds=6),
    "incremental": Request(gamma=2.0, strategy="incremental", partition_size=250),
    "split-merge": Request(gamma=2.0, strategy="split-merge", partition_size=250),
    "classes": Request(**ROUNDS, stop_fraction=0.9, max_rounds=4, likelihood="multinomial"),
    "pooled": Request(**ROUNDS, max_rounds=4, likelihood="pooled"),
}
"""Each job takes a second or two and has five to eight checkpoints."""

FIT_KEYS = ("kind", "number", "level", "candidates", "vectors", "log_evidence", "iterations")
FIT_KEYS += ("train_rmse", "held_out_rmse", "train_log_loss", "train_error")
FIT_KEYS += ("held_out_log_loss", "held_out_error")
"""The entries of a history line that describe the fit, not time and memory."""


def rows(n, seed):
    """Return a wave over two inputs, with noise of sd 0.2."""
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, 10 + np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * rng.normal(size=n)


def make_data(folder, n=1997):
    """Return the places of DATA of training rows, whose last tile is short, and of held-out
    rows."""
    ingest(rows(n, 0), folder / "train.zarr", tile_rows=TILE)
    ingest(rows(400, 1), folder / "test.zarr", tile_rows=TILE)
    return str(folder / "train.zarr"), str(folder / "test.zarr")


def class_rows(n, seed):
    """Return three overlapping classes over two inputs."""
    X, y = rows(n, seed)
    return X, np.array(["bronze", "gold", "silver"])[np.searchsorted([9.7, 10.3], y)]


def make_class_data(folder, n=1501):
    """Do the same as ``make_data`` with three classes."""
    ingest(class_rows(n, 0), folder / "train.zarr", tile_rows=TILE, classes=True)
    ingest(class_rows(400, 1), folder / "test.zarr", tile_rows=TILE, like=folder / "train.zarr")
    return str(folder / "train.zarr"), str(folder / "test.zarr")


def queued(data, place, case):
    """Return a queued job; ``case`` is a name in ``CASES``, or a request."""
    request = CASES[case] if isinstance(case, str) else case
    create(data[0], str(place), request, data[1], False)
    return JobStore(place)


def lines(state):
    """Return the history entries about the fits."""
    return [{key: event.get(key) for key in FIT_KEYS} for event in state.history]


def assert_same_end(store, undisturbed):
    """Assert that a job has ended with the bits, history and reason of an undisturbed one."""
    state = store.state()
    expected = undisturbed.state()
    assert state.status is Status.DONE, (state.status, state.reason)
    assert state.reason == expected.reason
    assert store.model().digest() == undisturbed.model().digest()
    assert lines(state) == lines(expected)


def repeated(events):
    """Return, for each run after the first, the history lines before it, and those that it kept."""
    runs = []
    history = []
    for event in events:
        if event["event"] == "fit":
            history.append(event)
        elif event["event"] == "running":
            runs.append((history, history[: event["history"]]))
            history = history[: event["history"]]
    return runs


def assert_one_round_repeated(events):
    """Assert that only lines of the one round, part or level without a checkpoint were repeated."""
    for before, kept in repeated(events):
        assert len({_round(line) for line in before[len(kept) :]}) <= 1


def _round(line):
    """Return the round of a history line; all parts of a level are one round."""
    return line["kind"], line["level"] if line["kind"] == "part" else line["number"]


def abort_in_pass(place, reason, folder, child=None):
    """Abort a job whose watcher waits for the abort (``UntilAbort``); the pass is held, not
    ended."""
    wait_for(lambda: (folder / "here").exists() or (child and child.gone), "the middle of the work")
    open_job(place).abort(reason)
    wait_for(lambda: open_job(place).status() is Status.ABORTED, "the end of the job")
    (folder / "hold").unlink(missing_ok=True)


def work_after_abort(folder):
    """Return the tiles that were begun, and the calls of the watcher, after the request to
    abort."""
    return tuple(count(folder / name) for name in ("tiles", "heard"))


def note(path):
    """Add one to a count that several processes share."""
    with path.open("ab") as file:
        file.write(b".")


def count(path):
    """Return the value of a shared count."""
    return path.stat().st_size if path.exists() else 0


def assert_usable(store, reason):
    """Assert that the model of an aborted job predicts with the errors recorded in its history."""
    state = store.state()
    assert (state.status, state.reason) == (Status.ABORTED, reason)
    last = state.history[-1]
    model = store.model()
    assert model.n_vectors == last["vectors"]
    if isinstance(model, ClassModel):
        X, labels = class_rows(400, 1)
        p = model.predict_proba(X)[np.arange(400), np.searchsorted(model.classes, labels)]
        assert -np.log(p).mean() == pytest.approx(last["held_out_log_loss"], rel=1e-9)
        assert np.mean(model.predict(X) != labels) == pytest.approx(last["held_out_error"])
        return
    assert last["held_out_rmse"] > 0
    X, y = rows(400, 1)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - mean) ** 2)) == pytest.approx(last["held_out_rmse"], rel=1e-9)
    assert (std > 0).all()


def count_lines(place):
    """Return the number of history lines that were ever written, without opening the job."""
    return sum(
        '"event": "fit"' in path.read_text() for path in Path(place, "events").glob("0*.json")
    )
