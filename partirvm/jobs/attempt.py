"""Fit DATA in this process (``fit``), or run one attempt at a job: acquire the lease, resume, and
record the end.

An attempt records the events ``running``, ``plan``, ``fit`` (a history line) and its end. A process
that dies records no end: the next process takes over the expired lease and resumes. If a cluster
fails, the job is ``interrupted``.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.errors import (
    ChangedDataError,
    ClusterError,
    LeaseError,
    MissingDataError,
    PartirvmError,
    StorageError,
)
from partirvm.execution import Executor, executor_for, is_ended
from partirvm.fit.driver import Driver, Entry, MemoryJournal, Outcome, Watcher
from partirvm.fit.run import run, with_new_rows
from partirvm.jobs import request as requests
from partirvm.jobs.checkpoint import Checkpoint, attached, resumes
from partirvm.jobs.request import Place
from partirvm.jobs.state import TRANSITIONS, Status
from partirvm.jobs.store import JobStore
from partirvm.learning.sample import OnStep
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.process import package_versions
from partirvm.resolve.new_problem import Interrupted, timer
from partirvm.resolve.resolve import FitSpec, check_parameters, continued, resolve
from partirvm.storage import Where
from partirvm.storage.lease import Lease, LeaseTimes, Process
from partirvm.strategies.instructions import Stopped

TAKE_OVER_SECONDS = 40.0
"""Seconds for which a new driver waits for the lease held by a driver that hangs or is
unreachable."""

LOSS_SECONDS = 60.0
"""Minimum number of seconds between two events about lost workers."""


@dataclass(kw_only=True)
class JobJournal(MemoryJournal):
    """A journal that writes to the job folder and also keeps the model and the history in
    memory."""

    store: JobStore
    spec: Any = None

    def save(self, model: AnyModel) -> None:
        self.store.save(model)
        super().save(model)

    def record(self, entry: Entry) -> None:
        self.store.record({"event": "fit", **entry})
        super().record(entry)

    def checkpoint(self, state: Any) -> None:
        lines = len(self.history) - (
            state.end is not None
        )  # an update from a final checkpoint drops the final line
        self.store.checkpoint(Checkpoint(self.spec, state, lines))


def plan(
    estimator: Any,
    data: Where,
    *,
    validation: Place = None,
    client: Any = None,
    watcher: Watcher | None = None,
) -> Plan:
    """Return the plan of a fit to DATA: partition size, passes, seconds and memory; ``print`` shows
    it.

    Raises ``MemoryLimitError`` if the fit needs more memory than allowed, and the errors of
    ``fit``.

    Parameters
    ----------
    estimator : RVMRegressor, RVMClassifier or Request
        The options of the fit; an estimator is not fitted.
    data : path or URL
        DATA, a dataset made by ``ingest``.
    validation : path or URL, optional
        Held-out DATA.
    client : dask.distributed.Client, optional
        A cluster to read DATA on; by default the estimator's client, if any.
    watcher : Watcher, optional
        Receives the progress of kernel learning.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, ingest, plan
    >>> X = np.linspace(-5, 5, 300)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=300)
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingest((X, y), f"{folder.name}/rows.zarr")
    >>> model = RVMRegressor(gamma=2.0, strategy="working-set", partition_size=20)
    >>> plan(model, f"{folder.name}/rows.zarr").partition_size
    20
    >>> folder.cleanup()
    """
    request, client = requests.request_of(estimator, client)
    on_step = (watcher or Watcher()).on_learning
    return _plan(request, data, validation, client, lambda: None, on_step)


def _plan(request: Request, data: Any, validation: Place, client: Any, *how: Any) -> Plan:
    """Return the plan of a fit to DATA.

    Args:
        request: the options
        data: path or URL of DATA
        validation: path or URL of held-out DATA, or None
        client: Dask client, or None for this process
        how: the ``interrupted`` and ``on_step`` arguments of ``resolve``
    """
    source, held_out = requests.open_sources(data, validation)
    with closing(executor_for(client)) as executor:
        return resolve(source, check_parameters(request), executor, held_out, *how).plan


def fit(
    data: str,
    job: str,
    parameters: Request,
    *,
    validation: Place = None,
    overwrite: bool = False,
    **how: Any,
) -> Outcome | None:
    """Fit DATA in this process and store the model and history in JOB, like ``submit`` followed by
    ``run_job``.

    The fit is planned first, except for kernel learning: a refused fit, for example for lack of
    memory, creates no JOB. Raises the errors of ``resolve.resolve.resolve``, and ``ExistsError`` if
    JOB exists. If the watcher aborts the fit, the fit ends with the last saved model, if any; JOB
    can be resumed.

    Args:
        data: path or URL of DATA
        job: path or URL of JOB
        parameters: the options
        validation: path or URL of held-out DATA, or None
        overwrite: True to replace an old JOB, unless the fit is refused
        how: the ``client`` and ``watcher`` arguments of ``run_attempt``, and ``times`` of
            ``run_job``
    """
    _plan(parameters, data, validation, how.get("client"), lambda: Termination.TIME)
    requests.create(data, job, parameters, validation, overwrite, how.get("client"))
    return run_job(job, attempt=1, allow_code=True, **how)


def run_job(
    job: str,
    *,
    attempt: int | None = None,
    patience: float = TAKE_OVER_SECONDS,
    times: LeaseTimes | None = None,
    **how: Any,
) -> Outcome | None:
    """Run a queued or interrupted job in this process and return its result.

    Returns None if the job has ended or its current attempt is not ``attempt``. Without
    ``allow_code``, a job that names functions raises ``UsageError``.

    Args:
        job: path or URL of JOB
        attempt: number of the attempt to run; None for any
        patience: seconds to wait for a process that runs the job
        times: the times of the job's lease; None for the usual ones
        how: the ``allow_code``, ``client`` and ``watcher`` arguments of ``run_attempt``

    Raises ``LeaseError`` while another process runs the job. If the DATA are missing or have
    changed since the job began, it raises ``MissingDataError`` or ``ChangedDataError``; the job is
    then interrupted, and can be resumed once the original DATA are restored. Other exceptions are
    raised as by ``fit``; the job then records ``failed``.
    """
    store = JobStore(job, times)
    with store.acquire(patience=patience):
        return run_attempt(store, attempt, **how)


def run_attempt(
    store: JobStore,
    attempt: int | None,
    allow_code: bool = False,
    client: Any = None,
    watcher: Watcher | None = None,
) -> Outcome | None:
    """Run an attempt at a job whose lease the caller holds, like ``run_job``.

    Args:
        store: the job's store
        attempt: number of the attempt to run; None for any
        allow_code: True to allow functions that the job names
        client: Dask client of the cluster; None to run in this process
        watcher: receives the progress, and may abort
    """
    state = store.folded()
    if Status.RUNNING not in TRANSITIONS[state.status] or attempt not in (None, state.attempt):
        return None
    stored = state.request
    requests.require_code_allowed(store.location, stored, allow_code)
    with _ending(store, client):
        restored = _restored(store, stored["fingerprint"]["n_rows"], allow_code)
        state = store.folded()
        running = Attempt(
            journal=JobJournal(
                store=store, history=list(state.history), keep_cells=store.keep_cells
            ),
            number=state.attempt,
            watcher=watcher or Watcher(),
            restored=restored,
            elapsed=float(state.history[-1]["seconds"]) if state.history else 0.0,
            source=requests.open_unchanged(stored["data"], stored["fingerprint"]),
            held_out=requests.open_held_out(stored),
            request=check_parameters(requests.parameters_of(stored)),
        )
        with (
            closing(executor_for(client)) as executor,
            _recorded_losses(store, executor) as record_losses,
        ):
            return running.run(executor, record_losses)


@dataclass(frozen=True)
class Attempt:
    """An attempt at a job whose lease this process holds.

    Attributes:
        journal: writes to the job
        number: the number of the attempt
        watcher: receives the progress, and may abort
        restored: the last checkpoint, if any
        request: the checked options
        source: the training data
        held_out: the held-out data, or None
        elapsed: seconds spent in earlier attempts
    """

    journal: JobJournal
    number: int
    watcher: Watcher
    restored: Checkpoint | None
    request: Request
    source: Source
    held_out: Source | None
    elapsed: float

    def run(self, executor: Executor, record_losses: Callable[[], None]) -> Outcome:
        """Run the fit to its end, and record the end.

        Args:
            executor: runs the passes
            record_losses: records the loss of workers, if any
        """
        journal = self.journal
        began = time.monotonic() - self.elapsed
        poll = _poll(journal.store, self.number, self.watcher)
        over = timer(self.request.time_limit)

        def interrupted() -> Termination | None:
            record_losses()
            return poll() or over()

        try:
            journal.spec = self.specified(executor, interrupted)
        except Stopped:
            outcome = Outcome(Termination.ABORTED, None, time.monotonic() - began)
        else:
            state = self.begin(complete=over() is None)
            elapsed = time.monotonic() - began
            driver = Driver(
                executor, self.source, self.held_out, self.watcher, interrupted, elapsed=elapsed
            )
            driver.usable = state is not None and journal.store.has_model()
            # tiles that are still being read are not awaited
            outcome = run(driver, journal.spec, journal, state, self.kernel_folder)
        return _end(journal, self.number, outcome)

    def specified(self, executor: Executor, interrupted: Interrupted) -> FitSpec:
        """Return the specification of the fit. Raises ``Stopped`` if the fit is aborted."""
        data = (self.source, self.request, executor, self.held_out, interrupted)
        if self.restored is None:
            return resolve(*data, _step_teller(self.journal.store, self.watcher))
        return continued(self.restored.spec, *data)

    def begin(self, *, complete: bool) -> Any:
        """Return the stored state from which the fit starts, if any; otherwise store the fit's
        spec.

        Args:
            complete: False after the time limit, since the spec may then lack learned values
        """
        journal = self.journal
        cast(Lease, journal.store.lease).doing = ""
        state = _checkpoint(self.restored, journal.spec)
        if state is None and complete:
            journal.store.checkpoint(Checkpoint(journal.spec, None, 0))
        _tell_plan(self.watcher, journal)
        return state

    @property
    def kernel_folder(self) -> Path | None:
        """The folder for kernel blocks; None for a temporary folder."""
        location = self.journal.store.location
        return None if "://" in location else Path(location, "kernel")


def _restored(store: JobStore, n_rows: int, allow_code: bool) -> Checkpoint | None:
    """Return the last checkpoint of ``n_rows`` rows, if any, and record that the job is running."""
    restored: Checkpoint | None = store.restore(
        lambda value: resumes(value, n_rows), allow_code=allow_code
    )
    store.record(
        {
            "event": "running",
            "history": 0 if restored is None else restored.history,
            "reason": f"by {Process.this()}",
            "versions": package_versions(),
        }
    )
    return restored


def _step_teller(store: JobStore, watcher: Watcher) -> OnStep:
    """Return a function that reports steps of kernel learning to the watcher and in the lease."""
    lease = cast(Lease, store.lease)

    def tell(number: int, total: int, stage: str) -> None:
        watcher.on_learning(number, total, stage)
        lease.doing = f"learning the kernel, {number} of {total}: {stage}"

    return tell


def _tell_plan(watcher: Watcher, journal: JobJournal) -> None:
    """Record the plan, and report the plan and the entries of earlier attempts to the watcher."""
    plan = journal.spec.plan
    journal.store.record({"event": "plan", **plan.to_json(), "text": str(plan)})
    watcher.on_plan(plan)
    for entry in journal.history:
        watcher.on_record(entry)


def _checkpoint(restored: Checkpoint | None, spec: FitSpec) -> Any:
    """Return the stored state for the spec, with the spec's new rows, if any."""
    if restored is None or restored.state is None:
        return None
    state = attached(restored.state, spec.problem, spec.options)
    return (
        state if restored.spec.problem.n_rows == spec.problem.n_rows else with_new_rows(state, spec)
    )


