"""Small jobs, the processes that carry them out, and what it means that two of them came to the same end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE, wait_for

from partirvm import ingest
from partirvm.execution.local import usable_cores
from partirvm.jobs.driver import Watcher
from partirvm.jobs.job import open_job
from partirvm.jobs.request import create
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.model import ClassModel
from partirvm.options import Request
from partirvm.storage import lease

HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[1])

QUICK = 0.1, 1.5
"""Leases for tests that need not wait for the real ones to expire."""

TILE = 512

CASES = {
    "working-set": Request(gamma=2.0, strategy="working-set", partition_size=40, max_rounds=6),
    "incremental": Request(gamma=2.0, strategy="incremental", partition_size=250),
    "split-merge": Request(gamma=2.0, strategy="split-merge", partition_size=250),
    "classes": Request(gamma=2.0, strategy="working-set", partition_size=40, stop_fraction=0.9, max_rounds=4),
}
"""Each a second or two of work, with five to eight places to go on from; three classes have tens of passes a round."""

TOLD = (
    *("kind", "number", "level", "candidates", "vectors", "log_evidence", "train_rmse", "held_out_rmse", "iterations"),
    *("train_log_loss", "train_error", "held_out_log_loss", "held_out_error"),
)
"""What a line of history says about the fit, not about clocks and memory."""


def rows(n, seed):
    """A wave over two inputs, with noise of sd 0.2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, 10 + np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * rng.normal(size=n)


def make_data(folder, n=1997):
    """DATA to train on, whose last tile is odd, and to look at while training; returns the paths of both."""
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
    """A job that waits for somebody to carry it out; ``case`` is a name of ``CASES``, or parameters."""
    create(data[0], str(place), CASES.get(case, case) if isinstance(case, str) else case, data[1], False)
    return JobStore(place)


