"""A fit job as one self-contained HTML page, made from plain values.

This module computes the values; ``page.html.jinja`` is the template.

The page shows the request, the plan, the history and the result of a job in any state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from partirvm.options import Request
from partirvm.planning.units import counted, format_bytes, format_duration
from partirvm.quoting import printable
from partirvm.report import diagnostics, fit_history
from partirvm.report.curves import LISTED, curves, informative, ranking, time_and_memory
from partirvm.report.model_tables import Direction, Function, directions_table, functions_table
from partirvm.report.panels import Chart, Row, Table, drawable
from partirvm.report.quantities import (
    MISSING,
    Entry,
    Kind,
    Quantity,
    format_error,
    format_evidence,
    kind_of,
    leaves_model,
    minus,
)
from partirvm.report.stages import FitStage, stages
from partirvm.report.text import heuristic_line, plan_line, size_text
from partirvm.strategies import schedule_of

TONES = ("queued", "running", "aborting", "aborted", "failed", "interrupted", "done", "cancelled")
"""Job states that have a colour on the page."""

UNDER_WAY = ("queued", "running", "aborting")


@dataclass(frozen=True)
class JobFacts:
    """Facts of a job: plain values from its events.

    ``reason`` is the reason for the end (a termination's value, or the error), and ``advice`` is the corresponding
    sentence. ``status_advice`` is the advice for the job's state. ``queued``, ``began`` and ``ended`` are seconds since
    1970, or None. ``seconds`` is the running time, without the time between an end and a resume.
    ``spec`` has ``data``, ``validation``, ``parameters``, ``versions`` and ``tile_rows``; ``plan`` is the result of
    ``Plan.to_json()``, and ``history`` holds the driver's entries. ``relevance`` is the relevance of each feature, by
    name, as a fraction of the largest relevance. ``relevance`` is None without a model or relevances.
    ``directions`` are those of the kernel. ``bases`` are the bias and the basis functions of the fit. ``outputs`` are
    the names of the targets, or the labels of the classes. ``damaged`` are the errors of parts that could not be read.
    """

    location: str
    status: str
    status_advice: str
    reason: str
    advice: str
    queued: float | None
    began: float | None
    ended: float | None
    spec: dict[str, Any]
    plan: dict[str, Any] | None
    history: Sequence[dict[str, Any]]
    relevance: Mapping[str, float] | None = None
    directions: Sequence[Direction] = ()
    bases: Sequence[Function] = ()
    outputs: Sequence[str] = ()
    seconds: float | None = None
    damaged: Sequence[str] = ()


def page(job: JobFacts) -> str:
    """Return the complete page of a job, without scripts or external resources."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partirvm.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    found = stages(job.history)
    kind = kind_of(job.history[-1] if job.history else {}, job.plan)
    return environment.get_template("page.html.jinja").render(
        job=job,
        name=job.location.rstrip("/").rpartition("/")[2] or job.location,
        over=_over(job),
        tone=job.status if job.status in TONES else "other",
        times=_times(job),
        figures=_figures(job, kind),
        facts=_facts(job, found),
        notes=_notes(job),
        drawable=drawable(),
        curves=[_drawn(panel) for panel in curves(found, kind)],
        levels=any(stage.kind == "level" for stage in found),
        features=_features(job.relevance or {}),
        directions=directions_table(job.directions),
        basis=functions_table(job.bases),
        diagnostics=_diagnostics(job),
        spent=[_drawn(panel) for panel in time_and_memory(job.history, job.seconds, job.plan)],
        history=fit_history.history(job.history, found, job.plan, kind, over=_over(job)),
        plan=_plan(job),
        parameters=_parameters(job.spec),
        versions=", ".join(f"{part} {version}" for part, version in (job.spec.get("versions") or {}).items()),
    )


def _finalize(value: Any) -> Any:
    """Escape the control characters of a text. Markup is returned unchanged, since it has no control characters."""
    return value if hasattr(value, "__html__") else printable(str(value), keep="\n\t\u00a0")


def _over(job: JobFacts) -> bool:
    """Return True if the job has ended. An ended job may be resumed."""
    return job.status not in UNDER_WAY


def _times(job: JobFacts) -> list[tuple[str, str]]:
    """Return the times of the main events."""
    times = [("queued", job.queued), ("began", job.began), ("ended", job.ended)]
    if job.ended is None and job.history:
        times.append(("last fit", job.history[-1].get("time")))
    return [(what, _moment(at)) for what, at in times if at is not None]


def _moment(when: float) -> str:
    """Format a point in time, in UTC.

    >>> _moment(1785600000.0)
    '2026-08-01 16:00:00 UTC'
    """
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


def _peak(job: JobFacts) -> str:
    peaks = [entry["peak_memory"] for entry in job.history if entry.get("peak_memory")]
    return format_bytes(max(peaks)) if peaks else MISSING


def _figures(job: JobFacts, kind: Kind) -> list[tuple[str, str, str]]:
    """Return the main figures of the current model: name, value and note of each."""
    models = [entry for entry in job.history if leaves_model(entry)]
    if not models:
        return []
    last = models[-1]
    evidence = f"{kind.evidence}, over {counted(last['rows'], 'row')}"
    return [
        ("Relevance vectors", f"{last['vectors']:,}", f"of {counted(job.plan['rows'], 'row')}" if job.plan else ""),
        *_errors(last, kind),
        ("Log evidence", minus(format_evidence(last["log_evidence"])), evidence),
        ("Time", format_duration(job.seconds or 0.0), f"peak memory {_peak(job)}"),
    ]


def _errors(entry: Entry, kind: Kind) -> list[tuple[str, str, str]]:
    """Return the main figures of regression or classification: the errors, with the second measure in the note."""
    shown = kind.brief([entry])
    cells = []
    for quantity in shown:
        others = [Quantity(quantity.rows, measure) for measure in (kind.head, kind.beside)]
        remaining = [one for one in others if one not in shown and one.of(entry) is not None]
        unit = quantity.measure.unit.removeprefix("% ")  # the formatted number already includes the percent sign
        measures = (f"{one.measure.name} {minus(one.text(entry))}".replace(" %", "\u00a0%") for one in remaining)
        note = "; ".join([unit, *measures])
        name = f"{quantity.rows.capitalize()} {quantity.measure.title.lower()}"
        cells.append((name, minus(quantity.text(entry)), note))
    noise = [("Noise", format_error(entry["noise_sd"]), "standard deviation")] if kind.noise else []
    return cells + noise


def _facts(job: JobFacts, found: Sequence[FitStage]) -> list[tuple[str, str]]:
    """Return facts about the data and the strategy."""
    spec, plan = job.spec, job.plan
    facts = [("Data", str(spec.get("data", MISSING)))]
    if spec.get("validation"):
        facts.append(("Held-out data", str(spec["validation"])))
    if plan is None:
        return [*facts, ("Plan", "none yet: the fit has not begun")]
    fits = sum(stage.fits for stage in found)
    facts += [
        ("Size", size_text(plan)),
        ("Strategy", str(plan["strategy"])),
        ("Partition size", _partition_size(job, plan)),
    ]
    return [*facts, ("Fits", f"{fits:,}" if _over(job) else f"{fits:,} so far")]


def _partition_size(job: JobFacts, plan: dict[str, Any]) -> str:
    """Return the partition size P and the method by which P was chosen."""
    size = f"P = {plan['partition_size']:,}"
    requested = (job.spec.get("parameters") or {}).get("partition_size", "auto")
    if not plan["partition_size"]:
        return "none: without a kernel no row is a candidate"
    if schedule_of(plan["strategy"]).one_fit:
        return f"{size}: all rows at once"
    if requested != "auto":
        return f"{size}, as requested" if requested == plan["partition_size"] else f"{size}; requested: {requested}"
    measured = [entry for entry in job.history if entry["kind"] == "heuristic" and "heuristic_size" in entry]
    if measured:
        return f"{size}, by {heuristic_line(measured[0])}"
    if plan.get("rho") is not None:
        return f"{size}, by sparseness: ρ = {plan['rho']:.2f} in {plan['rho_rows']:,} random rows"
    return f"{size}, chosen automatically"


def _notes(job: JobFacts) -> list[str]:
    """Return the notes of the plan, and warnings about the last model."""
    notes = [str(note) for note in (job.plan or {}).get("notes", ())]
    last = job.history[-1] if job.history else {}
    if last.get("floored"):
        notes.append("the noise variance is at its floor: the model may interpolate its training rows")
    if last.get("dropped"):
        notes.append(f"{counted(last['dropped'], 'vector')} were dropped at a limit: a working set may be better")
    if last.get("duplicates"):
        notes.append(f"{counted(last['duplicates'], 'chosen row')} are duplicates of another row, and were left out")
    return [note[:1].upper() + note[1:] for note in notes]


def _diagnostics(job: JobFacts) -> list[dict[str, Any]]:
    """Return the pictures of the current model's predictions: a name and panels for each target."""
    models = [entry for entry in job.history if leaves_model(entry)]
    stored = models[-1].get("diagnostics", ()) if models else ()
    return [
        {
            "name": group.name,
            "left_out": group.left_out,
            "panels": [_drawn(panel, group.name) for panel in group.panels],
            "largest": group.largest,
        }
        for group in diagnostics.groups(diagnostics.from_json(stored), job.outputs)
    ]


def _features(relevance: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the bars of relevance and the features without bar, or None if relevances do not differ."""
    if not informative(relevance):
        return None
    found = ranking(relevance)
    return {
        "panel": _drawn(found.panel),
        "more": f"{found.more:,} more of less relevance" if found.more else "",
        "off_title": f"{counted(len(found.off), 'feature')} switched off",
        "off": ", ".join(found.off),
        "folded": len(found.off) > LISTED,
    }


def _drawn(panel: Chart, group: str = "") -> dict[str, Any]:
    """Return a panel for the page; without matplotlib it has no drawing, and its values are shown."""
    from markupsafe import Markup

    drawing = Markup(panel.svg(group)) if drawable() else ""
    return {
        "heading": panel.title,
        "remark": panel.remark,
        "drawing": drawing,
        "values": panel.values,
        "table": panel.table,
    }


def _plan(job: JobFacts) -> dict[str, Any] | None:
    """Return the planned work, and a table of expected and measured values."""
    plan = job.plan
    if plan is None:
        return None
    threads = counted(plan["threads"], "thread")
    facts = [
        ("Course", plan_line({**plan, "notes": []}).partition("\n")[0]),
        ("Selection", str(plan["selection"])),
        ("Fit rows", str(plan["fit_rows"]) + _sample(plan)),
        ("Place", threads if plan["workers"] == 1 else f"{plan['workers']:,} workers of {threads}"),
        ("Tiles", f"{plan['tiles']:,} of {counted(plan['tile_rows'], 'row')}, {plan['rows_per_task']:,} rows per task"),
        ("Limits", _limits(plan)),
    ]
    before, fits = measured_before(job.history)
    passes = sum(entry.get("passes", 0) for entry in fits)
    seconds = fits[-1]["seconds"] - (before[-1]["seconds"] if before else 0.0) if fits else None
    if before:
        passes_before = sum(entry.get("passes", 0) for entry in before)
        facts.append(("Before the plan", f"{passes_before:,} passes in {format_duration(before[-1]['seconds'])}"))
    rows = [
        ("Passes", f"{plan['passes']:,}", f"{passes:,}" if fits else MISSING),
        ("Time", format_duration(plan["seconds"]), MISSING if seconds is None else format_duration(seconds)),
        ("Peak memory", format_bytes(plan["memory_peak"]), _peak(job)),
    ]
    so_far = "took" if _over(job) else "so far"
    return {"facts": facts, "table": Table(("quantity", "expected", so_far), [Row(row) for row in rows], "small")}


def measured_before(history: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Split the history into entries of planning (kernel learning, heuristic fit) and entries of the fit.

    >>> kinds = [("kernel", None), ("heuristic", None), ("round", None), ("kernel", True)]
    >>> [len(part) for part in measured_before([{"kind": kind, "taken": taken} for kind, taken in kinds])]
    [2, 2]
    """

    def made_it(entry: Entry) -> bool:
        return entry["kind"] == "heuristic" or (entry["kind"] == "kernel" and entry["taken"] is None)

    count = next((number for number, entry in enumerate(history) if not made_it(entry)), len(history))
    return list(history[:count]), list(history[count:])


def _sample(plan: dict[str, Any]) -> str:
    return f" of {counted(plan['sample_rows'], 'row')}" if plan.get("sample_rows") else ""


def _limits(plan: dict[str, Any]) -> str:
    limits = [f"{format_bytes(plan['memory_limit'])} memory per process, room for {plan['max_columns']:,} columns"]
    limits += [f"{plan[name]:,} {name[4:]}" for name in ("max_rounds", "max_vectors") if plan.get(name) is not None]
    return ", ".join(limits)


def _parameters(spec: dict[str, Any]) -> dict[str, Any] | None:
    """Return the parameters that differ from the defaults, and a folded table of all parameters."""
    given, usual = (json.loads(json.dumps(each)) for each in (spec.get("parameters") or {}, asdict(Request())))
    if not given:
        return None
    rows = [Row((name, value(given[name]), value(usual.get(name, MISSING)))) for name in given]
    return {
        "changed": [(name, value(given[name])) for name in given if name not in usual or given[name] != usual[name]],
        "summary": f"All {counted(len(given), 'parameter')}",
        "table": Table(("parameter", "value", "default"), rows, "words"),
    }


def value(parameter: Any) -> str:
    """Format a parameter as text. Long lists, such as one width per feature, are truncated.

    >>> value(None), value(0.5), value([1.0, 2.0])
    ('none', '0.5', '1.0, 2.0')
    """
    if parameter is None:
        return "none"
    if isinstance(parameter, list | tuple):
        return ", ".join(map(str, parameter))
    return str(parameter)
