"""The tasks of executors: passes over one tile, dense fits, and what a worker of a cluster calls.

``tile_statistics`` reads one tile and returns its contribution to each pass. Rows are processed in *panels* of a fixed
size, so that the design of a tile is never whole in memory. Tiles and panels do not depend on the machine, so with one
BLAS thread per task the bits do not either. All functions are pure: a scheduler may run a task twice.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, ClassVar, cast

import numpy as np

from partirvm.core.moments import Moments
from partirvm.core.posterior import on_threads
from partirvm.core.statistics import TreeSum
from partirvm.core.updates import StepInfo
from partirvm.data.source import Source, Tile
from partirvm.execution.kernel_store import Keeping, fill_block
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import DenseFit, Panel, Pass, Rows, Solved, between
from partirvm.process import one_blas_thread, return_freed_memory
from partirvm.types import PANEL_ROWS

Progress = Callable[[int, int], None]
"""Type of a function called with the numbers of finished and of all tasks. To stop, it raises an exception."""

OfTile = Callable[[Source, int], Any]
"""Type of a function of a source and the number of one of its tiles."""


@dataclass(frozen=True)
class MomentsPass(Pass):
    """Pass over all rows for the moments of inputs and targets and the first non-finite value."""

    name: ClassVar[str] = "moments"

    def statistic(self, tile: Tile) -> Moments:
        """Return the moments of the tile's rows."""
        return Moments.of(tile.X, tile.t, tile.weights, tile.start)


@dataclass(frozen=True)
class SeveralStatistics:
    """Statistics of several passes over the same tiles. Addition is elementwise."""

    parts: tuple[Any, ...]

    def __add__(self, other: SeveralStatistics) -> SeveralStatistics:
        return SeveralStatistics(tuple(map(add, self.parts, other.parts)))


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
    positions = [position for group in groups for position in group.positions]
    parts = [part for total in totals for part in total.parts]
    return [parts[k] for k in np.argsort(positions)]


def tiles_of(pass_: Pass, source: Source) -> list[int]:
    """Return the numbers, increasing, of the tiles that a pass reads: all tiles, or the tiles with its rows."""
    rows = pass_.rows
    if rows is None:
        return list(range(source.n_tiles))
    if isinstance(rows, range):
        return list(range(rows.start // source.tile_rows, -(-rows.stop // source.tile_rows)))
    return list(map(int, np.unique(rows // source.tile_rows)))


@dataclass(frozen=True)
class _Tile(Tile):
    """A tile whose kernel blocks are kept between passes."""

    keeping: Keeping | None = None

    def panels(self, rows: Rows | None, *designs: Design) -> Iterator[tuple[Any, ...]]:
        """Yield the panels of the selected rows, each with its blocks of the designs, stored column by column.

        The blocks of a panel overwrite those of the last one: new pages would cost as much as the kernel evaluation.
        """
        noise = next((design for design in designs if design.noise is not None), None)
        numbers = self.start + np.arange(len(self.X), dtype=np.int64)
        if rows is not None:
            numbers = between(rows, numbers[0], numbers[-1])
        whole = len(numbers) == len(self.X)
        digest = "" if whole else hashlib.blake2b(numbers.tobytes(), digest_size=16).hexdigest()
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
            blocks = []
            for design, place in zip(designs, places, strict=True):
                blocks.append(place[: len(here) * design.n_columns].reshape(design.n_columns, len(here)).T)
                fill_block(self.keeping, (self.number, digest, number), design, panel.X, blocks[-1])
            yield panel, *blocks


def tile_statistics(
    passes: Sequence[Pass], source: Source, number: int, keeping: Keeping | None = None
) -> SeveralStatistics:
    """Return the contributions of one tile to each pass. ``keeping`` has the settings for kept kernel blocks."""
    read = source.tile(number)
    tile = _Tile(read.number, read.start, read.X, read.t, read.weights, keeping)
    return SeveralStatistics(tuple(pass_.statistic(tile) for pass_ in passes))


def solution(solve: DenseFit, on_step: Callable[[StepInfo], None] = lambda info: None, *, threads: int = 1) -> Solved:
    """Run a dense fit to its end, on so many threads; ``on_step`` is called at each step, and may raise to stop."""
    with on_threads(threads):
        return Solved(*solve.run(on_step))


def run_tiles(
    passes: Sequence[Pass],
    parts: Sequence[Source],
    tiles: Sequence[tuple[int, int]],
    keeping: Keeping | None = None,
) -> SeveralStatistics:
    """Return the node of an aligned run of tiles. Each tile is given by its number and the index of its part."""
    total = TreeSum(len(tiles))
    for position, (number, part) in enumerate(tiles):
        total.add(position, tile_statistics(passes, parts[part], number, keeping))
    return cast(SeveralStatistics, total.result())


def on_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function of a task on a worker, with one BLAS thread."""
    return_freed_memory()
    with one_blas_thread():
        return function(*arguments)


PACKAGES = ("numpy", "scipy", "zarr", "partirvm")
"""Packages that affect the bits of a result."""


def package_versions() -> dict[str, str]:
    """Return the versions of these packages and of Python in this process."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}
