"""The history of a fit on the page of its job: a short table of rounds or levels, and a table of all fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from partirvm.planning.units import format_bytes, format_duration
from partirvm.report.panels import Row, Table
from partirvm.report.quantities import MISSING, Entry, Kind, Quantity, format_error, format_evidence, minus
from partirvm.report.stages import FitStage, Range, planned_fits
from partirvm.report.text import NAMED, format_rate, rows_per_second

SHORT, EACH = 14, 6
"""Maximum number of rows of a table, and number of first and last rows shown of a longer table."""


def history(
    entries: Sequence[Entry], found: Sequence[FitStage], plan: dict[str, Any] | None, kind: Kind, *, over: bool
) -> dict[str, Any] | None:
    """Return the table of rounds or levels, shortened in the middle if long, and a folded table of all fits."""
    if not entries:
        return None
    every, brief = columns(kind, kind.every), kind.brief(entries)
    levels = any(stage.kind == "level" for stage in found)
    several = levels or len(entries) > SHORT
    return {
        "brief": _levels(found, plan, brief, over=over) if levels else _rounds(entries, every, brief, kind),
        "summary": f"All {len(entries):,} fits, every column" if several else "Every column",
        "every": Table([name for name, _ in every], [_fit_row(entry, every) for entry in entries]),
    }


def _rounds(entries: Sequence[Entry], every: Sequence[Column], brief: Sequence[Quantity], kind: Kind) -> Table:
    """Return a table with one row per fit and the most important columns."""
    chosen = BRIEF | {quantity.label for quantity in brief} | ({kind.steps} if not kind.noise else set())
    short = [column for column in every if column[0] in chosen]
    shown = entries if len(entries) <= SHORT else (*entries[:EACH], *entries[-EACH:])
    rows = [_fit_row(entry, short) for entry in shown]
    if len(shown) < len(entries):
        rows.insert(EACH, Row([f"{len(entries) - len(shown):,} more"], "gap"))
    return Table([name for name, _ in short], rows)


def _name(entry: Entry) -> str:
    level = f"level {entry.get('level')}, {entry['number']}"
    names = {**NAMED, "heuristic": "sparseness", "kernel": "kernel", "part": level}
    return names.get(entry["kind"], str(entry["number"]))


def _noise(entry: Entry) -> str:
    if entry.get("noise_sd") is None:
        return MISSING
    remark = ", raised" if entry.get("overconfident") else ", floor" if entry.get("floored") else ""
    return format_error(entry["noise_sd"]) + remark


def _memory(entry: Entry) -> str:
    return format_bytes(entry["peak_memory"]) if entry.get("peak_memory") else MISSING


Column = tuple[str, Callable[[Entry], str]]
"""Type of a column: its title, and a function that returns the text of a cell."""

BRIEF = {"fit", "candidates", "vectors", "log evidence", "elapsed", "ended"}
"""Titles of the columns of the short table, in addition to the errors."""


def columns(kind: Kind, quantities: Sequence[Quantity]) -> tuple[Column, ...]:
    """Return the columns of the table of all fits of this kind."""
    noise: tuple[Column, ...] = (("noise sd", _noise),) if kind.noise else ()
    return (
        ("fit", _name),
        ("rows used", lambda entry: f"{entry['rows']:,}"),
        ("candidates", lambda entry: f"{entry['candidates']:,}"),
        ("vectors", lambda entry: f"{entry['vectors']:,}"),
        (kind.steps, lambda entry: f"{entry['iterations']:,}"),
        *((quantity.label, _written(quantity)) for quantity in quantities),
        ("log evidence", lambda entry: minus(format_evidence(entry["log_evidence"]))),
        *noise,
        ("rows/s", lambda entry: format_rate(rows_per_second(entry) if "pass_seconds" in entry else None)),
        ("elapsed", lambda entry: format_duration(entry["seconds"])),
        ("memory", _memory),
        ("ended", lambda entry: str(entry["termination"])),
    )


def _written(quantity: Quantity) -> Callable[[Entry], str]:
    return lambda entry: minus(quantity.text(entry))


def _fit_row(entry: Entry, columns: Sequence[Column]) -> Row:
    return Row([cell(entry) for _, cell in columns], "last" if entry["kind"] == "final" else "")


def _levels(
    found: Sequence[FitStage], plan: dict[str, Any] | None, quantities: Sequence[Quantity], *, over: bool
) -> Table:
    """Return a table with one row per level."""
    header = ("level", "fits", "candidates", "vectors", *(quantity.label for quantity in quantities), "elapsed")
    rows = []
    for stage in found:
        fits = f"{stage.fits:,}"
        planned = planned_fits(plan, stage.x) if plan and stage.kind == "level" else stage.fits
        if stage is found[-1] and not over and stage.fits < planned:
            fits += f" of {planned:,}"
        cells = (
            "last" if stage.kind == "final" else str(stage.x),
            fits,
            f"{stage.candidates:,}",
            f"{stage.vectors:,}",
            *(_range(stage.values.get(quantity.key), quantity.measure.figure) for quantity in quantities),
            format_duration(stage.seconds),
        )
        rows.append(Row(cells, "last" if stage.kind == "final" else ""))
    return Table(header, rows)


def _range(value: Range | None, figure: Callable[[float], str]) -> str:
    if value is None:
        return MISSING
    if value.low == value.high:
        return figure(value.middle)
    return f"{figure(value.middle)} ({figure(value.low)} to {figure(value.high)})"
