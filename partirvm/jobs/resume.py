"""Queue a job again, to resume it (possibly with larger limits) or to update it with rows appended to its DATA.

``requeue`` and ``requeue_grown`` run on any machine that can read the job's folder, such as a worker of a cluster.
Afterwards ``jobs.attempt.carry_out`` runs the job.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import DoneError, LeaseError, StorageError, UsageError
from partirvm.jobs.checkpoint import PACKED
from partirvm.jobs.ending import take_over
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
from partirvm.jobs.schema import POINTER
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.jobs.update import require_growable
from partirvm.options import Request
from partirvm.setup.parameters import check_parameters
from partirvm.setup.resolve import in_order
from partirvm.setup.spec import LIMITS, FitSpec
from partirvm.storage.records import require
from partirvm.strategies.in_order import IncrementalRounds
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
    store = JobStore(location)
    lease = store.acquire()
    try:
        events, spec = store.events(), store.asked()
        require_allowed(store, [*events, moved], allowed)
        before = current_request(spec, changes(events))
        after = check_parameters(current_request(spec, {**changes(events), **changed}))
        changed = {key: getattr(after, key) for key in changed}
        _check_resumable(location, fold(events), before, after)
        same_sources([*events, moved], spec)
        take_over(store)
        if fold(store.events()).status is Status.QUEUED:
            store.record({"event": "interrupted", "reason": "no process had begun it"})
        store.record({"event": "queued", "reason": "resumed", "changes": changed, "cluster": cluster, **moved})
        return fold(store.events())
    finally:
        with suppress(LeaseError, StorageError):
            lease.release()


def requeue_grown(
    location: str, cluster: str, max_rounds: int | None, moved: dict[str, str], allowed: Allowed
) -> JobState:
    """Queue a job again for rows appended to its DATA and return its state. Raises as ``Job.update`` does.

    ``moved`` is described in ``requeue``.
    """
    store = JobStore(location)
    lease = store.acquire()
    try:
        events, spec = store.events(), store.asked()
        require_allowed(store, [*events, moved], allowed)
        if fold(events).status is Status.CANCELLED:
            raise UsageError(f"{location} was cancelled and its model discarded: start a new job")
        place, _ = places_of([*events, moved], spec)
        same_held_out([*events, moved], spec)
        fingerprint = require_grown(sources(place, None)[0], latest(events, spec["fingerprint"]))
        restored = store.restore(allow_code=allowed.code)
        stored = store.decided(allow_code=allowed.code)
        packed: Any = None
        spec_now = None
        if restored is not None and stored is not None:
            require(restored.about, POINTER, f"{location}: the pointer of a checkpoint")
            require(restored.value, PACKED, f"{location}: the checkpoint")
            packed, spec_now = restored.value, FitSpec.unpack(stored).of_rows(int(restored.about["rows"]))
        grows = require_growable(location, packed, spec_now)
        request = current_request(spec, changes(events))
        rounds = max_rounds
        if rounds is None:  # the number of rounds of the last update, or that of the fit
            rounds = next(
                (event["rounds"] for event in reversed(events) if event["event"] == "queued" and "rounds" in event),
                request.max_rounds,
            )
        changed: dict[str, Any] = {"max_rounds": None if rounds is None else packed["state"]["round"] + rounds}
        if in_order(grows) and request.strategy != IncrementalRounds.name:
            changed["strategy"] = IncrementalRounds.name
        check_parameters(current_request(spec, {**changes(events), **changed}))
        take_over(store)
        if fold(store.events()).status is Status.QUEUED:
            store.record({"event": "interrupted", "reason": "no process had begun it"})
        queued = {"event": "queued", "reason": "updated", "changes": changed, "cluster": cluster, **moved}
        store.record({**queued, "fingerprint": fingerprint, "rounds": rounds})
        return fold(store.events())
    finally:
        with suppress(LeaseError, StorageError):
            lease.release()


def _check_resumable(location: str, state: JobState, before: Request, after: Request) -> None:
    """Raise ``UsageError`` for a cancelled job, and ``DoneError`` if a resume would change nothing."""
    if state.status is Status.CANCELLED:
        raise UsageError(f"{location} was cancelled and its model discarded: start a new job")
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
