"""The state of a job, computed by a pure fold over its request and events.

Each transition is an event with the name of the new state, a ``time`` and a ``reason``. The other
events are ``plan``, ``fit`` with one history line, and ``workers`` with the number of cluster
workers ``lost`` since the previous such event and the time of the ``last`` loss. In a ``running``
event, ``history`` is the number of lines at the checkpoint from which the driver resumes; later
lines belong to repeated rounds and are dropped. A driver that dies writes no event, so ``observed``
combines the events, the lease and requests to end the job.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Any

from partirvm.errors import FormatError


class Status(StrEnum):
    """The status of a job. ``advice`` explains to the user what the status means and what to do
    next."""

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
"""The possible next statuses for each status."""

# The fields of the request that a ``queued`` event may change.
CHANGED = ("data", "validation", "fingerprint", "rounds", "scheduler")


@dataclass(frozen=True)
class JobState:
    """The state of a job, computed from its events.

    ``since`` and ``reason`` belong to the last transition, ``began`` is the time of the first
    ``running`` event, ``ended`` is the time of the last end, or None, and ``seconds`` is the
    computing time. ``attempt`` counts how often the job was queued. ``plan`` is the last plan
    event, ``history`` contains the valid fit events, ``before`` the fit events before the last run,
    and ``added`` is True if the last run added any. ``doing`` describes the current stage of kernel
    learning. ``request`` is ``spec.json`` with the changes made by resumes and updates; after an
    update, its ``rounds`` is the number of rounds that the update may make; ``fingerprint``
    describes the DATA of the last fit. ``versions`` are the package versions in the last run.

    ``n_runs`` is the number of ``running`` events of this attempt: a scheduler restarts a driver
    whose worker was lost. ``n_lost`` counts the lost workers of this attempt that a driver has
    recorded, and ``last_lost`` is the time of the last loss, or None.
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
        """Return the state without a last run that added nothing: the job then has the previous
        run's model."""
        return self if self.added or not self.before else replace(self, history=self.before)

    def computing_seconds(self) -> float | None:
        """Return the computing time in seconds, excluding the time between an end and a resume, or
        None if the job has not begun."""
        if self.began is None:
            return None
        before, at = (
            float(self.history[-1][name]) if self.history else 0.0 for name in ("seconds", "time")
        )
        if self.status.final:
            return round(before if self.seconds is None else self.seconds, 3)
        return round(before + max(time.time() - max(at, self.since), 0.0), 3)


def lost_workers_of(state: JobState) -> dict[str, Any]:
    """Return, as JSON, how many workers this attempt has lost, the time of the last loss, and how
    often the driver was restarted."""
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
    """Return the state of a job that is queued again, with its request changed by the event."""
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
    """Return the state of a job that begins or continues; lines after its checkpoint are
    dropped."""
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
    """Return the state, corrected according to the lease and a request to end.

    Args:
        state: the recorded state
        held: True if a process holds the lease
        requested: the request to end and its reason (``JobStore.requested``), or None
        lost: True if the lease expired without being released
    """
    if (state.status is Status.RUNNING and not held) or (state.status is Status.QUEUED and lost):
        times = f"; {state.n_runs} processes have run it" if state.n_runs > 1 else ""
        reason = f"the process that ran it has ended without recording an end{times}"
        return replace(state.settled(), status=Status.INTERRUPTED, reason=reason)
    if state.status is Status.RUNNING and requested is not None:
        return replace(state, status=Status.ABORTING, reason=requested[1])
    return state
