"""Carrying a job out: with its lease, from its last checkpoint, to an end that its events tell.

Whoever carries a job out writes ``running`` with the number of lines of history from which it goes on, ``plan``, then
``fit`` lines, models and checkpoints, and in the end ``done``, ``aborted``, ``cancelled`` or ``failed``. A process that
dies leaves no such end: the next one finds the lease free, writes ``interrupted``, and goes on. A cluster that breaks
down while its driver lives is an interruption too: nothing is wrong with the job.
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from partirvm.backends import Executor, executor_for
from partirvm.backends.tasks import package_versions
from partirvm.core.termination import Termination
from partirvm.data import ZarrSource
from partirvm.data.appending import has_grown
from partirvm.data.source import Fingerprint
from partirvm.errors import (
    ChangedDataError,
    ClusterError,
    LeaseError,
    MissingDataError,
    PartirvmError,
    PartirvmWarning,
    StorageError,
    UsageError,
)
from partirvm.jobs.driver import Checkpoint, Entry, MemoryJournal, Outcome, Watcher
from partirvm.jobs.growth import as_grown, leads_on, with_new_rows
from partirvm.jobs.run import run
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.jobs.timer import Timer
from partirvm.kernels.functions import require_no_code
from partirvm.model import AnyModel
from partirvm.options import Request
from partirvm.planning.plan import Plan
from partirvm.setup.kernel import learns
from partirvm.setup.parameters import check_parameters, portable, timer_of
from partirvm.setup.refusals import check_multi_output, check_sources
from partirvm.setup.relevance import input_variance
from partirvm.setup.resolve import Prepared, prepare
from partirvm.setup.search import StoppedError
from partirvm.storage.process_identity import Process

ASK = 0.2
"""Seconds between looks at what is asked of the job."""

STAMPS = {"event", "time", "epoch", "skips", "model"}
"""What the store adds to a line of history."""

PATIENCE = 40.0
"""Seconds that a driver which takes over waits for the lease of one that hangs or is out of sight."""

GONE = "the process that was at work on it is gone"
"""Reason of an interruption that somebody else noticed."""


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

    Each checkpoint says under which memory ``limit`` (bytes) it was made, of how many rows, and whether it is final.
    """

    def __init__(
        self, store: JobStore, history: list[Entry], limit: int, announce: Callable[[Entry], None] | None = None
    ) -> None:
        super().__init__(history=history)
        self._store, self._limit, self._announce = store, limit, announce

    def save(self, model: AnyModel) -> None:
        self._store.save(model)
        super().save(model)

    def record(self, entry: Entry) -> None:
        self._store.record({"event": "fit", **entry})
        super().record(entry)
        if self._announce is not None:
            self._announce(entry)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        state, final = {"state": checkpoint.state, "waiting": checkpoint.waiting}, checkpoint.final
        lines = len(self.history) - final  # where other fits follow the last one it is the last no more
        about = {"history": lines, "limit": self._limit, "final": final, "rows": checkpoint.state.problem.n_rows}
        self._store.checkpoint(state, **about)


@dataclass
class Requests:
    """Asked between tiles and dense iterations: whether somebody wants the job to end. Looks every ``ASK`` seconds.

    The first time that it is so it becomes an event, with the reason that was given. Raises ``LeaseLostError`` once
    another process has taken the job over.
    """

    store: JobStore
    attempt: int
    aborted: Callable[[], bool] | None = None
    asked: str | None = None
    reason: str = ""
    _looked: float = field(default=-ASK)

    def __call__(self) -> Termination | None:
        """``ABORTED`` once somebody wants the end."""
        if self.asked is None:
            self._look()
        return None if self.asked is None else Termination.ABORTED

    def _look(self) -> None:
        if self.aborted is not None and self.aborted():
            self.asked, self.reason = "abort", ""
        elif time.monotonic() - self._looked >= ASK:
            self._looked = time.monotonic()
            if self.store.lease is not None and self.store.lease.lost:
                self.store.lease.check()
            self.asked = self.store.requested(self.attempt)
            if self.asked is not None:
                self.reason = self.store.why(self.asked, self.attempt)[0]
        if self.asked is not None:
            self.store.record({"event": "aborting", "reason": self.reason or f"{self.asked} asked for"})


