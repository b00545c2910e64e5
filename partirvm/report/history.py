"""The history of a fit: its measures, and their formatting as a table or as one line per round.

A regression entry has RMSE and NLPD, a classification entry log loss and error rate; the other
kind's measures are None, so that no view depends on the kind of target. Keys are fields of
``spec.entries.Record``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from partirvm.model.summary import from_json, summarised, to_json
from partirvm.quoting import format_bytes, format_duration

Entry = Mapping[str, Any]
"""Type of an entry of a fit's history, as recorded by the driver."""

MISSING = "–"

MEASURED = ("heuristic", "kernel")
"""Kinds of history entries that belong to planning rather than to a round."""


def format_error(value: float) -> str:
    """Format an error with four digits, or without decimals from 1,000 up.

    >>> format_error(0.123456), format_error(40334.2)
    ('0.1235', '40,334')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def format_share(value: float) -> str:
    """Format a fraction as a percentage."""
    return f"{100 * value:.3g} %"


def format_evidence(value: float) -> str:
    """Format a log evidence in nats, without decimals from 1,000 nats up."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of strings as aligned lines; numeric columns are right-aligned."""
    columns = []
    for cells in zip(header, *rows, strict=True):
        numeric = all(cell[:1].isdigit() or cell[:1] in "-–" for cell in cells[1:])
        columns.append(
            [f"{cell:{'>' if numeric else '<'}{max(map(len, cells))}}" for cell in cells]
        )
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


Rows = Literal["training", "held-out"]
SIDES: tuple[Rows, Rows] = ("training", "held-out")


class Measure(NamedTuple):
    """A measure of prediction quality: the end of its key, and its names in sentences, for curves
    and for axes."""

    key: str
    name: str
    title: str
    unit: str
    form: Callable[[float], str] = format_error

    def over(self, rows: Rows) -> str:
        """Return the key of the measure over these rows in a history entry."""
        return ("train_" if rows == "training" else "held_out_") + self.key


RMSE = Measure("rmse", "RMSE", "Error", "RMSE, in the target's units")
NLPD = Measure("nlpd", "NLPD", "NLPD", "mean negative log density per row")
LOG_LOSS = Measure("log_loss", "log loss", "Log loss", "mean per row")
ERROR = Measure("error", "error", "Error", "of rows in a wrong class", format_share)


class Kind(NamedTuple):
    """The kind of a fit, regression or classification: main and second measure, whether there is a
    noise variance, and the meaning of iterations."""

    head: Measure
    beside: Measure
    noise: bool
    steps: str

    def shown(self, entries: Sequence[Entry]) -> list[str]:
        """Return the keys of the measures that occur in any of these entries, the main one
        first."""
        head, beside = (
            [measure.over(rows) for rows in SIDES] for measure in (self.head, self.beside)
        )
        return [
            key
            for key in (*head, *beside[::-1])
            if any(entry.get(key) is not None for entry in entries)
        ]

    def phrase(self, entry: Entry, rows: Rows, note: str = "") -> str:
        """Return the measures of an entry on these rows as part of a sentence; empty if the entry
        has no measures.

        >>> CLASSIFICATION.phrase({"train_error": 0.0752, "train_log_loss": 0.1916}, "training")
        '7.52 % (log loss 0.1916)'
        >>> REGRESSION.phrase({"held_out_rmse": 0.25, "held_out_nlpd": -0.5}, "held-out")
        '0.25 (RMSE; NLPD -0.5)'
        """
        head = self.head.over(rows)
        beside = self.beside.over(rows)
        if entry.get(head) is None:
            return ""
        notes = [self.head.name + note] if self.head is not ERROR else []
        if entry.get(beside) is not None:
            notes.append(f"{self.beside.name} {formatted(entry, beside)}")
        return formatted(entry, head) + (f" ({'; '.join(notes)})" if notes else "")


REGRESSION = Kind(RMSE, NLPD, noise=True, steps="iterations")
CLASSIFICATION = Kind(ERROR, LOG_LOSS, noise=False, steps="Newton passes")

MEASURES = (RMSE, NLPD, ERROR, LOG_LOSS)

QUANTITIES = {
    m.over(rows): f"{rows} {m.name}"
    for m in MEASURES
    for rows in SIDES
    if (m, rows) != (NLPD, "training")
}
"""Names of all measures over rows, by key; there is no NLPD of training rows."""

FORMS: dict[str, Callable[[Any], str]] = {
    **{m.over(rows): m.form for m in MEASURES for rows in SIDES},
    "noise_sd": format_error,
    "rho": "{:.3f}".format,
    "seconds": format_duration,
    "planned_seconds": format_duration,
    "peak_memory": format_bytes,
    "planned_memory": format_bytes,
    "log_evidence": format_evidence,
    "residuals": lambda found: format_bytes(found["bytes"]) if found["bytes"] else "none",
}
"""Formats of facts, by key; counts have thousands separators, other facts are shown unchanged."""


def formatted(facts: Mapping[str, Any], key: str) -> str:
    """Return a fact as text, or a dash if it is unknown."""
    if (value := facts.get(key)) is None:
        return MISSING
    return FORMS.get(key, lambda value: f"{value:,}" if isinstance(value, int) else str(value))(
        value
    )


def leaves_model(entry: Entry) -> bool:
    """Return True if a history entry belongs to a saved model; within a level, a fit is saved if it
    is the best so far."""
    return entry["kind"] in ("round", "early", "final") or bool(entry.get("saved"))


