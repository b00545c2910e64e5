"""The rows of largest error, as an additive statistic of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MOST_ROWS = 10
"""Maximum number of rows that are kept."""


@dataclass(frozen=True)
class LargestErrors:
    """At most ``MOST_ROWS`` rows by decreasing error; of equal errors the row of smaller number comes first.

    ``rows`` (k,) are row numbers, ``errors`` (k,) the errors by which they are ordered, ``values`` (k, c) what else is
    known of these rows. Sums of parts have the rows of the whole, whatever the order of the parts.
    """

    rows: Int = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    errors: Float = field(default_factory=lambda: np.zeros(0))
    values: Float = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, errors: Float, rows: Int, *values: NDArray[np.generic]) -> LargestErrors:
        """Return the rows of largest ``errors`` (n,); each of ``values`` is a column (n,).

        >>> LargestErrors.of(np.array([1.0, 3.0, 2.0]), np.array([5, 6, 7]), np.zeros(3)).rows.tolist()
        [6, 7, 5]
        """
        if len(errors) > MOST_ROWS:  # equal errors at the boundary are all kept here
            least = np.partition(errors, len(errors) - MOST_ROWS)[len(errors) - MOST_ROWS]
            kept = np.flatnonzero(~(errors < least))
        else:
            kept = np.arange(len(errors))
        order = kept[np.lexsort((rows[kept], -errors[kept]))[:MOST_ROWS]]
        return cls(rows[order], errors[order], np.column_stack([each[order] for each in values]).astype(np.float64))

    def __add__(self, other: LargestErrors) -> LargestErrors:
        parts = [part for part in (self, other) if len(part.rows)]
        if len(parts) < 2:
            return parts[0] if parts else self
        errors, rows, values = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("errors", "rows", "values")
        )
        return LargestErrors.of(errors, rows, *values.T)

    def to_json(self) -> list[list[float]]:
        """Return a list for each row: its number, then its values."""
        return [[row, *values] for row, values in zip(self.rows.tolist(), self.values.tolist(), strict=True)]

    @classmethod
    def from_json(cls, stored: Sequence[Sequence[float]]) -> LargestErrors:
        """Return rows and values from the result of ``to_json``; they have no errors and cannot be added."""
        if not stored:
            return cls()
        values = np.array([each[1:] for each in stored], dtype=np.float64)
        return cls(np.array([each[0] for each in stored], dtype=np.int64), np.zeros(0), values)
