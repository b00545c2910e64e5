"""Fit DATA in this process (``fit``), or run one attempt at a job: take the lease, resume, and record how it ends.

An attempt records the events ``running``, ``plan``, ``fit`` (a line of history) and its end. A process that dies
records no end: the next one takes the expired lease and resumes the job. A cluster that fails while the driver is alive
is recorded as ``interrupted``, because the job itself has no error.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import (
    ChangedDataError,
    ClusterError,
    JobFailedError,
    LeaseError,
    MissingDataError,
    PartirvmError,
    StorageError,
)
from partirvm.execution import Executor, executor_for
from partirvm.execution.cluster import address_of
from partirvm.jobs import request as requests
from partirvm.jobs.checkpoint import Checkpoint, attached, resumes
from partirvm.jobs.driver import Entry, MemoryJournal, Outcome, Watcher
from partirvm.jobs.request import Allowed
from partirvm.jobs.run import run, with_new_rows
from partirvm.jobs.state import TRANSITIONS, Status
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.resolve.measuring import Timer
from partirvm.resolve.new_problem import Interrupted, check_aborted
from partirvm.resolve.resolve import LIMITS, FitSpec, check_parameters, continued, portable, resolve
from partirvm.storage.lease import Process
from partirvm.strategies.problem import Stopped

TAKE_OVER_SECONDS = 40.0
"""Seconds that a new driver waits for the lease of a driver that hangs or cannot be reached."""

POLL_SECONDS = 0.2
"""Seconds between two polls for requests to end the job."""

STAMPS = {"event", "time", "epoch", "model"}
"""Fields that the store adds to a line of history."""


@dataclass(frozen=True)
class Fitted:
    """The result of a fit; ``model`` and ``plan`` are None if the fit was aborted before there was one."""

    model: AnyModel | None
    history: list[Entry]
    outcome: Outcome
    plan: Plan | None


class JobJournal(MemoryJournal):
    """A journal that writes to the job's folder and also keeps the model and the history in memory."""

    def __init__(self, store: JobStore, history: list[Entry], spec: FitSpec) -> None:
        super().__init__(history=history)
        self._store, self._spec = store, spec

    def save(self, model: AnyModel) -> None:
        self._store.save(model)
        super().save(model)

    def record(self, entry: Entry) -> None:
        self._store.record({"event": "fit", **entry})
        super().record(entry)

    def checkpoint(self, state: Any) -> None:
        lines = len(self.history) - (state.end is not None)  # an update from a final checkpoint drops the final line
        self._store.checkpoint(Checkpoint(self._spec, state, lines))


def plan(data: str, parameters: Request, *, validation: str | None = None, client: Any = None) -> Plan:
    """Return the plan of a fit of DATA, without running the fit. Raises as ``resolve.resolve.resolve`` does."""
    source, held_out = requests.open_sources(data, validation)
    with closing(executor_for(client)) as executor:
        return resolve(source, check_parameters(parameters), executor, held_out).plan


def fit(
    data: str,
    job: str,
    parameters: Request,
    *,
    validation: str | None = None,
    client: Any = None,
    overwrite: bool = False,
    verify: bool = False,
    watcher: Watcher | None = None,
) -> Fitted:
    """Fit DATA in this process and store model and history in JOB.

    All checks run before JOB is changed. They raise as ``resolve.resolve.resolve`` does, ``ExistsError`` if JOB exists,
    and with ``verify`` ``ChangedDataError`` if a tile of DATA differs from the ingested tile. If the watcher aborts the
    fit, it ends with the last saved model, or without one; JOB can be resumed.
    """
    parameters, watcher = check_parameters(parameters), watcher or Watcher()
    portable(parameters)
    timer = Timer(parameters.time_limit)
    source, held_out = requests.open_sources(data, validation)
    JobStore(job).require_creatable(overwrite)
    if verify:
        source.verify()

    def interrupted() -> Termination | None:
        return Termination.ABORTED if watcher.aborted() else None

    with closing(executor_for(client)) as executor:
        try:
            spec = resolve(source, parameters, executor, held_out, timer.after(interrupted))
        except Stopped as error:
            raise JobFailedError(f"aborted during planning: {job} was not changed") from error
        requests.create(data, job, parameters, validation, overwrite)
        store, allowed = JobStore(job), Allowed.of(True, (), data, validation)
        with store.held():
            fitted = run_attempt(store, allowed, client, watcher, planned=(spec, executor, timer))
    if store.folded().status is Status.CANCELLED:
        raise JobFailedError(f"{job} was cancelled: its model was discarded")
    return fitted


