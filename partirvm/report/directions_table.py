"""The table of a kernel's directions on a job's page: which combinations of features the target depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partirvm.report.fit_history import minus
from partirvm.report.tables import Row, Table

NAMED = 6
"""Maximum number of features in one direction; features of smaller loadings are only counted."""

LEAST_SHARE, LEAST_LOADING = 0.005, 0.05
"""Directions of smaller share, and features of smaller loading, are left out."""


@dataclass(frozen=True)
class Direction:
    """A direction of a kernel: its ``share`` of all distances, and the loading of each feature (of unit norm)."""

    share: float
    loadings: Mapping[str, float]


def table(directions: Sequence[Direction]) -> dict[str, Any] | None:
    """Return the table and its notes for a page, or None if the kernel has no directions.

    >>> found = table([Direction(0.9, {"age": 0.8, "height": -0.6, "shoe": 0.01}), Direction(0.001, {"age": 1.0})])
    >>> found["table"].rows[0].cells, found["notes"]
    (('90 %', '0.80 age − 0.60 height'), ['1 direction of less share'])
    """
    if not directions:
        return None
    ordered = sorted(directions, key=lambda each: -each.share)
    shown = [each for each in ordered if each.share >= LEAST_SHARE] or ordered[:1]
    rows = [Row((f"{100 * each.share:.3g} %", combination(each.loadings))) for each in shown]
    less = len(directions) - len(shown)
    notes = [f"{less:,} direction{'s' if less > 1 else ''} of less share"] if less else []
    return {"table": Table(("share", "combination of the standardised features"), rows, "small"), "notes": notes}


def combination(loadings: Mapping[str, float]) -> str:
    """Return a direction as a sum of features, the largest loading first and positive.

    >>> combination({"a": -0.6, "b": -0.8})
    '0.80 b + 0.60 a'
    """
    largest = max(loadings.values(), key=abs)
    signed = ((name, -value if largest < 0 else value) for name, value in loadings.items())
    ordered = sorted(signed, key=lambda pair: -abs(pair[1]))
    named = [(name, value) for name, value in ordered[:NAMED] if abs(value) >= LEAST_LOADING] or ordered[:1]
    text = "".join(f" {'+' if value >= 0 else minus('-')} {abs(value):.2f} {name}" for name, value in named)
    more = sum(abs(value) >= LEAST_LOADING for _, value in ordered[NAMED:])
    return text.removeprefix(" + ") + (f" and {more:,} more" if more else "")
