"""Functions that tests call in other processes, and the process that forks these."""

import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from fault_cases import count, count_lines, note, rows
from fault_watchers import Halting, Meeting, Waiting, arm, halt_at, listen, set_lease_times
from waiting import LOAD, PATIENCE, wait_for

from partirvm import ingest
from partirvm.jobs import JobStore
from partirvm.process import usable_cores
from partirvm.storage import LeaseTimes

HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[1])


QUICK = LeaseTimes(beat=0.1, expiry=1.5 * LOAD)
"""Times of leases that expire quickly."""


def shorten_leases():
    """Make the leases of this process expire quickly."""
    set_lease_times(QUICK)


def carry(job, quick=False, patience=40.0, halt=None, wait=None):
    """Run a job; return the reason of its end, or None if it had already ended.

    ``halt`` and ``wait`` are arguments of ``Halting`` and ``Waiting``.
    """
    from partirvm.jobs import run_job

    times = QUICK if quick else None
    watcher = Halting(*halt) if halt else Waiting(*wait) if wait else None
    fitted = run_job(job, patience=patience, watcher=watcher, times=times)
    return None if fitted is None else fitted.reason.value


def carry_until_abort(job, folder, where, after):
    """Run a job that is aborted at a given point (``UntilAbort``); return the reason of its end."""
    arm(folder, job, where, after)
    listen(folder)
    return carry(job)


def carry_counting(job):
    """Run a job; return its number of actions (``Halting``) before its plan, and in all."""
    from partirvm.jobs import run_job

    watcher = Halting(None, 0, 0)
    run_job(job, watcher=watcher)
    return watcher.planned, watcher.done


def carry_learning_again(job, **options):
    """Do the same as ``carry``; learn the kernel again as soon as there are more vectors."""
    from partirvm.strategies import STRATEGIES, Rounds

    def due(problem, options, fit, centres):
        return fit.n_vectors > centres

    for name, strategy in STRATEGIES.items():
        if issubclass(strategy, Rounds):
            STRATEGIES[name] = type(strategy.__name__, (strategy,), {"due": staticmethod(due)})
    return carry(job, **options)


def make_small(patch):
    """Set constants so that 2,000 rows exceed the memory and need six cells."""
    constants = {"core.held_back.LEFT_OUT_ROWS": 600, "likelihoods.gaussian.LEFT_OUT_ROWS": 600}
    constants |= {"local.cells.CELL_ROWS": 300, "resolve.resolve.RESIDUAL_SHARE": 400}
    for place, value in constants.items():
        patch.setattr(f"partirvm.{place}", value)


def carry_small(job):
    """Run a job immediately, with small cells on disk."""
    make_small(pytest.MonkeyPatch())
    return carry(job, patience=0.0)


def carry_with_full_disk(job, after, limit):
    """Run a job; after a number of history lines no file may exceed ``limit`` bytes."""
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


def meet(gate, others):
    """Wait until this many processes have reached a gate, a file that counts them."""
    note(Path(gate))
    wait_for(lambda: count(Path(gate)) >= others, "the others")


def compete_once(job, folder, others):
    """Try to run a job at the same moment as others, without patience; return the reason of its
    end."""
    from partirvm.errors import LeaseError
    from partirvm.jobs import run_job

    meet(Path(folder, "ready"), others + 1)
    try:
        fitted = run_job(job, patience=0.0, watcher=Meeting(Path(folder, "refused"), others))
    except LeaseError:
        note(Path(folder, "refused"))
        raise
    return fitted.reason.value


def write_rows(data, seed, n=150, gate=None, halt=None, **options):
    """Ingest or append rows once two processes have reached a gate; return the changes to files.

    ``halt`` is the number of a change and a signal (``halt_at``).
    """
    shorten_leases()
    changes = halt_at(Path(data).parent, *halt) if halt else [0]
    if gate:
        meet(gate, 2)
    ingest(rows(n, seed), data, **options)
    return changes[0]


def overwrite_until(job, things):
    """Overwrite a job and save a model, killed before an action on the folder; return the
    actions."""
    from journals import REQUEST
    from reference import model

    from partirvm.storage import Folder

    numbers = itertools.count(1)
    done = [0]

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
    store = JobStore.create(job, REQUEST | {"run": 2}, overwrite=True)
    store.acquire()
    store.save(model(2))
    store.record({"event": "note"})
    store.lease.release()
    return done[0]


