"""What events add up to."""

from __future__ import annotations

import pytest

from partirvm.errors import FormatError
from partirvm.jobs.state import TRANSITIONS, JobState, Status, fold, observed


def life(*kinds, **fields):
    """Events of these kinds, a second apart."""
    return [{"event": kind, "time": float(second), "reason": f"r{second}"} for second, kind in enumerate(kinds)]


PATHS = {
    Status.QUEUED: (),
    Status.RUNNING: ("running",),
    Status.ABORTED: ("running", "aborted"),
    Status.FAILED: ("failed",),
    Status.INTERRUPTED: ("running", "interrupted"),
    Status.DONE: ("running", "done"),
    Status.CANCELLED: ("cancelled",),
}


@pytest.mark.parametrize("before", PATHS, ids=str)
@pytest.mark.parametrize("after", PATHS)
def test_every_transition(before, after):
    """Those of the table are made, with time and reason; all others raise and name what stands before."""
    events = life(*PATHS[before], after.value)
    if after in TRANSITIONS[before]:
        state = fold(events)
        assert (state.status, state.since, state.reason) == (after, len(events) - 1.0, f"r{len(events) - 1}")
    else:
        with pytest.raises(FormatError, match=rf"'{after}' cannot follow '{before}'"):
            fold(events)


def test_a_long_life():
    """Plan and history, times and attempts, through an interruption and a resume; unknown events do nothing."""
    request = {"time": 1.0, "parameters": {"a": 1, "b": 2}, "data": "here"}
    events = [
        {"event": "running", "time": 2.0, "history": 0},
        {"event": "plan", "time": 2.5, "passes": 7},
        {"event": "worker joined", "time": 2.7},
        {"event": "fit", "time": 3.0, "number": 1},
        {"event": "fit", "time": 4.0, "number": 2},
        {"event": "running", "time": 9.5, "history": 1},
        {"event": "fit", "time": 10.0, "number": 2, "again": True},
        {"event": "done", "time": 11.0, "reason": "rounds"},
        {"event": "queued", "time": 20.0, "changes": {"b": 3}, "data": "there"},
        {"event": "running", "time": 21.0, "history": 2},
    ]
    done = fold(events[:8], request)
    assert (done.status, done.reason, done.attempt) == (Status.DONE, "rounds", 1)
    assert (done.queued, done.began, done.ended) == (1.0, 2.0, 11.0)
    assert done.plan["passes"] == 7
    assert [(line["number"], line.get("again")) for line in done.history] == [(1, None), (2, True)]
    resumed = fold(events, request)
    assert (resumed.status, resumed.attempt, resumed.began, resumed.ended) == (Status.RUNNING, 2, 2.0, None)
    assert len(resumed.history) == 2
    assert resumed.request == {"time": 1.0, "parameters": {"a": 1, "b": 3}, "data": "there"}
    for kinds in (("fit",), ("running", "done", "fit")):
        with pytest.raises(FormatError, match="'fit' cannot follow"):
            fold(life(*kinds))


@pytest.mark.parametrize(
    ("kinds", "held", "aborting", "status"),
    [
        ((), False, False, Status.QUEUED),
        (("running",), True, False, Status.RUNNING),
        (("running",), True, True, Status.ABORTING),
        (("running",), False, True, Status.INTERRUPTED),
        (("running", "done"), False, True, Status.DONE),
    ],
)
def test_what_a_watcher_sees(kinds, held, aborting, status):
    """The lease and the flags tell what no event says yet."""
    assert observed(fold(life(*kinds)), held=held, requested=("abort", "why") if aborting else None).status is status
    assert fold([]) == JobState()
