"""Panels of a classification: reliability, confusion, ROC and precision-recall, largest probability, log loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partirvm.core.diagnostics import PROBABILITY_BINS, ClassDiagnostics, ThresholdCurve
from partirvm.core.sampling import LargestErrors
from partirvm.planning.units import counted
from partirvm.report.panels import (
    CELL,
    CLASSES,
    CONTRAST,
    OBSERVED,
    Chart,
    Row,
    Table,
    binomial_interval,
    dress,
    estimates,
    shortened,
    stated,
)
from partirvm.report.quantities import format_share

EDGES = np.linspace(0.0, 1.0, PROBABILITY_BINS + 1)

SEVERAL, ENOUGH = 6, 20
"""Maximum number of classes with a line each, and minimum number of rows of a bin of one class."""

FEWEST = 5
"""Minimum number of rows of a bin that is drawn as a point."""


def class_panels(found: ClassDiagnostics, classes: Sequence[str] = ()) -> list[Chart]:
    """Return the panels of a classification; without names ``classes`` are numbered."""
    if not found.n:
        return []
    names = _names(found, classes)
    curves = _curves(found.thresholds, names[1]) if found.thresholds else []
    return [_reliability(found, names), _confusion(found, names), *curves, _largest(found), _loss(found)]


def _names(found: ClassDiagnostics, classes: Sequence[str]) -> list[str]:
    """Return a name for each counted class; the last one may be the union of several classes."""
    counted_classes = len(found.rows)
    names = [str(name) for name in classes] or [f"class {code}" for code in range(counted_classes)]
    others = len(names) - counted_classes
    return names if not others else [*names[: counted_classes - 1], f"{others + 1:,} others"]


def _reliability(found: ClassDiagnostics, names: Sequence[str]) -> Chart:
    """Return observed frequencies for bins of stated probabilities: of the second of two classes, or of each class.

    Three to six classes have a line each, through bins with enough rows.
    """
    two, several = len(names) == 2, 2 < len(names) <= SEVERAL
    sums, rows, hits = (
        each[1].astype(np.float64) if two else each.sum(axis=0, dtype=np.float64)
        for each in (found.stated, found.rows, found.hits)
    )
    shown = rows >= FEWEST
    x, y = sums[shown] / rows[shown], hits[shown] / rows[shown]
    low, high = binomial_interval(hits[shown], rows[shown])

    def draw(axis: Any) -> None:
        stated(axis, (0, 1), (0, 1), "as stated")
        each = zip(names, CLASSES, found.stated, found.rows, found.hits, strict=False) if several else ()
        for name, colour, own_sums, own_rows, own_hits in each:
            many = own_rows >= ENOUGH
            share = own_hits[many] / own_rows[many]
            axis.plot(own_sums[many] / own_rows[many], share, linewidth=1.0, color=colour, label=shortened(name))
        estimates(axis, x, y, low, high, "" if two else "all classes")
        axis.set(xlim=(0, 1), ylim=(0, 1))
        which = f"of {shortened(names[1])}" if two else "of a class"
        dress(axis, f"stated probability {which}", "observed frequency", percent="xy")
        axis.legend(**({"loc": "upper left", "fontsize": 6.5, "labelspacing": 0.25} if several else {}))

    texts = [counted(int(count), "row" if two else "value") for count in rows[shown]]
    tips = [f"stated {p:.1%}, observed {part:.1%} of {text}" for p, part, text in zip(x, y, texts, strict=True)]
    remark = counted(found.n, "row") + ("" if two else "; points: all classes" + ", lines: each" * several)
    return Chart("Reliability of probabilities", remark, draw, tips)


def _confusion(found: ClassDiagnostics, names: Sequence[str]) -> Chart:
    """Return the matrix of fractions, first row at the top; up to ten classes have percentages in the cells."""
    shares = found.confusion / np.maximum(found.confusion.sum(axis=1, keepdims=True), 1)
    K = len(names)

    def draw(axis: Any) -> None:
        for (row, column), share in np.ndenumerate(shares):
            colour = OBSERVED if row == column else CONTRAST
            place = {"left": column - 0.48, "bottom": row - 0.48}
            alpha = 0.06 + 0.54 * share
            axis.bar(place["left"], 0.96, 0.96, place["bottom"], align="edge", color=colour, alpha=alpha, linewidth=0)
            if K <= 10 and f"{100 * share:.0f}" != "0":
                axis.text(column, row, f"{100 * share:.0f}", color=CELL, ha="center", va="center")
        short = [shortened(name) for name in names]
        axis.set_xticks(range(K), short, rotation=90 if K * max(map(len, short)) > 36 else 0)
        axis.set_yticks(range(K), short)
        axis.set(xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5), xlabel="predicted class", ylabel="true class")
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)

    rows = [
        Row([name, *(f"{count:,}" for count in counts)])
        for name, counts in zip(names, found.confusion.tolist(), strict=True)
    ]
    remark = "% of the rows of each true class"
    size = 4.2, max(2.5, 1.6 + 0.2 * K)
    return Chart("Confusion", remark, draw, table=Table(("true class", *names), rows), size=size)


def _curves(found: ThresholdCurve, name: str) -> list[Chart]:
    """Return the ROC curve and the precision-recall curve of the second of two classes."""
    false, recall = found.rates
    share = float(found.positive[-1] / (found.positive[-1] + found.negative[-1]))

    def curve(x: Any, y: Any, chance: tuple[float, float], x_label: str, y_label: str) -> Any:
        def draw(axis: Any) -> None:
            stated(axis, (0, 1), chance, "by chance")
            axis.plot(x, y, color=OBSERVED, linewidth=1.6)
            axis.set(xlim=(0, 1), ylim=(0, 1.02))
            dress(axis, x_label, y_label, percent="xy")
            axis.legend(loc="lower right")

        return draw

    of = shortened(name)
    roc = curve(false, recall, (0.0, 1.0), "false positive rate", f"true positive rate of {of}")
    precise = curve(recall[1:], found.precision, (share, share), f"recall of {of}", f"precision of {of}")
    area = f"area {found.auc:.4f}; dashed: by chance"
    average = f"average precision {found.average_precision:.4f}; dashed: by chance"
    return [Chart("ROC curve", area, roc), Chart("Precision and recall", average, precise)]


def _largest(found: ClassDiagnostics) -> Chart:
    """Return the distribution of the largest probability, of correct and of wrong rows."""
    rows, hits = found.top_rows / found.n, found.top_hits / found.n
    first = int(np.flatnonzero(found.top_rows)[0])

    def draw(axis: Any) -> None:
        style: dict[str, Any] = {"align": "edge", "alpha": 0.75}
        width = 0.96 / PROBABILITY_BINS
        axis.bar(EDGES[:-1], hits, width, label="correct", color=OBSERVED, **style)
        axis.bar(EDGES[:-1], rows - hits, width, hits, label="wrong", color=CONTRAST, **style)
        axis.set(xlim=(EDGES[first], 1.0), ylim=(0, 1.08 * float(rows.max())))
        dress(axis, "largest probability", "share of rows", percent="xy")
        axis.legend(loc="upper left")

    bins = list(zip(EDGES, EDGES[1:], found.top_rows, found.top_hits, strict=False))[first:]
    tips = [f"{low:.0%} to {high:.0%}: {counted(int(n), 'row')}, {k:,} correct" for low, high, n, k in bins]
    return Chart("Largest probability", "correct rows, and wrong rows on top", draw, tips)


def _loss(found: ClassDiagnostics) -> Chart:
    """Return the mean log loss for bins of the largest probability, beside its expectation."""
    shown = found.top_rows >= FEWEST
    if not shown.any():
        shown = found.top_rows > 0
    rows, centres = found.top_rows[shown], (EDGES[:-1] + EDGES[1:])[shown] / 2
    loss, expected = found.top_loss[shown] / rows, found.top_entropy[shown] / rows
    first = int(np.flatnonzero(found.top_rows)[0])

    def draw(axis: Any) -> None:
        stated(axis, centres, expected, "expected")
        estimates(axis, centres, loss, loss, loss, "observed")
        axis.set(xlim=(EDGES[first], 1.0), ylim=(0, 1.08 * float(max(loss.max(), expected.max()))))
        dress(axis, "largest probability", "mean log loss, nats", percent="x")
        axis.legend()

    tips = [
        f"probability about {centre:.0%}: {value:.3f} nats, expected {own:.3f}"
        for centre, value, own in zip(centres, loss, expected, strict=True)
    ]
    return Chart("Log loss", "above the line: probabilities are too sure", draw, tips)


def class_errors(found: LargestErrors, classes: Sequence[str]) -> Table | None:
    """Return a table of the rows of largest error; without names ``classes`` are numbered. None without rows."""
    if not len(found.rows):
        return None

    def name(code: float) -> str:
        return str(classes[int(code)]) if classes else f"class {code:.0f}"

    rows = [
        Row([f"{row:,}", name(own), name(likeliest), format_share(p), format_share(largest)])
        for row, (own, likeliest, p, largest) in zip(found.rows.tolist(), found.values.tolist(), strict=True)
    ]
    head = ("row", "true class", "predicted class", "probability of the true class", "of the predicted class")
    return Table(head, rows, "small")
