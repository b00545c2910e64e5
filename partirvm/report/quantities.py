"""The quantities that measure the quality of a fit: their keys in history entries, their names and their formatting.

A regression entry has RMSE and NLPD, and a classification entry has log loss and error. All views use this module, so
that no view depends on the kind of target. Keys are the fields of ``strategies.instructions.Record``. An entry of an
earlier version may lack keys. In a regression entry the classification keys are None, and vice versa.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Entry = dict[str, Any]
"""Type of an entry of a fit's history, as recorded by the driver."""

MISSING = "–"

MEASURED = ("heuristic", "kernel")
"""Kinds of history entries that belong to planning and not to a round."""


def format_error(value: float | None) -> str:
    """Format a real number with four significant digits.

    >>> format_error(0.123456), format_error(14.0), format_error(None)
    ('0.1235', '14', '–')
    """
    return MISSING if value is None else f"{value:.4g}"


def format_share(value: float | None) -> str:
    """Format a fraction in per cent.

    >>> format_share(0.07523), format_share(0.0005), format_share(0.0), format_share(None)
    ('7.52 %', '0.05 %', '0 %', '–')
    """
    return MISSING if value is None else f"{100 * value:.3g} %"


def format_evidence(value: float | None) -> str:
    """Format a log evidence in nats; from 1,000 nats on without decimals.

    >>> format_evidence(-123456.7), format_evidence(-12.345)
    ('-123,457', '-12.35')
    """
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def minus(figure: str) -> str:
    """Replace the hyphen of a negative number's text by a minus sign.

    >>> minus("-1,234")
    '−1,234'
    """
    return figure.replace("-", "−") if figure != MISSING else figure


@dataclass(frozen=True)
class Measure:
    """A measure of prediction quality.

    ``key`` is the last part of the keys of its quantities. ``name`` is used in sentences, and ``title`` above curves.
    Figures are ``scale`` × the values in the history, in the unit ``unit``.
    """

    key: str
    name: str
    title: str
    unit: str
    figure: Callable[[float | None], str] = format_error
    scale: float = 1.0


Rows = Literal["training", "held-out"]
SIDES: tuple[Rows, Rows] = ("training", "held-out")


@dataclass(frozen=True)
class Quantity:
    """A measure over the training or the held-out rows."""

    rows: Rows
    measure: Measure

    @property
    def key(self) -> str:
        """Key of the quantity in a history entry."""
        return ("train_" if self.rows == "training" else "held_out_") + self.measure.key

    @property
    def label(self) -> str:
        """Label of the quantity, such as ``"training RMSE"``."""
        return f"{self.rows} {self.measure.name}"

    def of(self, entry: Entry) -> float | None:
        """Return the value of the quantity in a history entry, or None if there is no value."""
        value = entry.get(self.key)
        return None if value is None else float(value)

    def text(self, entry: Entry) -> str:
        """Return the formatted value of the quantity in a history entry."""
        return self.measure.figure(self.of(entry))


RMSE = Measure("rmse", "RMSE", "Error", "RMSE, in the target's units")
NLPD = Measure("nlpd", "NLPD", "NLPD", "nats per row")
LOG_LOSS = Measure("log_loss", "log loss", "Log loss", "nats per row")
ERROR = Measure("error", "error", "Error", "% of rows in a wrong class", format_share, scale=100.0)