def run_job(
    job: str,
    *,
    attempt: int | None = None,
    patience: float = TAKE_OVER_SECONDS,
    allowed: Allowed = Allowed(),  # noqa: B008 - a frozen value
    client: Any = None,
    watcher: Watcher | None = None,
) -> Fitted | None:
    """Run a queued or interrupted job in this process and return its result.

    Returns None if the job has already ended or if its current attempt is not ``attempt``. A job that names functions
    or DATA that are not ``allowed`` raises ``UsageError`` and stays unchanged.

    Raises ``LeaseError`` while another process runs the job. If the DATA are missing or have changed since the job
    began, it raises ``MissingDataError`` or ``ChangedDataError``; the job is then interrupted, and can be resumed once
    the original DATA are restored. Other exceptions are those of ``fit``; the job then records ``failed``.
    """
    store = JobStore(job)

    def due() -> bool:
        state = store.folded()
        return Status.RUNNING in TRANSITIONS[state.status] and attempt in (None, state.attempt)

    if not due():
        return None
    with store.held(patience):
        return run_attempt(store, allowed, client, watcher or Watcher()) if due() else None


def run_attempt(
    store: JobStore,
    allowed: Allowed,
    client: Any,
    watcher: Watcher,
    planned: tuple[FitSpec, Executor, Timer] | None = None,
) -> Fitted:
    """Run the current attempt at a job whose lease the caller holds, as ``run_job``; it may be ``planned`` before."""
    requests.require_allowed(store.location, store.asked(), allowed)
    with ExitStack() as closed, _ending(store):
        asked = store.asked().request
        n_rows = asked["fingerprint"]["n_rows"]
        restored: Checkpoint | None = store.restore(lambda value: resumes(value, n_rows), allow_code=allowed.code)
        if restored is None and "rounds" in asked:
            raise MissingDataError(
                f"{store.location}: the checkpoint from which the update continues is missing: restore it in "
                f"{store.location}/checkpoints"
            )
        cluster, lines = "" if client is None else address_of(client), 0 if restored is None else restored.history
        store.record({"event": "running", "history": lines, "reason": f"by {Process.this()}", "cluster": cluster})
        state = store.folded()
        history = [_line(event) for event in state.history]
        before = float(history[-1]["seconds"]) if history else 0.0
        source, held_out = requests.open_unchanged(asked["data"], asked["fingerprint"]), requests.open_held_out(asked)
        requests.compare_versions(asked["versions"])
        poll = _poll(store, state.attempt, watcher)
        if planned is not None:
            spec, executor, timer = planned
        else:
            request = check_parameters(requests.parameters_of(state))
            executor, timer = closed.enter_context(closing(executor_for(client))), Timer(request.time_limit)
            how = source, request, executor, held_out, timer.after(poll)
            # before the first line of history a change of the limits makes a new spec, too
            kept = restored is not None and (restored.state is not None or _same_limits(request, restored.spec.request))
            try:
                check_aborted(how[-1])
                spec = continued(restored.spec, *how) if restored is not None and kept else resolve(*how)
            except Stopped:
                stopped = Outcome(Termination.ABORTED, None, before + timer.seconds)
                return _end(store, state.attempt, MemoryJournal(None, history), stopped, None)
        checkpoint: Any = None
        if restored is not None and restored.state is not None:
            checkpoint = attached(restored.state, spec.problem, spec.options)
            if restored.spec.problem.n_rows != source.n_rows:
                checkpoint = with_new_rows(checkpoint, spec)
        elif timer() is None:  # otherwise the spec may lack learned values
            store.checkpoint(Checkpoint(spec, None, 0))
        journal = JobJournal(store, history, spec)
        store.record({"event": "plan", **spec.plan.to_json()})
        watcher.on_plan(spec.plan)
        for entry in history:
            watcher.on_record(entry)
        outcome = run(
            spec,
            source,
            executor,
            journal,
            held_out=held_out,
            watcher=watcher,
            interrupted=timer.after(poll),
            checkpoint=checkpoint,
            usable=checkpoint is not None and store.has_model(),
            elapsed=before + timer.seconds,
            beside=None if "://" in store.location else Path(store.location, "kernel"),
        )
        return _end(store, state.attempt, journal, outcome, spec.plan)


