"""What a job's events add up to: a pure fold.

    queued ──► running ──► done
      │  ▲       │  │ ╲
      │  │       │  │  ► aborting ──► aborted
      │  └───────┼──┼─── (resume: from interrupted, aborted, failed, done)
      ▼          ▼  ▼
    cancelled  failed  interrupted ──► running (a driver that goes on elsewhere)

Each transition is an event of the state's name with a ``time`` and a ``reason``. Beside them stand ``plan``, what was
planned, and ``fit``, one line of history. ``running`` says how many lines of ``history`` the checkpoint knew from which
the driver goes on: later ones are of rounds that are done again, and are forgotten.

That a driver is gone leaves no event at first. ``observed`` puts together the events, the lease and the flags; whoever
takes the job over writes ``interrupted`` down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from partirvm.errors import TransitionError


class Status(Enum):
    """Where a job stands. ``advice`` is a sentence for the person who reads it."""

    QUEUED = "queued"
    RUNNING = "running"
    ABORTING = "aborting"
    ABORTED = "aborted"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DONE = "done"
    CANCELLED = "cancelled"

    def __str__(self) -> str:
        return str(self.value)

    @property
    def final(self) -> bool:
        """Whether no driver is at work on it, or about to be."""
        return self not in {Status.QUEUED, Status.RUNNING, Status.ABORTING}

    @property
    def advice(self) -> str:
        """What it means and what to do next, one sentence."""
        return _ADVICE[self]


_ADVICE = {
    Status.QUEUED: "Waits for a process that carries it out.",
    Status.RUNNING: "A process is at work on it.",
    Status.ABORTING: "Ends as soon as the tile or iteration at hand is done; the model so far will be kept.",
    Status.ABORTED: "Ended by a person: the model so far is usable, resume goes on from there.",
    Status.FAILED: "Ended by an error: resume goes on from the last checkpoint.",
    Status.INTERRUPTED: "The process that was at work on it is gone: resume goes on from the last checkpoint.",
    Status.DONE: "Its model is as good as the fit makes it.",
    Status.CANCELLED: "Ended by a person, and not to be used.",
}

_ENDS = {Status.ABORTED, Status.FAILED, Status.INTERRUPTED, Status.CANCELLED}

TRANSITIONS: dict[Status | None, set[Status]] = {
    None: {Status.QUEUED},
    Status.QUEUED: {Status.RUNNING} | _ENDS,
    Status.RUNNING: {Status.ABORTING, Status.DONE} | _ENDS,
    Status.ABORTING: {Status.DONE} | _ENDS,
    Status.INTERRUPTED: {Status.QUEUED, Status.RUNNING, Status.ABORTED, Status.FAILED, Status.CANCELLED},
    Status.ABORTED: {Status.QUEUED, Status.CANCELLED},
    Status.FAILED: {Status.QUEUED, Status.CANCELLED},
    Status.DONE: {Status.QUEUED},
    Status.CANCELLED: set(),
}
"""What may follow what. Only a resumed job (``queued`` again) leaves an end."""


@dataclass(frozen=True)
class JobState:
    """What the events say.

    ``since`` and ``reason`` are of the last transition, ``began`` of the first ``running`` and ``ended`` of the last
    end (None while there is none); ``seconds`` are those of work that this end tells of. ``attempt`` counts the times
    that the job was queued. ``plan`` is the last plan event, ``history`` the fit events that stand, ``events`` the
    number of events folded. ``cluster`` is the address of the scheduler that starts a lost driver again, empty where
    nobody does.
    """

    status: Status | None = None
    since: float = 0.0
    reason: str = ""
    attempt: int = 0
    queued: float | None = None
    began: float | None = None
    ended: float | None = None
    seconds: float | None = None
    plan: dict[str, Any] | None = None
    history: tuple[dict[str, Any], ...] = ()
    events: int = 0
    cluster: str = ""


def fold(events: Iterable[dict[str, Any]], state: JobState | None = None) -> JobState:
    """The state after these events, from none or from an earlier state. Raises ``TransitionError``."""
    state = JobState() if state is None else state
    for event in events:
        state = advance(state, event)
    return state


def advance(state: JobState, event: dict[str, Any]) -> JobState:
    """The state after one more event. Raises ``TransitionError`` for one that cannot follow; unknown kinds may."""
    kind, state = event["event"], replace(state, events=state.events + 1)
    if kind == "plan":
        return replace(state, plan=event)
    if kind == "fit":
        if state.status not in {Status.RUNNING, Status.ABORTING}:
            raise _impossible(state, "fit")
        return replace(state, history=(*state.history, event))
    if kind not in Status._value2member_map_:
        return state
    status, time = Status(kind), float(event["time"])
    if status not in TRANSITIONS[state.status]:
        raise _impossible(state, kind)
    cluster = str(event.get("cluster", state.cluster))
    new = replace(state, status=status, since=time, reason=str(event.get("reason", "")), cluster=cluster)
    if status is Status.QUEUED:
        return replace(new, attempt=state.attempt + 1, queued=state.queued or time, ended=None)
    if status is Status.RUNNING:
        history = state.history[: int(event.get("history", len(state.history)))]
        return replace(new, began=state.began or time, ended=None, history=history)
    return replace(new, ended=time, seconds=event.get("seconds")) if status.final else new


def observed(state: JobState, *, held: bool, aborting: bool = False, lost: bool = False) -> JobState:
    """The state as a watcher sees it: who runs without a live lease is interrupted, who is asked to end is aborting.

    So is a queued job interrupted whose last holder was ``lost``: it left no sign of having released its lease.
    """
    if (state.status in {Status.RUNNING, Status.ABORTING} and not held) or (state.status is Status.QUEUED and lost):
        return replace(state, status=Status.INTERRUPTED, reason="the process that was at work on it is gone")
    if state.status is Status.RUNNING and aborting:
        return replace(state, status=Status.ABORTING)
    return state


def _impossible(state: JobState, kind: str) -> TransitionError:
    before = "no event at all" if state.status is None else f"{state.status.value!r}"
    return TransitionError(f"event {state.events}: {kind!r} cannot follow {before}: an event was lost or made up")
