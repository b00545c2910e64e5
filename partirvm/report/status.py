"""The status of a job as text, a table of jobs, and the lines printed while a job is followed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from partirvm.jobs.state import JobState, Status
from partirvm.planning.units import format_duration
from partirvm.report.lines import Lines
from partirvm.report.quantities import MISSING, SIDES, Quantity, format_evidence, kind_of
from partirvm.report.text import plan_line


def moment(seconds: float) -> str:
    """Format a point in time in local time, with the date unless it is today."""
    then = time.localtime(seconds)
    today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)


def status_text(progress: dict[str, Any]) -> str:
    """Return the state of a job as text, given ``Job.progress()``."""
    kind = kind_of(progress)
    over = Status(progress["status"]).final
    since = moment(progress["since"])
    lines = [
        ("job", progress["job"]),
        ("status", f"{progress['status']} since {since}" + _attempt(progress["attempt"])),
        ("", progress["advice"]),
        ("reason", progress["reason"]),
        ("strategy", progress["strategy"]),
        ("fits", f"{progress['fits']:,}" if progress["fits"] else "none is finished yet"),
        ("vectors", None if progress["vectors"] is None else f"{progress['vectors']:,}"),
        *((f"{rows} error", kind.phrase(progress, rows)) for rows in SIDES),
        ("log evidence", _number(progress["log_evidence"], format_evidence)),
        ("model", "usable" if progress["model"] else "none yet"),
        ("took" if over else "so far", _number(progress["seconds"], format_duration)),
    ]
    return "\n".join(f"{name:<16}{text}" for name, text in lines if text)


def _attempt(attempt: int) -> str:
    return f", attempt {attempt}" if attempt > 1 else ""


def _number(value: float | None, form: Any) -> str | None:
    return None if value is None else form(value)


_COLUMNS = ("job", "status", "fits", "vectors", "measure", "training", "held-out", "time", "since", "reason")
_RIGHT = {"fits", "vectors", "training", "held-out", "time"}


def jobs_table(jobs: Sequence[dict[str, Any]]) -> str:
    """Return a table with one line per job, from ``Job.progress()``; a job with ``error`` could not be read."""
    rows = [_COLUMNS, *(_row(job) for job in jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [">" if name in _RIGHT else "<" for name in _COLUMNS]
    cells = list(zip(aligned, widths, strict=True))
    return "\n".join(
        "  ".join(f"{text:{side}{width}}" for text, (side, width) in zip(row, cells, strict=True)).rstrip()
        for row in rows
    )


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    name = job["job"].rpartition("/")[2]
    if "error" in job:
        return (name, "unreadable", *[MISSING] * 7, job["error"])
    first = kind_of(job).first
    errors = [Quantity(rows, first).text(job) for rows in SIDES]
    return (
        name,
        job["status"],
        f"{job['fits']:,}",
        MISSING if job["vectors"] is None else f"{job['vectors']:,}",
        first.name if set(errors) != {MISSING} else MISSING,
        *errors,
        MISSING if job["seconds"] is None else format_duration(job["seconds"]),
        moment(job["since"]),
        job["reason"],
    )


class Follower:
    """Converter of successive states of a job to lines: each change of status, plan or round is printed once."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._seen: tuple[Any, ...] = ()
        self._plan: Any = None
        self._printed: list[Any] = []

    def of(self, state: JobState) -> list[str]:
        """Return the lines for the changes since the last state."""
        lines: list[str] = []
        begun = state.status, state.attempt
        if state.status is not Status.QUEUED and state.plan is not None and self._key(state.plan) != self._plan:
            self._plan = self._key(state.plan)
            lines += plan_line(state.plan).splitlines()
        lines += self._history(state)
        if begun != self._seen:
            self._seen = begun
            over = state.status is not None and state.status.final
            if over:
                lines += [line.text for line in self._lines.rest()]
            why = f": {state.reason}" if state.reason else ""
            lines.insert(len(lines) if over else 0, f"{moment(state.since)}  {state.status}{why}")
        return lines

    def _history(self, state: JobState) -> list[str]:
        keys = [self._key(entry) for entry in state.history]
        same = 0
        while same < min(len(keys), len(self._printed)) and keys[same] == self._printed[same]:
            same += 1
        self._printed = keys
        return [line.text for entry in state.history[same:] for line in self._lines.of(entry)]

    def _key(self, event: dict[str, Any]) -> Any:
        return event["epoch"], event["time"]