def last_model(history: Sequence[Entry]) -> Entry:
    """Return the entry of the last saved model, or an empty entry if there is no model."""
    return next(filter(leaves_model, reversed(history)), {})


def figures_of(history: Sequence[Entry], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures on the last saved model and on all fits, from a history and a plan; unknown
    figures are None.

    ``train_…`` and ``held_out_…`` are in the units of the target. ``passes`` is the number of rows
    read by all fits divided by the number of rows in the data. It excludes kernel learning, as do
    the plan's figures, ``planned_…``.
    """
    last = last_model(history)
    summary = None
    if last.get("assessment"):
        summary = to_json(summarised(from_json(last["assessment"])))
    planned = {"passes": "passes", "seconds": "seconds", "memory": "memory_peak"}
    read = sum(entry.get("pass_rows", 0) for entry in history if entry["kind"] not in MEASURED)
    return {
        **{key: plan.get(key) for key in ("strategy", "fit_rows", "partition_size", "rho")},
        "n_rows": plan.get("rows"),
        "n_vectors": last.get("vectors"),
        "rounds": last.get("number"),
        "summary": summary,
        **{
            key: last.get(key)
            for key in (*QUANTITIES, "noise_sd", "noise_vectors", "residuals", "log_evidence")
        },
        "passes": round(read / plan["rows"]) if plan else None,
        **{f"planned_{name}": plan.get(key) for name, key in planned.items()},
        "peak_memory": max((entry.get("peak_memory") or 0 for entry in history), default=0),
    }


def kind_of(entry: Entry, plan: Entry | None = None) -> Kind:
    """Return the kind of a history entry or of a job's progress or, if it contains no errors, the
    kind of the plan."""
    for kind in (CLASSIFICATION, REGRESSION):
        if kind.shown([entry]):
            return kind
    return CLASSIFICATION if (plan or {}).get("classes") else REGRESSION


class Column(NamedTuple):
    """A column in the table of fits: title, cell function, and width on a terminal (0: not shown
    there)."""

    title: str
    cell: Callable[[Entry], str]
    width: int = 0


def columns(kind: Kind, measures: Sequence[str]) -> list[Column]:
    """Return the columns in the table of fits of this kind, including the measures with these
    keys."""

    def fact(title: str, key: str, width: int = 0) -> Column:
        return Column(title, lambda entry: formatted(entry, key), width)

    return [
        Column("round", _name, 5),
        fact("rows used", "rows"),
        fact("candidates", "candidates", 10),
        fact("vectors", "vectors", 7),
        fact(kind.steps, "iterations"),
        *(fact(QUANTITIES[key], key, len(QUANTITIES[key])) for key in measures),
        fact("log evidence", "log_evidence", 13),
        *([Column("noise sd", _noise)] if kind.noise else []),
        Column("rows/s", rate, 9),
        fact("time", "seconds", 12),
        fact("memory", "peak_memory", 9),
        fact("ended", "termination"),
    ]


def _name(entry: Entry) -> str:
    if entry["kind"] == "part":
        return f"level {entry['level']}, {entry['number']}"
    names = {"final": "final", "early": "early", "heuristic": "sparseness", "kernel": "kernel"}
    return names.get(entry["kind"], str(entry["number"]))


def _noise(entry: Entry) -> str:
    remark = ", raised" if entry.get("overconfident") else ", floor" if entry.get("floored") else ""
    return formatted(entry, "noise_sd") + remark


def rate(entry: Entry) -> str:
    """Return how many rows per second a round's passes read."""
    seconds = entry.get("pass_seconds")
    return f"{entry['pass_rows'] / seconds:,.0f}" if seconds else MISSING


EXPENDABLE = ("rows/s", "memory", "log evidence", "candidates")
"""Titles of the columns that a narrow terminal omits, in this order, and that need ``details``."""


class Lines:
    """Converter of history entries to lines: one for each fit that saved a model, with titles above
    the rounds' lines; technical columns only with ``details``."""

    def __init__(self, *, details: bool = False) -> None:
        self._columns: list[Column] = []
        self._details = details

    def of(self, entry: Entry, width: int = 0) -> list[str]:
        """Return the lines to print for a history entry, with the columns that fit into ``width``
        (0: all columns)."""
        if entry["kind"] == "kernel":
            return self._learned_again(entry)
        if not leaves_model(entry):
            return []
        if entry["kind"] == "part":
            fit = f"{entry['candidates']:,} candidates → {entry['vectors']:,} vectors"
            return [f"{_name(entry)}: {fit}, {format_duration(entry['seconds'])}"]
        titles = []
        if not self._columns:
            kind = kind_of(entry)
            self._columns = [
                column
                for column in columns(kind, kind.shown([entry])[:3])
                if column.width and (self._details or column.title not in EXPENDABLE)
            ]
            for title in EXPENDABLE:
                if width and sum(column.width + 2 for column in self._columns) > width + 2:
                    self._columns = [column for column in self._columns if column.title != title]
            titles.append("  ".join(f"{column.title:>{column.width}}" for column in self._columns))
        return [
            *titles,
            "  ".join(f"{column.cell(entry):>{column.width}}" for column in self._columns),
        ]

    def _learned_again(self, entry: Entry) -> list[str]:
        """Return the line on a kernel that was learned between two rounds; none for the first."""
        if entry.get("taken") is None:
            return []
        if self._details:
            return [f"learned again: {entry['text']}"]
        verdict = "better, so the fit continues with it" if entry["taken"] else "not better"
        return [f"the kernel was learned again from the relevance vectors: {verdict}"]