def bits(value):
    """All numbers of a model, to the bit."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if is_dataclass(value):
        return tuple(bits(getattr(value, field.name)) for field in fields(value))
    return float(value).hex() if isinstance(value, float) else value


def lines(state):
    """What the history says about the fits."""
    return [{key: event.get(key) for key in TOLD} for event in state.history]


def assert_same_end(store, whole):
    """That a job is done with the bits, the history and the reason of one that nobody disturbed."""
    mine, theirs = store.state(), whole.state()
    assert mine.status is Status.DONE, (mine.status, mine.reason)
    assert mine.reason == theirs.reason
    assert bits(store.model()) == bits(whole.model())
    assert lines(mine) == lines(theirs)


def repeated(events):
    """For each time that the work was taken up again: the lines of history that were there, and that were kept."""
    found, standing = [], []
    for event in events:
        if event["event"] == "fit":
            standing.append(event)
        elif event["event"] == "running":
            found.append((standing, standing[: event["history"]]))
            standing = standing[: event["history"]]
    return found


def assert_one_round_repeated(events):
    """No line was forgotten but those of the one round, part or level whose checkpoint was not whole yet."""
    for had, kept in repeated(events):
        assert len({_round(line) for line in had[len(kept) :]}) <= 1


def _round(line):
    """What a line of history belongs to: the parts of one level are handed over together."""
    return line["kind"], line["level"] if line["kind"] == "part" else line["number"]


def aborted(place, reason, asked, child=None):
    """Abort a job once its watcher waits for that (``Asking``, in the folder ``asked``), and wait until it is aborted.

    No tile can be read before: nobody waits for the end of a pass.
    """
    wait_for(lambda: (asked / "here").exists() or (child and child.gone), "the middle of the work")
    open_job(place).abort(reason)
    wait_for(lambda: open_job(place).status() is Status.ABORTED, "the end of the job")
    (asked / "hold").unlink(missing_ok=True)


def begun_later(asked):
    """Tiles that were begun, and tiles and dense steps that the driver heard of, once the abort was asked for."""
    return tuple(count(asked / name) for name in ("tiles", "heard"))


def note(path):
    """Add one to a count that several processes keep."""
    with path.open("ab") as file:
        file.write(b".")


def count(path):
    """What was noted."""
    return path.stat().st_size if path.exists() else 0


def assert_usable(store, reason):
    """The model of an aborted job predicts, its held-out errors are in the history, and its state says why it ended."""
    state = store.state()
    assert (state.status, state.reason) == (Status.ABORTED, reason)
    last, model = state.history[-1], store.model()
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
    return sum('"event": "fit"' in path.read_text() for path in Path(place, "events").glob("0*.json"))


def kills(breeder, store, rng, times, things):
    """Carry a job out that dies so many times, at random among the ``things`` that an undisturbed one does.

    Each time within its share of them, so that it cannot end before.
    """
    for _ in range(times):
        halt = [None, rng.randint(1, int(0.9 * things / (times + 1))), signal.SIGKILL]
        child = breeder.call(carry, job=store.location, patience=0.0, halt=halt)  # nobody waits for the dead
        wait_for(lambda child=child: child.gone, "the end of a process")
        assert not child.out.exists(), child.out.read_text()


# What happens in processes of their own


class Halting(Watcher):
    """Sends this process a signal at the n-th thing that it does: a file it opens, a tile or a dense step it hears of.

    Things count from the beginning if ``after`` is None, else from the plan and this many lines of history on.
    """

    def __init__(self, after, things, number):
        self.left, self.things, self.number = -1 if after is None else after, things, number
        self.began, self.done, self._numbers = after is None, 0, itertools.count(1)  # counts in several threads
        sys.addaudithook(lambda event, arguments: self.count() if event == "open" else None)

    def on_plan(self, plan):
        self.began, self.planned = True, self.done

    def on_record(self, entry):
        self.left -= 1

    def on_tiles(self, *_):
        self.count()

    def on_step(self, *_):
        self.count()

    def count(self):
        if self.began and self.left <= 0:
            self.done = number = next(self._numbers)
            if number == self.things:
                os.kill(os.getpid(), self.number)


class Waiting(Watcher):
    """Waits after this many lines of history, once, until a file is there; beside it a file says that it waits."""

    def __init__(self, after, gate):
        self.left, self.gate = after, Path(gate)

    def on_record(self, entry):
        self.left -= 1
        if self.left == 0:
            note(Path(f"{self.gate}.here"))
            wait_for(self.gate.exists, "the gate")


class Asking(Watcher):
    """Waits in the middle of a pass or of a dense fit until somebody asks for the end of its job.

    ``where`` is the name of the pass, "pass" for any, or "dense fit", after so many lines of history. "hold" waits for
    nobody; from that line on no tile can be read (``listen``) while the file ``hold`` is there, as in a pass.
    """

    def __init__(self, folder, job, where, after):
        self.folder, self.job, self.where, self.left = Path(folder), job, where, after
        self.asked = False

    def on_record(self, entry):
        self.left -= 1
        if self.where == "hold" and self.left == 0:
            self._hold()

    def on_tiles(self, name, done, total, rows):
        self._heard(self.where in ("pass", name) and done < total)

    def on_step(self, info, candidates):
        self._heard(self.where == "dense fit" and info.iteration > 2)

    def _heard(self, here):
        if self.asked:
            note(self.folder / "heard")
        elif here and self.left <= 0:
            self._hold()
            handle = open_job(self.job)
            attempt = handle.state().attempt
            wait_for(lambda: handle.store.requested(attempt), "the abort")
            self.asked = True

    def _hold(self):
        (self.folder / "arm").unlink()
        note(self.folder / "hold")
        note(self.folder / "here")


def arm(folder, job, where, after):
    """Have the next driver that listens in this folder watched by ``Asking``."""
    folder = Path(folder)
    for path in folder.iterdir():
        path.unlink()
    (folder / "arm").write_text(json.dumps({"job": str(job), "where": where, "after": after}))


def listen(folder):
    """Have drivers of this process watched as ``arm`` says, tiles held and counted, and aborts looked for each time."""
    from partirvm.data import ZarrSource
    from partirvm.jobs import attempt

    folder, really = Path(folder), ZarrSource.tile

    def watcher():
        asked = folder / "arm"
        return Asking(folder, **json.loads(asked.read_text())) if asked.exists() else Watcher()

    def tile(self, number):
        if (folder / "here").exists():
            note(folder / "tiles")
        wait_for(lambda: not (folder / "hold").exists(), "the release of the tiles")
        return really(self, number)

    attempt.POLL_SECONDS, attempt.Watcher, ZarrSource.tile = 0.0, watcher, tile


def carry_until_asked(job, folder, where, after):
    """Carry a job out that is aborted there (``Asking``); its reason."""
    arm(folder, job, where, after)
    listen(folder)
    return carry(job)


def carry(job, quick=False, patience=40.0, halt=None, wait=None):
    """Carry a job out; its reason, or None where it was over already.

    ``halt`` is what ``Halting`` takes, ``wait`` what ``Waiting`` takes.
    """
    from partirvm.jobs.attempt import run_job

    if quick:
        hurry()
    watcher = Halting(*halt) if halt else Waiting(*wait) if wait else None
    fitted = run_job(job, patience=patience, watcher=watcher)
    return None if fitted is None else fitted.reason.value


def carry_counting(job):
    """Carry a job out; how many things it does (``Halting``) before it is planned, and in all."""
    from partirvm.jobs.attempt import run_job

    watcher = Halting(None, 0, 0)
    run_job(job, watcher=watcher)
    return watcher.planned, watcher.done


def meet(gate, others):
    """Wait until so many processes have come to a gate, a file that counts them."""
    note(Path(gate))
    wait_for(lambda: count(Path(gate)) >= others, "the others")


def halt_at(folder, number, what):
    """Send this process a signal at the n-th change to a name below a folder; returns the count, a list of one."""
    changes, numbers = [0], itertools.count(1)
    calls = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")

    def heard(event, arguments):
        if event == "open":
            writes = arguments[2] is not None and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            writes = event in calls
        if writes and any(str(argument).startswith(str(folder)) for argument in arguments[:2]):
            changes[0] = next(numbers)
            if changes[0] == number:
                os.kill(os.getpid(), what)

    sys.addaudithook(heard)
    return changes


def write_rows(data, seed, n=150, gate=None, halt=None, **options):
    """Ingest or append rows, when two processes have come to the gate; the changes to files if ``halt`` counts them.

    ``halt`` is the number of a change and a signal (``halt_at``).
    """
    hurry()
    changes = halt_at(Path(data).parent, *halt) if halt else [0]
    if gate:
        meet(gate, 2)
    ingest(rows(n, seed), data, **options)
    return changes[0]


def overwrite_until(job, things):
    """Overwrite a job and save a first model; killed before so many things that it does to the folder (0: never).

    Returns how many things it does.
    """
    from reference import model

    from partirvm.storage import Folder

    numbers, done = itertools.count(1), [0]

    def counted(really):
        def act(self, name="", *data):
            if not name.endswith(".beat.json"):
                done[0] = next(numbers)
                if done[0] == things:
                    os.kill(os.getpid(), signal.SIGKILL)
            return really(self, name, *data)

        return act

    for name in ("create", "write", "remove"):
        setattr(Folder, name, counted(getattr(Folder, name)))
    store = JobStore.create(job, {"run": 2}, overwrite=True)
    store.acquire()
    store.save(model(2))
    store.record({"event": "note"})
    store.lease.release()
    return done[0]


def hurry():
    """Let leases of this process live and expire quickly."""
    lease.BEAT, lease.EXPIRY = QUICK


def carry_in_little_room(job, after, limit):
    """Carry a job out; after so many lines of history no file may grow beyond ``limit`` bytes."""
    import resource
    import threading

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill():
        wait_for(lambda: count_lines(job) >= after)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    threading.Thread(target=fill, daemon=True).start()
    try:
        return carry(job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Meeting(Waiting):
    """Waits after the first line until so many others have noted that they are there."""

    def __init__(self, path, others):
        self.left, self.path, self.others = 1, Path(path), others

    def on_record(self, entry):
        self.left -= 1
        if self.left == 0:
            wait_for(lambda: count(self.path) >= self.others, "the others")


def compete_once(job, folder, others):
    """Try to carry a job out without patience, at the same moment as so many others: its reason."""
    from partirvm.errors import LeaseError
    from partirvm.jobs.attempt import run_job

    meet(Path(folder, "ready"), others + 1)
    try:
        fitted = run_job(job, patience=0.0, watcher=Meeting(Path(folder, "refused"), others))
    except LeaseError:
        note(Path(folder, "refused"))
        raise
    return fitted.reason.value


MOTHER = f"""
import json, os, signal, sys, traceback
sys.path[:0] = {[HERE, ROOT, str(Path(ROOT, "jobs"))]!r}
import fault_cases, partirvm.jobs.attempt, partirvm.jobs.checkpoint, partirvm.model.files, zarr
import fsspec.implementations.local, scipy.linalg, scipy.special
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
for line in sys.stdin:
    name, out, arguments = json.loads(line)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            try:
                said = {{"value": getattr(fault_cases, name)(**arguments)}}
                status = 0
            except BaseException as error:
                said = {{"error": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}}
            with open(out + ".part", "w") as file:
                json.dump(said, file)
            os.rename(out + ".part", out)
        finally:
            os._exit(status)
    print(pid, flush=True)
