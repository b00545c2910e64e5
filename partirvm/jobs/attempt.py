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
from dataclasses import dataclass
from pathlib import Path
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
from partirvm.jobs.checkpoint import Checkpoint, attached, resumes
from partirvm.jobs.driver import Entry, MemoryJournal, Outcome, Watcher
from partirvm.jobs.request import (
    NOTHING_ALLOWED,
    Allowed,
    compare_versions,
    open_held_out,
    open_unchanged,
    parameters_of,
    require_allowed,
    take_over,
)
from partirvm.jobs.run import run, with_new_rows
from partirvm.jobs.state import ACTIVE, TRANSITIONS, Status
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.resolve.measuring import Timer
from partirvm.resolve.new_problem import Interrupted, check_aborted
from partirvm.resolve.resolve import continued, resolve
from partirvm.resolve.spec import LIMITS, FitSpec, check_parameters
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
    """The result of a fit: model, history, outcome and plan.

    ``model`` is None if the fit was aborted before it saved a model. ``plan`` is None if the fit was aborted during
    planning.
    """

    model: AnyModel | None
    history: list[Entry]
    outcome: Outcome
    plan: Plan | None


class JobJournal(MemoryJournal):
    """A journal that writes to the job's folder and also keeps the model and the history in memory.

    With a ``client`` each line of history is logged as an event of the cluster, under the topic ``partirvm``.
    """

    def __init__(self, store: JobStore, history: list[Entry], spec: FitSpec, client: Any = None) -> None:
        super().__init__(history=history)
        self._store, self._spec, self._client = store, spec, client

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
        lines = len(self.history) - (state.end is not None)  # an update from a final checkpoint drops the final line
        self._store.checkpoint(Checkpoint(self._spec, state, lines))


class Requests:
    """A callable that polls for requests of users to end the job, at most every ``POLL_SECONDS`` seconds.

    The driver calls it between tiles and between dense iterations. The first request found is recorded as an
    ``aborting`` event with the reason that the user gave. A call raises ``LeaseLostError`` if another process has taken
    over the job.
    """

    def __init__(self, store: JobStore, attempt: int, aborted: Callable[[], bool] | None) -> None:
        self.attempt, self.reason = attempt, ""
        self._store, self._aborted = store, aborted
        self._request: str | None = None
        self._polled = -POLL_SECONDS

    def __call__(self) -> Termination | None:
        """Return ``ABORTED`` after a request to end the job, otherwise None."""
        if self._request is not None:
            return Termination.ABORTED
        store = self._store
        if self._aborted is not None and self._aborted():
            self._request = "abort"
        elif time.monotonic() - self._polled >= POLL_SECONDS:
            self._polled = time.monotonic()
            if store.lease is not None and store.lease.lost:
                store.lease.check()
            self._request = store.requested(self.attempt)
            self.reason = store.reason_of(self._request, self.attempt) if self._request else ""
        if self._request is None:
            return None
        store.record({"event": "aborting", "reason": self.reason or f"{self._request} requested"})
        return Termination.ABORTED


def run_job(
    job: str,
    *,
    attempt: int | None = None,
    patience: float = TAKE_OVER_SECONDS,
    allowed: Allowed = NOTHING_ALLOWED,
    **hooks: Any,
) -> Fitted | None:
    """Run a queued or interrupted job in this process and return its result.

    Returns None if the job has already ended or if its current attempt is not ``attempt``. ``allowed`` permits
    the functions that the job names as its kernel or basis, and DATA in another store than the job. Without this
    permission such a job raises ``UsageError`` and stays unchanged. ``hooks`` are ``client`` and those of ``fit``
    (``jobs.job``). A request to abort also takes effect during planning.

    Raises ``LeaseError`` while another process runs the job. Raises ``MissingDataError`` if the DATA are missing, and
    ``ChangedDataError`` if the DATA have changed since the job began. The job is then interrupted, and can be resumed
    once the original DATA are restored. All other exceptions are those of ``fit``; the job then records ``failed`` with
    the error.
    """
    store = JobStore(job)

    def due() -> bool:
        state = store.folded()
        return state.status in {Status.QUEUED, Status.INTERRUPTED, *ACTIVE} and attempt in (None, state.attempt)

    store.spec()
    if not due():
        return None
    store.acquire(patience=patience)
    try:
        return run_attempt(store, allowed, **hooks) if due() else None
    finally:
        store.release()


