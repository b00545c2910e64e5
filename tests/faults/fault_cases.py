"""Small jobs, the processes that carry them out, and what it means that two of them came to the same end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from partirvm import ingest
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.model import ClassModel
from partirvm.service.carrying import create
from partirvm.service.jobs import open_job
from partirvm.storage import lease
from partirvm.storage.lease import Timing
from partirvm.types import FitParameters

HERE = str(Path(__file__).parent)

QUICK = Timing(beat=0.1, expiry=1.5)
"""Leases for tests that need not wait for the real ones to expire."""

TILE = 512

CASES = {
    "working-set": FitParameters(gamma=2.0, strategy="working-set", partition_size=40, max_rounds=6),
    "incremental": FitParameters(gamma=2.0, strategy="incremental", partition_size=250),
    "split-merge": FitParameters(gamma=2.0, strategy="split-merge", partition_size=250),
}
"""Each a second or two of work, with five to eight places to go on from."""

SLACK = 2.0
"""Seconds that a busy machine may add to the second that is promised."""

WITHIN = {
    "passes": FitParameters(gamma=20.0, strategy="working-set", partition_size=700, stop_fraction=0.99),
    "dense fit": FitParameters(
        gamma=200.0, strategy="working-set", partition_size=700, stop_fraction=0.99, max_rounds=2, tol=1e-13
    ),
}
"""A fit whose passes take 5 s and more after the first round, and one whose last dense fit takes 20 s and more."""

CLASSES = FitParameters(gamma=2.0, strategy="working-set", partition_size=40, stop_fraction=0.9, max_rounds=4)
"""A fit of three classes: a second or two, some tens of passes to a round."""

NEWTON = FitParameters(gamma=100.0, strategy="working-set", partition_size=200, stop_fraction=0.99)
"""A fit of three classes whose passes never end: 0.1 s and more each."""

TOLD = (
    *("kind", "number", "level", "candidates", "vectors", "log_evidence", "train_rmse", "held_out_rmse", "iterations"),
    *("train_log_loss", "train_error", "held_out_log_loss", "held_out_error"),
)
"""What a line of history says about the fit, not about clocks and memory."""

PATIENCE = 90.0
"""Seconds that anything here may take on a busy machine."""


def rows(n, seed):
    """A wave over two inputs, with noise of sd 0.2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, 10 + np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.2 * rng.normal(size=n)


def make_data(folder):
    """DATA to train on, whose last tile is odd, and to look at while training; returns the paths of both."""
    ingest(rows(1997, 0), folder / "train.zarr", tile_rows=TILE)
    ingest(rows(400, 1), folder / "test.zarr", tile_rows=TILE)
    return str(folder / "train.zarr"), str(folder / "test.zarr")


def make_long_data(folder):
    """As ``make_data``, with rows enough that a pass over all of them takes seconds."""
    ingest(rows(150_000, 0), folder / "train.zarr", tile_rows=4 * TILE)
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


def aborted(place, reason):
    """Abort a job, and wait for it; seconds that it took."""
    began = time.monotonic()
    open_job(place).abort(reason)
    wait_for(lambda: open_job(place).status() is Status.ABORTED)
    return time.monotonic() - began


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


