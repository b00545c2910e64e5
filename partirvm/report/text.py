"""Text about a fit: one line per round during the fit, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from partirvm.core.termination import Termination
from partirvm.execution.process import peak_memory
from partirvm.planning.units import counted, format_bytes, format_duration
from partirvm.report.quantities import (
    MEASURED,
    MISSING,
    Entry,
    Kind,
    classes_text,
    format_error,
    format_evidence,
    kind_of,
    leaves_model,
)
from partirvm.strategies import schedule_of
from partirvm.strategies.fit_rows import rows_text


def format_rate(rows: float | None) -> str:
    """Format a number of rows per second.

    >>> format_rate(1234567), format_rate(98765), format_rate(12), format_rate(None)
    ('1.23 M', '98.8 k', '12', '–')
    """
    if rows is None:
        return MISSING
    for unit, size in ((" M", 1e6), (" k", 1e3)):
        if rows >= size:
            return f"{rows / size:.3g}{unit}"
    return f"{rows:.3g}"


def rows_per_second(entry: Entry) -> float | None:
    """Return the rows per second that the passes of a round read, or None for a round without passes."""
    seconds = entry["pass_seconds"]
    return entry["pass_rows"] / seconds if seconds > 0 else None


@dataclass(frozen=True)
class RoundColumn:
    """A column of the table of rounds."""

    title: str
    width: int
    cell: Callable[[Entry], str]


NAMED = {"final": "last", "early": "early"}
"""Names of entries without a number; "early" is the model of a run that reached its time limit."""

_BEFORE = (
    RoundColumn("round", 5, lambda entry: NAMED.get(entry["kind"], str(entry["number"]))),
    RoundColumn("candidates", 10, lambda entry: f"{entry['candidates']:,}"),
    RoundColumn("vectors", 7, lambda entry: f"{entry['vectors']:,}"),
)
_AFTER = (
    RoundColumn("log evidence", 13, lambda entry: format_evidence(entry["log_evidence"])),
    RoundColumn("rows/s", 7, lambda entry: format_rate(rows_per_second(entry))),
    RoundColumn("elapsed", 12, lambda entry: format_duration(entry["seconds"])),
    RoundColumn("memory", 9, lambda entry: format_bytes(entry["peak_memory"])),
)


def round_columns(entry: Entry) -> tuple[RoundColumn, ...]:
    """Return the columns of the table of rounds that starts with this entry, with held-out errors if present."""
    errors = (RoundColumn(one.label, len(one.label), one.text) for one in kind_of(entry).brief([entry]))
    return (*_BEFORE, *errors, *_AFTER)


def table_header(entry: Entry) -> str:
    """Return the header of the table of rounds that starts with this entry."""
    return "  ".join(f"{column.title:>{column.width}}" for column in round_columns(entry))


def table_line(entry: Entry) -> str:
    """Return the line of one round in the table."""
    return "  ".join(f"{column.cell(entry):>{column.width}}" for column in round_columns(entry))


def heuristic_line(entry: Entry) -> str:
    """Return the measured sparseness and the resulting partition size as text.

    >>> entry = {"vectors": 27, "rows": 222, "partition_size": 32, "heuristic_size": 45}
    >>> heuristic_line(entry)
    'sparseness: 27 of 222 random rows became vectors (ρ = 0.122) → P = 45, limited to 32'
    """
    chosen, found = entry["partition_size"], entry["heuristic_size"]
    size = f"P = {found:,}"
    if chosen != found:
        size += f", {'limited' if chosen < found else 'raised'} to {chosen:,}"
    rows = counted(entry["rows"], "random row")
    rho = entry["vectors"] / entry["rows"]
    return f"sparseness: {entry['vectors']:,} of {rows} became vectors (ρ = {rho:.3f}) → {size}"


def plan_line(plan: dict[str, Any]) -> str:
    """Return the plan of a fit, given as JSON, as two lines and one line for each note."""
    threads = counted(plan["threads"], "thread")
    if plan["workers"] > 1:
        threads = f"{plan['workers']} workers of {threads}"
    return (
        f"{size_text(plan)} in {counted(plan['tiles'], 'tile')}; "
        f"{plan['strategy']}, {schedule_of(plan['strategy']).text(plan)}{_likelihood(plan)}\n"
        f"{threads}, about {format_bytes(plan['memory_peak'])} of {format_bytes(plan['memory_limit'])} memory, "
        f"about {format_duration(plan['seconds'])}" + "".join(f"\nnote: {note}" for note in plan["notes"])
    )


def size_text(plan: dict[str, Any]) -> str:
    """Return the numbers of rows, features and classes of a plan's JSON as text."""
    size = f"{counted(plan['rows'], 'row')} × {counted(plan['features'], 'feature')}"
    classes = classes_text(plan)
    return f"{size}, {classes}" if classes else size


