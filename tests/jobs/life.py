"""Parts of the stateful test of a job's life: its actions, its kills and undisturbed fits."""

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from surfaces import saddle

from partirvm import ingest, jobs, load_model, open_job, save_model
from partirvm.fit import Watcher
from partirvm.jobs import Job, JobStore, create
from partirvm.options import Request
from partirvm.storage import Process

PROBE = saddle(9, seed=99)[0]
"""Rows at which predictions are compared."""

FIRST_ROWS = 60
"""Rows of new DATA."""

OPTIONS = {"gamma": 0.5, "partition_size": 15, "noise": "constant", "seed": 4}

KINDS = {
    "working-set": Request(**OPTIONS, strategy="working-set", residual="none"),
    "incremental": Request(**OPTIONS, strategy="incremental", residual="none"),
    "local": Request(**OPTIONS, strategy="working-set", residual="local", neighbours=5),
}
"""Requests without ``max_rounds``."""

FACTS = ("kind", "number", "candidates", "vectors", "log_evidence", "iterations", "train_rmse")
"""Entries of a line of history that do not depend on time and memory."""


def history_of(state):
    """Return the lines of history of a job state, without times."""
    return tuple(tuple(line.get(name) for name in FACTS) for line in state.history)


def predictions(model):
    """Return the bytes of the means and standard deviations at ``PROBE``."""
    return np.array(model.predict(PROBE, return_std=True)).tobytes()


# The actions of which a process can be killed: their arguments are plain JSON.


def request(kind, rounds):
    """Return the request of a kind of fit with this many rounds."""
    return replace(KINDS[kind], max_rounds=rounds)


def start(data, job, kind, rounds):
    """Queue a job, replacing an old one."""
    create(data, job, request(kind, rounds), None, True)


def run(job):
    """Run a queued or interrupted job in this process."""
    jobs.run_job(job, patience=0.0)


def append(data, number, rows):
    """Append rows to DATA; ``number`` seeds them."""
    ingest(saddle(rows, seed=number), data, append=True)


def save(job, out):
    """Save the model of a job at another place."""
    save_model(load_model(job), out)


def export(job, out):
    """Export the model of a job as a NumPy file."""
    load_model(job).to_numpy(out)


ACTIONS = {action.__name__: action for action in (start, run, append, save, export)}


class Killed(BaseException):
    """The simulated death of a process; not an ``Exception``, so nothing handles it."""


@dataclass
class Disk:
    """Kills an action at its n-th change to a folder, by an audit hook: later changes fail, too.

    Like a process after SIGKILL, the action cannot clean up: files stay as they are.

    Attributes:
        folder: the folder; "" disables the hook
        changes: changes that remain until the kill
    """

    folder: str = ""
    changes: int = 0
    hooked: bool = field(default=False, init=False)

    VERBS = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")
    VERBS += ("shutil.rmtree",)
    WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def kill(self, folder, point, action, arguments):
        """Call an action that is killed at its n-th change; return True if it was."""
        if not self.hooked:
            sys.addaudithook(self._heard)
            self.hooked = True
        dead = replace(Process.this(), began="1")
        self.changes = point
        self.folder = str(folder)
        try:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Process, "this", lambda: dead)
                ACTIONS[action](**arguments)
        except BaseException:
            if self.changes > 0:
                raise
        finally:
            self.folder = ""
        return self.changes <= 0

    def _heard(self, event, arguments):
        if not self.folder or not self._changes(event, arguments):
            return
        self.changes -= 1
        if self.changes <= 0:
            raise Killed(event)

    def _changes(self, event, arguments):
        """Return True for a change to the folder; paths inside ``shutil.rmtree`` are relative."""
        if event == "open":
            path, _, flags = arguments
            return bool(flags and flags & self.WRITING) and str(path).startswith(self.folder)
        paths = [str(path) for path in arguments[:2]]
        relative = event in ("os.remove", "os.rmdir") and not paths[0].startswith("/")
        inside = any(path.startswith(self.folder) for path in paths)
        return event in self.VERBS and (relative or inside)


DISK = Disk()
"""The only instance: an audit hook cannot be removed."""