def wait_for(condition, seconds=PATIENCE, what="it"):
    """Look until it holds, and return what it says."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.005)
    return found


def count_lines(place):
    """Lines of history that were ever written; cheap enough to ask all the time."""
    return sum('"event": "fit"' in path.read_text() for path in Path(place, "events").glob("0*.json"))


def remove_arrays(folder):
    """Move the chunk files of Zarr groups away; returns them, and how to bring them back."""
    moved = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and "c" in path.parts]
    aside = Path(f"{folder}.aside")
    for number, path in enumerate(moved):
        aside.mkdir(exist_ok=True)
        shutil.move(path, aside / str(number))

    def mend():
        for number, path in enumerate(moved):
            shutil.move(aside / str(number), path)
        aside.rmdir()

    return moved, mend


# What happens in processes of their own


def carry(job, quick=False, patience=40.0):
    """Carry a job out; its reason, or None where it was over already."""
    from partirvm.service.carrying import carry_out

    if quick:
        hurry()
    fitted = carry_out(job, patience=patience)
    return None if fitted is None else fitted.outcome.reason.value


def overwrite(data, job, case):
    """Fit a case in place of the job that is there, with quick leases; its reason."""
    from partirvm import service

    hurry()
    return service.fit(data[0], job, CASES[case], validation=data[1], overwrite=True).outcome.reason.value


def hurry():
    """Let leases of this process live and expire quickly."""
    for take in (JobStore.acquire, lease.acquire, lease.succeed):
        take.__kwdefaults__["timing"] = QUICK


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


def carry_until_forbidden(job, after):
    """Carry a job out; after so many lines of history this process may not write there any more."""
    import threading

    from partirvm.backends.tasks import package_versions

    def forbid():
        wait_for(lambda: count_lines(job) >= after)
        for path in [Path(job), *Path(job).rglob("*")]:
            if path.is_dir():
                path.chmod(0o555)
        if os.getuid() == 0:
            os.setuid(65534)  # modes do not bind root

    package_versions()  # what Python has not imported by now it may not be allowed to read
    if after:
        threading.Thread(target=forbid, daemon=True).start()
    else:
        forbid()
    return carry(job)


def watch(job, stop):
    """Look at a job until a file appears, and once more; counts looks and the states that were seen."""
    seen, looks, had, last = [], 0, 0, False
    while not last:
        last = Path(stop).exists()
        handle = open_job(job)
        state, progress = handle.state(), handle.progress()
        assert state.status is not None
        assert progress["status"] in {status.value for status in Status}
        assert [line["event"] for line in state.history] == ["fit"] * len(state.history)
        assert state.events >= had, "events do not go away"
        had = state.events
        if handle.store.has_model():
            assert np.isfinite(handle.store.model().mean).all()
        if not seen or seen[-1] != state.status.value:
            seen.append(state.status.value)
        looks += 1
    return {"looks": looks, "seen": seen}


def compete(job, stop):
    """Try to carry a job out, again and again, until a file appears: how each try ended."""
    from partirvm.errors import LeaseError

    ends = []
    while not Path(stop).exists():
        try:
            ends.append(carry(job, patience=0.0))
        except LeaseError as error:
            ends.append(type(error).__name__)
        time.sleep(0.02)
    return ends


def disturb(job, stop):
    """Abort a job whenever it runs, and queue it again, until it was done three times over or a file appears."""
    from partirvm.errors import LeaseError, PartirvmError

    asked = 0
    while asked < 3 and not Path(stop).exists():
        handle = open_job(job)
        try:
            status = handle.status()
            if status is Status.RUNNING and len(handle.state().history) > asked:
                handle.abort(f"number {asked}")
                asked += 1
                wait_for(lambda handle=handle: handle.status().final)
                while True:
                    try:
                        handle.requeue()
                        break
                    except LeaseError:
                        time.sleep(0.02)
        except PartirvmError as error:
            if handle.status() is not Status.DONE:
                raise
            return {"asked": asked, "late": str(error)}
        time.sleep(0.01)
    return {"asked": asked, "late": ""}


MOTHER = f"""
import json, os, signal, sys, traceback
sys.path.insert(0, {HERE!r})
import fault_cases, partirvm.service.carrying, partirvm.jobs.checkpoint, partirvm.model.files, zarr
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

    def said(self, seconds):
        """Wait for its end; what it left."""
        wait_for(lambda: self.gone, seconds, "the end of a process")
        return json.loads(self.out.read_text())


class Mother:
    """Forks processes that have imported everything already."""

    def __init__(self, process, folder):
        self._process, self._folder, self._born = process, folder, []

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