def sources(data: str, validation: str | None) -> tuple[ZarrSource, ZarrSource | None]:
    """DATA and held-out DATA, opened. Raises ``MissingDataError`` and the like."""
    return ZarrSource(data), None if validation is None else ZarrSource(validation)


def absolute(place: str) -> str:
    """A path that means the same in every folder and process; URLs stay as they are."""
    return place if "://" in place else os.path.abspath(place)  # noqa: PTH100 - follows no links, as the user wrote it


def specification(
    source: ZarrSource, held_out: ZarrSource | None, validation: str | None, parameters: Request
) -> dict[str, Any]:
    """What a job is asked: where the data are and how they look, checked parameters, versions."""
    return {
        "data": absolute(source.url),
        "validation": None if validation is None else absolute(validation),
        "fingerprint": asdict(source.fingerprint()),
        "validation_fingerprint": None if held_out is None else asdict(held_out.fingerprint()),
        "parameters": portable(parameters),
        "tile_rows": source.tile_rows,
        "versions": package_versions(),
    }


def create(
    data: str, job: str, parameters: Request, validation: str | None, overwrite: bool, cluster: str = ""
) -> JobState:
    """A queued job. Refuses what can be refused without reading rows; raises as ``fit`` does.

    ``cluster`` is the address of the scheduler whose business it is.
    """
    source, held_out = sources(data, validation)
    check_sources(source, held_out)
    parameters = check_parameters(parameters)
    check_multi_output(source, parameters)
    spec = specification(source, held_out, validation, parameters)
    store = JobStore.create(job, spec, overwrite=overwrite)
    try:
        store.record({"event": "queued", "reason": "submitted", "cluster": cluster})
        return fold(store.events())
    finally:
        if store.lease is not None:
            with suppress(LeaseError, StorageError):
                store.lease.release()


def asked_parameters(spec: dict[str, Any], state_changes: dict[str, Any]) -> Request:
    """The parameters of the spec, with what was changed by those who resumed the job."""
    return Request(**{**spec["parameters"], **state_changes})


def require_allowed(store: JobStore, allow_code: bool) -> None:
    """Raise ``UsageError`` where a job names a function as its kernel or basis, and code is not allowed."""
    if not allow_code:
        asked = asked_parameters(store.spec(), changes(store.events()))
        require_no_code((asked.kernel, asked.basis), store.location)