@dataclass(frozen=True)
class Stage:
    """A fit, or an update of it with appended rows.

    Attributes:
        batches: numbers of rows of the batches of DATA
        rounds: ``max_rounds`` of the request: in all for a fit, further ones for an update
        limit: ``max_rounds`` of the last resume that changed it, or None
        reached: line of history after which the next stage began, or None if this one was complete
    """

    batches: tuple[int, ...]
    rounds: int
    limit: int | None = None
    reached: int | None = None


@dataclass(frozen=True)
class Undisturbed:
    """A job that ran its stages without kills, aborts and resumes.

    Attributes:
        place: the folder with the job and its DATA
        histories: model digest after each line of the last stage, by the history up to there
        history: the last history
        reason: why the fit ended
        predictions: the bytes of the predictions of the model in memory; None if it was stopped
    """

    place: Path
    histories: dict[tuple, str]
    history: tuple
    reason: str
    predictions: bytes | None


class Recorder(Watcher):
    """Notes the model digest after each line of history, and aborts after so many lines."""

    def __init__(self, store, last):
        self.store = store
        self.last = last
        self.lines = 0
        self.kept = 0
        self.histories = {}

    def on_plan(self, plan):
        self.kept = len(self.store.folded().history)

    def on_record(self, entry):
        self.lines += 1
        if self.lines > self.kept:  # earlier lines are told again after the plan
            history = history_of(self.store.folded())
            self.histories[history] = self.store.model().digest()

    def aborted(self):
        return self.last is not None and self.lines >= self.last


class References:
    """Makes DATA and undisturbed jobs, each at its first use."""

    def __init__(self, folder):
        self.folder = folder
        self.data = {}
        self.fits = {}

    def dataset(self, batches):
        """Return the folder of DATA with these batches."""
        if batches not in self.data:
            place = self.folder / f"data-{len(self.data)}"
            self.data[batches] = place
            if len(batches) == 1:
                ingest(saddle(*batches, seed=0), place, tile_rows=32)
            else:
                shutil.copytree(self.dataset(batches[:-1]), place)
                append(str(place), len(batches) - 1, batches[-1])
        return self.data[batches]

    def undisturbed(self, kind, stages):
        """Return the undisturbed job with these stages."""
        if (kind, stages) not in self.fits:
            self.fits[kind, stages] = self._run(kind, stages)
        return self.fits[kind, stages]

    def _run(self, kind, stages):
        *earlier, last = stages
        place = self.folder / f"fit-{len(self.fits)}"
        self.fits[kind, stages] = None  # its number is taken
        data = str(self.dataset(last.batches))
        if earlier:
            parent = self.undisturbed(kind, tuple(earlier))
            shutil.copytree(parent.place, place)
            Job(str(place)).requeue(grown=True, data=data, max_rounds=last.rounds)
        else:
            create(data, str(place), request(kind, last.rounds), None, False)
        if last.limit is not None:
            Job(str(place)).requeue(max_rounds=last.limit)
        recorder = Recorder(JobStore(str(place)), last.reached)
        outcome = jobs.run_job(str(place), watcher=recorder, patience=0.0)
        state = open_job(str(place)).state()
        return Undisturbed(
            place,
            recorder.histories,
            history_of(state),
            state.reason,
            None if last.reached is not None else predictions(outcome.model),
        )


@dataclass(frozen=True)
class Point:
    """A checkpoint from which a job can resume.

    Attributes:
        stages: the stages of the run that wrote it
        lines: lines of history that a run from there keeps
        final: True for the checkpoint of a complete stage, which only an update continues
    """

    stages: tuple[Stage, ...]
    lines: int
    final: bool


def points_of(events, stages):
    """Return the checkpoints with a fit among the events of one run.

    Args:
        events: the events from ``running`` on
        stages: the stages of the run
    """
    points = []
    lines = 0
    for before, event in pairwise([{"event": ""}, *events]):
        if event["event"] == "running":
            lines = event["history"]
        elif event["event"] == "fit":
            lines += 1
        elif event["event"] == "checkpoint" and before["event"] == "fit":
            final = before["kind"] == "final"
            points.append(Point(stages, lines - final, final))
    return points


@contextmanager
def unchanged(folder):
    """Assert that a block changes no file except leases, which every writer claims."""
    before = contents(folder)
    yield
    assert contents(folder) == before


def contents(folder):
    """Return the bytes of each file below a folder, except those of leases."""
    files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return {str(file): file.read_bytes() for file in files if "lease" not in file.parent.name}
