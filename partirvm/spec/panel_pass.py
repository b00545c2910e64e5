"""Passes over the rows of the data.

A *pass* computes a statistic of each tile with a pure function and sums the statistics in a fixed
tree. Passes are frozen dataclasses at module level, so that workers can unpickle them.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, TypeAlias

import numpy as np

from partirvm.kernels.design import Design
from partirvm.types import Bool, Float, Int

Rows: TypeAlias = Int | range
"""Increasing row numbers, as an array or, using no memory for each, as a range of neighbouring
rows."""


@dataclass(frozen=True)
class Panel:
    """A subset of a tile's rows.

    Attributes:
        rows: row numbers (n,)
        X: inputs (n, d)
        t: targets (n, T)
        weights: row weights (n,), or None
    """

    rows: Int
    X: Float
    t: Float
    weights: Float | None


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Base class of passes over rows of the data, which are dataclasses: each class defines
    ``of_panel`` or ``statistic``.

    Attributes:
        name: name of the pass in progress reports
        held_out: True for a pass over the held-out rows instead of the training rows
        design_fields: names of the fields with the designs that the pass evaluates
        rows: increasing numbers of the rows to read, or None for all
    """

    name: ClassVar[str]
    held_out: ClassVar[bool]
    design_fields: ClassVar[tuple[str, ...]]
    rows: Rows | None = None
    of_panel: ClassVar[Callable[..., Any]]
    """Return the statistic of a panel, given the panel and a block of each design, in the order of
    ``design_fields``."""

    def __init_subclass__(
        cls, name: str, held_out: bool = False, designs: tuple[str, ...] = ()
    ) -> None:
        cls.name = name
        cls.held_out = held_out
        cls.design_fields = designs

    @property
    def designs(self) -> tuple[Design, ...]:
        """The designs whose blocks the pass evaluates."""
        return tuple(getattr(self, name) for name in self.design_fields)

    def statistic(self, tile: Any) -> Any:
        """Return the statistic of one tile (``execution.local``): the sum over its panels, computed
        with ``+``.

        A block (n, M) reuses the memory of the previous panel's block and may be changed.
        """
        parts = (
            self.of_panel(panel, *blocks)
            for panel, *blocks in tile.panels(self.rows, *self.designs)
        )
        return reduce(operator.iadd, parts)


def eligible(panel: Panel, exclude: Int) -> Bool:
    """Return a mask (n,) of a panel's rows with weight above zero that are not in ``exclude``
    (sorted row numbers)."""
    mask = np.isin(panel.rows, between(exclude, panel.rows[0], panel.rows[-1]), invert=True)
    return mask if panel.weights is None else mask & (panel.weights > 0)


def between(sorted_rows: Rows, first: int, last: int) -> Int:
    """Return the elements of ``sorted_rows`` between ``first`` and ``last``, inclusive."""
    if isinstance(sorted_rows, range):
        low = max(first, sorted_rows.start)
        return np.arange(low, min(last + 1, sorted_rows.stop), dtype=np.int64)
    start = np.searchsorted(sorted_rows, first)
    return sorted_rows[start : np.searchsorted(sorted_rows, last, side="right")]


def positions(selected: Int, labels: Int) -> Int:
    """Return the positions of the labels ``selected`` in ``labels``, which contains all of them."""
    order = np.argsort(labels, kind="stable")
    return order[np.searchsorted(labels, selected, sorter=order)]