"""


class Child:
    """A process that calls a function of this module."""

    def __init__(self, pid, out):
        self.pid, self.out = pid, out

    @property
    def gone(self):
        """Whether it has ended."""
        return not Path(f"/proc/{self.pid}").exists()

    def kill(self, what=signal.SIGKILL):
        """Send it a signal; after a deadly one it is gone when this returns. False if it had ended before."""
        try:
            os.kill(self.pid, what)
        except ProcessLookupError:
            return False
        if what == signal.SIGKILL:
            wait_for(lambda: self.gone)
        return not self.out.exists()

    def end(self, seconds=PATIENCE):
        """Wait for its end; what it returned, or an AssertionError with what it raised."""
        said = self.said(seconds)
        assert "value" in said, said.get("traceback")
        return said["value"]

    def error(self, seconds=PATIENCE):
        """Wait for its end; name and message of what it raised."""
        said = self.said(seconds)
        assert "error" in said, said
        return said["error"], said["message"]

    def said(self, seconds=PATIENCE):
        """Wait for its end; what it left."""
        wait_for(lambda: self.gone, "the end of a process", seconds)
        return json.loads(self.out.read_text())


class Mother:
    """Forks processes that have imported everything already."""

    def __init__(self, process, folder):
        self._process, self._folder, self._born = process, folder, []
        self.threads = usable_cores()

    def call(self, function, **arguments):
        """Start ``function`` of this module in a process of its own."""
        out = self._folder / f"{len(self._born)}.json"
        self._process.stdin.write(json.dumps([function.__name__, str(out), arguments]) + "\n")
        self._process.stdin.flush()
        child = Child(int(self._process.stdout.readline()), out)
        self._born.append(child)
        return child

    def bury(self):
        """Let nothing that was born live on."""
        for child in self._born:
            if not child.gone:
                child.kill(signal.SIGCONT)
                child.kill()


@contextmanager
def mother(folder):
    """A process that forks others; everything is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", MOTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        made = Mother(process, folder)
        try:
            yield made
        finally:
            made.bury()
    finally:
        process.kill()
        process.communicate()


def crash(work, folder, point, **arguments):
    """Call a function of this module, killed at the ``point``-th change below ``folder``; the changes if fewer."""
    changes = halt_at(folder, point, signal.SIGKILL)
    globals()[work](**arguments)
    return changes[0]


def carry_learning_again(job, **options):
    """As ``carry``; the kernel is learned again whenever there are more vectors than centres of the last learning."""
    from partirvm.strategies import stages

    stages.due = lambda problem, options, fit, centres: fit.n_vectors > centres
    return carry(job, **options)


def open_slowly(data, number):
    """Open DATA, with SIGSTOP before the n-th file or folder that is read; the number of rows."""
    from partirvm.data import ZarrSource

    reads = itertools.count(1)

    def hook(event, given):
        if event in {"open", "os.listdir", "os.scandir"} and str(given[0]).startswith(data) and next(reads) == number:
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(hook)
    return ZarrSource(data).n_rows
