"""Run one attempt at a job: take the lease, resume from the last checkpoint, and record how the attempt ends.

An attempt records these events: ``running`` with the number of history lines at its checkpoint, ``plan``, the ``fit``
lines, and finally ``done``, ``aborted``, ``cancelled`` or ``failed``. Models and checkpoints are saved between the
``fit`` lines. A process that dies records no end: the next process takes the expired lease, records ``interrupted``
and resumes the job. A cluster that fails while the driver is alive is recorded as ``interrupted`` too, because the job
itself has no error.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

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
from partirvm.execution import Executor, executor_for
from partirvm.execution.cluster import address_of
from partirvm.jobs.checkpoint import POINTER, attached
from partirvm.jobs.driver import Entry, MemoryJournal, Outcome, Watcher
from partirvm.jobs.places import (
    NOTHING_ALLOWED,
    Allowed,
    changes,
    compare_versions,
    current_request,
    latest,
    require_allowed,
    same_sources,
)
from partirvm.jobs.run import run, with_new_rows
from partirvm.jobs.state import GONE, TRANSITIONS, JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.resolve.measuring import Timer
from partirvm.resolve.new_problem import Interrupted, check_aborted
from partirvm.resolve.resolve import continued, resolve
from partirvm.resolve.spec import LIMITS, FitSpec, check_parameters
from partirvm.storage.lease import Process
from partirvm.storage.records import require
from partirvm.strategies.problem import Stopped

TAKE_OVER_SECONDS = 40.0
"""Seconds that a new driver waits for the lease of a driver that hangs or cannot be reached."""

POLL_SECONDS = 0.2
"""Seconds between two polls for requests to end the job."""

STAMPS = {"event", "time", "epoch", "skips", "model"}
"""Fields that the store adds to a line of history."""

ACTIVE = {Status.RUNNING, Status.ABORTING}


@dataclass(frozen=True)
class Fitted:
    """The result of a fit: model, history, outcome and plan.

    ``model`` is None if the fit was aborted before it saved a model. ``plan`` is None if the fit was aborted during
    planning.
    """

    model: AnyModel | None
    history: list[Entry]
    outcome: Outcome
    plan: Plan | None


@dataclass(frozen=True)
class Planned:
    """A fit that was planned before its job was created: its spec, and the executor and timer of the planning."""

    spec: FitSpec
    executor: Executor
    timer: Timer


class JobJournal(MemoryJournal):
    """A journal that writes to the job's folder and also keeps the model and the history in memory.

    With a ``client`` each line of history is logged as an event of the cluster, under the topic ``partirvm``.
    """

    def __init__(self, store: JobStore, history: list[Entry], client: Any = None) -> None:
        super().__init__(history=history)
        self._store, self._client = store, client

    def save(self, model: AnyModel) -> None:
        self._store.save(model)
        super().save(model)

    def record(self, entry: Entry) -> None:
        self._store.record({"event": "fit", **entry})
        super().record(entry)
        if self._client is not None:
            with suppress(Exception):  # only for the dashboard of the cluster: its failure must not end the fit
                self._client.log_event("partirvm", {"job": self._store.location, **entry})

    def checkpoint(self, state: Any) -> None:
        final = state.end is not None
        lines = len(self.history) - final  # an update from a final checkpoint drops the final line
        self._store.checkpoint(state, history=lines, final=final, rows=state.problem.n_rows)


@dataclass
class Requests:
    """A callable that polls for requests of users to end the job, at most every ``POLL_SECONDS`` seconds.

    The driver calls it between tiles and between dense iterations. The first request found is recorded as an
    ``aborting`` event with the reason that the user gave. A call raises ``LeaseLostError`` if another process has taken
    over the job.
    """

    store: JobStore
    attempt: int
    aborted: Callable[[], bool] | None = None
    request: str | None = None
    reason: str = ""
    _polled: float = field(default=-POLL_SECONDS)

    def __call__(self) -> Termination | None:
        """Return ``ABORTED`` after a request to end the job, otherwise None."""
        if self.request is None:
            self._poll()
        return None if self.request is None else Termination.ABORTED

    def _poll(self) -> None:
        if self.aborted is not None and self.aborted():
            self.request = "abort"
        elif time.monotonic() - self._polled >= POLL_SECONDS:
            self._polled = time.monotonic()
            if self.store.lease is not None and self.store.lease.lost:
                self.store.lease.check()
            self.request = self.store.requested(self.attempt)
            if self.request is not None:
                self.reason = self.store.reason_of(self.request, self.attempt)[0]
        if self.request is not None:
            self.store.record({"event": "aborting", "reason": self.reason or f"{self.request} requested"})


def run_job(
    job: str,
    *,
    attempt: int | None = None,
    client: Any = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
    patience: float = TAKE_OVER_SECONDS,
    allowed: Allowed = NOTHING_ALLOWED,
) -> Fitted | None:
    """Run a queued or interrupted job in this process and return its result.

    Returns None if the job has already ended or if its current attempt is not ``attempt``. ``allowed`` permits
    the functions that the job names as its kernel or basis, and DATA in another store than the job. Without this
    permission such a job raises ``UsageError`` and stays unchanged. A request to abort also takes effect during
    planning.

    Raises ``LeaseError`` while another process runs the job. Raises ``MissingDataError`` if the DATA are missing, and
    ``ChangedDataError`` if the DATA have changed since the job began. The job is then interrupted, and can be resumed
    once the original DATA are restored. All other exceptions are those of ``fit``; the job then records ``failed`` with
    the error.
    """
    store = JobStore(job)
    if not _due(store, attempt):
        return None
    lease = store.acquire(patience=patience)
    try:
        if not _due(store, attempt):
            return None
        return run_attempt(store, allowed, client=client, watcher=watcher, on_plan=on_plan, aborted=aborted)
    finally:
        with suppress(LeaseError, StorageError):
            lease.release()


def _due(store: JobStore, attempt: int | None) -> bool:
    """Return True if this attempt at the job has not ended yet. Raises ``MissingDataError`` if there is no job."""
    store.spec()
    state = fold(store.events())
    return state.status in {Status.QUEUED, Status.INTERRUPTED, *ACTIVE} and attempt in (None, state.attempt)


def _fit_spec(
    store: JobStore,
    request: Request,
    source: Source,
    executor: Executor,
    held_out: Source | None,
    interrupted: Interrupted,
    rows: int | None,
    allow_code: bool,
) -> FitSpec:
    """Return the spec of a job's fit.

    The first attempt resolves the spec, and later attempts read the stored spec. If rows were appended to the DATA, the
    stored spec is grown. ``rows`` is the number of rows at the checkpoint, or None without a checkpoint. Without a
    checkpoint a change of the limits resolves the spec again. Raises ``MissingDataError`` if there is a checkpoint but
    no stored spec.
    """
    check_aborted(interrupted)
    spec = store.fit_spec(allow_code=allow_code)
    if spec is None and rows is not None:
        raise MissingDataError(
            f"{store.location}: the spec of the last checkpoint is missing: restore {store.location}/specs"
        )
    if spec is None or (rows is None and any(getattr(request, name) != getattr(spec.request, name) for name in LIMITS)):
        return resolve(source, request, executor, held_out, interrupted)
    if rows is not None and spec.problem.n_rows < source.n_rows:
        spec = spec.of_rows(rows)
    return continued(spec, source, request, executor, held_out, interrupted)


def run_attempt(
    store: JobStore,
    allowed: Allowed,
    *,
    client: Any = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
    planned: Planned | None = None,
) -> Fitted:
    """Run the current attempt at a job whose lease the caller holds. Returns and raises as ``run_job`` does.

    A fit that was ``planned`` before its job was created begins at the start of its timer. The spec is stored before
    the first round, unless the time limit is over: the spec may then lack learned values. The watcher first receives
    the earlier lines of history.
    """
    require_allowed(store, store.events(), allowed)
    take_over(store)
    with ExitStack() as closed, ending(store):
        asked, job = store.asked(), store.location
        fingerprint = latest(store.events(), asked["fingerprint"])

        def resumable(about: dict[str, Any]) -> bool:
            require(about, POINTER, f"{job}: the head of a checkpoint")
            return not (about["final"] and about["rows"] >= fingerprint["n_rows"])

        restored = store.restore(resumable, allow_code=allowed.code)
        if restored is None and fingerprint is not asked["fingerprint"]:
            raise MissingDataError(
                f"{job}: the checkpoint from which the update continues is missing: restore it in {job}/checkpoints"
            )
        lines, rows = (0, None) if restored is None else (restored.about["history"], int(restored.about["rows"]))
        cluster = "" if client is None else address_of(client)
        running = {"event": "running", "history": lines, "reason": f"by {Process.this()}", "cluster": cluster}
        store.record(running if planned is None else {**running, "time": planned.timer.since})
        events = store.events()
        source, held_out = same_sources(events, asked)
        compare_versions(asked["versions"])
        state = fold(events)
        history, requests = history_of(state), Requests(store, state.attempt, aborted)
        if planned is not None:
            spec, executor, timer = planned.spec, planned.executor, planned.timer
        else:
            request = check_parameters(current_request(asked, changes(events)))
            executor, timer = closed.enter_context(closing(executor_for(client))), Timer(request.time_limit)
            try:
                spec = _fit_spec(store, request, source, executor, held_out, timer.after(requests), rows, allowed.code)
            except Stopped:
                seconds = (float(history[-1]["seconds"]) if history else 0.0) + timer.seconds
                model = _end_as_requested(store, requests, _kept_model(store), seconds)
                outcome = Outcome(Termination.ABORTED, None, seconds)
                return Fitted(model, _last_lines(store, history), outcome, None)
        checkpoint: Any = None if restored is None else attached(restored.value, spec.problem, spec.options)
        if checkpoint is not None and rows != source.n_rows:
            checkpoint = with_new_rows(checkpoint, spec)
        if timer() is None:
            store.save_fit_spec(spec)
        watcher, journal = watcher or Watcher(), JobJournal(store, history, client)
        store.record({"event": "plan", **spec.plan.to_json()})
        if on_plan is not None:
            on_plan(spec.plan)
        for entry in history:
            watcher.on_record(entry)
        outcome = run(
            spec,
            source,
            executor,
            journal,
            held_out=held_out,
            watcher=watcher,
            interrupted=timer.after(requests),
            checkpoint=checkpoint,
            usable=checkpoint is not None and store.has_model(),
            elapsed=(history[-1]["seconds"] if history else 0.0) + timer.seconds,
            beside=store.local_path("kernel"),
        )
        model = journal.model or _kept_model(store)
        if outcome.reason is not Termination.ABORTED:
            store.record({"event": "done", "reason": outcome.reason.value, "seconds": outcome.seconds})
        else:
            model = _end_as_requested(store, requests, model, outcome.seconds)
        return Fitted(model, _last_lines(store, journal.history), outcome, spec.plan)


def take_over(store: JobStore) -> None:
    """Record ``interrupted`` if the previous process died without recording an end. The caller holds the lease."""
    if fold(store.events()).status in ACTIVE:
        store.record({"event": "interrupted", "reason": GONE})


@contextmanager
def ending(store: JobStore) -> Iterator[None]:
    """Record an exception that leaves the block as an event, if the job can still be written, and raise it again."""
    try:
        yield
    except BaseException as error:
        with suppress(LeaseError, StorageError):
            status = fold(store.events()).status
            event: dict[str, Any] = {"event": "failed", "reason": f"{type(error).__name__}: {error}"}
            changed = isinstance(error, ChangedDataError | MissingDataError) and status in ACTIVE
            if isinstance(error, ClusterError) or changed:
                event = {"event": "interrupted", "reason": str(error)}
            elif not isinstance(error, Exception):
                event = {"event": "interrupted", "reason": f"stopped at once ({type(error).__name__})"}
            elif not isinstance(error, PartirvmError):
                event["traceback"] = traceback.format_exc()
            if Status(event["event"]) in TRANSITIONS[status]:  # after an end, its reply was lost
                store.record(event)
        raise


def _end_as_requested(store: JobStore, requests: Requests, model: AnyModel | None, seconds: float) -> AnyModel | None:
    """Record that the job was aborted or cancelled. Return the model, or None if the job was cancelled."""
    if store.requested(requests.attempt) == "cancel":
        store.record(
            {"event": "cancelled", "reason": store.reason_of("cancel", requests.attempt)[0] or "cancel requested"}
        )
        store.forget()
        return None
    advice = Termination.ABORTED.advice if model else "Aborted before a model was saved."
    store.record({"event": "aborted", "reason": requests.reason or advice, "seconds": seconds})
    return model


def history_of(state: JobState) -> list[Entry]:
    """Return the valid lines of history as the driver recorded them, without the fields of the store."""
    return [{key: event[key] for key in event.keys() - STAMPS} for event in state.history]


def _last_lines(store: JobStore, history: list[Entry]) -> list[Entry]:
    """Return ``history``, or if it is empty the last recorded line, which belongs to the saved model.

    A fit without rounds has only the final line. An update drops it, and may end before its own first line.
    """
    last = [event for event in store.events() if event["event"] == "fit"][-1:]
    return history or history_of(JobState(history=tuple(last)))


def _kept_model(store: JobStore) -> AnyModel | None:
    """Return the model of earlier rounds, if there is one. The caller was permitted to run the job's code."""
    return store.model(allow_code=True) if store.has_model() else None
