"""The history of a fit on the page of its job: curves over rounds and over time, and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from partirvm.planning.units import format_bytes, format_duration
from partirvm.report.curves import Chart, Point, Series, draw
from partirvm.report.quantities import MISSING, SIDES, Entry, Kind, Measure, Quantity, format_error, format_evidence
from partirvm.report.stages import Range, Stage, comparable, planned_fits
from partirvm.report.tables import Row, Table
from partirvm.report.text import NAMED, format_rate, rows_per_second

SHORT, EACH = 14, 6
"""Maximum number of rows of a table, and number of first and last rows shown of a longer table."""

UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))

Value = Callable[[Stage], Range | None]
"""Type of a function that returns the value of a stage for a curve."""


def minus(figure: str) -> str:
    """Replace the hyphen of a negative number's text by a minus sign.

    >>> minus("-1,234")
    '−1,234'
    """
    return figure.replace("-", "−") if figure != MISSING else figure


@dataclass(frozen=True)
class Curve:
    """A kind of chart: title, unit, function for the value of a stage, formatting of values, and ``Chart`` settings.

    Values are multiplied by ``scale``.
    """

    title: str
    unit: str
    figure: Callable[[float], str]
    lines: Mapping[str, Value]
    chart: Chart
    scale: float = 1.0


def curves(found: Sequence[Stage], kind: Kind) -> list[dict[str, Any]]:
    """Return the charts of errors, vectors and evidence, over rounds or levels (left) and over time (right)."""
    if len(found) < 2:
        return []
    levels = any(stage.kind == "level" for stage in found)
    same = comparable(found)
    rows_used = f", over {same[0].rows:,} rows" if same else ""
    number = {"vectors": _vectors}
    vectors = Curve("Relevance vectors", "all of a level" * levels, _count, number, Chart("", "", counts=True))
    nats = {"evidence": _value("log_evidence")}
    evidence = Curve("Log evidence", "nats" + rows_used, _evidence, nats, Chart("", ""))
    drawn = [*((_error(measure), found) for measure in kind.curves), (vectors, found), (evidence, same)]
    figures = (
        _figure(curve, over, "level" if levels else "round", timed)
        for curve, over in drawn
        if len(over) > 1
        for timed in (False, True)
    )
    return [figure for figure in figures if figure["drawing"]]


def _error(measure: Measure) -> Curve:
    """Return the kind of chart for a measure."""
    lines: dict[str, Value] = {rows: _value(Quantity(rows, measure).key) for rows in SIDES}
    chart = Chart("", "", magnitudes=True)
    return Curve(measure.title, measure.unit, measure.figure, lines, chart, measure.scale)


def _value(key: str) -> Value:
    return lambda stage: stage.values.get(key)


def _vectors(stage: Stage) -> Range:
    return Range(stage.vectors, stage.vectors, stage.vectors)


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _evidence(nats: float) -> str:
    return minus(format_evidence(nats))


def _figure(curve: Curve, found: Sequence[Stage], step: str, timed: bool) -> dict[str, Any]:
    """Return one chart with its heading and unit."""
    from markupsafe import Markup

    name, size = next((one for one in UNITS if found[-1].seconds >= 2 * one[1]), UNITS[-1])
    ended = found[-1].kind == "final"
    lines = []
    for label, pick in curve.lines.items():
        picked = [(stage, value) for stage in found if (value := pick(stage)) is not None]
        points = (
            Point(
                x=stage.seconds / size if timed else stage.x,
                y=curve.scale * value.middle,
                tip=f"{stage.name}, {format_duration(stage.seconds)}: {label} {_range_text(value, curve.figure)}",
                low=curve.scale * value.low,
                high=curve.scale * value.high,
            )
            for stage, value in picked
        )
        lines.append(Series(label, label, tuple(points), ring=ended))
    heading = f"{curve.title} over {'time' if timed else step + 's'}"
    x_label = f"elapsed, {name}" if timed else step
    last = "last" if ended and not timed else ""
    chart = replace(
        curve.chart,
        name=heading,
        x_label=x_label,
        whole=not timed,
        figure=lambda drawn: curve.figure(drawn / curve.scale),
        last=last,
    )
    return {"heading": heading, "unit": curve.unit, "drawing": Markup(draw(chart, lines))}


def _range_text(value: Range, figure: Callable[[float], str]) -> str:
    if value.low == value.high:
        return figure(value.middle)
    return f"{figure(value.middle)} ({figure(value.low)} to {figure(value.high)})"


def history(
    entries: Sequence[Entry], found: Sequence[Stage], plan: dict[str, Any] | None, kind: Kind, *, over: bool
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
    found: Sequence[Stage], plan: dict[str, Any] | None, quantities: Sequence[Quantity], *, over: bool
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
    return MISSING if value is None else _range_text(value, figure)
