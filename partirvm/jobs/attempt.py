"""Carrying a job out: with its lease, from its last checkpoint, to an end that its events tell.

Whoever carries a job out writes ``running`` with the number of lines of history from which it goes on, ``plan``, then
``fit`` lines, models and checkpoints, and in the end ``done``, ``aborted``, ``cancelled`` or ``failed``. A process that
dies leaves no such end: the next one finds the lease free, writes ``interrupted``, and goes on. A cluster that breaks
down while its driver lives is an interruption too: nothing is wrong with the job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from partirvm.backends import Executor, executor_for
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.errors import LeaseError, MissingDataError, StorageError
from partirvm.jobs.checkpoint import pack, unpack
from partirvm.jobs.driver import Checkpoint, Entry, MemoryJournal, Outcome, Watcher
from partirvm.jobs.ending import Requests, end_as_asked, ending, history_of, kept_model, last_told, take_over
from partirvm.jobs.places import (
    asked_request,
    changes,
    compare_versions,
    latest,
    require_allowed,
    same_sources,
)
from partirvm.jobs.run import run
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.jobs.update import leads_on, with_new_rows
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.setup.growth import grow
from partirvm.setup.parameters import check_parameters, timer_of
from partirvm.setup.refusals import check_aborted
from partirvm.setup.resolve import resolve, resume_spec
from partirvm.setup.search import Interrupted, StoppedError
from partirvm.setup.spec import LIMITS, FitSpec
from partirvm.setup.timer import Timer
from partirvm.storage.process_identity import Process

TAKE_OVER_SECONDS = 40.0
"""Seconds that a driver which takes over waits for the lease of one that hangs or is out of sight."""


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves: its model (None if it was aborted before there was one), history, end and plan.

    ``plan`` is None if it was aborted while it was planned.
    """

    model: AnyModel | None
    history: list[Entry]
    outcome: Outcome
    plan: Plan | None