def changes(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What resumes have changed so far."""
    return {key: value for event in events for key, value in event.get("changes", {}).items()}


def latest(events: list[dict[str, Any]], began: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of the DATA that the job is at work on: that of the last update, or the one it began with."""
    return next((event["fingerprint"] for event in reversed(events) if "fingerprint" in event), began)


def places_of(events: list[dict[str, Any]], spec: dict[str, Any]) -> tuple[str, str | None]:
    """Where DATA and held-out DATA of a job are: as a resume or an update said last, or where they were when it began.

    Raises ``UsageError`` where held-out DATA were given to a job that began without.
    """

    def last(name: str) -> Any:
        return next((event[name] for event in reversed(events) if event.get(name)), spec[name])

    data, validation = last("data"), last("validation")
    if validation is not None and spec["validation"] is None:
        raise UsageError(f"{validation}: the job began without held-out DATA, go on without --validation")
    return str(data), validation


def require_grown(source: ZarrSource, then: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint of DATA that are those of this earlier one with more rows. Raises ``ChangedDataError``."""
    before = _fingerprint(then)
    if not has_grown(source, before):
        if source.fingerprint() == before:
            raise UsageError(f"{source.url} has no new rows since the job saw it: append some (`ingest --append`)")
        raise ChangedDataError(
            f"{source.url} is not what it was when the job saw it, with more rows after it: start a new job, or bring "
            "the old data back"
        )
    return asdict(source.fingerprint())


def carry_out(
    job: str,
    *,
    attempt: int | None = None,
    client: Any = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    aborted: Callable[[], bool] | None = None,
    patience: float = PATIENCE,
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
            spec = store.spec()
            fingerprint = latest(store.events(), spec["fingerprint"])
            restored = store.restore(lambda about: leads_on(about, fingerprint["n_rows"]), allow_code=allow_code)
            checkpoint, lines, limit = None, 0, None
            if restored is None and fingerprint is not spec["fingerprint"]:
                raise MissingDataError(f"{job}: the checkpoint is missing from which its update goes on: restore it")
            if restored is not None:
                lines, limit = int(restored.about["history"]), restored.about.get("limit")
                checkpoint = Checkpoint(restored.value["state"], restored.value["waiting"])
            begin(store, client, lines)
            events = store.events()
            parameters = asked_parameters(spec, changes(events))
            source, held_out = same_sources(events, spec)
            _compare_versions(spec["versions"])
            executor = executor_for(client)
            state, known = fold(events), None
            grows = checkpoint is not None and checkpoint.state.problem.n_rows < source.n_rows
            if checkpoint is not None:
                known, before = checkpoint.state.problem, as_before(parameters, checkpoint.state, state.plan)
                parameters = as_grown(parameters, before, checkpoint.state, state.plan, source) if grows else before
            requests, timer = Requests(store, state.attempt, aborted), timer_of(parameters)
            try:
                prepared = prepare(source, parameters, executor, held_out, timer.after(requests), known)
            except StoppedError:
                return _stopped(store, requests, history_of(state), timer)
            if checkpoint is not None and grows:
                checkpoint = replace(checkpoint, state=with_new_rows(checkpoint.state, prepared))
            return carry(
                store,
                state,
                prepared,
                executor,
                requests,
                timer,
                checkpoint=checkpoint,
                limit=limit,
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


def take_over(store: JobStore) -> None:
    """Write down, with the lease in hand, that the process before this one is gone, if it left no end."""
    if fold(store.events()).status in {Status.RUNNING, Status.ABORTING}:
        store.record({"event": "interrupted", "reason": GONE})


def begin(store: JobStore, client: Any, lines: int = 0, **time: float) -> None:
    """Record that this process runs it from here, or from the ``time`` given, after so many lines of history."""
    cluster = "" if client is None else client.scheduler.address
    store.record({"event": "running", "history": lines, "reason": f"by {Process.this()}", "cluster": cluster, **time})


@contextmanager
def ending(store: JobStore) -> Iterator[None]:
    """Whatever leaves the block by an exception gets written down, as far as that can still be done."""
    try:
        yield
    except BaseException as error:
        event: dict[str, Any] = {"event": "failed", "reason": f"{type(error).__name__}: {error}"}
        if isinstance(error, ClusterError) or (
            isinstance(error, ChangedDataError | MissingDataError) and _begun(store)
        ):
            event = {"event": "interrupted", "reason": str(error)}
        elif not isinstance(error, Exception):
            event = {"event": "interrupted", "reason": f"stopped at once ({type(error).__name__})"}
        elif not isinstance(error, PartirvmError):
            event["traceback"] = traceback.format_exc()
        with suppress(LeaseError, StorageError):
            store.record(event)
        raise


def _begun(store: JobStore) -> bool:
    """Whether a checkpoint was found, if one was needed: what is missing then are DATA."""
    return fold(store.events()).status in {Status.RUNNING, Status.ABORTING}


def carry(
    store: JobStore,
    state: JobState,
    prepared: Prepared,
    executor: Executor,
    requests: Requests,
    timer: Timer,
    *,
    checkpoint: Checkpoint | None = None,
    limit: int | None = None,
    watcher: Watcher | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    announce: Callable[[Entry], None] | None = None,
) -> Fitted:
    """Run a prepared fit for a job that is ``running`` in our hands, from a checkpoint (made under ``limit``) if any.

    The watcher hears the lines of history that stand first. The ``timer`` is that of this attempt. Raises nothing that
    is not to be written down (``ending``).
    """
    watcher = watcher or Watcher()
    history, limit_now = history_of(state), prepared.plan.machine.limit
    if checkpoint is not None:
        prepared = replace(prepared, measured=())
        allowed = as_allowed(checkpoint.state.options, prepared, limit == limit_now)
        checkpoint = replace(checkpoint, state=replace(checkpoint.state, options=allowed))
    journal = JobJournal(store, history, limit_now, announce)
    variance = input_variance(prepared.source.columns, prepared.moments, prepared.problem.empty.scaling)
    store.record({"event": "plan", **prepared.plan.to_json(), "input_variance": variance.tolist()})
    if on_plan is not None:
        on_plan(prepared.plan)
    for entry in history:
        watcher.on_record(entry)
    outcome = run(
        prepared,
        executor,
        journal,
        watcher=watcher,
        interrupted=timer.after(requests),
        resume=checkpoint,
        usable=checkpoint is not None and store.has_model(),
        elapsed=(history[-1]["seconds"] if history else 0.0) + timer.seconds,
        beside=store.beside("kernel"),
    )
    model = journal.model or (_kept_model(store) if store.has_model() else None)
    if outcome.reason is not Termination.ABORTED:
        store.record({"event": "done", "reason": outcome.reason.value, "seconds": outcome.seconds})
    else:
        model = _end_as_asked(store, requests, model, outcome.seconds)
    return Fitted(model, _told(store, journal.history), outcome, prepared.plan)


def _kept_model(store: JobStore) -> AnyModel:
    """The model of earlier rounds; whoever works on the job was allowed its code."""
    return store.model(allow_code=True)


def _told(store: JobStore, history: list[Entry]) -> list[Entry]:
    """Lines of history; of an update that broke off before its first one, the last before: that of the model.

    A fit without rounds has no other line than its last, which is no part of the history once other fits follow.
    """
    if history:
        return history
    last = [event for event in store.events() if event["event"] == "fit"][-1:]
    return [{key: event[key] for key in event.keys() - STAMPS} for event in last]


def _stopped(store: JobStore, requests: Requests, history: list[Entry], timer: Timer) -> Fitted:
    """What is left of a job that was ended while it was planned."""
    seconds = (float(history[-1]["seconds"]) if history else 0.0) + timer.seconds
    model = _end_as_asked(store, requests, _kept_model(store) if store.has_model() else None, seconds)
    return Fitted(model, _told(store, history), Outcome(Termination.ABORTED, None, seconds), None)


def _end_as_asked(store: JobStore, requests: Requests, model: AnyModel | None, seconds: float) -> AnyModel | None:
    """Write down that a job was aborted, or was cancelled and has no model any more; the model that it has now."""
    if store.requested(requests.attempt) == "cancel":
        store.record({"event": "cancelled", "reason": store.why("cancel", requests.attempt)[0] or "cancel asked for"})
        store.forget()
        return None
    advice = Termination.ABORTED.advice if model else "Aborted before there was a model."
    store.record({"event": "aborted", "reason": requests.reason or advice, "seconds": seconds})
    return model


def history_of(state: JobState) -> list[Entry]:
    """The lines of history that stand, as the driver wrote them."""
    return [{key: event[key] for key in event.keys() - STAMPS} for event in state.history]


def as_before(parameters: Request, state: Any, plan: dict[str, Any] | None) -> Request:
    """The parameters with every "auto" as it was resolved when the job began: a checkpoint is of that fit.

    A kernel that was learned is that of the checkpoint's ``state``.
    """
    options, strategy = state.options, parameters.strategy if plan is None else plan["strategy"]
    if learns(parameters):
        kernel = state.problem.empty.kernel
        parameters = replace(parameters, kernel=kernel, gamma="auto", gamma_multiples=(1.0,), gamma_prior="flat")
    return replace(
        parameters,
        strategy=strategy,
        partition_size=options.partition_size or "auto",  # without a kernel there are no candidates
        likelihood=options.likelihood,
        likelihood_rows=options.likelihood_rows if options.likelihood == "sample" else parameters.likelihood_rows,
        selection=options.selection if strategy == "working-set" else parameters.selection,
    )


def as_allowed(options: Any, prepared: Prepared, same_limit: bool) -> Any:
    """A checkpoint's options under the limits that hold now.

    What memory allows stays as it was under the same limit: a process that needs some more of it for itself than the
    one before must not end the fit earlier.
    """
    now = prepared.options
    options = replace(options, max_rounds=now.max_rounds, max_vectors=now.max_vectors)
    if same_limit:
        return options
    return replace(options, max_columns=now.max_columns, batch=now.batch, learning_columns=now.learning_columns)


def announcer(client: Any, job: str) -> Callable[[Entry], None] | None:
    """Puts each line of history on the event log of a cluster's dashboard, under the topic ``partirvm``."""
    if client is None:
        return None

    def announce(entry: Entry) -> None:
        with suppress(Exception):  # for people to look at: no fit ends because of it
            client.log_event("partirvm", {"job": job, **entry})

    return announce


def _fingerprint(found: dict[str, Any]) -> Fingerprint:
    """A fingerprint from its JSON."""
    return Fingerprint(**{**found, "hashes": tuple(found["hashes"])})


def same_sources(events: list[dict[str, Any]], spec: dict[str, Any]) -> tuple[ZarrSource, ZarrSource | None]:
    """DATA and held-out DATA of a job, opened. Raises ``MissingDataError``, and ``ChangedDataError`` for others."""
    data, _ = places_of(events, spec)
    appended = "; with rows that were appended `partirvm update` goes on"
    return _same(data, "--data", latest(events, spec["fingerprint"]), appended), same_held_out(events, spec)


def same_held_out(events: list[dict[str, Any]], spec: dict[str, Any]) -> ZarrSource | None:
    """Held-out DATA of a job, opened, None if it has none. Raises as ``same_sources`` does."""
    _, validation = places_of(events, spec)
    return None if validation is None else _same(validation, "--validation", spec["validation_fingerprint"])


def _same(place: str, option: str, began: dict[str, Any], advice: str = "") -> ZarrSource:
    """What is at this place, which a resume changes by ``option``, if it is what it was when the job began."""
    try:
        source = ZarrSource(place)
    except MissingDataError as error:
        raise MissingDataError(f"{error}; if they were moved, say with {option} where they are") from error
    what = difference(source, began)
    if what is not None:
        raise ChangedDataError(
            f"{source.url} is not what it was when the job began ({what}): start a new job, or bring the old data "
            f"back, or say with {option} where they are{advice}"
        )
    return source


def difference(source: ZarrSource, began: dict[str, Any]) -> str | None:
    """How data differ from the fingerprint in a job's specification, for people; None if they do not."""
    then, now = _fingerprint(began), source.fingerprint()
    if now == then:
        return None
    shapes = [f"{each.n_rows:,} × {each.n_features}" for each in (then, now)]
    if shapes[0] != shapes[1]:
        return f"{shapes[0]} values then, {shapes[1]} now"
    tiles = [number for number, (one, two) in enumerate(zip(then.hashes, now.hashes, strict=False)) if one != two]
    if not tiles:
        return "its names, categories, classes, moments or the size of its tiles are other ones"
    return f"{len(tiles):,} of its {len(then.hashes):,} tiles have other values, the first is tile {tiles[0]:,}"


def _compare_versions(began: dict[str, str]) -> None:
    now = package_versions()
    other = [f"{name} {then} then, {now[name]} now" for name, then in began.items() if now.get(name, then) != then]
    if other:
        warnings.warn(
            f"the job goes on with other packages than it began with ({'; '.join(other)}): the last digits may differ "
            "from those of a fit that was never interrupted",
            PartirvmWarning,
            stacklevel=2,
        )
