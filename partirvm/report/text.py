"""Text on fits and jobs: the plan, the result of a fit, the status of a job, tables of jobs, and
CSV."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from partirvm.core.termination import Termination
from partirvm.jobs.state import JobState, Status, lost_workers_of
from partirvm.model.summary import percent
from partirvm.planning.plan import brief_plan
from partirvm.process import package_versions
from partirvm.quoting import (
    counted,
    format_bytes,
    format_duration,
    format_number,
    moment,
    named,
    printable,
)
from partirvm.report.history import (
    MISSING,
    QUANTITIES,
    SIDES,
    Lines,
    aligned,
    figures_of,
    formatted,
    kind_of,
)


def figure_rows(facts: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return a model's figures as pairs of name and text; ``facts`` are those of ``figures_of``,
    with ``seconds`` and perhaps a target."""
    kind = kind_of(facts)
    vectors = facts["n_vectors"]
    units = ""
    alone = " of the vectors alone" if is_corrected(facts) else ""
    if vectors is None:
        return []
    if facts.get("target"):
        units = f", in the units of {facts['target']!r}"
    if "targets" in facts:
        units = f", root mean square over {facts['target']}"
    return [
        ("vectors", f"{counted(vectors, 'relevance vector')} of {counted(facts['n_rows'], 'row')}"),
        ("training error", kind.phrase(facts, "training", alone + units)),
        ("held-out error", kind.phrase(facts, "held-out")),
        ("noise", _noise(facts) + alone if kind.noise else None),
        ("neighbours", _residuals(facts)),
        ("log evidence", formatted(facts, "log_evidence") + ("" if kind.noise else " (Laplace's)")),
        (
            "passes",
            f"{formatted(facts, 'passes')} over the rows ({formatted(facts, 'planned_passes')} "
            "planned)",
        ),
        ("time", f"{formatted(facts, 'seconds')} ({formatted(facts, 'planned_seconds')} planned)"),
        (
            "memory",
            f"{formatted(facts, 'peak_memory')} ({formatted(facts, 'planned_memory')} planned)",
        ),
    ]