class JobJournal(MemoryJournal):
    """Writes to the job's folder what it also keeps in memory; ``announce`` hears each line of history.

    Each checkpoint says of how many rows it is, and whether it is final.
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

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        lines = len(self.history) - checkpoint.final  # where other fits follow the last one it is the last no more
        about = {"history": lines, "final": checkpoint.final, "rows": checkpoint.state.problem.n_rows}
        self._store.checkpoint(pack(checkpoint), **about)


def carry_out(
    job: str,
    *,
    attempt: int | None = None,
    client: Any = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
    patience: float = TAKE_OVER_SECONDS,
    allow_code: bool = False,
) -> Fitted | None:
    """Do what a queued or interrupted job asks; None if it is over already, or another ``attempt`` than this is due.

    ``allow_code`` says that a function which the job names may be imported and run: by who has just submitted it, or
    who goes on with it and says so. Otherwise ``UsageError``, and the job is as it was.
    An abort is heard while the job is planned, too. Raises ``LeaseError`` while another process is at work on it,
    ``MissingDataError`` or ``ChangedDataError`` if the data are not there, or not those that it began with: the job is
    interrupted then, and resumed with them. Raises as ``fit`` does else; the job's events then say ``failed`` and why.
    """
    store = JobStore(job)
    if not _due(store, attempt):
        return None
    lease = store.acquire(patience=patience)
    executor: Executor | None = None
    try:
        if not _due(store, attempt):
            return None
        require_allowed(store, allow_code)
        take_over(store)
        with ending(store):
            job_spec = store.spec()
            fingerprint = latest(store.events(), job_spec["fingerprint"])
            restored = store.restore(lambda about: leads_on(about, fingerprint["n_rows"]), allow_code=allow_code)
            if restored is None and fingerprint is not job_spec["fingerprint"]:
                raise MissingDataError(f"{job}: the checkpoint is missing from which its update goes on: restore it")
            begin(store, client, 0 if restored is None else int(restored.about["history"]))
            events = store.events()
            asked = check_parameters(asked_request(job_spec, changes(events)))
            source, held_out = same_sources(events, job_spec)
            compare_versions(job_spec["versions"])
            executor, state = executor_for(client), fold(events)
            requests, timer = Requests(store, state.attempt, aborted), timer_of(asked)
            rows = None if restored is None else int(restored.about["rows"])
            try:
                spec = decided(store, asked, source, executor, held_out, timer.after(requests), rows, allow_code)
            except StoppedError:
                return _stopped(store, requests, history_of(state), timer)
            return carry(
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
    """Whether this attempt at the job is still to be made. Raises ``MissingDataError`` if no job is there."""
    store.spec()
    state = fold(store.events())
    return state.status in {Status.QUEUED, Status.INTERRUPTED, Status.RUNNING, Status.ABORTING} and (
        attempt is None or state.attempt == attempt
    )


def decided(
    store: JobStore,
    asked: Request,
    source: Source,
    executor: Executor,
    held_out: Source | None,
    interrupted: Interrupted,
    rows: int | None,
    allow_code: bool,
) -> FitSpec:
    """The spec of a job: resolved at its first attempt, read back at later ones, grown where its data have grown.

    ``rows`` are those that its checkpoint has seen, None where there is none: then nothing was computed yet, and other
    limits make it resolve anew. Raises ``MissingDataError`` for a checkpoint whose spec is lost.
    """
    check_aborted(interrupted)
    stored = store.decided(allow_code=allow_code)
    if stored is None:
        if rows is not None:
            raise MissingDataError(f"{store.location}: the spec of its last checkpoint is missing: restore it")
        return resolve(source, asked, executor, held_out, interrupted)
    spec = FitSpec.unpack(stored)
    if rows is None and any(getattr(asked, name) != getattr(spec.request, name) for name in LIMITS):
        return resolve(source, asked, executor, held_out, interrupted)
    if rows is not None and spec.problem.n_rows < source.n_rows:
        return grow(spec.of_rows(rows), source, asked, executor, held_out, interrupted)
    return resume_spec(spec, asked, source, executor)


def restored_checkpoint(packed: Any, spec: FitSpec, n_rows: int, rows: int | None) -> Checkpoint:
    """Where the run goes on: at a checkpoint that has seen ``rows`` rows of so many."""
    checkpoint = unpack(packed, spec.problem, spec.options)
    return checkpoint if rows == n_rows else replace(checkpoint, state=with_new_rows(checkpoint.state, spec))


def begin(store: JobStore, client: Any, lines: int = 0, **time: float) -> None:
    """Record that this process runs it from here, or from the ``time`` given, after so many lines of history."""
    cluster = "" if client is None else client.scheduler.address
    store.record({"event": "running", "history": lines, "reason": f"by {Process.this()}", "cluster": cluster, **time})


def carry(
    store: JobStore,
    state: JobState,
    spec: FitSpec,
    source: Source,
    executor: Executor,
    requests: Requests,
    timer: Timer,
    *,
    held_out: Source | None = None,
    checkpoint: Checkpoint | None = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    announce: Callable[[Entry], None] | None = None,
) -> Fitted:
    """Run the spec of a job that is ``running`` in this process, from a checkpoint if there is one.

    The spec is stored before the first round; not where time is up, as it may lack what was left to learn. The watcher
    hears the lines of history that stand first. The ``timer`` is that of this attempt. Raises nothing that is not to be
    written down (``ending``).
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
        model = end_as_asked(store, requests, model, outcome.seconds)
    return Fitted(model, last_told(store, journal.history), outcome, spec.plan)


def _stopped(store: JobStore, requests: Requests, history: list[Entry], timer: Timer) -> Fitted:
    """What is left of a job that was ended while it was planned."""
    seconds = (float(history[-1]["seconds"]) if history else 0.0) + timer.seconds
    model = end_as_asked(store, requests, kept_model(store) if store.has_model() else None, seconds)
    return Fitted(model, last_told(store, history), Outcome(Termination.ABORTED, None, seconds), None)


def announcer(client: Any, job: str) -> Callable[[Entry], None] | None:
    """Puts each line of history on the event log of a cluster's dashboard, under the topic ``partirvm``."""
    if client is None:
        return None

    def announce(entry: Entry) -> None:
        with suppress(Exception):  # for people to look at: no fit ends because of it
            client.log_event("partirvm", {"job": job, **entry})

    return announce
