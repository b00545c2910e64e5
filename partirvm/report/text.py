"""Text about fits and jobs: the plan, the result of a fit, the status of a job, tables of jobs, and CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from partirvm.core.termination import Termination
from partirvm.jobs.state import JobState, Status
from partirvm.options import Request
from partirvm.quoting import counted, format_bytes, format_duration, printable
from partirvm.report.history import Lines
from partirvm.report.quantities import (
    MISSING,
    QUANTITIES,
    SIDES,
    Kind,
    Quantity,
    Table,
    format_error,
    format_evidence,
    kind_of,
    last_model,
)
from partirvm.strategies import schedule_of

NAMED = 6
"""Maximum number of basis functions that a line names; others are counted."""

CALCULATED = {"=", "+", "-", "@"}
"""First characters of texts that a spreadsheet calculates."""


def facts_text(pairs: Sequence[tuple[str, str | None]]) -> str:
    """Return names and values on a line each, without those that have no value."""
    return "\n".join(f"{name:<16}{text}" for name, text in pairs if text)


def _form(form: Callable[[Any], str], value: Any) -> str | None:
    return None if value is None else form(value)


def _count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def size_text(plan: dict[str, Any]) -> str:
    """Return the numbers of rows, features and classes of a plan's JSON as text.

    >>> size_text({"rows": 400, "features": 1, "outputs": 3}), size_text({"rows": 1, "features": 2})
    ('400 rows × 1 feature, 3 classes, 3 outputs', '1 row × 2 features')
    """
    size = f"{counted(plan['rows'], 'row')} × {counted(plan['features'], 'feature')}"
    outputs = plan.get("outputs")
    return f"{size}, {max(outputs, 2):,} classes, {counted(outputs, 'output')}" if outputs else size


def plan_line(plan: dict[str, Any]) -> str:
    """Return the plan of a fit, given as JSON, as two lines and one line for each note."""
    threads = counted(plan["threads"], "thread")
    if plan["workers"] > 1:
        threads = f"{plan['workers']:,} workers of {threads}"
    course, sample = schedule_of(plan["strategy"]).text(plan), plan.get("sample_rows")
    if sample is not None:
        grows = "that grows from" if plan["fit_rows"] == "growing" else "of"
        course += f", likelihood of a sample {grows} {counted(sample, 'row')}"
    return (
        f"{size_text(plan)} in {counted(plan['tiles'], 'tile')}; {plan['strategy']}, {course}\n"
        f"{threads}, about {format_bytes(plan['memory_peak'])} of {format_bytes(plan['memory_limit'])} "
        f"memory, about {format_duration(plan['seconds'])}" + "".join(f"\nnote: {note}" for note in plan["notes"])
    )


def summary(facts: dict[str, Any]) -> str:
    """Return the result of a fit as text, given ``job_facts`` and the ``target``."""
    kind = kind_of(facts)
    fits = counted(facts["fits"], "fit")
    if schedule_of(facts["strategy"]).merges:
        fits += f" on {counted(facts['rounds'], 'level')}"
    units = f", in the units of {facts['target']!r}"
    if "targets" in facts:
        units = f", root mean square over {facts['target']}"
    return facts_text(
        [
            ("strategy", f"{facts['strategy']}, {fits}"),
            ("vectors", f"{counted(facts['n_vectors'], 'relevance vector')} of {counted(facts['n_rows'], 'row')}"),
            ("training error", kind.phrase(facts, "training", units)),
            ("held-out error", kind.phrase(facts, "held-out")),
            *_noise_and_evidence(kind, facts),
            ("ended", facts["advice"]),
            *(("check", remark) for remark in facts["remarks"] if remark not in facts["advice"]),
            ("took", f"{format_duration(facts['seconds'])}, peak memory {format_bytes(facts['peak_memory'])}"),
            ("model", facts["job"]),
            ("basis", functions_line(facts.get("basis", ()))),
        ]
    )


def _noise_and_evidence(kind: Kind, facts: dict[str, Any]) -> list[tuple[str, str]]:
    evidence = format_evidence(facts["log_evidence"])
    if not kind.noise:
        passes = f"{facts['passes']:,} over the rows, in all fits"
        return [("log evidence", f"{evidence} (Laplace's)"), ("passes", passes)]
    if "targets" in facts:
        noises = ", ".join(f"{name} {format_error(each['noise_sd'])}" for name, each in facts["targets"].items())
        return [("noise", f"{noises} (standard deviations)"), ("log evidence", evidence)]
    form = "standard deviation"
    if facts.get("noise_vectors") is not None:
        form = f"root mean variance; the noise depends on the inputs, {counted(facts['noise_vectors'], 'centre')}"
    return [("noise", f"{format_error(facts['noise_sd'])} ({form})"), ("log evidence", evidence)]


def ranked_functions(functions: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the basis functions with weights by decreasing relevance, and the names of the pruned ones."""
    kept = sorted((each for each in functions if any(each["weights"])), key=lambda each: -each["relevance"])
    return kept, [each["name"] for each in functions if not any(each["weights"])]