def _poll(store: JobStore, attempt: int, watcher: Watcher) -> Interrupted:
    """Return a function that returns ``ABORTED`` after a request to end the job, and raises if the
    lease is lost."""
    aborted = False
    interval = store.times.poll
    clock = store.times.clock
    polled = -interval

    def poll() -> Termination | None:
        nonlocal aborted, polled
        aborted = aborted or watcher.aborted()
        if not aborted and clock.monotonic() - polled >= interval:
            polled = clock.monotonic()
            if store.lease is not None and store.lease.lost:
                store.lease.check()
            aborted = store.requested(attempt) is not None
        return Termination.ABORTED if aborted else None

    return poll


@contextmanager
def _recorded_losses(store: JobStore, executor: Executor) -> Iterator[Callable[[], None]]:
    """Yield a function that records worker losses as an event; the remaining losses are recorded at
    the end of the block.

    There is at most one such event per ``LOSS_SECONDS``, however many workers are lost.
    """
    recorded = 0
    recorded_at = -LOSS_SECONDS
    clock = store.times.clock

    def record(seconds: float = LOSS_SECONDS) -> None:
        nonlocal recorded, recorded_at
        n_lost, last_lost = executor.lost_workers
        if n_lost > recorded and clock.monotonic() - recorded_at >= seconds:
            recorded_at = clock.monotonic()
            store.record({"event": "workers", "lost": n_lost - recorded, "last": last_lost})
            recorded = n_lost

    try:
        yield record
    finally:
        with suppress(LeaseError, StorageError):  # the error that ends the block is more important
            record(0.0)