def summary_rows(facts: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the sentences of a model's summary, doubts first, as pairs of which only the first has
    a name; ``facts`` are those of ``figures_of``."""
    summary = facts.get("summary")
    if not summary:
        return []
    sentences = [*summary["doubts"], *summary["sentences"]]
    return [("" if number else "summary", text) for number, text in enumerate(sentences)]


def brief_rows(facts: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the figures of a model that need no knowledge of the method: time and memory and, if
    there is no summary, vectors and errors."""
    shown = {"time", "memory"}
    if not facts.get("summary"):
        shown |= {"vectors", "training error", "held-out error"}
    return [(name, text) for name, text in figure_rows(facts) if name in shown]


def status_rows(facts: Mapping[str, Any], *, details: bool = False) -> list[tuple[str, str]]:
    """Return the state and result of a job or of one of its targets, from ``job_facts``, as pairs
    of name and text; ``details`` add evidence, passes and more."""
    figures = figure_rows(facts) if details else brief_rows(facts)
    strategy = facts["strategy"] and f"{facts['strategy']}, {counted(facts['fits'], 'fit')}"
    attempt = f", attempt {facts['attempt']}" if facts["attempt"] > 1 else ""
    pairs: list[tuple[str, str | None]] = [
        ("job", facts["job"]),
        ("status", f"{facts['status']} since {moment(facts['since'])}{attempt}"),
        ("reason", None if facts["status"] == Status.DONE else facts["reason"]),
        ("now", facts["doing"]),
        ("workers", lost_workers_text(facts.get("lost_workers", {}))),
        ("strategy", strategy if details else None),
        *summary_rows(facts),
        *figures,
        ("versions", facts.get("versions")),
        ("ended" if Status(facts["status"]).final else "advice", facts["advice"]),
        ("model", "none yet" if facts["n_vectors"] is None else None),
    ]
    return [(name, text) for name, text in pairs if text and text != MISSING]


def lost_workers_text(lost: Mapping[str, Any]) -> str:
    """Return text on ``lost_workers`` from ``Job.progress``: the number, the time, and how often
    the driver was restarted.

    The text is empty if no worker was lost.
    """
    parts = []
    if lost.get("workers"):
        parts.append(
            f"{counted(lost['workers'], 'worker')} lost, the last at {moment(lost['last'])}"
        )
    if lost.get("restarts"):
        parts.append(f"the driver was started again {counted(lost['restarts'], 'time')}")
    return "; ".join(parts)


def status_text(facts: Mapping[str, Any], *, details: bool = False) -> str:
    """Return the lines of ``status_rows``."""
    return "\n".join(f"{name:<16}{text}" for name, text in status_rows(facts, details=details))


def _noise(facts: Mapping[str, Any]) -> str:
    if "targets" in facts:
        noises = ", ".join(
            f"{name} {formatted(figures, 'noise_sd')}" for name, figures in facts["targets"].items()
        )
        return f"{noises} (standard deviations)"
    form = "standard deviation"
    if facts.get("noise_vectors") is not None:
        form = (
            "root mean variance; the noise depends on the inputs, "
            f"{counted(facts['noise_vectors'], 'centre')}"
        )
    return f"{formatted(facts, 'noise_sd')} ({form})"


def _residuals(facts: Mapping[str, Any]) -> str | None:
    """Return text on the effect, actual or potential, of local residuals."""
    if not (residuals := facts.get("residuals")):
        return None
    density = f"mean log density {residuals['density_gain']:+z.2f}"
    change = round(-residuals["rmse_gain"], 2) + 0.0  # never -0
    gains = f"{change:+.0%}, {density}"
    if residuals["lacking"]:
        need = (
            f"their {format_bytes(residuals['lacking'])} need a job folder or a larger memory_limit"
        )
        return f"not used, but would change the RMSE of left-out rows by {gains}: {need}"
    if not is_corrected(facts):
        return f"not used: RMSE of left-out rows {gains}"
    alone = f"residual='none' keeps the {counted(facts['n_vectors'], 'vector')} alone"
    return (
        f"RMSE of left-out rows {residuals['rmse']:.4g} ({gains}), "
        f"{format_bytes(residuals['bytes'])}; {alone}"
    )


def is_corrected(facts: Mapping[str, Any]) -> bool:
    """Return True if the model that these facts (or this history line) describe has local
    residuals."""
    return bool((facts.get("residuals") or {}).get("bytes"))


TITLES = (
    "job",
    "status",
    "fits",
    "vectors",
    "measure",
    "training",
    "held-out",
    "time",
    "since",
    "reason",
)
"""Column titles in the table of jobs."""

EXPENDABLE = ("fits", "time", "since")
"""Titles of the columns that are omitted from the table of jobs on a narrow terminal."""

COMPLETE = {Termination.CONVERGED.value, Termination.EFFORT.value, Termination.EXHAUSTED.value}
"""Reasons of fits that ended by themselves; `partirvm status` explains each."""

NARROW = 110
"""Number of columns below which a terminal is narrow."""


def jobs_table(jobs: Sequence[dict[str, Any]], width: int = 0) -> str:
    """Return a table with one line per job, from ``Job.progress()``.

    The row of a job that could not be read shows its ``error``. Lines have at most ``width``
    characters (0: any number): columns are omitted, and long reasons are truncated.
    """
    titles = [*TITLES]
    rows = [_job_row(job) for job in jobs]
    if 0 < width < NARROW:
        shown = [title not in EXPENDABLE for title in titles]
        titles = list(compress(titles, shown))
        rows = [list(compress(row, shown)) for row in rows]
    lines = printable(aligned(titles, rows), keep="\n").split("\n")
    return "\n".join(f"{line[: width - 1]}…" if 0 < width < len(line) else line for line in lines)


def _job_row(job: dict[str, Any]) -> list[str]:
    """Return the cells of a job's row, in the order of ``TITLES``."""
    name = job["job"].rpartition("/")[2]
    if "error" in job:
        return [name, "unreadable", *[MISSING] * 7, job["error"]]
    first = kind_of(job).head
    errors = [formatted(job, first.over(side)) for side in SIDES]
    return [
        name,
        job["status"],
        formatted(job, "fits"),
        formatted(job, "vectors"),
        first.name if set(errors) != {MISSING} else MISSING,
        *errors,
        formatted(job, "seconds"),
        moment(job["since"]),
        "complete" if job["reason"] in COMPLETE else job["reason"],
    ]


def followed(
    states: Iterable[JobState], as_json: bool = False, width: int = 0, *, details: bool = False
) -> Iterator[str]:
    """Yield lines for a job's states: one for each change of status, for the plan and for each
    round.

    Args:
        states: the states of the job
        as_json: True for JSON, only of rounds
        width: maximum number of characters of a line; 0 for any
        details: True for the whole plan and all columns
    """
    lines = Lines(details=details)
    begun = None
    plan = None
    printed = 0
    doing = ""
    losses = ""
    for state in states:
        new = state.history[printed:]
        printed = max(printed, len(state.history))
        if as_json:
            yield from map(json.dumps, new)
            continue
        change = f"{moment(state.since)}  {state.status}" + (
            f": {state.reason}" if state.reason else ""
        )
        changed = (state.status, state.attempt) != begun
        begun = (state.status, state.attempt)
        if changed and not state.status.final:
            yield change
        step = state.doing.partition(":")[0]  # without the rate, which always changes
        if state.doing and step != doing:
            doing = step
            yield state.doing
        lost = lost_workers_text(lost_workers_of(state))
        if lost and lost != losses:
            losses = lost
            yield lost
        if state.status is not Status.QUEUED and state.plan is not None and state.plan != plan:
            plan = state.plan
            yield from (plan["text"] if details else brief_plan(plan["text"])).splitlines()
        for entry in new:
            yield from lines.of(entry, width)
        if changed and state.status.final:
            yield change


def job_facts(job: Any) -> dict[str, Any]:
    """Return a job's progress, its model's figures and all its ``parameters`` as plain JSON."""
    state = job.state()
    parameters = job.asked()
    figures = figures_of(state.history, state.plan or {})
    figures["versions"] = versions_text(state.request["versions"], state.versions)
    return {**job.progress(), "data": parameters.pop("data"), **figures, "parameters": parameters}


def versions_text(began: Mapping[str, str], last: Mapping[str, str]) -> str:
    """Return the package versions that differ between a job's start, its last run and this process;
    "" if none do."""
    stages = {"made with": began, "last run with": last, "this process has": package_versions()}
    names = [
        name
        for name in began
        if len({versions[name] for versions in stages.values() if name in versions}) > 1
    ]
    texts = [
        f"{stage} " + ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
        for stage, versions in stages.items()
        if versions
    ]
    return "; ".join(texts) if names else ""


TECHNICAL = {
    "strategy",
    "fits",
    "log_evidence",
    "fit_rows",
    "partition_size",
    "rho",
    "rounds",
    "residuals",
    "passes",
    "planned_passes",
    "planned_seconds",
    "planned_memory",
    "noise_sd",
    "noise_vectors",
    *QUANTITIES,
}
"""Facts that ``compare`` shows only with details; errors on training rows and the noise are those
of the vectors alone."""


def quality_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a job's summary that are compared, by title; ``job`` is a
    ``job_facts``."""
    summary = job.get("summary") or {}
    return {
        "rank": job.get("rank"),
        "judged on": f"{summary['n_scored']:,} {summary['rows']} rows" if summary else None,
        "RMSE": summary.get("rmse"),
        "R²": summary.get("r2"),
        "in 95 % intervals": summary.get("coverage_95"),
        "log loss": summary.get("log_loss"),
        "accuracy": summary.get("accuracy"),
        "calibration error": summary.get("ece"),
    }


QUALITY_FORMS: dict[str, Callable[[float], str]] = {
    "RMSE": format_number,
    "R²": "{:.3f}".format,
    "in 95 % intervals": percent,
    "log loss": "{:.3g}".format,
    "accuracy": percent,
    "calibration error": percent,
}
"""Formats of the figures of ``quality_of`` by title."""


def rank_of(job: Mapping[str, Any]) -> tuple[float, float]:
    """Return what the order of jobs follows: the error on left-out or held-out rows (log loss for
    classes), then the distance of the coverage from 95 %. Jobs without such rows come last."""
    summary = job.get("summary") or {}
    if summary.get("rows") in (None, "training"):
        return math.inf, math.inf
    loss = summary.get("log_loss", summary.get("rmse", math.inf))
    return loss, abs(summary.get("coverage_95", math.inf) - 0.95)


def ranked(jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return jobs in the order of ``rank_of``, with their ``rank`` from 1; None for those without
    left-out rows."""
    ordered = sorted(jobs, key=rank_of)
    return [
        {**job, "rank": None if math.isinf(rank_of(job)[0]) else place}
        for place, job in enumerate(ordered, 1)
    ]


def _remark_on_rank(jobs: Sequence[dict[str, Any]]) -> str:
    """Return a sentence on what the ranks of jobs mean."""
    summaries = [job.get("summary") or {} for job in jobs]
    if len({"log_loss" in summary for summary in summaries}) > 1:
        return "The jobs predict numbers and classes: their errors cannot be compared."
    if len({job["data"] for job in jobs}) > 1 or len({s.get("rows") for s in summaries}) > 1:
        return (
            "The jobs were judged on different rows, so small differences mean little: run "
            "`partirvm evaluate` for each job on the same rows."
        )
    return "The first job has the lowest error on rows that its fit did not use."


COMPARED = {
    "n_rows": "rows",
    "rho": "sparseness ρ",
    "n_vectors": "vectors",
    "seconds": "time",
    **QUANTITIES,
    "peak_memory": "memory",
    "planned_seconds": "planned time",
}
"""Titles in ``compare`` of facts whose names are not words."""

OF_JOBS = {"job", "since", "attempt", "reason", "doing", "advice", "data", "parameters", "versions"}
OF_LAST_FIT = {"lost_workers", "kind", "number", "level", "candidates", "vectors", "model"}
NOT_COMPARED = OF_JOBS | OF_LAST_FIT | {"summary", "rank"}
"""Facts that ``compare`` does not show, or shows in another form."""


SCORES: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "n_rows": ("rows", "{:,}".format),
    "n_vectors": ("relevance vectors", "{:,}".format),
    "rmse": ("RMSE (typical error)", format_number),
    "nlpd": ("mean negative log density", format_number),
    "crps": ("CRPS", format_number),
    "interval_score_95": ("score of 95 % intervals (lower is better)", format_number),
    **{f"coverage_{p}": (f"in {p} % intervals", percent) for p in (50, 80, 90, 95, 99)},
    "accuracy": ("right labels", percent),
    "log_loss": ("log loss", format_number),
    "brier": ("Brier score", format_number),
    "ece": ("calibration error", format_number),
    "roc_auc": ("area under the ROC curve", format_number),
}
"""Titles and formats of scores."""


