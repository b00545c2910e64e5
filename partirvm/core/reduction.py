"""Sums over tiles in one fixed tree, so that the bits do not depend on the order in which tiles arrive.

Node ``(level, index)`` is the sum over the tiles ``[index * 2**level, (index + 1) * 2**level)``: the left child plus
the right child, or only the left one if the right one lies beyond the last tile. A task that takes an aligned run of
``2**level`` tiles returns one node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self


class FieldSums:
    """Base of the dataclasses whose fields are all sums over rows, or None."""

    def __add__(self, other: Self) -> Self:
        return self._sum(other, operator.add)

    def accumulate(self, other: Self) -> Self:
        """Return ``self + other``, computed in the arrays of ``self``, which no other object may use."""
        return self._sum(other, operator.iadd)

    def _sum(self, other: Self, add: Callable[[Any, Any], Any]) -> Self:
        own = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        sums = {name: add(value, getattr(other, name)) for name, value in own.items() if value is not None}
        return replace(self, **sums)  # type: ignore[type-var]


@dataclass
class TreeSum:
    """Sum by ``+`` of ``n_tiles`` nodes that arrive in any order; siblings are added as soon as both are present."""

    n_tiles: int
    _waiting: dict[tuple[int, int], Any] = field(default_factory=dict)

    def add(self, index: int, value: Any, level: int = 0) -> None:
        """Insert node ``(level, index)``, and add nodes upward in the tree as far as siblings are present."""
        while 1 << level < self.n_tiles:
            if (index ^ 1) << level < self.n_tiles:
                sibling = self._waiting.pop((level, index ^ 1), None)
                if sibling is None:
                    break
                value = sibling + value if index & 1 else value + sibling
            level, index = level + 1, index >> 1
        self._waiting[level, index] = value

    def result(self) -> Any:
        """Return the root. Raises ``RuntimeError`` while nodes are missing: an incomplete sum must not be used."""
        for (level, _), value in self._waiting.items():
            if 1 << level >= self.n_tiles:
                return value
        raise RuntimeError(f"the sum over {self.n_tiles} tiles is incomplete: {sorted(self._waiting)} are waiting")


def aligned_runs(n_tiles: int, level: int) -> Iterator[tuple[int, range]]:
    """Cut ``n_tiles`` tiles into aligned runs of ``2**level``: pairs of node index at that level and tile numbers."""
    size = 1 << level
    for index, start in enumerate(range(0, n_tiles, size)):
        yield index, range(start, min(start + size, n_tiles))
