"""Tables of a model: the directions of its kernel, and its explicit basis functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partirvm.planning.units import counted
from partirvm.report.panels import Row, Table
from partirvm.report.quantities import minus

MOST, LISTED = 50, 60
"""Maximum number of functions in the table, and of pruned functions that are named below it."""

NAMED = 6
"""Maximum number of functions in a line, and of features in one direction; the others are only counted."""

LEAST_SHARE, LEAST_LOADING = 0.005, 0.05
"""Directions of smaller share, and features of smaller loading, are left out."""


@dataclass(frozen=True)
class Direction:
    """A direction of a kernel: its ``share`` of all distances, and the loading of each feature (of unit norm)."""

    share: float
    loadings: Mapping[str, float]


@dataclass(frozen=True)
class Function:
    """A basis function, or the bias, with its ``weights``, one per linear predictor.

    ``relevance`` is the loss of evidence, in nats, if only this function is deleted; of a pruned one it is 0.
    """

    name: str
    weights: Sequence[float]
    relevance: float


def directions_table(directions: Sequence[Direction]) -> dict[str, Any] | None:
    """Return the table of directions and its notes for a page, or None if the kernel has no directions.

    >>> first = Direction(0.9, {"age": 0.8, "height": -0.6, "shoe": 0.01})
    >>> found = directions_table([first, Direction(0.001, {"age": 1.0})])
    >>> found["table"].rows[0].cells, found["notes"]
    (('90 %', '0.80 age − 0.60 height'), ['1 direction of less share'])
    """
    if not directions:
        return None
    ordered = sorted(directions, key=lambda each: -each.share)
    shown = [each for each in ordered if each.share >= LEAST_SHARE] or ordered[:1]
    rows = [Row((f"{100 * each.share:.3g} %", combination(each.loadings))) for each in shown]
    less = len(directions) - len(shown)
    notes = [f"{counted(less, 'direction')} of less share"] if less else []
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


def functions_line(functions: Sequence[Function]) -> str:
    """Return a line with the number of functions that were not pruned and the names of the most relevant functions.

    >>> functions_line([Function("bias", [0.0], 0.0), Function("age", [0.2], 41.26), Function("height", [-1.0], 950.0)])
    '2 of 3 functions: height (950 nats), age (41.3 nats); pruned: bias'
    """
    kept, gone = _ranked(functions)
    shown = _first([f"{each.name} ({_figure(each.relevance)} nats)" for each in kept], NAMED)
    pruned = f"; pruned: {_first(gone, NAMED)}" if gone else ""
    return f"{len(kept):,} of {counted(len(functions), 'function')}" + (f": {shown}" if kept else "") + pruned


def functions_table(functions: Sequence[Function]) -> dict[str, Any] | None:
    """Return the table of functions and its notes for a page, or None if there are no functions."""
    if not functions:
        return None
    kept, gone = _ranked(functions)
    rows = [
        Row((each.name, ", ".join(minus(_figure(weight)) for weight in each.weights), _figure(each.relevance)))
        for each in kept[:MOST]
    ]
    head = ("function", "weight" if len(functions[0].weights) == 1 else "weights", "relevance, nats of evidence")
    notes = [f"{len(kept) - MOST:,} more of less relevance"] if len(kept) > MOST else []
    notes += [f"pruned: {_first(gone, LISTED)}"] if gone else []
    return {"table": Table(head, rows, "small"), "notes": notes}


def _ranked(functions: Sequence[Function]) -> tuple[list[Function], list[str]]:
    """Return the functions with weights by decreasing relevance, and the names of the pruned ones."""
    kept = sorted((each for each in functions if any(each.weights)), key=lambda each: -each.relevance)
    return kept, [each.name for each in functions if not any(each.weights)]


def _first(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _figure(value: float) -> str:
    """Format a number with three significant digits.

    >>> _figure(0.01234), _figure(41.26), _figure(1234.5)
    ('0.0123', '41.3', '1,234')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
