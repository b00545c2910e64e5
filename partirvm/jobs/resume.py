"""Queue a job again, to resume it (possibly with larger limits) or to update it with rows appended to its DATA.

``requeue`` and ``requeue_grown`` run on any machine that can read the job's folder, such as a worker of a cluster.
Afterwards ``jobs.attempt.run_job`` runs the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import DoneError, LeaseError, StorageError, UsageError
from partirvm.jobs.attempt import take_over
from partirvm.jobs.checkpoint import POINTER, require_state
from partirvm.jobs.places import (
    Allowed,
    changes,
    current_request,
    latest,
    places_of,
    require_allowed,
    require_grown,
    same_held_out,
    same_sources,
    sources,
)
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.options import Request
from partirvm.resolve.spec import LIMITS, FitSpec, check_parameters
from partirvm.storage.records import require
from partirvm.strategies.rounds import IncrementalRounds
from partirvm.strategies.stages import RoundsState
from partirvm.strategies.working_set import LEAST_GAIN

ENDED_BY = {
    Termination.ROUNDS: "max_rounds",
    Termination.VECTORS: "max_vectors",
    Termination.EFFORT: "effort",
    Termination.TIME: "time_limit",
    Termination.MEMORY: "memory_limit",
}
"""The reasons of an end after which a finished job can be resumed, each with the option that caused the end."""


def check_changes(changed: dict[str, Any]) -> None:
    """Raise ``UsageError`` for options that a resume cannot change."""
    other = sorted(changed.keys() - set(LIMITS))
    if other:
        raise UsageError(
            f"a resume cannot change {', '.join(other)}, only {', '.join(LIMITS)}: start a new job with these options"
        )


def requeue(location: str, cluster: str, changed: dict[str, Any], moved: dict[str, str], allowed: Allowed) -> JobState:
    """Queue a job again and return its state. Raises as ``Job.resume`` does.

    ``moved`` may hold new places under the keys ``data`` and ``validation``. All data are checked before the job is
    changed: if data are missing, the job stays unchanged.
    """
    check_changes(changed)
    changed = {key: value for key, value in changed.items() if value is not None}
    with _opened(location, moved, allowed) as (store, events, spec):
        before = current_request(spec, changes(events))
        after = check_parameters(current_request(spec, {**changes(events), **changed}))
        _require_effect(location, fold(events[:-1]), before, after)
        same_sources(events, spec)
        queued = {"reason": "resumed", "changes": {key: getattr(after, key) for key in changed}}
        return _queue(store, {**queued, "cluster": cluster, **moved})


def requeue_grown(
    location: str, cluster: str, max_rounds: int | None, moved: dict[str, str], allowed: Allowed
) -> JobState:
    """Queue a job again for rows appended to its DATA and return its state. Raises as ``Job.update`` does.

    ``moved`` is described in ``requeue``.
    """
    with _opened(location, moved, allowed) as (store, events, spec):
        same_held_out(events, spec)
        place, _ = places_of(events, spec)
        fingerprint = require_grown(sources(place, None)[0], latest(events, spec["fingerprint"]))
        state, grows = _growable(store, allowed)
        request, rounds = current_request(spec, changes(events)), max_rounds
        if rounds is None:  # the number of rounds of the last update, or that of the fit
            updates = [event for event in events if event.get("event") == "queued" and "rounds" in event]
            rounds = updates[-1]["rounds"] if updates else request.max_rounds
        changed: dict[str, Any] = {"max_rounds": None if rounds is None else state.round + rounds}
        if grows.in_order and request.strategy != IncrementalRounds.name:
            changed["strategy"] = IncrementalRounds.name
        check_parameters(current_request(spec, {**changes(events), **changed}))
        queued = {"reason": "updated", "changes": changed, "fingerprint": fingerprint, "rounds": rounds}
        return _queue(store, {**queued, "cluster": cluster, **moved})


@contextmanager
def _opened(
    location: str, moved: dict[str, str], allowed: Allowed
) -> Iterator[tuple[JobStore, list[dict[str, Any]], dict[str, Any]]]:
    """Hold the lease of a job that may be queued again; yield its store, its events and ``moved``, and its request."""
    store = JobStore(location)
    lease = store.acquire()
    try:
        events, spec = [*store.events(), moved], store.asked()
        require_allowed(store, events, allowed)
        if fold(events[:-1]).status is Status.CANCELLED:
            raise UsageError(f"{location} was cancelled and its model discarded: start a new job")
        yield store, events, spec
    finally:
        with suppress(LeaseError, StorageError):
            lease.release()


def _queue(store: JobStore, event: dict[str, Any]) -> JobState:
    take_over(store)
    if fold(store.events()).status is Status.QUEUED:
        store.record({"event": "interrupted", "reason": "no process had begun it"})
    store.record({"event": "queued", **event})
    return fold(store.events())


def _growable(store: JobStore, allowed: Allowed) -> tuple[RoundsState, FitSpec]:
    """Return the state of the last checkpoint and its spec; raise ``UsageError`` if new rows cannot join its fit."""
    restored, spec = store.restore(allow_code=allowed.code), store.fit_spec(allow_code=allowed.code)
    state = None if restored is None else require_state(restored.value)
    if restored is not None:
        require(restored.about, POINTER, f"{store.location}: the head of a checkpoint")
    if restored is None or state is None or spec is None:
        why = "the job has finished no round, so that there is no fit that new rows could join"
    elif not isinstance(state, RoundsState):
        why = "split-merge ended before its last merge, so that there is no fit that new rows could join"
    elif not (spec := spec.of_rows(int(restored.about["rows"]))).problem.target_variance:
        why = "the target of the earlier rows is constant, so that the target of new rows cannot be scaled"
    else:
        return state, spec
    raise UsageError(f"{store.location} cannot be updated: {why}; start a new job with all rows")


def _require_effect(location: str, state: JobState, before: Request, after: Request) -> None:
    """Raise ``DoneError`` if a resume would change nothing."""
    if state.status is not Status.DONE:
        return
    reason = next((each for each in Termination if each.value == state.reason), None)
    if reason is None or reason not in ENDED_BY:
        advice = state.reason if reason is None else reason.advice
        raise DoneError(f"{location} is done, and a resume would change nothing: {advice}")
    option = ENDED_BY[reason]
    was, is_now = getattr(before, option), getattr(after, option)
    if reason in {Termination.ROUNDS, Termination.VECTORS} and is_now <= was:
        raise DoneError(f"{location} is done; it reached {option} = {was:,}: resume with a larger {option}")
    if reason is Termination.EFFORT and LEAST_GAIN[is_now] >= LEAST_GAIN[was]:
        raise DoneError(f"{location} is done; it ended by effort = {was!r}: resume with a larger effort")
