"""Passes over the rows: the base class, and the rows as a pass reads them.

A *pass* maps a pure function over tiles of rows to a statistic, which is summed over tiles in a fixed tree. Each class
of passes states its ``name``, its designs, which rows it reads, and the statistic of one tile; executors use nothing
else. Passes are frozen dataclasses of module level, so that workers can unpickle them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import starmap
from operator import add
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Panel:
    """Some rows of a tile: their numbers (n,), inputs (n, d), targets (n, T), and weights (n,) or None."""

    rows: Int
    X: Float
    t: Float
    weights: Float | None


class TileRows(Protocol):
    """One tile of rows as a pass gets it: ``X`` (n, d), ``t`` (n, T), ``weights`` (n,) or None, all float64.

    ``start`` is the number of the first row. The arrays must not be written to.
    """

    @property
    def start(self) -> int: ...
    @property
    def X(self) -> Float: ...
    @property
    def t(self) -> Float: ...
    @property
    def weights(self) -> Float | None: ...

    def panels(self, rows: Int | None, *designs: Design) -> Iterator[tuple[Any, ...]]:
        """Panels of the tile's rows, of those among ``rows`` (increasing) if given, each with a block of each design.

        A block (n, M) lies in the place of the panel before, and may be written to.
        """
        ...


class Pass(ABC):
    """A pass over the rows of a source. ``rows`` are the numbers of those it reads (increasing), None for all."""

    name: ClassVar[str]
    """Its name in progress reports."""
    held_out: ClassVar[bool] = False
    """True for a pass over the held-out rows, False for the training rows."""
    rows: Int | None = None

    @property
    @abstractmethod
    def designs(self) -> tuple[Design, ...]:
        """The designs whose blocks it evaluates."""

    @abstractmethod
    def statistic(self, tile: TileRows) -> Any:
        """The statistic of one tile; statistics are added by ``+``."""

    def count(self, n_rows: int) -> int:
        """The number of rows that the pass reads, of ``n_rows``."""
        return n_rows if self.rows is None else len(self.rows)


class DesignedPass(Pass):
    """A pass whose only design is ``design``."""

    design: Design

    @property
    def designs(self) -> tuple[Design, ...]:
        """The one design."""
        return (self.design,)

    def summed(self, tile: TileRows, statistic: Callable[[Panel, Float], Any]) -> Any:
        """The sum over panels of ``statistic(panel, block)``."""
        return reduce(add, starmap(statistic, tile.panels(self.rows, self.design)))


def eligible(panel: Panel, exclude: Int) -> NDArray[np.bool_]:
    """Which rows (n,) of a panel have a weight above zero and are not in ``exclude`` (sorted row numbers)."""
    found = np.isin(panel.rows, between(exclude, panel.rows[0], panel.rows[-1]), invert=True)
    if panel.weights is not None:
        found &= panel.weights > 0
    return found


def between(sorted_rows: Int, first: int, last: int) -> Int:
    """Those of the sorted row numbers that are from ``first`` to ``last``."""
    return sorted_rows[np.searchsorted(sorted_rows, first) : np.searchsorted(sorted_rows, last, side="right")]
