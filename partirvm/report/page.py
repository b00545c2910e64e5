"""A fit job on one page: HTML that needs nothing beside itself. Plain values in, a string out.

What the job was asked, what was planned, how it went and what came of it, for a job in any state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from partirvm.options import Request
from partirvm.planning.units import format_bytes, format_duration
from partirvm.report import basis_table, course, markup, relevance_bars
from partirvm.report.course import minus
from partirvm.report.quantities import (
    MISSING,
    Entry,
    Kind,
    Quantity,
    format_error,
    format_evidence,
    kind_of,
    leaves_model,
)
from partirvm.report.stages import Stage, stages
from partirvm.report.text import counted, heuristic_line, plan_line, size_text

STYLE = Path(__file__).with_name("page.css")

TONES = ("queued", "running", "aborting", "aborted", "failed", "interrupted", "done", "cancelled")
"""States that have a colour."""

UNDER_WAY = ("queued", "running", "aborting")


@dataclass(frozen=True)
class JobFacts:
    """What there is to say of a job: plain values, as its events hold them.

    ``reason`` is why it ended (a termination's value, or what went wrong) and ``advice`` the sentence that goes with
    it; ``status_advice`` is that of its state. ``queued``, ``began`` and ``ended`` are seconds since 1970, or None;
    ``seconds`` are those of work, without the time between an end and a resume.
    ``spec`` has ``data``, ``validation``, ``parameters``, ``versions`` and ``tile_rows``; ``plan`` is what
    ``Plan.to_json()`` gives, and ``history`` are the driver's entries. ``relevance`` says how much each feature counts,
    by name, as a fraction of the largest; None where the model does not tell, or there is none. ``bases``
    are the bias and the basis functions, where the fit has such.
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
    bases: Sequence[basis_table.Function] = ()
    seconds: float | None = None


def page(job: JobFacts) -> str:
    """The whole page of a job, complete in itself: no script, and nothing that is fetched."""
    name = job.location.rstrip("/").rpartition("/")[2] or job.location
    found = stages(job.history)
    kind = kind_of(job.history[-1] if job.history else {}, job.plan)
    sections = (
        _head(job, name),
        _figures(job, kind),
        markup.terms(_facts(job, found)),
        markup.section("Worth knowing", _notes(job)),
        markup.section("Curves", course.curves(found, kind)),
        markup.section("Features", relevance_bars.bars(job.relevance or {})),
        markup.section("Basis", basis_table.table(job.bases)),
        markup.section("History", course.history(job.history, found, job.plan, kind, over=_over(job))),
        markup.section("Plan", _plan(job)),
        markup.section("Parameters", _parameters(job.spec)),
    )
    versions = ", ".join(f"{part} {version}" for part, version in (job.spec.get("versions") or {}).items())
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{markup.text(name)} · {markup.text(job.status)} · partirvm</title>",
            f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>",
            *(section for section in sections if section),
            f"</main>\n<footer>{markup.text(versions or 'partirvm')}</footer>\n</body>\n</html>\n",
        ]
    )


def _over(job: JobFacts) -> bool:
    """Whether nothing more will come of it unless it is resumed."""
    return job.status not in UNDER_WAY


def _head(job: JobFacts, name: str) -> str:
    """Where the job is, how it stands and why, and since when."""
    times = [("queued", job.queued), ("began", job.began), ("ended", job.ended)]
    if job.ended is None and job.history:
        times.append(("last fit", job.history[-1].get("time")))
    when = " ".join(f"<span>{what} {_moment(at)}</span>" for what, at in times if at is not None)
    tone = job.status if job.status in TONES else "other"
    parts = [
        '<header>\n<p class="over">Fit of a Relevance Vector Machine</p>',
        f"<h1>{markup.text(name)}</h1>",
        f'<p class="place">{markup.text(job.location)}</p>' if name != job.location else "",
        f'<div class="status {tone}">\n{_why(job)}',
        f'<p class="when">{when}</p>' if when else "",
        "</div>\n</header>",
    ]
    return "\n".join(part for part in parts if part)


def _why(job: JobFacts) -> str:
    """What the state means, the reason (as it stands, where it is what went wrong), and the advice."""
    parts = [f'<p class="badge">{markup.text(job.status)} <span>{markup.text(job.status_advice)}</span></p>']
    advice = markup.text(job.advice) if job.advice != job.status_advice else ""
    if job.reason and (job.status == "failed" or len(job.reason) > 40):
        parts.append(f"<pre>{markup.text(job.reason)}</pre>")
    elif job.reason not in ("", job.status):
        advice = f"<strong>{markup.text(job.reason)}</strong>" + (f": {advice}" if advice else "")
    return "\n".join([*parts, f"<p>{advice}</p>"] if advice else parts)


