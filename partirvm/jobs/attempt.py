"""Run one attempt at a job: take the lease, resume from the last checkpoint, and record how the attempt ends.

An attempt records these events: ``running`` with the number of history lines at its checkpoint, ``plan``, the ``fit``
lines, and finally ``done``, ``aborted``, ``cancelled`` or ``failed``. Models and checkpoints are saved between the
``fit`` lines. A process that dies records no end: the next process takes the expired lease, records ``interrupted``
and resumes the job. A cluster that fails while the driver is alive is recorded as ``interrupted`` too, because the job
itself has no error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.errors import LeaseError, MissingDataError, StorageError
from partirvm.execution import Executor, executor_for
from partirvm.execution.cluster import address_of
from partirvm.jobs.checkpoint import pack, unpack
from partirvm.jobs.driver import Entry, MemoryJournal, Outcome, Watcher
from partirvm.jobs.ending import Requests, end_as_requested, ending, history_of, kept_model, last_lines, take_over
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
from partirvm.jobs.run import run
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.jobs.update import is_resumable, with_new_rows
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.setup.parameters import check_parameters
from partirvm.setup.resolve import grow, resolve, resume_spec
from partirvm.setup.spec import LIMITS, FitSpec
from partirvm.setup.timer import Interrupted, StoppedError, Timer, check_aborted, timer_of
from partirvm.storage.lease import Process

TAKE_OVER_SECONDS = 40.0
"""Seconds that a new driver waits for the lease of a driver that hangs or cannot be reached."""


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

    ``announce`` is called with each line of history. The pointer of each checkpoint holds its number of rows and
    whether the checkpoint is final.
    """

    def __init__(self, store: JobStore, history: list[Entry], announce: Callable[[Entry], None] | None = None) -> None:
        super().__init__(history=history)
        self._store, self._announce = store, announce

    def save(self, model: AnyModel) -> None:
        self._store.save(model)
        super().save(model)

    def record(self, entry: Entry) -> None:
        self._store.record({"event": "fit", **entry})
        super().record(entry)
        if self._announce is not None:
            self._announce(entry)

    def checkpoint(self, state: Any) -> None:
        final = state.end is not None
        lines = len(self.history) - final  # an update from a final checkpoint drops the final line
        self._store.checkpoint(pack(state), history=lines, final=final, rows=state.problem.n_rows)