def scores_text(scores: Mapping[str, Any]) -> str:
    """Return scores as a table with a row per score, and a column per target if there are several.

    >>> print(scores_text({"n_rows": 1200, "rmse": 9915.43, "coverage_95": 0.91}))
    rows                   1,200
    RMSE (typical error)   9,915
    in 95 % intervals     91.0 %
    """
    targets = scores.get("targets", {})
    columns = [scores, *targets.values()]
    rows = [
        [title, *(form(column[key]) if key in column else MISSING for column in columns)]
        for key, (title, form) in SCORES.items()
        if key in scores
    ]
    if not targets:
        return aligned(rows[0], rows[1:])
    return aligned(["", "together", *map(named, targets)], rows)


def compare_text(
    jobs: Sequence[dict[str, Any]], spell: Callable[[str], str] = str, *, details: bool = False
) -> str:
    """Return a table with one column per job, containing known ``job_facts`` and differing
    parameters.

    Args:
        jobs: the facts of the jobs
        spell: returns how a parameter is named
        details: True for all facts, False for those that need no knowledge of the method
    """
    hidden = NOT_COMPARED if details else NOT_COMPARED | TECHNICAL
    keys = [key for key in jobs[0] if key not in hidden]
    qualities = [quality_of(job) for job in jobs]
    rows = [
        [title, *(_quality_text(title, quality[title]) for quality in qualities)]
        for title in qualities[0]
    ]
    rows += [
        [COMPARED.get(key, key.replace("_", " ")), *(formatted(job, key) for job in jobs)]
        for key in keys
    ]
    rows += _differing_parameters(jobs, spell)
    header = ("", *(job["job"].rstrip("/").rpartition("/")[2] for job in jobs))
    table = aligned(header, [row for row in rows if set(row[1:]) != {MISSING}])
    remark = f"\n\n{_remark_on_rank(jobs)}" if len(jobs) > 1 else ""
    return printable(table + remark, keep="\n")