def _moment(when: float) -> str:
    """A point in time, the same whoever writes it.

    >>> _moment(1785600000.0)
    '2026-08-01 16:00:00 UTC'
    """
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


def _peak(job: JobFacts) -> str:
    peaks = [entry["peak_memory"] for entry in job.history if entry.get("peak_memory")]
    return format_bytes(max(peaks)) if peaks else MISSING


def _figures(job: JobFacts, kind: Kind) -> str:
    """The large figures: those of the model so far."""
    models = [entry for entry in job.history if leaves_model(entry)]
    if not models:
        return f'<p class="note">{"No model" if _over(job) else "No model yet"}.</p>'
    last = models[-1]
    evidence = f"{kind.evidence}, over {counted(last['rows'], 'row')}"
    return markup.figures(
        [
            ("Relevance vectors", f"{last['vectors']:,}", f"of {counted(job.plan['rows'], 'row')}" if job.plan else ""),
            *_errors(last, kind),
            ("Log evidence", minus(format_evidence(last["log_evidence"])), evidence),
            ("Time", format_duration(job.seconds or 0.0), f"peak memory {_peak(job)}"),
        ]
    )


def _errors(entry: Entry, kind: Kind) -> list[tuple[str, str, str]]:
    """The large figures that its kind of target has: errors, and beside each what else is known of its rows."""
    shown = kind.brief([entry])
    cells = []
    for quantity in shown:
        others = [Quantity(quantity.rows, measure) for measure in (kind.head, kind.beside)]
        untold = [one for one in others if one not in shown and one.of(entry) is not None]
        unit = quantity.measure.unit.removeprefix("% ")  # the figure has it
        told = (f"{one.measure.name} {minus(one.text(entry))}".replace(" %", "\u00a0%") for one in untold)
        note = "; ".join([unit, *told])
        name = f"{quantity.rows.capitalize()} {quantity.measure.title.lower()}"
        cells.append((name, minus(quantity.text(entry)), note))
    noise = [("Noise", format_error(entry["noise_sd"]), "standard deviation")] if kind.noise else []
    return cells + noise


def _facts(job: JobFacts, found: Sequence[Stage]) -> list[tuple[str, str]]:
    """The data, and the way that was gone."""
    spec, plan = job.spec, job.plan
    facts = [("Data", str(spec.get("data", MISSING)))]
    if spec.get("validation"):
        facts.append(("Held-out data", str(spec["validation"])))
    if plan is None:
        return [*facts, ("Plan", "none yet: it is made when the fit begins")]
    fits = sum(stage.fits for stage in found)
    facts += [
        ("Size", size_text(plan)),
        ("Strategy", str(plan["strategy"])),
        ("Partition size", _partition_size(job, plan)),
    ]
    return [*facts, ("Fits", f"{fits:,}" if _over(job) else f"{fits:,} so far")]


def _partition_size(job: JobFacts, plan: dict[str, Any]) -> str:
    """P, and how it came about."""
    size = f"P = {plan['partition_size']:,}"
    asked = (job.spec.get("parameters") or {}).get("partition_size", "auto")
    if not plan["partition_size"]:
        return "none: without a kernel no row is a candidate"
    if plan["strategy"] == "basic":
        return f"{size}: all rows at once"
    if asked != "auto":
        return f"{size}, as asked" if asked == plan["partition_size"] else f"{size}; {asked} was asked"
    measured = [entry for entry in job.history if entry["kind"] == "heuristic" and "heuristic_size" in entry]
    if measured:
        return f"{size}, by {heuristic_line(measured[0])}"
    if plan.get("rho") is not None:
        return f"{size}, by sparseness: ρ = {plan['rho']:.2f} in {plan['rho_rows']:,} random rows"
    return f"{size}, chosen automatically"


