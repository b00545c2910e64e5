"""The evaluation of passes tile by tile, in the process that reads the rows.

``tile_statistics(passes, source, number)`` reads one tile and returns its contribution to each of the passes that use
it. Within a tile, rows are processed in *panels* of a fixed size, so that the whole design of a tile is never in
memory. Tiles and panels do not depend on the machine. With one BLAS thread per task, the bits do not either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.data.source import Source, Tile
from partirvm.execution.block_store import Fetched, Keeping
from partirvm.execution.blocks import OneDesign, TileBlocks
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Panel, Pass, Rows, TileRows, between
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class MomentsPass(Pass):
    """Pass over all rows for the moments of inputs and targets and the first non-finite value."""

    name: ClassVar[str] = "moments"

    @property
    def designs(self) -> tuple[Design, ...]:
        """None."""
        return ()

    def statistic(self, tile: TileRows) -> Moments:
        """Return the moments of the tile's rows."""
        return Moments.of(tile.X, tile.t, tile.weights, tile.start)


@dataclass(frozen=True)
class SeveralStatistics:
    """Statistics of several passes over the same tiles, and the counts of kernel blocks. Addition is elementwise."""

    parts: tuple[Any, ...]
    fetched: Fetched = field(default_factory=Fetched)

    def __add__(self, other: SeveralStatistics) -> SeveralStatistics:
        return SeveralStatistics(tuple(map(add, self.parts, other.parts)), self.fetched + other.fetched)


@dataclass(frozen=True)
class PassGroup:
    """Passes that read the same tiles, with their ``positions`` in the given list. Each tile is then read once."""

    positions: tuple[int, ...]
    passes: tuple[Pass, ...]
    tiles: tuple[int, ...]


def grouped(passes: Sequence[Pass], source: Source) -> list[PassGroup]:
    """Group passes by the tiles that they read, in order of the first pass of each group."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, pass_ in enumerate(passes):
        groups.setdefault(tuple(tiles_of(pass_, source)), []).append(position)
    return [PassGroup(tuple(mine), tuple(passes[k] for k in mine), tiles) for tiles, mine in groups.items()]


def ungrouped(groups: Sequence[PassGroup], totals: Sequence[SeveralStatistics]) -> list[Any]:
    """Return the statistic of each pass in the original order."""
    found = {
        position: part
        for group, total in zip(groups, totals, strict=True)
        for position, part in zip(group.positions, total.parts, strict=True)
    }
    return [found[position] for position in range(len(found))]


@dataclass(frozen=True)
class _Tile(Tile):
    """A tile with its stored kernel blocks."""

    blocks: TileBlocks = field(default_factory=lambda: TileBlocks(0))

    def panels(self, rows: Rows | None, *designs: Design) -> Iterator[tuple[Any, ...]]:
        """Yield the panels of the tile's selected rows, each with its blocks of the designs.

        The blocks of a panel overwrite the blocks of the last panel. Buffers are reused, since new arrays of this size
        need new memory pages, which cost as much as the kernel evaluation. Blocks have the layout column by column, and
        are copied from stored blocks if available.
        """
        noise = next((design for design in designs if design.noise is not None), None)
        numbers = self.start + np.arange(len(self.X), dtype=np.int64)
        if rows is not None:
            numbers = between(rows, numbers[0], numbers[-1])
        whole = len(numbers) == len(self.X)
        digest = self.blocks.digest(None if whole else numbers)
        places = [np.empty(min(PANEL_ROWS, len(numbers)) * design.n_columns) for design in designs]
        for number, start in enumerate(range(0, len(numbers), PANEL_ROWS)):
            here = numbers[start : start + PANEL_ROWS]
            # whole tiles are the usual case, and are sliced without a copy
            some: Any = slice(start, start + PANEL_ROWS) if whole else here - self.start
            weights = None if self.weights is None else self.weights[some]
            factors = None if noise is None else noise.row_weights(self.X[some])
            if factors is not None:
                weights = factors if weights is None else weights * factors
            panel = Panel(here, self.X[some], self.t[some], weights)
            yield (
                panel,
                *(
                    self.blocks.block(design, panel.X, _columns(place, len(here), design.n_columns), digest, number)
                    for design, place in zip(designs, places, strict=True)
                ),
            )


def tile_statistics(
    passes: Sequence[Pass], source: Source, number: int, keeping: Keeping | OneDesign | None = None
) -> SeveralStatistics:
    """Return the contributions of one tile to each pass. ``keeping`` has the settings for stored kernel blocks."""
    read, blocks = source.tile(number), TileBlocks(number, keeping)
    tile = _Tile(read.number, read.start, read.X, read.t, read.weights, blocks)
    return SeveralStatistics(tuple(pass_.statistic(tile) for pass_ in passes), blocks.fetched)


def tiles_of(pass_: Pass, source: Source) -> list[int]:
    """Return the numbers, increasing, of the tiles that a pass reads: all tiles, or the tiles with its rows."""
    rows = pass_.rows
    if rows is None:
        return list(range(source.n_tiles))
    if isinstance(rows, range):
        return list(range(rows.start // source.tile_rows, -(-rows.stop // source.tile_rows)))
    return list(map(int, np.unique(rows // source.tile_rows)))


def _columns(place: Float, n: int, columns: int) -> Float:
    """Return an array (n, columns) at the beginning of ``place``, stored column by column without gaps."""
    return place[: n * columns].reshape(columns, n).T
