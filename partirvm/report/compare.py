"""Jobs beside each other: what they did, what came of it, and the parameters in which they differ."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from partirvm.options import Request
from partirvm.planning.units import format_bytes, format_duration
from partirvm.quoting import printable
from partirvm.report.quantities import CLASSIFICATION, KEYS, MISSING, REGRESSION, format_evidence, leaves_model

ERRORS = {quantity.key: quantity for kind in (REGRESSION, CLASSIFICATION) for quantity in kind.every}


def facts(job: Any) -> dict[str, Any]:
    """Return the figures of a job's current model and its parameters as plain JSON; None where unknown.

    ``parameters`` are all options of the job. ``train_…`` and ``held_out_…`` are in the units of the target.
    """
    state, progress = job.state(), job.progress()
    parameters = job.asked()
    models = [entry for entry in state.history if leaves_model(entry)]
    last = models[-1] if models else {}
    peaks = [entry["peak_memory"] for entry in state.history if entry.get("peak_memory")]
    plan = state.plan or {}
    return {
        "job": job.location,
        "status": progress["status"],
        "reason": progress["reason"],
        "data": job.data(),
        "strategy": plan.get("strategy"),
        "partition_size": plan.get("partition_size"),
        "n_rows": plan.get("rows"),
        "n_vectors": last.get("vectors"),
        **{key: last.get(key) for key in KEYS},
        "log_evidence": last.get("log_evidence"),
        "passes": sum(entry.get("passes", 0) for entry in state.history),
        "seconds": progress["seconds"],
        "peak_memory": max(peaks, default=None),
        "parameters": parameters,
    }


def compare_text(jobs: Sequence[dict[str, Any]], spell: Callable[[str], str] = str) -> str:
    """Return a table with one line per fact and one column per job; facts that no job has are left out.

    ``spell`` converts the names of parameters, for example to command-line flags.
    """
    rows: list[tuple[str, list[str]]] = [("", [job["job"].rstrip("/").rpartition("/")[2] for job in jobs])]
    each: list[tuple[str, Callable[[dict[str, Any]], str | None]]] = [
        ("status", lambda job: job["status"]),
        ("strategy", lambda job: job["strategy"]),
        ("rows", lambda job: _count(job["n_rows"])),
        ("P", lambda job: _count(job["partition_size"])),
        ("vectors", lambda job: _count(job["n_vectors"])),
        *((quantity.label, quantity.text) for quantity in ERRORS.values()),
        ("log evidence", lambda job: _form(job["log_evidence"], format_evidence)),
        ("passes", lambda job: _count(job["passes"])),
        ("time", lambda job: _form(job["seconds"], format_duration)),
        ("peak memory", lambda job: _form(job["peak_memory"], format_bytes)),
    ]
    for name, value in each:
        cells = [value(job) or MISSING for job in jobs]
        if set(cells) != {MISSING}:
            rows.append((name, cells))
    differing = differences(jobs)
    if differing:
        rows.append(("", ["" for _ in jobs]))
        rows += [(spell(name), [_short(value) for value in values]) for name, values in differing.items()]
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(jobs))]
    first = max(len(name) for name, _ in rows)
    lines = (
        "  ".join(
            [f"{name:<{first}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))]
        ).rstrip()
        for name, cells in rows
    )
    return printable("\n".join(lines), keep="\n")


def differences(jobs: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the parameters that are not equal in all jobs, and the DATA if they differ: name and value of each job."""
    names = [name for name in asdict(Request()) if any(name in job["parameters"] for job in jobs)]
    found = {name: [job["parameters"].get(name) for job in jobs] for name in names}
    found["data"] = [job["data"] for job in jobs]
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of plain JSON as CSV: a column for each key, empty where a row has no value.

    Nested values are left out. Cells that a spreadsheet would calculate, such as ``=1``, are quoted by an apostrophe.

    >>> as_csv([{"job": "a", "rmse": 0.5, "parameters": {}}, {"job": "=b", "rmse": None}])
    "job,rmse\\na,0.5\\n'=b,\\n"
    """
    names = list(
        dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, dict | list))
    )
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return file.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"} else value


def _count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def _form(value: float | None, form: Any) -> str:
    return MISSING if value is None else str(form(value))


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