def run_attempt(
    store: JobStore,
    allowed: Allowed,
    *,
    client: Any = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
    planned: tuple[FitSpec, Executor, Timer] | None = None,
) -> Fitted:
    """Run the current attempt at a job whose lease the caller holds. Returns and raises as ``run_job`` does.

    A fit that was ``planned`` before its job was created begins at the start of its timer. The spec is stored before
    the first round, unless the time limit is over: the spec may then lack learned values. The watcher first receives
    the earlier lines of history.
    """
    require_allowed(store.location, store.asked(), allowed)
    take_over(store)
    with ExitStack() as closed, ending(store):
        asked = store.asked().request
        n_rows = asked["fingerprint"]["n_rows"]
        restored: Checkpoint | None = store.restore(lambda value: resumes(value, n_rows), allow_code=allowed.code)
        if restored is None and "rounds" in asked:
            raise MissingDataError(
                f"{store.location}: the checkpoint from which the update continues is missing: restore it in "
                f"{store.location}/checkpoints"
            )
        cluster, lines = "" if client is None else address_of(client), 0 if restored is None else restored.history
        running = {"event": "running", "history": lines, "reason": f"by {Process.this()}", "cluster": cluster}
        store.record(running if planned is None else {**running, "time": planned[2].since})
        state = store.folded()
        source, held_out = open_unchanged(asked), open_held_out(asked)
        compare_versions(asked["versions"])
        history, requests = [_line(event) for event in state.history], Requests(store, state.attempt, aborted)
        if planned is not None:
            spec, executor, timer = planned
        else:
            request = check_parameters(parameters_of(state))
            executor, timer = closed.enter_context(closing(executor_for(client))), Timer(request.time_limit)
            try:
                spec = _spec(restored, request, source, executor, held_out, timer.after(requests))
            except Stopped:
                seconds = (float(history[-1]["seconds"]) if history else 0.0) + timer.seconds
                model = _end_as_requested(store, requests, _kept_model(store), seconds)
                return Fitted(model, _shown(store, history), Outcome(Termination.ABORTED, None, seconds), None)
        checkpoint: Any = None
        if restored is not None and restored.state is not None:
            checkpoint = attached(restored.state, spec.problem, spec.options)
            if restored.spec.problem.n_rows != source.n_rows:
                checkpoint = with_new_rows(checkpoint, spec)
        elif timer() is None:
            store.checkpoint(Checkpoint(spec, None, 0))
        watcher, journal = watcher or Watcher(), JobJournal(store, history, spec, client)
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
            beside=None if "://" in store.location else Path(store.location, "kernel"),
        )
        model = journal.model or _kept_model(store)
        if outcome.reason is not Termination.ABORTED:
            store.record({"event": "done", "reason": outcome.reason.value, "seconds": outcome.seconds})
        else:
            model = _end_as_requested(store, requests, model, outcome.seconds)
        return Fitted(model, _shown(store, journal.history), outcome, spec.plan)


def _spec(
    restored: Checkpoint | None,
    request: Request,
    source: Source,
    executor: Executor,
    held_out: Source | None,
    interrupted: Interrupted,
) -> FitSpec:
    """Return the spec of a checkpoint, grown if rows were appended to the DATA; without a checkpoint a new spec.

    Before the first line of history a change of the limits makes a new spec, too.
    """
    check_aborted(interrupted)
    if restored is None:
        return resolve(source, request, executor, held_out, interrupted)
    spec = restored.spec
    if restored.state is None and any(getattr(request, name) != getattr(spec.request, name) for name in LIMITS):
        return resolve(source, request, executor, held_out, interrupted)
    return continued(spec, source, request, executor, held_out, interrupted)


@contextmanager
def ending(store: JobStore) -> Iterator[None]:
    """Record an exception that leaves the block as an event, if the job can still be written, and raise it again."""
    try:
        yield
    except BaseException as error:
        with suppress(LeaseError, StorageError):
            status = store.folded().status
            event = {"event": "failed", "reason": f"{type(error).__name__}: {error}"}
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
        reason = store.reason_of("cancel", requests.attempt) or "cancel requested"
        store.record({"event": "cancelled", "reason": reason})
        store.forget()
        return None
    advice = Termination.ABORTED.advice if model else "Aborted before a model was saved."
    store.record({"event": "aborted", "reason": requests.reason or advice, "seconds": seconds})
    return model


def _line(event: dict[str, Any]) -> Entry:
    return {key: value for key, value in event.items() if key not in STAMPS}


def _shown(store: JobStore, history: list[Entry]) -> list[Entry]:
    """Return ``history``, or if it is empty the last recorded line, which belongs to the saved model.

    A fit without rounds has only the final line. An update drops it, and may end before its own first line.
    """
    last = store.folded().last_line
    return history or ([] if last is None else [_line(last)])


def _kept_model(store: JobStore) -> AnyModel | None:
    """Return the model of earlier rounds, if there is one. The caller was permitted to run the job's code."""
    return store.model(allow_code=True) if store.has_model() else None