def _poll(store: JobStore, attempt: int, watcher: Watcher) -> Interrupted:
    """Return a function that returns ``ABORTED`` after a request to end the job, and raises if the lease is lost."""
    found, polled = False, -POLL_SECONDS

    def poll() -> Termination | None:
        nonlocal found, polled
        found = found or watcher.aborted()
        if not found and time.monotonic() - polled >= POLL_SECONDS:
            polled = time.monotonic()
            if store.lease is not None and store.lease.lost:
                store.lease.check()
            found = store.requested(attempt) is not None
        return Termination.ABORTED if found else None

    return poll


def _same_limits(one: Request, other: Request) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in LIMITS)


@contextmanager
def _ending(store: JobStore) -> Iterator[None]:
    """Record an exception that leaves the block as an event, if the job can still be written, and raise it again."""
    try:
        yield
    except BaseException as error:
        with suppress(LeaseError, StorageError):
            status = store.folded().status
            event = {"event": "failed", "reason": f"{type(error).__name__}: {error}"}
            changed = isinstance(error, ChangedDataError | MissingDataError) and status is Status.RUNNING
            if isinstance(error, ClusterError) or changed:
                event = {"event": "interrupted", "reason": str(error)}
            elif not isinstance(error, Exception):
                event = {"event": "interrupted", "reason": f"stopped at once ({type(error).__name__})"}
            elif not isinstance(error, PartirvmError):
                event["traceback"] = traceback.format_exc()
            if event["event"] in TRANSITIONS[status]:  # after an end, its reply was lost
                store.record(event)
        raise


def _end(store: JobStore, attempt: int, journal: MemoryJournal, outcome: Outcome, plan: Plan | None) -> Fitted:
    """Record the end of an attempt and return its result.

    An update that ends before its own first line of history returns the final line before it, that of the model.
    """
    model, seconds = journal.model, outcome.seconds
    if model is None and store.has_model():
        model = store.model(allow_code=True)  # the caller was permitted to run the job's code
    if outcome.reason is not Termination.ABORTED:
        store.record({"event": "done", "reason": outcome.reason.value, "seconds": seconds})
    elif store.requested(attempt) == "cancel":
        reason = store.reason_of("cancel", attempt) or "cancel requested"
        store.record({"event": "cancelled", "reason": reason})
        store.forget()
        model = None
    else:
        advice = Termination.ABORTED.advice if model else "Aborted before a model was saved."
        store.record({"event": "aborted", "reason": store.reason_of("abort", attempt) or advice, "seconds": seconds})
    last = store.folded().last_line
    return Fitted(model, journal.history or ([] if last is None else [_line(last)]), outcome, plan)


def _line(event: dict[str, Any]) -> Entry:
    return {key: value for key, value in event.items() if key not in STAMPS}
