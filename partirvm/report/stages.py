"""What a history adds up to: one stage for each round, and one for each level of split-and-merge."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partirvm.report.quantities import KEYS, MEASURED, Entry
from partirvm.strategies.fit_rows import FIT_ROWS


@dataclass(frozen=True)
class Range:
    """The median of a level's values between the least and the largest; of a round all three are one."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Stage:
    """A round, a level, or the last fit.

    ``x`` is its place among the others: the number of the round or the level. ``seconds`` is when it ended;
    ``candidates`` and ``vectors`` are those of all its fits, ``values`` the errors and evidence that it has, by key.
    """

    kind: str
    x: int
    fits: int
    candidates: int
    vectors: int
    seconds: float
    likelihood: str
    rows: int
    values: Mapping[str, Range]

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        names = {"final": "last fit", "early": "early model", "level": f"level {self.x}"}
        return names.get(self.kind, f"round {self.x}")


def stages(history: Iterable[Entry]) -> list[Stage]:
    """The stages in the order in which they began; the heuristic's fit is none."""
    found: list[Stage] = []
    level: list[Entry] = []
    for entry in history:
        if level and (entry["kind"] != "part" or entry["level"] != level[0]["level"]):
            found.append(_stage("level", level[0]["level"], level))
            level = []
        if entry["kind"] == "part":
            level.append(entry)
        elif entry["kind"] not in MEASURED:
            found.append(_stage(entry["kind"], _place(entry, found), [entry]))
    return found + ([_stage("level", level[0]["level"], level)] if level else [])


def _place(entry: Entry, before: Sequence[Stage]) -> int:
    """A last fit that is no round of its own comes after the others."""
    if entry["kind"] != "final" or not before:
        return int(entry["number"])
    return max(before[-1].x + 1, int(entry["number"])) if before[-1].kind != "level" else before[-1].x + 1


def _stage(kind: str, x: int, entries: Sequence[Entry]) -> Stage:
    last = entries[-1]
    return Stage(
        kind=kind,
        x=x,
        fits=len(entries),
        candidates=sum(entry["candidates"] for entry in entries),
        vectors=sum(entry["vectors"] for entry in entries),
        seconds=float(last["seconds"]),
        likelihood=last.get("likelihood", "full"),
        rows=last["rows"],
        values={key: value for key in (*KEYS, "log_evidence") if (value := _spread(entries, key)) is not None},
    )


def _spread(entries: Sequence[Entry], name: str) -> Range | None:
    values = [float(entry[name]) for entry in entries if entry.get(name) is not None]
    return Range(min(values), statistics.median(values), max(values)) if values else None


def comparable(found: Sequence[Stage]) -> list[Stage]:
    """The stages whose evidence can be compared: those over the same rows as the first, none where each has its own."""
    if not found or not FIT_ROWS[found[0].likelihood].shared:
        return []
    return [stage for stage in found if stage.rows == found[0].rows]


def planned_fits(plan: dict[str, Any], level: int) -> int:
    """Fits of a level of split-and-merge: its partitions, then pairs; an odd part waits.

    >>> [planned_fits({"partitions": 7}, level) for level in range(4)]
    [7, 3, 2, 1]
    """
    parts = fits = int(plan["partitions"])
    for _ in range(level):
        fits, parts = parts // 2, parts // 2 + parts % 2
    return fits