@dataclass(frozen=True)
class Kind:
    """The kind of target of a fit: regression or classification.

    A sentence has the measure ``head`` first and ``beside`` second. ``every`` holds all quantities. A short table shows
    the quantities ``validated`` if there are held-out rows, and otherwise ``alone``. ``curves`` are the measures with a
    chart. ``noise`` is true if there is a noise variance. ``steps`` is the name of the iterations of a fit, and
    ``evidence`` is the unit of the log evidence.
    """

    head: Measure
    beside: Measure
    alone: tuple[Quantity, ...]
    validated: tuple[Quantity, ...]
    every: tuple[Quantity, ...]
    curves: tuple[Measure, ...]
    noise: bool
    steps: str
    evidence: str

    @property
    def first(self) -> Measure:
        """Measure for a table with room for a single measure."""
        return self.alone[0].measure

    def brief(self, entries: Sequence[Entry]) -> tuple[Quantity, ...]:
        """Return the quantities of a short table of these entries."""
        return self.validated if any(held_out(entry) for entry in entries) else self.alone

    def phrase(self, entry: Entry, rows: Rows, note: str = "") -> str:
        """Return the measures of an entry on these rows as part of a sentence; empty if the entry has no measures.

        >>> CLASSIFICATION.phrase({"train_error": 0.0752, "train_log_loss": 0.1916}, "training")
        '7.52 % (log loss 0.1916)'
        >>> REGRESSION.phrase({"held_out_rmse": 0.25, "held_out_nlpd": -0.5}, "held-out")
        '0.25 (RMSE; NLPD -0.5)'
        """
        head, beside = Quantity(rows, self.head), Quantity(rows, self.beside)
        if head.of(entry) is None:
            return ""
        notes = [self.head.name + note] if self.head.name != "error" else []
        if beside.of(entry) is not None:
            notes.append(f"{self.beside.name} {beside.text(entry)}")
        return head.text(entry) + (f" ({'; '.join(notes)})" if notes else "")


def _both(measure: Measure) -> tuple[Quantity, Quantity]:
    return Quantity("training", measure), Quantity("held-out", measure)


REGRESSION = Kind(
    head=RMSE,
    beside=NLPD,
    alone=_both(RMSE)[:1],
    validated=_both(RMSE),
    every=(*_both(RMSE), Quantity("held-out", NLPD)),
    curves=(RMSE,),
    noise=True,
    steps="iterations",
    evidence="nats",
)
CLASSIFICATION = Kind(
    head=ERROR,
    beside=LOG_LOSS,
    alone=(Quantity("training", LOG_LOSS), Quantity("training", ERROR)),
    validated=(*_both(LOG_LOSS), Quantity("held-out", ERROR)),
    every=(*_both(LOG_LOSS), *_both(ERROR)),
    curves=(LOG_LOSS, ERROR),
    noise=False,
    steps="Newton passes",
    evidence="nats (Laplace)",
)


def leaves_model(entry: Entry) -> bool:
    """Return True if a history entry belongs to a saved model; a fit of a level is saved if it is the best so far."""
    return entry["kind"] in ("round", "early", "final") or bool(entry.get("saved"))


KEYS = tuple(quantity.key for kind in (REGRESSION, CLASSIFICATION) for quantity in kind.every)
"""Keys of all quantities of regression and classification."""


def kind_of(entry: Entry, plan: dict[str, Any] | None = None) -> Kind:
    """Return the kind of a history entry or of a job's progress, by default the kind of the plan."""
    if any(quantity.of(entry) is not None for quantity in CLASSIFICATION.every):
        return CLASSIFICATION
    if any(quantity.of(entry) is not None for quantity in REGRESSION.every):
        return REGRESSION
    return CLASSIFICATION if classes_text(plan or {}) else REGRESSION


def held_out(entry: Entry) -> bool:
    """Return True if a history entry has held-out errors."""
    return any(entry.get(key) is not None for key in KEYS if key.startswith("held_out_"))


def classes_text(plan: dict[str, Any]) -> str:
    """Return the number of classes and outputs of a plan's JSON as text; empty for regression, without ``outputs``.

    >>> classes_text({"outputs": 3}), classes_text({"outputs": 1}), classes_text({})
    ('3 classes, 3 outputs', '2 classes, 1 output', '')
    """
    outputs = int(plan.get("outputs") or 0)
    if not outputs:
        return ""
    return f"{max(outputs, 2):,} classes, {outputs:,} output" + "s" * (outputs != 1)
