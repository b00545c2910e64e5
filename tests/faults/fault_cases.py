"""Small jobs, and what it means that two of them came to the same end."""

from pathlib import Path

import numpy as np
import pytest
from waiting import wait_for

from partirvm import ingest
from partirvm.jobs.job import open_job
from partirvm.jobs.request import create
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.model import ClassModel
from partirvm.options import Request

TILE = 512

CASES = {
    "working-set": Request(gamma=2.0, strategy="working-set", partition_size=40, max_rounds=6),
    "incremental": Request(gamma=2.0, strategy="incremental", partition_size=250),
    "split-merge": Request(gamma=2.0, strategy="split-merge", partition_size=250),
    "classes": Request(
        gamma=2.0,
        strategy="working-set",
        partition_size=40,
        stop_fraction=0.9,
        max_rounds=4,
        likelihood="multinomial",
    ),
    "pooled": Request(
        gamma=2.0, strategy="working-set", partition_size=40, max_rounds=4, likelihood="pooled"
    ),
}
"""Each a second or two of work, with five to eight places to go on from; three classes have tens of
passes a round."""

TOLD = (
    *(
        "kind",
        "number",
        "level",
        "candidates",
        "vectors",
        "log_evidence",
        "train_rmse",
        "held_out_rmse",
        "iterations",
    ),
    *("train_log_loss", "train_error", "held_out_log_loss", "held_out_error"),
)
"""What a line of history says about the fit, not about clocks and memory."""


def rows(n, seed):
    """A wave over two inputs, with noise of sd 0.2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, 10 + np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * rng.normal(size=n)


def make_data(folder, n=1997):
    """DATA to train on, whose last tile is odd, and to look at while training; returns the paths of
    both."""
    ingest(rows(n, 0), folder / "train.zarr", tile_rows=TILE)
    ingest(rows(400, 1), folder / "test.zarr", tile_rows=TILE)
    return str(folder / "train.zarr"), str(folder / "test.zarr")


def class_rows(n, seed):
    """Three classes that overlap, over two inputs."""
    X, y = rows(n, seed)
    return X, np.array(["bronze", "gold", "silver"])[np.searchsorted([9.7, 10.3], y)]


def make_class_data(folder, n=1501):
    """As ``make_data``, of three classes."""
    ingest(class_rows(n, 0), folder / "train.zarr", tile_rows=TILE, classes=True)
    ingest(class_rows(400, 1), folder / "test.zarr", tile_rows=TILE, like=folder / "train.zarr")
    return str(folder / "train.zarr"), str(folder / "test.zarr")


def queued(data, place, case):
    """A job that waits for somebody to carry it out; ``case`` is a name of ``CASES``, or
    parameters."""
    create(
        data[0],
        str(place),
        CASES.get(case, case) if isinstance(case, str) else case,
        data[1],
        False,
    )
    return JobStore(place)


def lines(state):
    """What the history says about the fits."""
    return [{key: event.get(key) for key in TOLD} for event in state.history]


def assert_same_end(store, whole):
    """That a job is done with the bits, the history and the reason of one that nobody disturbed."""
    mine = store.state()
    theirs = whole.state()
    assert mine.status is Status.DONE, (mine.status, mine.reason)
    assert mine.reason == theirs.reason
    assert store.model().digest() == whole.model().digest()
    assert lines(mine) == lines(theirs)


def repeated(events):
    """For each time that the work was taken up again: the lines of history that were there, and
    that were kept."""
    found = []
    standing = []
    for event in events:
        if event["event"] == "fit":
            standing.append(event)
        elif event["event"] == "running":
            found.append((standing, standing[: event["history"]]))
            standing = standing[: event["history"]]
    return found


def assert_one_round_repeated(events):
    """No line was forgotten but those of the one round, part or level whose checkpoint was not
    whole yet."""
    for had, kept in repeated(events):
        assert len({_round(line) for line in had[len(kept) :]}) <= 1


def _round(line):
    """What a line of history belongs to: the parts of one level are handed over together."""
    return line["kind"], line["level"] if line["kind"] == "part" else line["number"]


def aborted(place, reason, asked, child=None):
    """Abort a job once its watcher waits for that (``Asking``, in the folder ``asked``), and wait
    until it is aborted.

    No tile can be read before: nobody waits for the end of a pass.
    """
    wait_for(lambda: (asked / "here").exists() or (child and child.gone), "the middle of the work")
    open_job(place).abort(reason)
    wait_for(lambda: open_job(place).status() is Status.ABORTED, "the end of the job")
    (asked / "hold").unlink(missing_ok=True)


def begun_later(asked):
    """Tiles that were begun, and tiles and dense steps that the driver heard of, once the abort was
    asked for."""
    return tuple(count(asked / name) for name in ("tiles", "heard"))


def note(path):
    """Add one to a count that several processes keep."""
    with path.open("ab") as file:
        file.write(b".")


def count(path):
    """What was noted."""
    return path.stat().st_size if path.exists() else 0


def assert_usable(store, reason):
    """The model of an aborted job predicts, its held-out errors are in the history, and its state
    says why it ended."""
    state = store.state()
    assert (state.status, state.reason) == (Status.ABORTED, reason)
    last = state.history[-1]
    model = store.model()
    assert model.n_vectors == last["vectors"]
    if isinstance(model, ClassModel):
        X, labels = class_rows(400, 1)
        own = model.predict_proba(X)[np.arange(400), np.searchsorted(model.classes, labels)]
        assert -np.log(own).mean() == pytest.approx(last["held_out_log_loss"], rel=1e-9)
        assert np.mean(model.predict(X) != labels) == pytest.approx(last["held_out_error"])
        return
    assert last["held_out_rmse"] > 0
    X, y = rows(400, 1)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - mean) ** 2)) == pytest.approx(last["held_out_rmse"], rel=1e-9)
    assert (std > 0).all()


def count_lines(place):
    """Lines of history that were ever written; cheap enough to ask all the time."""
    return sum(
        '"event": "fit"' in path.read_text() for path in Path(place, "events").glob("0*.json")
    )