def _likelihood(plan: dict[str, Any]) -> str:
    """Return a text about the rows of intermediate fits, unless these use all rows."""
    return rows_text(plan["fit_rows"], plan.get("sample_rows"))


def summary(facts: dict[str, Any]) -> str:
    """Return the result of a fit, the values of ``fit --json``, as text."""
    kind = kind_of(facts)
    fits = counted(facts["fits"], "fit")
    if schedule_of(facts["strategy"]).merges:
        fits += f" on {counted(facts['rounds'], 'level')}"
    lines = [
        ("strategy", f"{facts['strategy']}, {fits}"),
        ("vectors", f"{counted(facts['n_vectors'], 'relevance vector')} of {counted(facts['n_rows'], 'row')}"),
        ("training error", kind.phrase(facts, "training", _units(facts))),
        ("held-out error", kind.phrase(facts, "held-out")),
        *_beside(kind, facts),
        ("ended", facts["advice"]),
        *(("check", remark) for remark in facts["remarks"]),
        ("took", f"{format_duration(facts['seconds'])}, peak memory {format_bytes(facts['peak_memory'])}"),
        ("model", facts["job"]),
    ]
    return "\n".join(f"{name:<16}{text}" for name, text in lines if text)


def _units(facts: dict[str, Any]) -> str:
    if "targets" in facts:
        return f", root mean square over {facts['target']}"
    return f", in the units of {facts['target']!r}"


def _beside(kind: Kind, facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of a summary that follow the errors."""
    evidence = format_evidence(facts["log_evidence"])
    if "targets" in facts:
        noises = ", ".join(f"{name} {format_error(each['noise_sd'])}" for name, each in facts["targets"].items())
        return [("noise", f"{noises} (standard deviations)"), ("log evidence", evidence)]
    if kind.noise:
        return [("noise", f"{format_error(facts['noise_sd'])} {_noise_form(facts)}"), ("log evidence", evidence)]
    return [("log evidence", f"{evidence} (Laplace's)"), ("passes", f"{facts['passes']:,} over the rows, in all fits")]


def _noise_form(facts: dict[str, Any]) -> str:
    """Return what the stated noise is."""
    if facts.get("noise_vectors") is None:
        return "(standard deviation)"
    return f"(root mean variance; the noise depends on the inputs, {counted(facts['noise_vectors'], 'centre')})"


def fit_facts(job: str, target: str, history: list[Entry], outcome: Any, plan: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a fit for ``fit --json``: the model's history entry, the end, and the plan's JSON.

    For split-and-merge ``rounds`` is the number of levels, including the last merge. ``fits`` is the number of dense
    fits except the heuristic fit, and ``passes`` is the total number of passes of these fits.
    """
    last = next((entry for entry in reversed(history) if leaves_model(entry)), history[-1])
    kind = kind_of(last)
    fits = [entry for entry in history if entry["kind"] not in MEASURED]
    levels = {entry["level"] for entry in fits if entry["kind"] == "part"}
    advice = outcome.reason.advice
    if outcome.reason is Termination.CONVERGED and schedule_of(plan["strategy"]).every_row_joins:
        whole = "Every row has been a candidate, and the last" if plan["partition_size"] else "The"
        advice = f"{whole} fit has converged: nothing to do."
    return {
        "job": job,
        "target": target,
        "strategy": plan["strategy"],
        "fit_rows": plan["fit_rows"],
        "partition_size": plan["partition_size"],
        "rho": plan["rho"],
        "n_rows": plan["rows"],
        "n_vectors": last["vectors"],
        "rounds": len(levels) + (last["kind"] == "final") if levels else last["number"],
        "fits": len(fits),
        **{quantity.key: last.get(quantity.key) for quantity in kind.every},
        **({key: last.get(key) for key in ("noise_sd", "noise_vectors")} if kind.noise else {}),
        "log_evidence": last["log_evidence"],
        "passes": sum(entry.get("passes", 0) for entry in history),
        "reason": outcome.reason.value,
        "advice": advice,
        "remarks": list(outcome.remarks),
        "seconds": round(outcome.seconds, 3),
        "peak_memory": peak_memory(),
    }
