"""Tables of the rows of largest error."""

from __future__ import annotations

from collections.abc import Sequence

from partirvm.core.largest import LargestErrors
from partirvm.report.fit_history import minus
from partirvm.report.quantities import format_share
from partirvm.report.tables import Row, Table


def number_errors(found: LargestErrors) -> Table | None:
    """Return a table of rows of a numeric target; None without rows.

    The last column is (actual − predicted)/standard deviation.
    """
    if not len(found.rows):
        return None
    rows = [
        Row([f"{row:,}", *(minus(f"{value:.5g}") for value in (t, mean, std)), minus(f"{(t - mean) / std:.2f}")])
        for row, (t, mean, std) in zip(found.rows.tolist(), found.values.tolist(), strict=True)
    ]
    return Table(("row", "actual", "predicted", "stated deviation", "error / deviation"), rows, "small")


def class_errors(found: LargestErrors, classes: Sequence[str]) -> Table | None:
    """Return a table of rows of a classification; without names ``classes`` are numbered. None without rows."""
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