def _notes(job: JobFacts) -> str:
    """What a plan remarks, and what the last model suffers from."""
    notes = [str(note) for note in (job.plan or {}).get("notes", ())]
    last = job.history[-1] if job.history else {}
    if last.get("floored"):
        notes.append("the noise sits at its floor: the model may interpolate its training rows")
    if last.get("dropped"):
        notes.append(f"{counted(last['dropped'], 'vector')} had to go for a limit: a working set may do better")
    if last.get("duplicates"):
        notes.append(f"{counted(last['duplicates'], 'chosen row')} equal another one, and were left out")
    items = "\n".join(f"<li>{markup.text(note[:1].upper() + note[1:])}</li>" for note in notes)
    return f'<ul class="notes">\n{items}\n</ul>' if items else ""


def _plan(job: JobFacts) -> str:
    """What was to be done, and what it took beside what was expected."""
    plan = job.plan
    if plan is None:
        return ""
    threads = counted(plan["threads"], "thread")
    facts = [
        ("Course", plan_line({**plan, "notes": []}).partition("\n")[0]),
        ("Selection", str(plan["selection"])),
        ("Likelihood", str(plan["likelihood"]) + _sample(plan)),
        ("Place", threads if plan["workers"] == 1 else f"{plan['workers']:,} workers of {threads}"),
        ("Tiles", f"{plan['tiles']:,} of {counted(plan['tile_rows'], 'row')}, {plan['rows_per_task']:,} rows per task"),
        ("Limits", _limits(plan)),
    ]
    before, fits = measured_before(job.history)
    passes = sum(entry.get("passes", 0) for entry in fits)
    seconds = fits[-1]["seconds"] - (before[-1]["seconds"] if before else 0.0) if fits else None
    if before:
        looks = sum(entry.get("passes", 0) for entry in before)
        facts.append(("Before it", f"{looks:,} passes in {format_duration(before[-1]['seconds'])}"))
    rows = [
        ("Passes", f"{plan['passes']:,}", f"{passes:,}" if fits else MISSING),
        ("Time", format_duration(plan["seconds"]), MISSING if seconds is None else format_duration(seconds)),
        ("Peak memory", format_bytes(plan["memory_peak"]), _peak(job)),
    ]
    so_far = "took" if _over(job) else "so far"
    return markup.terms(facts) + "\n" + markup.table(("", "expected", so_far), map(markup.row, rows), "small")


def measured_before(history: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Lines of history that made the plan, of a kernel learned and of the heuristic's fit, and those that came of it.

    >>> kinds = [("kernel", None), ("heuristic", None), ("round", None), ("kernel", True)]
    >>> [len(part) for part in measured_before([{"kind": kind, "taken": taken} for kind, taken in kinds])]
    [2, 2]
    """

    def made_it(entry: Entry) -> bool:
        return entry["kind"] == "heuristic" or (entry["kind"] == "kernel" and entry["taken"] is None)

    count = next((number for number, entry in enumerate(history) if not made_it(entry)), len(history))
    return list(history[:count]), list(history[count:])


def _sample(plan: dict[str, Any]) -> str:
    return f" of {counted(plan['likelihood_rows'], 'row')}" if plan.get("likelihood_rows") else ""


def _limits(plan: dict[str, Any]) -> str:
    limits = [f"{format_bytes(plan['memory_limit'])} memory per process, room for {plan['max_columns']:,} columns"]
    limits += [f"{plan[name]:,} {name[4:]}" for name in ("max_rounds", "max_vectors") if plan.get(name) is not None]
    return ", ".join(limits)


def _parameters(spec: dict[str, Any]) -> str:
    """What was asked beyond the defaults, and all of it to unfold."""
    asked, usual = (json.loads(json.dumps(each)) for each in (spec.get("parameters") or {}, asdict(Request())))
    if not asked:
        return ""
    changed = {name for name, value in asked.items() if name not in usual or value != usual[name]}
    rows = [markup.row((name, value(asked[name]), value(usual.get(name, MISSING)))) for name in asked]
    head = markup.terms((name, value(asked[name])) for name in asked if name in changed)
    whole = markup.table(("parameter", "value", "default"), rows, "words")
    rest = markup.details(f"All {counted(len(asked), 'parameter')}", whole)
    return (head or "<p>All are defaults.</p>") + "\n" + rest


def value(parameter: Any) -> str:
    """A parameter as it is written; a long list, such as one width per feature, is cut.

    >>> value(None), value(0.5), value([1.0, 2.0])
    ('none', '0.5', '1.0, 2.0')
    """
    if parameter is None:
        return "none"
    if isinstance(parameter, list | tuple):
        return ", ".join(map(str, parameter))
    return str(parameter)