def carry_out(
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
    executor: Executor | None = None
    try:
        if not _due(store, attempt):
            return None
        require_allowed(store, store.events(), allowed)
        take_over(store)
        with ending(store):
            job_spec = store.asked()
            fingerprint = latest(store.events(), job_spec["fingerprint"])
            restored = store.restore(lambda about: is_resumable(about, fingerprint["n_rows"]), allow_code=allowed.code)
            if restored is None and fingerprint is not job_spec["fingerprint"]:
                raise MissingDataError(
                    f"{job}: the checkpoint from which the update continues is missing: restore it in {job}/checkpoints"
                )
            begin(store, client, 0 if restored is None else int(restored.about["history"]))
            events = store.events()
            request = check_parameters(current_request(job_spec, changes(events)))
            source, held_out = same_sources(events, job_spec)
            compare_versions(job_spec["versions"])
            executor, state = executor_for(client), fold(events)
            requests, timer = Requests(store, state.attempt, aborted), timer_of(request)
            rows = None if restored is None else int(restored.about["rows"])
            try:
                spec = decided(store, request, source, executor, held_out, timer.after(requests), rows, allowed.code)
            except StoppedError:
                return _stopped(store, requests, history_of(state), timer)
            return run_attempt(
                store,
                state,
                spec,
                source,
                executor,
                requests,
                timer,
                held_out=held_out,
                checkpoint=None if restored is None else restored_checkpoint(restored.value, spec, source.n_rows, rows),
                watcher=watcher,
                on_plan=on_plan,
                announce=announcer(client, job),
            )
    finally:
        if executor is not None:
            executor.close()
        with suppress(LeaseError, StorageError):
            lease.release()


def _due(store: JobStore, attempt: int | None) -> bool:
    """Return True if this attempt at the job has not ended yet. Raises ``MissingDataError`` if there is no job."""
    store.spec()
    state = fold(store.events())
    return state.status in {Status.QUEUED, Status.INTERRUPTED, Status.RUNNING, Status.ABORTING} and (
        attempt is None or state.attempt == attempt
    )


def decided(
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
    stored = store.decided(allow_code=allow_code)
    if stored is None:
        if rows is not None:
            raise MissingDataError(
                f"{store.location}: the spec of the last checkpoint is missing: restore {store.location}/specs"
            )
        return resolve(source, request, executor, held_out, interrupted)
    spec = FitSpec.unpack(stored)
    if rows is None and any(getattr(request, name) != getattr(spec.request, name) for name in LIMITS):
        return resolve(source, request, executor, held_out, interrupted)
    if rows is not None and spec.problem.n_rows < source.n_rows:
        return grow(spec.of_rows(rows), source, request, executor, held_out, interrupted)
    return resume_spec(spec, request, source, executor)


def restored_checkpoint(packed: Any, spec: FitSpec, n_rows: int, rows: int | None) -> Any:
    """Return the state of a checkpoint, extended to ``n_rows`` rows if it was taken with ``rows`` < ``n_rows`` rows."""
    state = unpack(packed, spec.problem, spec.options)
    return state if rows == n_rows else with_new_rows(state, spec)


def begin(store: JobStore, client: Any, lines: int = 0, **time: float) -> None:
    """Record ``running`` by this process, from now or from ``time`` on, after ``lines`` lines of history."""
    cluster = "" if client is None else address_of(client)
    store.record({"event": "running", "history": lines, "reason": f"by {Process.this()}", "cluster": cluster, **time})


def run_attempt(
    store: JobStore,
    state: JobState,
    spec: FitSpec,
    source: Source,
    executor: Executor,
    requests: Requests,
    timer: Timer,
    *,
    held_out: Source | None = None,
    checkpoint: Any = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    announce: Callable[[Entry], None] | None = None,
) -> Fitted:
    """Run the spec of a job that is ``running`` in this process, from ``checkpoint`` if it is given.

    The spec is stored before the first round, unless ``timer``, the timer of this attempt, has expired: the spec may
    then lack learned values. The watcher first receives the earlier lines of history. The caller records exceptions
    with ``ending``.
    """
    watcher, history = watcher or Watcher(), history_of(state)
    if timer() is None:
        store.decide(spec.pack())
    journal = JobJournal(store, history, announce)
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
        beside=store.beside("kernel"),
    )
    model = journal.model or (kept_model(store) if store.has_model() else None)
    if outcome.reason is not Termination.ABORTED:
        store.record({"event": "done", "reason": outcome.reason.value, "seconds": outcome.seconds})
    else:
        model = end_as_requested(store, requests, model, outcome.seconds)
    return Fitted(model, last_lines(store, journal.history), outcome, spec.plan)


def _stopped(store: JobStore, requests: Requests, history: list[Entry], timer: Timer) -> Fitted:
    """Record the end of a job that was aborted during planning and return its result."""
    seconds = (float(history[-1]["seconds"]) if history else 0.0) + timer.seconds
    model = end_as_requested(store, requests, kept_model(store) if store.has_model() else None, seconds)
    return Fitted(model, last_lines(store, history), Outcome(Termination.ABORTED, None, seconds), None)


def announcer(client: Any, job: str) -> Callable[[Entry], None] | None:
    """Return a function that logs a line of history as an event of the cluster, under the topic ``partirvm``.

    Returns None without a client. The cluster's dashboard shows these events.
    """
    if client is None:
        return None

    def announce(entry: Entry) -> None:
        with suppress(Exception):  # the event log is only for display: its failure must not end the fit
            client.log_event("partirvm", {"job": job, **entry})

    return announce