def _differing_parameters(
    jobs: Sequence[dict[str, Any]], spell: Callable[[str], str]
) -> list[list[str]]:
    """Return a row with the value of each job for each parameter that differs."""
    rows = []
    for name in (*jobs[0]["parameters"], "data"):
        values = [{**job["parameters"], "data": job["data"]}.get(name) for job in jobs]
        if any(value != values[0] for value in values):
            texts = [named(parameter_text(name, value)) for value in values]
            cells = (_chosen(job, text, name) for job, text in zip(jobs, texts, strict=True))
            rows.append([spell(name), *cells])
    return rows


def _chosen(job: Mapping[str, Any], text: str, name: str) -> str:
    """Return the text of a parameter; if it is "auto", with what the facts of the job say that it
    stands for."""
    if text != "auto":
        return text
    value = job.get(name)
    if name == "residual" and job.get("residuals"):
        value = "local" if is_corrected(job) else "none"
    return f"auto ({value})" if isinstance(value, str | int) and value != "auto" else text


def _quality_text(title: str, value: Any) -> str:
    """Return a figure of ``quality_of`` as text."""
    if value is None:
        return MISSING
    return QUALITY_FORMS.get(title, str)(value)


def parameter_text(name: str, value: Any) -> str:
    """Return the text of a parameter's value."""
    if value is None:
        return "none"
    if name in ("memory_limit", "time_limit") and not isinstance(value, str):
        return format_bytes(value) if name == "memory_limit" else format_duration(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
