"""The report of a job: one self-contained HTML page, and its values as JSON."""

from __future__ import annotations

import json
import math
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from partirvm.errors import PartirvmError
from partirvm.options import Request
from partirvm.quoting import counted, format_bytes, format_duration, printable
from partirvm.report.history import (
    SIDES,
    Kind,
    Quantity,
    Stage,
    Table,
    columns,
    format_error,
    format_evidence,
    format_share,
    heuristic_line,
    kind_of,
    last_model,
    stages,
)
from partirvm.report.plots import CONTRAST, OBSERVED, Chart, from_json, target_charts
from partirvm.report.text import plan_line
from partirvm.storage.folder import write_text
from partirvm.types import OFF

FEATURES = 6
"""Number of features of a direction that are named."""


STYLES = {
    "training": ("o-", OBSERVED),
    "held-out": ("s--", CONTRAST),
    "vectors": ("o-", "#357a5b"),
    "evidence": ("o-", "#7451a8"),
}
"""Form and colour of lines by name."""


@dataclass(frozen=True)
class Report:
    """The report of a job: an HTML page without scripts, and its values. A notebook shows the page below the cell.

    ``values`` is plain JSON. ``reason`` is the reason for the end (a termination's value, or the error), ``advice`` the
    corresponding sentence, and ``status_advice`` that of the status. Times are seconds since 1970 or None; ``seconds``
    is the running time. ``plan`` is that of ``Plan.to_json()``, and ``history`` holds the driver's entries.
    ``relevance``, ``directions`` and ``bases`` are those of ``Job``. ``outputs`` are the names of the targets, or the
    labels of the classes. ``damaged`` are the errors of parts that could not be read.
    """

    values: dict[str, Any]

    @property
    def html(self) -> str:
        """The page as one document, without scripts or external resources."""
        return _page(SimpleNamespace(**self.values))

    def save(self, location: str | Path, *, overwrite: bool = False) -> None:
        """Write the report to a path or URL: .json all values, otherwise the page.

        Raises ``ExistsError`` if the file exists and ``overwrite`` is false, ``StorageError`` if it cannot be written.
        """
        location = str(location)
        text = json.dumps(self.values, indent=1) if location.endswith(".json") else self.html
        write_text(location, text, overwrite=overwrite)

    def _repr_html_(self) -> str:
        style = "width:100%;height:900px;border:1px solid #ccc"
        return f'<iframe title="Report of a job" sandbox srcdoc="{escape(self.html)}" style="{style}"></iframe>'


def report_of(job: Any) -> Report:
    """Return the report of a job in any state. It imports and runs no code that the job names."""
    state, progress, parameters = job.state(), job.progress(), job.asked()
    facts: dict[str, Any] = {"relevance": None, "directions": [], "bases": [], "outputs": []}
    damaged, data, validation = [], parameters.pop("data"), parameters.pop("validation")
    try:
        facts |= job.facts()
    except PartirvmError as error:
        damaged.append(str(error))
    return Report(
        {
            "location": job.location,
            "status": state.status.value,
            "status_advice": state.status.advice,
            "advice": progress["advice"],
            "seconds": progress["seconds"],
            "data": data,
            "validation": validation,
            "parameters": parameters,
            "versions": state.request.get("versions"),
            **{name: getattr(state, name) for name in ("reason", "queued", "began", "ended", "plan", "history")},
            **facts,
            "damaged": damaged,
        }
    )


def history_charts(found: Sequence[Stage], kind: Kind) -> list[Chart]:
    """Return the charts of errors, vectors and evidence over rounds or levels; of a level its median."""
    if not found:
        return []
    rows = found[0].entries[0]["rows"]
    step = "level" if any(stage.level for stage in found) else "round"
    charts = []
    for measure in (kind.head, kind.beside):
        errors = {str(side): _points(found, Quantity(side, measure).key) for side in SIDES}
        charts += _lines(measure.title, measure.unit, errors, step)
    vectors = [(float(stage.x), float(stage.total("vectors"))) for stage in found]
    charts += _lines("Relevance vectors", "", {"vectors": vectors}, step)
    evidence = _points([stage for stage in found if stage.entries[0]["rows"] == rows], "log_evidence")
    return [*charts, *_lines("Log evidence", f"nats, over {rows:,} rows", {"evidence": evidence}, step)]