@contextmanager
def _ending(store: JobStore, client: Any = None) -> Iterator[None]:
    """Record an exception raised in the block as an event, if the job can still be written, and
    re-raise it.

    If the ``client`` belongs to a worker that is shutting down, the exception may be of any kind
    and is unrelated to the fit.
    """
    try:
        yield
    except BaseException as error:
        with suppress(LeaseError, StorageError):
            status = store.folded().status
            event = _end_event(error, status, client)
            # otherwise the end has already been recorded, but the reply was lost
            if event["event"] in TRANSITIONS[status]:
                store.record(event)
        raise


def _end_event(error: BaseException, status: Status, client: Any) -> dict[str, str]:
    """Return the event that records a job's end caused by an exception.

    Args:
        error: the exception
        status: the previous status of the job
        client: Dask client of the cluster, if the fit ran on one
    """
    failed = isinstance(error, Exception)
    kind = type(error).__name__
    if is_ended(client) and failed and not isinstance(error, PartirvmError):
        return {"event": "interrupted", "reason": f"the worker that ran it was stopped ({kind})"}
    changed = isinstance(error, ChangedDataError | MissingDataError) and status is Status.RUNNING
    # a worker that is shutting down raises ``CancelledError``
    stopped = isinstance(error, ClusterError | CancelledError)
    if stopped or changed or not failed:
        return {"event": "interrupted", "reason": str(error) or f"stopped at once ({kind})"}
    return {
        "event": "failed",
        "reason": f"{kind}: {error}",
        "traceback": traceback.format_exc(),
    }


def _end(journal: JobJournal, attempt: int, outcome: Outcome) -> Outcome:
    """Record the end of an attempt and return its result."""
    store = journal.store
    model = journal.model
    seconds = outcome.seconds
    if model is None and store.has_model():
        model = store.model(allow_code=True)  # the caller was permitted to run the job's code
    what, reason = store.requested(attempt) or ("abort", "")
    if outcome.reason is not Termination.ABORTED:
        store.record({"event": "done", "reason": outcome.reason.value, "seconds": seconds})
    elif what == "cancel":
        store.record({"event": "cancelled", "reason": reason or "cancel requested"})
        store.forget()
        model = None
    else:
        reason = reason or ("" if model else "Aborted before a model was saved.")
        store.record({"event": "aborted", "reason": reason, "seconds": seconds})
    plan = None if journal.spec is None else journal.spec.plan
    return replace(outcome, model=model, history=journal.history, plan=plan)
