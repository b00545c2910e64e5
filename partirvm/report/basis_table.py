"""Relevance of the explicit basis functions: a table on a job's page, and a line of text.

The relevance of a function is the loss of evidence, in nats, if only this function is deleted. Pruned functions have no
relevance, and are listed by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from partirvm.planning.units import counted
from partirvm.report.fit_history import minus
from partirvm.report.tables import Row, Table

MOST = 50
"""Maximum number of functions in the table. A note states the number of the other functions."""

NAMED = 6
"""Maximum number of functions named in a line."""

LISTED = 60
"""Maximum number of pruned functions that are named."""


@dataclass(frozen=True)
class Function:
    """A basis function, or the bias, with its ``weights``, one per linear predictor, and its relevance in nats."""

    name: str
    weights: Sequence[float]
    relevance: float

    @property
    def pruned(self) -> bool:
        """True if all weights are zero."""
        return not any(self.weights)


def ranked(functions: Sequence[Function]) -> list[Function]:
    """Return the functions that were not pruned, by decreasing relevance."""
    return sorted((each for each in functions if not each.pruned), key=lambda each: -each.relevance)


def line(functions: Sequence[Function]) -> str:
    """Return a line with the number of functions that were not pruned and the names of the most relevant functions.

    >>> line([Function("bias", [0.0], 0.0), Function("age", [0.2], 41.26), Function("height", [-1.0], 950.0)])
    '2 of 3 functions: height (950 nats), age (41.3 nats); pruned: bias'
    """
    kept, gone = ranked(functions), [each.name for each in functions if each.pruned]
    named = ", ".join(f"{each.name} ({figure(each.relevance)} nats)" for each in kept[:NAMED])
    more = f" and {len(kept) - NAMED:,} more" if len(kept) > NAMED else ""
    rest = f" and {len(gone) - NAMED:,} more" if len(gone) > NAMED else ""
    pruned = f"; pruned: {', '.join(gone[:NAMED])}{rest}" if gone else ""
    return f"{len(kept):,} of {counted(len(functions), 'function')}" + (f": {named}{more}" if kept else "") + pruned


def table(functions: Sequence[Function]) -> dict[str, Any] | None:
    """Return the table and its notes for a page, or None if there are no functions."""
    if not functions:
        return None
    kept, gone = ranked(functions), [each.name for each in functions if each.pruned]
    rows = [
        Row((each.name, ", ".join(minus(figure(weight)) for weight in each.weights), figure(each.relevance)))
        for each in kept[:MOST]
    ]
    head = ("function", "weight" if len(functions[0].weights) == 1 else "weights", "relevance, nats of evidence")
    notes = []
    if len(kept) > MOST:
        notes.append(f"{len(kept) - MOST:,} more of less relevance")
    if gone:
        rest = f" and {len(gone) - LISTED:,} more" if len(gone) > LISTED else ""
        notes.append(f"pruned: {', '.join(gone[:LISTED])}{rest}")
    return {"table": Table(head, rows, "small"), "notes": notes}


def figure(value: float) -> str:
    """Format a number with three significant digits.

    >>> figure(0.01234), figure(41.26), figure(1234.5)
    ('0.0123', '41.3', '1,234')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