def _points(found: Sequence[Stage], key: str) -> list[tuple[float, float]]:
    """Return place and median of the stages that have a finite value."""
    pairs = [(stage.x, stage.median(key)) for stage in found]
    return [(x, value) for x, value in pairs if value is not None and math.isfinite(value)]


def _lines(title: str, remark: str, lines: Mapping[str, list[tuple[float, float]]], step: str) -> list[Chart]:
    """Return a chart of lines by a name of ``STYLES``; none if no line has two points."""
    shown = {name: points for name, points in lines.items() if points}

    def paint(axis: Any) -> None:
        axis.set_xlabel(step)
        for name, points in shown.items():
            form, colour = STYLES[name]
            axis.plot(*zip(*points, strict=True), form, color=colour, linewidth=1.4, markersize=4, label=name)
        values = [value for points in shown.values() for _, value in points]
        if 0 < 20 * min(values) < max(values):
            axis.set_yscale("log")
        if len(shown) > 1:
            axis.legend()

    drawn = any(len(points) > 1 for points in shown.values())
    return [Chart(f"{title} over {step}s", remark, paint)] if drawn else []


class Section(NamedTuple):
    """A part of the page: notes, charts, and tables below them."""

    title: str
    notes: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


def _page(job: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partirvm.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value, keep="\n\t\u00a0") if type(value) is str else value,
    )
    kind = kind_of(job.history[-1] if job.history else {}, job.plan)
    shown = columns(kind, kind.shown(job.history))
    fits = Table(
        f"{counted(len(job.history), 'fit')}, every column",
        [column.title for column in shown],
        [[column.cell(entry) for column in shown] for entry in job.history],
    )
    peak = format_bytes(max((entry.get("peak_memory") or 0 for entry in job.history), default=0))
    sections = [
        Section("What is missing", job.damaged),
        Section("Worth knowing", (job.plan or {}).get("notes", ())),
        Section("Curves", charts=history_charts(stages(job.history), kind)),
        *_predictions(job),
        _features(job.relevance or {}),
        _directions(job.directions),
        _basis(job.bases),
        Section("History", tables=[fits]),
        Section("Plan", tables=_plan(job, peak)),
        _parameters(job.parameters or {}),
    ]
    sections = [section._replace(tables=[each for each in section.tables if each.rows]) for section in sections]
    times = [("queued", job.queued), ("began", job.began), ("ended", job.ended)]
    return environment.get_template("page.html.jinja").render(
        job=job,
        name=job.location.rstrip("/").rpartition("/")[2] or job.location,
        times=[(what, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))) for what, at in times if at is not None],
        figures=_figures(job, kind, peak),
        sections=[section for section in sections if any(section[1:])],
        encode=b64encode if find_spec("matplotlib") else None,
    )


def _figures(job: Any, kind: Kind, peak: str) -> list[tuple[str, str, str]]:
    """Return the main figures of the current model: name, value and note of each."""
    last = last_model(job.history)
    if not last:
        return []
    figures = [
        ("Relevance vectors", f"{last['vectors']:,}", f"of {counted(job.plan['rows'], 'row')}" if job.plan else "")
    ]
    for rows in SIDES:
        head, beside = Quantity(rows, kind.head), Quantity(rows, kind.beside)
        more = f"; {kind.beside.name} {beside.text(last)}" if last.get(beside.key) is not None else ""
        if last.get(head.key) is not None:
            figures.append((f"{rows.capitalize()} error", head.text(last), kind.head.unit + more))
    if kind.noise:
        figures.append(("Noise", format_error(last.get("noise_sd")), "standard deviation"))
    evidence = f"{kind.evidence}, over {counted(last['rows'], 'row')}"
    figures.append(("Log evidence", format_evidence(last["log_evidence"]), evidence))
    return [*figures, ("Time", format_duration(job.seconds or 0.0), f"peak memory {peak}")]


