"""Panels of a classification: reliability, confusion, ROC and precision-recall, largest probability, log loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import PROBABILITY_BINS, ClassDiagnostics
from partirvm.core.roc import ThresholdCurve
from partirvm.planning.units import counted
from partirvm.report.panels import Bars, Cells, Errors, Line, Mark, Panel, binomial_interval

Float = NDArray[np.float64]

EDGES = np.linspace(0.0, 1.0, PROBABILITY_BINS + 1)

SEVERAL, ENOUGH = 6, 20
"""Maximum number of classes with a line each, and minimum number of rows of a bin of one class."""

FEWEST = 5
"""Minimum number of rows of a bin that is drawn as a point."""


def class_panels(found: ClassDiagnostics, classes: Sequence[str] = ()) -> list[Panel]:
    """Return the panels of a classification; without names ``classes`` are numbered."""
    if not found.n:
        return []
    names = _names(found, classes)
    curves = _curves(found.thresholds, names[1]) if found.thresholds else []
    return [_reliability(found, classes), _confusion(found, names), *curves, _largest(found), _loss(found)]


def _names(found: ClassDiagnostics, classes: Sequence[str]) -> list[str]:
    """Return a name for each counted class; the last one may be the union of several classes."""
    counted_classes = len(found.rows)
    names = [str(name) for name in classes] or [f"class {code}" for code in range(counted_classes)]
    others = len(names) - counted_classes
    return names if not others else [*names[: counted_classes - 1], f"{others + 1:,} others"]


def _reliability(found: ClassDiagnostics, classes: Sequence[str]) -> Panel:
    """Return observed frequencies for bins of stated probabilities: of the second of two classes, or of each class."""
    two = len(found.rows) == 2
    stated, rows, hits = (
        each[1].astype(np.float64) if two else each.sum(axis=0, dtype=np.float64)
        for each in (found.stated, found.rows, found.hits)
    )
    shown = rows >= FEWEST
    stated, rows, hits = stated[shown], rows[shown], hits[shown]
    x, y = stated / rows, hits / rows
    low, high = binomial_interval(hits, rows)
    texts = [counted(int(count), "row" if two else "value") for count in rows]
    tips = [f"stated {p:.1%}, observed {part:.1%} of {text}" for p, part, text in zip(x, y, texts, strict=True)]
    ends = np.array([0.0, 1.0])
    marks: list[Mark] = [Line(ends, ends, "as stated", stated=True), *_each_class(found, _names(found, classes))]
    marks.append(Errors(x, y, low, high, tips, "" if two else "all classes"))
    which = f"of {_names(found, classes)[1]}" if two else "of a class"
    remark = counted(found.n, "row")
    if not two:
        remark += "; points: all classes" + ", lines: each" * (len(found.rows) <= SEVERAL)
    labels = f"stated probability {which}", "observed frequency"
    return Panel("Reliability of probabilities", remark, *labels, marks, (0.0, 1.0), (0.0, 1.0), (True, True))


def _each_class(found: ClassDiagnostics, names: Sequence[str]) -> list[Line]:
    """Return a line for each of three to six classes, through bins with enough rows."""
    lines = []
    for name, stated, rows, hits in zip(names, found.stated, found.rows, found.hits, strict=True):
        shown = rows >= ENOUGH
        lines.append(Line(stated[shown] / rows[shown], hits[shown] / rows[shown], name))
    return lines if 2 < len(names) <= SEVERAL else []


def _confusion(found: ClassDiagnostics, names: Sequence[str]) -> Panel:
    totals = found.confusion.sum(axis=1, keepdims=True)
    shares = found.confusion / np.maximum(totals, 1)
    tips = [
        [
            f"{counted(int(count), 'row')} of {true}, predicted as {other}: {share:.1%}"
            for other, count, share in zip(names, counts, parts, strict=True)
        ]
        for true, counts, parts in zip(names, found.confusion, shares, strict=True)
    ]
    ends = (0.0, float(len(names)))
    cells = Cells(names, found.confusion, shares, tips)
    return Panel("Confusion", "% of the rows of each true class", "predicted class", "true class", [cells], ends, ends)


def _curves(found: ThresholdCurve, name: str) -> list[Panel]:
    """Return the ROC curve and the precision-recall curve of the second of two classes."""
    (false, recall), ends = found.rates, np.array([0.0, 1.0])
    share = float(found.positive[-1] / (found.positive[-1] + found.negative[-1]))
    roc: list[Mark] = [Line(ends, ends, "by chance", stated=True), Line(false, recall, name, main=True)]
    chance = Line(ends, np.full(2, share), "by chance", stated=True)
    precise: list[Mark] = [chance, Line(recall[1:], found.precision, name, main=True)]
    axes, percent = ((0.0, 1.0), (0.0, 1.0)), (True, True)
    labels = "false positive rate", f"true positive rate of {name}"
    return [
        Panel("ROC curve", f"area {found.auc:.4f}; dashed: by chance", *labels, roc, *axes, percent),
        Panel(
            "Precision and recall",
            f"average precision {found.average_precision:.4f}; dashed: by chance",
            f"recall of {name}",
            f"precision of {name}",
            precise,
            *axes,
            percent,
        ),
    ]


def _largest(found: ClassDiagnostics) -> Panel:
    """Return the distribution of the largest probability, of correct and of wrong rows."""
    rows, hits = found.top_rows / found.n, found.top_hits / found.n
    bins = list(zip(EDGES, EDGES[1:], found.top_rows, found.top_hits, strict=False))
    tips = [f"{low:.0%} to {high:.0%}: {counted(int(n), 'row')}, {k:,} correct" for low, high, n, k in bins]
    first = int(np.flatnonzero(found.top_rows)[0])
    marks: list[Mark] = [
        Bars(EDGES[first:], np.zeros(PROBABILITY_BINS - first), hits[first:], tips[first:], "correct"),
        Bars(EDGES[first:], hits[first:], rows[first:], tips[first:], "wrong", contrast=True),
    ]
    x, y = (float(EDGES[first]), 1.0), (0.0, 1.08 * float(rows.max()))
    labels = "largest probability", "share of rows"
    return Panel("Largest probability", "correct rows, and wrong rows on top", *labels, marks, x, y, (True, True))


def _loss(found: ClassDiagnostics) -> Panel:
    """Return the mean log loss for bins of the largest probability, beside its expectation."""
    shown = found.top_rows >= FEWEST
    if not shown.any():
        shown = found.top_rows > 0
    rows, centres = found.top_rows[shown], (EDGES[:-1] + EDGES[1:])[shown] / 2
    loss, expected = found.top_loss[shown] / rows, found.top_entropy[shown] / rows
    tips = [
        f"probability about {centre:.0%}: {loss:.3f} nats, expected {own:.3f}"
        for centre, loss, own in zip(centres, loss, expected, strict=True)
    ]
    bars = Errors(centres, loss, loss, loss, tips, "observed")
    marks: list[Mark] = [Line(centres, expected, "expected", stated=True), bars]
    first = int(np.flatnonzero(found.top_rows)[0])
    top = 1.08 * float(max(loss.max(), expected.max()))
    labels = "largest probability", "mean log loss, nats"
    remark = "above the line: probabilities are too sure"
    return Panel("Log loss", remark, *labels, marks, (float(EDGES[first]), 1.0), (0.0, top), (True, False))
