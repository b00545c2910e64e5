"""The stages of a fit's history: one per round, or one per level of split-and-merge."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partirvm.report.quantities import KEYS, MEASURED, Entry


@dataclass(frozen=True)
class Range:
    """Minimum, median and maximum of the values of a level. For a round, the three are equal."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class FitStage:
    """A round, a level, or the last fit.

    ``x`` is the number of the round or the level. ``seconds`` is the time at the end of the stage. ``candidates`` and
    ``vectors`` are totals over the fits of the stage. ``values`` holds the errors and the evidence by key.
    """

    kind: str
    x: int
    fits: int
    candidates: int
    vectors: int
    seconds: float
    fit_rows: str
    rows: int
    values: Mapping[str, Range]

    @property
    def name(self) -> str:
        """Name of the stage for use in sentences."""
        names = {"final": "last fit", "early": "early model", "level": f"level {self.x}"}
        return names.get(self.kind, f"round {self.x}")


def stages(history: Iterable[Entry]) -> list[FitStage]:
    """Return the stages in order of their start. The heuristic fit is not a stage."""
    found: list[FitStage] = []
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


def _place(entry: Entry, before: Sequence[FitStage]) -> int:
    """Return the position of a final fit that is not a round, which is after all other stages."""
    if entry["kind"] != "final" or not before:
        return int(entry["number"])
    return max(before[-1].x + 1, int(entry["number"])) if before[-1].kind != "level" else before[-1].x + 1


def _stage(kind: str, x: int, entries: Sequence[Entry]) -> FitStage:
    last = entries[-1]
    return FitStage(
        kind=kind,
        x=x,
        fits=len(entries),
        candidates=sum(entry["candidates"] for entry in entries),
        vectors=sum(entry["vectors"] for entry in entries),
        seconds=float(last["seconds"]),
        fit_rows=last.get("fit_rows", "full"),
        rows=last["rows"],
        values={key: value for key in (*KEYS, "log_evidence") if (value := _spread(entries, key)) is not None},
    )


def _spread(entries: Sequence[Entry], name: str) -> Range | None:
    values = [float(entry[name]) for entry in entries if entry.get(name) is not None]
    return Range(min(values), statistics.median(values), max(values)) if values else None


def comparable(found: Sequence[FitStage]) -> list[FitStage]:
    """Return the stages with comparable evidence: fits over equal numbers of rows."""
    return [stage for stage in found if stage.rows == found[0].rows]


def planned_fits(plan: dict[str, Any], level: int) -> int:
    """Return the number of fits of a level of split-and-merge: partitions, then pairs of models.

    >>> [planned_fits({"partitions": 7}, level) for level in range(4)]
    [7, 3, 2, 1]
    """
    parts = fits = int(plan["partitions"])
    for _ in range(level):
        fits, parts = parts // 2, parts // 2 + parts % 2
    return fits