def _predictions(job: Any) -> list[Section]:
    """Return the predictions of the current model beside the targets, a section for each target."""
    note = (
        "Bars are 95 % intervals, dashed lines what the model states or chance. Rows are numbered as before the ingest."
    )
    left_out = "Each training row is predicted as if the fit had not had it. These rows also calibrate the intervals."
    return [
        Section(
            f"Predictions of {'rows left out' if group.left_out else 'held-out rows'}"
            + (f": {group.name}" if group.name else ""),
            [note, left_out] if group.left_out else [note],
            group.charts,
            [group.largest],
        )
        for group in target_charts(from_json(last_model(job.history).get("diagnostics") or ()), job.outputs)
    ]


def _features(relevance: Mapping[str, float]) -> Section:
    """Return the features by relevance; nothing if one width is for all features."""
    values = [value for value in relevance.values() if value]
    differ = bool(values) and min(values) < max(values) * (1 - 1e-6)
    rows = [
        (name, "switched off" if value < OFF else f"{value:.2g}")
        for name, value in sorted(relevance.items(), key=lambda pair: -pair[1])
        if differ
    ]
    header = ("feature", "gamma × variance, the largest = 1")
    return Section("Features", tables=[Table("Relevance of the features", header, rows)])


def _directions(directions: Sequence[Mapping[str, Any]]) -> Section:
    """Return the directions of a kernel by their share of the squared distances, as sums of their main features."""
    rows = []
    for each in sorted(directions, key=lambda each: -each["share"]):
        loadings = sorted(each["loadings"].items(), key=lambda pair: -abs(pair[1]))
        terms = " ".join(f"{value:+.2f} {name}" for name, value in loadings[:FEATURES])
        rows.append((format_share(each["share"]), terms))
    header = ("share of the squared distances", "combination of the standardised features")
    return Section("Directions", tables=[Table("Directions of the kernel", header, rows)])


def _basis(functions: Sequence[Mapping[str, Any]]) -> Section:
    """Return the basis functions by relevance; the last ones are pruned."""
    rows = [
        (
            each["name"],
            ", ".join(f"{weight:.3g}" for weight in each["weights"]),
            f"{each['relevance']:.3g}" if any(each["weights"]) else "pruned",
        )
        for each in sorted(functions, key=lambda each: (not any(each["weights"]), -each["relevance"]))
    ]
    header = ("function", "weights", "relevance, nats of evidence")
    return Section("Basis", tables=[Table("Basis functions", header, rows)])


def _plan(job: Any, peak: str) -> list[Table]:
    """Return the data and the course of the fit, and what was expected beside what was measured."""
    plan, facts = job.plan, [("Data", job.data)]
    facts += [("Held-out data", job.validation)] if job.validation else []
    if plan is None:
        return [Table("Plan", (), [*facts, ("Plan", "none yet: the fit has not begun")])]
    course, resources, *_ = plan_line(plan).splitlines()
    measured = [f", by {heuristic_line(entry)}" for entry in job.history if "heuristic_size" in entry]
    facts += [
        ("Course", course),
        ("Partition size", f"P = {plan['partition_size']:,}" + "".join(measured[:1])),
        ("Selection", str(plan["selection"])),
        ("Resources", resources),
    ]
    passes = sum(entry.get("passes", 0) for entry in job.history)
    rows = [
        ("Passes", f"{plan['passes']:,}", f"{passes:,}"),
        ("Time", format_duration(plan["seconds"]), format_duration(job.seconds or 0.0)),
        ("Peak memory", format_bytes(plan["memory_peak"]), peak),
    ]
    beside = Table("Expected and measured", ("quantity", "expected", "measured, with planning"), rows)
    return [Table("Plan", (), facts), beside]


def _parameters(parameters: Mapping[str, Any]) -> Section:
    """Return all parameters, first those that differ from the defaults."""
    usual = json.loads(json.dumps(asdict(Request())))
    rows = [(name, _value(value), _value(usual.get(name))) for name, value in parameters.items()]
    rows.sort(key=lambda row: row[1] == row[2])
    return Section("Parameters", tables=[Table("All parameters", ("parameter", "value", "default"), rows)])


def _value(parameter: Any) -> str:
    if parameter is None:
        return "none"
    return ", ".join(map(str, parameter)) if isinstance(parameter, list) else str(parameter)