def functions_line(functions: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of basis functions that were not pruned and the most relevant ones; empty without functions.

    >>> sizes = {"bias": (0.0, 0.0), "age": (0.2, 41.26), "height": (-1.0, 950.0)}
    >>> functions_line([{"name": name, "weights": [w], "relevance": nats} for name, (w, nats) in sizes.items()])
    '2 of 3 functions: height (950 nats), age (41.3 nats); pruned: bias'
    """
    if not functions:
        return ""
    kept, pruned = ranked_functions(functions)
    shown = [f"{each['name']} ({each['relevance']:.3g} nats)" for each in kept]
    parts = [f": {first_names(shown, NAMED)}" * bool(kept), f"; pruned: {first_names(pruned, NAMED)}" * bool(pruned)]
    return f"{len(kept):,} of {counted(len(functions), 'function')}" + "".join(parts)


def first_names(names: Sequence[str], most: int) -> str:
    """Return at most ``most`` names with commas between them, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def moment(seconds: float) -> str:
    """Format a point in time in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def status_text(progress: dict[str, Any]) -> str:
    """Return the state of a job as text, given ``Job.progress()``."""
    kind = kind_of(progress)
    attempt = f", attempt {progress['attempt']}" if progress["attempt"] > 1 else ""
    return facts_text(
        [
            ("job", progress["job"]),
            ("status", f"{progress['status']} since {moment(progress['since'])}{attempt}"),
            ("", progress["advice"]),
            ("reason", progress["reason"]),
            ("strategy", progress["strategy"]),
            ("fits", f"{progress['fits']:,}" if progress["fits"] else "none is finished yet"),
            ("vectors", _form(_count, progress["vectors"])),
            *((f"{rows} error", kind.phrase(progress, rows)) for rows in SIDES),
            ("log evidence", _form(format_evidence, progress["log_evidence"])),
            ("model", "usable" if progress["model"] else "none yet"),
            ("took" if Status(progress["status"]).final else "so far", _form(format_duration, progress["seconds"])),
        ]
    )


def jobs_table(jobs: Sequence[dict[str, Any]]) -> str:
    """Return a table with one line per job, from ``Job.progress()``; a job with ``error`` could not be read."""
    header = ("job", "status", "fits", "vectors", "measure", "training", "held-out", "time", "since", "reason")
    return Table("", header, [_job_row(job) for job in jobs]).text()


def _job_row(job: dict[str, Any]) -> list[str]:
    name = job["job"].rpartition("/")[2]
    if "error" in job:
        return [name, "unreadable", *[MISSING] * 7, job["error"]]
    first = kind_of(job).head
    errors = [Quantity(rows, first).text(job) for rows in SIDES]
    measure = first.name if set(errors) != {MISSING} else MISSING
    took = _form(format_duration, job["seconds"]) or MISSING
    counts = [f"{job['fits']:,}", _count(job["vectors"])]
    return [name, job["status"], *counts, measure, *errors, took, moment(job["since"]), job["reason"]]


class Follower:
    """Converter of successive states of a job to lines: each change of status, plan or round is printed once."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._begun: tuple[Any, ...] = ()
        self._plan: Any = None
        self._printed = 0

    def of(self, state: JobState) -> list[str]:
        """Return the lines for the changes since the last state.

        A round that is repeated after a resume has been printed before, with the same figures.
        """
        lines: list[str] = []
        if state.status is not Status.QUEUED and state.plan is not None and state.plan != self._plan:
            self._plan = state.plan
            lines += plan_line(state.plan).splitlines()
        lines += [line for entry in state.history[self._printed :] for line in self._lines.of(entry)]
        self._printed = max(self._printed, len(state.history))
        if (state.status, state.attempt) != self._begun:
            self._begun = state.status, state.attempt
            change = f"{moment(state.since)}  {state.status}" + (f": {state.reason}" if state.reason else "")
            if state.status is not None and state.status.final:
                return [*lines, *self._lines.rest(), change]
            return [change, *lines]
        return lines


def job_facts(job: Any) -> dict[str, Any]:
    """Return the figures of a job's current model and its parameters as plain JSON; None where unknown.

    ``parameters`` are all options of the job. ``train_…`` and ``held_out_…`` are in the units of the target. For
    split-merge ``rounds`` is the number of levels, including the last merge. ``fits`` is the number of dense fits
    except the heuristic fit, and ``passes`` is the total number of passes of all fits.
    """
    state, progress = job.state(), job.progress()
    history, plan = state.history, state.plan or {}
    last, advice = last_model(history) or {}, progress["advice"]
    if state.reason == Termination.CONVERGED.value and not schedule_of(plan["strategy"]).selects:
        advice = "Every row has been a candidate, and the last fit has converged: nothing to do."
    levels = {entry["level"] for entry in history if entry["kind"] == "part"}
    remarks: list[str] = next(
        (entry["reference"]["remarks"] for entry in reversed(history) if entry.get("reference")), []
    )
    return {
        "job": job.location,
        "status": progress["status"],
        "reason": state.reason,
        "advice": advice,
        "remarks": remarks,
        "data": job.data(),
        **{key: plan.get(key) for key in ("strategy", "fit_rows", "partition_size", "rho")},
        "n_rows": plan.get("rows"),
        "n_vectors": last.get("vectors"),
        "rounds": len(levels) + (last.get("kind") == "final") if levels else last.get("number"),
        "fits": progress["fits"],
        **{quantity.key: last.get(quantity.key) for quantity in QUANTITIES},
        **{key: last.get(key) for key in ("noise_sd", "noise_vectors")},
        "log_evidence": last.get("log_evidence"),
        "passes": sum(entry.get("passes", 0) for entry in history),
        "seconds": progress["seconds"],
        "peak_memory": max((entry.get("peak_memory") or 0 for entry in history), default=0),
        "parameters": job.asked(),
    }


def compare_text(jobs: Sequence[dict[str, Any]], spell: Callable[[str], str] = str) -> str:
    """Return a table with one line per fact of ``job_facts`` and one column per job, without unknown facts.

    Parameters follow that are not equal in all jobs; ``spell`` converts their names, for example to flags.
    """
    forms: dict[str, Callable[[Any], str]] = {quantity.key: quantity.measure.figure for quantity in QUANTITIES}
    forms |= {
        "noise_sd": format_error,
        "rho": format_error,
        "seconds": format_duration,
        "peak_memory": format_bytes,
        "log_evidence": format_evidence,
    }
    titles = {"n_rows": "rows", "partition_size": "P", "n_vectors": "vectors", "seconds": "time"}
    titles |= {quantity.key: quantity.label for quantity in QUANTITIES}
    rows = []
    for key in jobs[0]:
        if key not in ("job", "reason", "advice", "remarks", "data", "parameters"):
            form = forms.get(key, lambda value: f"{value:,}" if isinstance(value, int) else str(value))
            cells = [_form(form, job[key]) or MISSING for job in jobs]
            rows.append([titles.get(key, key.replace("_", " ")), *cells])
    names = [name for name in asdict(Request()) if any(name in job["parameters"] for job in jobs)]
    asked = {spell(name): [job["parameters"].get(name) for job in jobs] for name in names}
    asked["data"] = [job["data"] for job in jobs]
    rows += [[name, *map(_short, own)] for name, own in asked.items() if any(value != own[0] for value in own)]
    header = ("", *(job["job"].rstrip("/").rpartition("/")[2] for job in jobs))
    shown = [row for row in rows if set(row[1:]) != {MISSING}]
    return printable(Table("", header, shown).text(), keep="\n")


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of plain JSON as CSV: a column for each key, empty where a row has no value.

    Nested values are left out. Cells that a spreadsheet would calculate, such as ``=1``, are quoted by an apostrophe.

    >>> as_csv([{"job": "a", "rmse": 0.5, "parameters": {}}, {"job": "=b", "rmse": None}])
    "job,rmse\\na,0.5\\n'=b,\\n"
    """
    flat = [{name: value for name, value in row.items() if not isinstance(value, dict | list)} for row in rows]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for row in flat for name in row)), lineterminator="\n")
    writer.writeheader()
    for row in flat:
        writer.writerow(
            {
                name: f"'{value}" if str(value)[:1] in CALCULATED and isinstance(value, str) else value
                for name, value in row.items()
            }
        )
    return file.getvalue()
