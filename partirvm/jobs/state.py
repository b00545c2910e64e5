"""The state of a job, as a pure fold over its request and events.

Each transition is an event with the name of the new state, a ``time`` and a ``reason``. The other
events are ``plan``, ``fit`` with one line of history, and ``workers`` with the number of ``lost``
workers of a cluster since the last such event and the time of the ``last`` loss. In a ``running``
event, ``history`` is the number of lines at the checkpoint from which the driver resumes; later
lines belong to repeated rounds and are dropped. A driver that dies writes no event, so ``observed``
combines events, lease and requests to end.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Any

from partirvm.errors import FormatError


class Status(StrEnum):
    """The status of a job. ``advice`` tells the user what the status means and what to do next."""

    advice: str

    QUEUED = "queued", "Waiting for a process to run it: resume starts it if none does."
    RUNNING = "running", "A process is running it."
    ABORTING = (
        "aborting",
        "The job ends after the current tile or iteration; an abort keeps the model so far.",
    )
    ABORTED = (
        "aborted",
        "Aborted by a user: the model so far, if any, is usable; resume continues from there.",
    )
    FAILED = "failed", "Ended by an error: resume continues from the last checkpoint."
    INTERRUPTED = (
        "interrupted",
        "The process that ran it has ended: resume continues from the last checkpoint.",
    )
    DONE = "done", "The fit has ended and its model can be used."
    CANCELLED = "cancelled", "Cancelled by a user: the model was discarded."

    def __new__(cls, value: str, advice: str = "") -> "Status":
        member = str.__new__(cls, value)
        member._value_ = value
        member.advice = advice
        return member

    @property
    def final(self) -> bool:
        """True if no driver is running the job or is expected to start."""
        return self not in {Status.QUEUED, Status.RUNNING, Status.ABORTING}


_ENDS = {Status.ABORTED, Status.FAILED, Status.INTERRUPTED, Status.CANCELLED}

TRANSITIONS = {
    Status.QUEUED: {Status.QUEUED, Status.RUNNING} | _ENDS,
    Status.RUNNING: {Status.QUEUED, Status.RUNNING, Status.DONE} | _ENDS,
    Status.INTERRUPTED: {
        Status.QUEUED,
        Status.RUNNING,
        Status.ABORTED,
        Status.FAILED,
        Status.CANCELLED,
    },
    Status.ABORTED: {Status.QUEUED, Status.CANCELLED},
    Status.FAILED: {Status.QUEUED, Status.CANCELLED},
    Status.DONE: {Status.QUEUED},
    Status.CANCELLED: set[Status](),
}
"""The statuses that may follow each status."""

# What a ``queued`` event may change in the request.
CHANGED = ("data", "validation", "fingerprint", "rounds", "scheduler")


@dataclass(frozen=True)
class JobState:
    """The state of a job, computed from its events.

    ``since`` and ``reason`` are those of the last transition, ``began`` is the time of the first
    ``running`` event, ``ended`` that of the last end, or None, and ``seconds`` the computing time.
    ``attempt`` counts how often the job was queued. ``plan`` is the last plan event, ``history``
    the valid fit events, ``before`` those that the last run found, and ``added`` is True if that
    run added any. ``doing`` describes the current stage of kernel learning. ``request`` is
    ``spec.json`` with the changes by resumes and updates; after an update, its ``rounds`` are those
    that the update may make; ``fingerprint`` is that of the last fit. ``versions`` are the packages
    of the last run.

    ``n_runs`` is the number of ``running`` events of this attempt: a scheduler restarts a driver
    whose worker was lost. ``n_lost`` counts the lost workers of this attempt that a driver has
    seen, and ``last_lost`` is the time of the last loss, or None.
    """

    status: "Status" = Status.QUEUED
    since: float = 0.0
    reason: str = "submitted"
    attempt: int = 1
    queued: float = 0.0
    began: float | None = None
    ended: float | None = None
    seconds: float | None = None
    plan: dict[str, Any] | None = None
    history: tuple[dict[str, Any], ...] = ()
    before: tuple[dict[str, Any], ...] = ()
    added: bool = False
    doing: str = ""
    n_runs: int = 0
    n_lost: int = 0
    last_lost: float | None = None
    request: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def settled(self) -> "JobState":
        """Return the state without a run that added nothing: the job then has the model of the
        previous run."""
        return self if self.added or not self.before else replace(self, history=self.before)

    def computing_seconds(self) -> float | None:
        """Return the seconds, excluding the time between an end and a resume, or None if the job
        has not begun."""
        if self.began is None:
            return None
        before, at = (
            float(self.history[-1][name]) if self.history else 0.0 for name in ("seconds", "time")
        )
        if self.status.final:
            return round(before if self.seconds is None else self.seconds, 3)
        return round(before + max(time.time() - max(at, self.since), 0.0), 3)


def lost_workers_of(state: JobState) -> dict[str, Any]:
    """Return how many workers this attempt has lost, when it lost the last, and the restarts of its
    driver, as JSON."""
    return {"workers": state.n_lost, "last": state.last_lost, "restarts": max(state.n_runs - 1, 0)}


def fold(events: Iterable[dict[str, Any]], request: dict[str, Any] | None = None) -> JobState:
    """Return the state of a job after these events. Raises ``FormatError`` for an event that cannot
    follow."""
    request = request or {}
    queued = float(request.get("time", 0.0))
    return reduce(_advance, events, JobState(request=request, since=queued, queued=queued))


def _advance(state: JobState, event: dict[str, Any]) -> JobState:
    kind = event["event"]
    at = float(event["time"])
    status = state.status
    if kind == "plan":
        return replace(state, plan=event)
    if kind == "fit" and status is Status.RUNNING:
        return replace(state, history=(*state.history, event), added=True)
    if kind == "workers":
        return replace(
            state, n_lost=state.n_lost + int(event["lost"]), last_lost=float(event["last"])
        )
    if kind not in {"fit", *Status}:
        return state
    if kind not in TRANSITIONS[status]:
        raise FormatError(
            f"the event {kind!r} cannot follow {status.value!r}: an event file is missing or was "
            "added by hand: restore the job's events/ folder"
        )
    new = replace(state, status=Status(kind), since=at, reason=str(event.get("reason", "")))
    if new.status is Status.QUEUED:
        return _queued(new, event)
    if new.status is Status.RUNNING:
        return _running(new, event)
    if new.status.final:
        return replace(new.settled(), ended=at, seconds=event.get("seconds"))
    return new


def _queued(state: JobState, event: dict[str, Any]) -> JobState:
    """Return the state of a job that is queued again, with the changes of its request."""
    request = {**state.request, **{name: event[name] for name in CHANGED if name in event}}
    parameters = state.request.get("parameters", {})
    request["parameters"] = {**parameters, **event.get("changes", {})}
    return replace(
        state,
        attempt=state.attempt + 1,
        request=request,
        ended=None,
        n_runs=0,
        n_lost=0,
        last_lost=None,
    )


def _running(state: JobState, event: dict[str, Any]) -> JobState:
    """Return the state of a job that begins or continues; lines after its checkpoint are lost."""
    before = state.settled().history
    return replace(
        state,
        began=state.began or float(event["time"]),
        ended=None,
        n_runs=state.n_runs + 1,
        versions=event.get("versions", {}),
        history=before[: int(event.get("history", len(before)))],
        before=before,
        added=False,
    )


def observed(
    state: JobState, *, held: bool, requested: tuple[str, str] | None = None, lost: bool = False
) -> JobState:
    """Return the state corrected by the lease and by a request to end.

    Args:
        state: the recorded state
        held: True if a process holds the lease
        requested: the request and its reason (``JobStore.requested``), or None
        lost: True if the lease expired without being released
    """
    if (state.status is Status.RUNNING and not held) or (state.status is Status.QUEUED and lost):
        times = f"; {state.n_runs} processes have run it" if state.n_runs > 1 else ""
        reason = f"the process that ran it has ended without recording an end{times}"
        return replace(state.settled(), status=Status.INTERRUPTED, reason=reason)
    if state.status is Status.RUNNING and requested is not None:
        return replace(state, status=Status.ABORTING, reason=requested[1])
    return state
