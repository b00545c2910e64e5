"""Base class of passes over the rows, and the rows that a pass receives.

A *pass* computes a statistic of each tile with a pure function, and sums the statistics in a fixed tree. Each class of
passes defines a ``name``, the designs, the rows to read, and the statistic of one tile. Executors use only these
attributes. Passes are frozen dataclasses at module level, so that workers can unpickle them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import starmap
from operator import add
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Rows: TypeAlias = Int | range
"""Increasing row numbers, as an array or, without memory for each, as a range of neighbouring rows."""


@dataclass(frozen=True)
class Panel:
    """Some rows of a tile: their numbers (n,), inputs (n, d), targets (n, T), and weights (n,) or None."""

    rows: Int
    X: Float
    t: Float
    weights: Float | None


class TileRows(Protocol):
    """One tile of rows, the input of a pass: ``X`` (n, d), ``t`` (n, T), ``weights`` (n,) or None, all float64.

    ``start`` is the number of the first row. The arrays must not be changed.
    """

    @property
    def start(self) -> int: ...
    @property
    def X(self) -> Float: ...
    @property
    def t(self) -> Float: ...
    @property
    def weights(self) -> Float | None: ...

    def panels(self, rows: Rows | None, *designs: Design) -> Iterator[tuple[Any, ...]]:
        """Return panels of the tile's rows (only those in ``rows``, if given), each with a block of each design.

        ``rows`` are increasing row numbers. A block (n, M) reuses the memory of the previous panel's block and may be
        changed.
        """
        ...


class Pass(ABC):
    """A pass over rows of the data. ``rows`` are the numbers of the rows to read (increasing), None for all."""

    name: ClassVar[str]
    """Name of the pass in progress reports."""
    held_out: ClassVar[bool] = False
    """True for a pass over the held-out rows, False for the training rows."""
    rows: Rows | None = None

    @property
    @abstractmethod
    def designs(self) -> tuple[Design, ...]:
        """The designs whose blocks the pass evaluates."""

    @abstractmethod
    def statistic(self, tile: TileRows) -> Any:
        """Return the statistic of one tile; statistics are added by ``+``."""

    def count(self, n_rows: int) -> int:
        """Return the number of rows that the pass reads if the data have ``n_rows`` rows."""
        return n_rows if self.rows is None else len(self.rows)


class DesignedPass(Pass):
    """A pass whose only design is ``design``."""

    design: Design

    @property
    def designs(self) -> tuple[Design, ...]:
        """The only design."""
        return (self.design,)

    def summed(self, tile: TileRows, statistic: Callable[[Panel, Float], Any]) -> Any:
        """Return the sum over panels of ``statistic(panel, block)``."""
        return reduce(add, starmap(statistic, tile.panels(self.rows, self.design)))


def eligible(panel: Panel, exclude: Int) -> NDArray[np.bool_]:
    """Return a mask (n,) of a panel's rows with weight above zero that are not in ``exclude`` (sorted row numbers)."""
    found = np.isin(panel.rows, between(exclude, panel.rows[0], panel.rows[-1]), invert=True)
    if panel.weights is not None:
        found &= panel.weights > 0
    return found


def between(sorted_rows: Rows, first: int, last: int) -> Int:
    """Return the elements of ``sorted_rows`` between ``first`` and ``last``, both included.

    >>> between(range(3, 9), 0, 5).tolist(), between(np.array([1, 4, 7]), 2, 7).tolist()
    ([3, 4, 5], [4, 7])
    """
    if isinstance(sorted_rows, range):
        return np.arange(max(first, sorted_rows.start), min(last + 1, sorted_rows.stop), dtype=np.int64)
    return sorted_rows[np.searchsorted(sorted_rows, first) : np.searchsorted(sorted_rows, last, side="right")]
