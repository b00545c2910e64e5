"""What fits are judged by: which quantities a line of history has, what they are called, and how they are written.

A line that predicts numbers has RMSE and NLPD, one that predicts classes log loss and error. Every view asks here, so
that none has to know of the other kind. Keys are those of ``strategies.instructions.Record``; a line of an earlier
version lacks some, and a line of the other kind holds None for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Entry = dict[str, Any]
"""One line of a fit's history, as the driver records it."""

MISSING = "–"

MEASURED = ("heuristic", "kernel")
"""Kinds of lines that planning left: they are of no round."""


def format_error(value: float | None) -> str:
    """A real with four digits.

    >>> format_error(0.123456), format_error(14.0), format_error(None)
    ('0.1235', '14', '–')
    """
    return MISSING if value is None else f"{value:.4g}"


def format_share(value: float | None) -> str:
    """A fraction in per cent.

    >>> format_share(0.07523), format_share(0.0005), format_share(0.0), format_share(None)
    ('7.52 %', '0.05 %', '0 %', '–')
    """
    return MISSING if value is None else f"{100 * value:.3g} %"


def format_evidence(value: float | None) -> str:
    """Nats: whole ones where there are many.

    >>> format_evidence(-123456.7), format_evidence(-12.345)
    ('-123,457', '-12.35')
    """
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


@dataclass(frozen=True)
class Measure:
    """What a model's answers are held against.

    ``key`` ends the keys of its quantities; ``name`` stands in a sentence and ``title`` above a curve; ``unit`` says
    what the figures are in, and on an axis they are ``scale`` times what the history holds.
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
        """In a line of history."""
        return ("train_" if self.rows == "training" else "held_out_") + self.measure.key

    @property
    def label(self) -> str:
        """What it is called."""
        return f"{self.rows} {self.measure.name}"

    def of(self, entry: Entry) -> float | None:
        """Its value; None where there is none."""
        value = entry.get(self.key)
        return None if value is None else float(value)

    def text(self, entry: Entry) -> str:
        """Its value, written."""
        return self.measure.figure(self.of(entry))


RMSE = Measure("rmse", "RMSE", "Error", "RMSE, in the target's units")
NLPD = Measure("nlpd", "NLPD", "NLPD", "nats per row")
LOG_LOSS = Measure("log_loss", "log loss", "Log loss", "nats per row")
ERROR = Measure("error", "error", "Error", "% of rows in a wrong class", format_share, scale=100.0)


@dataclass(frozen=True)
class Kind:
    """Fits of one kind of target.

    ``head`` is the measure that a sentence begins with, ``beside`` one that it adds; ``every`` are all quantities, and
    a short table shows ``alone`` where there are no held-out rows, else ``validated``. ``curves`` are drawn. ``noise``
    says whether there is a noise variance, ``steps`` what the iterations of a fit are called, ``evidence`` whose log
    evidence it is.
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
        """The measure of a table that has room for one."""
        return self.alone[0].measure

    def brief(self, entries: Sequence[Entry]) -> tuple[Quantity, ...]:
        """The quantities of a short table of these lines."""
        return self.validated if any(held_out(entry) for entry in entries) else self.alone

    def told(self, entry: Entry, rows: Rows, note: str = "") -> str:
        """What a line says of these rows, as part of a sentence; empty where it says nothing.

        >>> CLASSES.told({"train_error": 0.0752, "train_log_loss": 0.1916}, "training")
        '7.52 % (log loss 0.1916)'
        >>> NUMBERS.told({"held_out_rmse": 0.25, "held_out_nlpd": -0.5}, "held-out")
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


NUMBERS = Kind(
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
CLASSES = Kind(
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
    """Whether a line of history is of a model that was saved: of parts it is where they are the best so far."""
    return entry["kind"] in ("round", "early", "final") or bool(entry.get("saved"))


KEYS = tuple(quantity.key for kind in (NUMBERS, CLASSES) for quantity in kind.every)
"""Of all quantities of all kinds."""


def kind_of(entry: Entry, plan: dict[str, Any] | None = None) -> Kind:
    """The kind of a line of history, or of a job's progress; where that says nothing, as the plan says."""
    if any(quantity.of(entry) is not None for quantity in CLASSES.every):
        return CLASSES
    if any(quantity.of(entry) is not None for quantity in NUMBERS.every):
        return NUMBERS
    return CLASSES if classes_text(plan or {}) else NUMBERS


def held_out(entry: Entry) -> bool:
    """Whether a line of history tells of held-out rows."""
    return any(entry.get(key) is not None for key in KEYS if key.startswith("held_out_"))


def classes_text(plan: dict[str, Any]) -> str:
    """Classes and linear predictors of a plan's JSON, which has ``outputs`` where the target is a class.

    >>> classes_text({"outputs": 3}), classes_text({"outputs": 1}), classes_text({})
    ('3 classes, 3 outputs', '2 classes, 1 output', '')
    """
    outputs = int(plan.get("outputs") or 0)
    if not outputs:
        return ""
    return f"{max(outputs, 2):,} classes, {outputs:,} output" + "s" * (outputs != 1)