def open_slowly(data, number):
    """Open DATA, with SIGSTOP before the n-th file or folder is read; return the number of rows."""
    from partirvm.data import ZarrSource

    reads = itertools.count(1)

    def hook(event, arguments):
        if (
            event in {"open", "os.listdir", "os.scandir"}
            and str(arguments[0]).startswith(data)
            and next(reads) == number
        ):
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(hook)
    return ZarrSource(data).n_rows


def crash(work, folder, point, **arguments):
    """Call a function of this module, killed at a change below ``folder``; return the changes."""
    changes = halt_at(folder, point, signal.SIGKILL)
    globals()[work](**arguments)
    return changes[0]


def crash_action(action, folder, point, arguments):
    """Call an action of a job's life, killed at a change below ``folder``."""
    from life import ACTIONS

    halt_at(folder, point, signal.SIGKILL)
    ACTIONS[action](**arguments)


def save_copy(source, out):
    """Save a model again together with its rows."""
    from partirvm.model import load_model, save_model

    make_small(pytest.MonkeyPatch())
    save_model(load_model(source), out, copy=True)


def kills(forker, store, rng, times, things):
    """Run a job that is killed this many times, at random points within intervals of its
    actions."""
    for _ in range(times):
        halt = [None, rng.randint(1, int(0.9 * things / (times + 1))), signal.SIGKILL]
        child = forker.call(carry, job=store.location, patience=0.0, halt=halt)
        child.wait()
        assert not child.out.exists(), child.out.read_text()


FORKER = f"""
import json, os, signal, sys, traceback
sys.path[:0] = {[HERE, ROOT, str(Path(ROOT, "jobs"))]!r}
import fault_processes, partirvm.jobs.attempt, partirvm.jobs.checkpoint, partirvm.model.files, zarr
import fsspec.implementations.local, importlib, scipy.linalg, scipy.special
for module in sys.argv[1:]:
    importlib.import_module(module)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
for line in sys.stdin:
    name, out, arguments = json.loads(line)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            try:
                said = {{"value": getattr(fault_processes, name)(**arguments)}}
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
    """A forked process that calls a function of this module."""

    def __init__(self, pid, out):
        self.pid = pid
        self.out = out

    @property
    def gone(self):
        """Return True if the process has ended."""
        return not Path(f"/proc/{self.pid}").exists()

    def kill(self, what=signal.SIGKILL):
        """Send it a signal; if it is fatal, wait for the end; return False if the process had
        already ended."""
        try:
            os.kill(self.pid, what)
        except ProcessLookupError:
            return False
        if what == signal.SIGKILL:
            wait_for(lambda: self.gone)
        return not self.out.exists()

    def wait(self, seconds=PATIENCE):
        """Wait for the process to end."""
        wait_for(lambda: self.gone, "the end of a process", seconds)

    def end(self, seconds=PATIENCE):
        """Wait for the end; return the result, or raise an AssertionError with the child's
        error."""
        result = self.result(seconds)
        assert "value" in result, result.get("traceback")
        return result["value"]

    def error(self, seconds=PATIENCE):
        """Wait for the end; return the name and message of the error."""
        result = self.result(seconds)
        assert "error" in result, result
        return result["error"], result["message"]

    def result(self, seconds=PATIENCE):
        """Wait for the end; return the output."""
        self.wait(seconds)
        return json.loads(self.out.read_text())


class Forker:
    """Forks processes in which all modules are imported."""

    def __init__(self, process, folder):
        self._process = process
        self._folder = folder
        self._children = []
        self.threads = usable_cores()

    def call(self, function, **arguments):
        """Call a function of this module in another process."""
        out = self._folder / f"{len(self._children)}.json"
        self._process.stdin.write(json.dumps([function.__name__, str(out), arguments]) + "\n")
        self._process.stdin.flush()
        child = Child(int(self._process.stdout.readline()), out)
        self._children.append(child)
        return child

    def end_all(self):
        """End all processes that were started."""
        for child in self._children:
            if not child.gone:
                child.kill(signal.SIGCONT)
                child.kill()


@contextmanager
def forking(folder, *modules):
    """Yield a process that forks others after importing ``modules``; all are ended at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKER, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        forker = Forker(process, folder)
        try:
            yield forker
        finally:
            forker.end_all()
    finally:
        process.kill()
        process.communicate()
