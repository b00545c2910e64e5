"""A pass, tile by tile: the pure functions that run wherever the rows are read.

``tile_statistic(pass, source, number)`` reads one tile and returns its additive statistic. Within a tile, rows go
through in *panels* of a fixed number, so that the design of a tile is never held whole; tiles and panels are the same
on every machine, and with one BLAS thread per task so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import starmap
from operator import add
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.core.residuals import LargestErrors, ResidualStatistics, Scores
from partirvm.core.statistics import CrossBlock, GramBlock
from partirvm.data.source import Source, Tile
from partirvm.kernels.design import Design
from partirvm.strategies.instructions import GramPass, Pass, ResidualPass, ScorePass
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]


@dataclass(frozen=True)
class MomentsPass:
    """Over all rows: moments of inputs and targets, and what is not finite."""


def tile_statistic(pass_: Pass | MomentsPass, source: Source, number: int) -> Any:
    """The statistic of one tile."""
    return _FUNCTIONS[type(pass_)](pass_, source.tile(number))


def tiles_of(pass_: Pass | MomentsPass, source: Source) -> list[int]:
    """Numbers of the tiles that a pass reads: all, or those of its sample, in increasing order."""
    sample, n_tiles = getattr(pass_, "sample", 0), source.n_tiles
    if not sample:
        return list(range(n_tiles))
    count = min(-(-sample // source.tile_rows), n_tiles)
    first: int = pass_.draw % n_tiles  # type: ignore[union-attr]
    return sorted((first + position * n_tiles // count) % n_tiles for position in range(count))


def _moments(pass_: MomentsPass, tile: Tile) -> Moments:
    return Moments.of(tile.X, tile.t, tile.weights, tile.start)


def _gram(pass_: GramPass, tile: Tile) -> GramBlock | CrossBlock:
    make: Callable[..., Any] = CrossBlock.of if pass_.diagonal else GramBlock.of
    total: Any = None
    for panel, kept, new in _panels(tile, pass_.kept, pass_.new):
        target = pass_.new.scaling.targets(panel.t)
        if pass_.offset.any():
            target = target - kept @ pass_.offset
        block = make(kept, new, target, panel.weights)
        total = block if total is None else total.accumulate(block)
    return cast(GramBlock | CrossBlock, total)


def _residual(pass_: ResidualPass, tile: Tile) -> ResidualStatistics:
    def statistic(panel: Tile, block: Float) -> ResidualStatistics:
        r = pass_.design.scaling.targets(panel.t) - block @ pass_.mean
        weighted = r if panel.weights is None else r * panel.weights[:, None]
        rows = panel.start + np.arange(len(r), dtype=np.int64)
        eligible = np.isin(rows, _between(pass_.exclude, rows[0], rows[-1]), assume_unique=True, invert=True)
        if panel.weights is not None:
            eligible &= panel.weights > 0
        if not pass_.select:
            eligible[:] = False
        errors = np.abs(r).max(axis=1)
        return ResidualStatistics(
            n=len(r) if panel.weights is None else int((panel.weights > 0).sum()),
            energy=np.einsum("nt,nt->t", r, weighted),
            projection=block.T @ weighted,
            largest=LargestErrors.of(pass_.select, errors[eligible], rows[eligible], panel.X[eligible]),
        )

    return reduce(add, starmap(statistic, _panels(tile, pass_.design)))


def _between(sorted_rows: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
    return sorted_rows[np.searchsorted(sorted_rows, first) : np.searchsorted(sorted_rows, last, side="right")]


def _score(pass_: ScorePass, tile: Tile) -> Scores:
    scaling = pass_.design.scaling
    shift, scale = float(scaling.t_shift[0]), float(scaling.t_scale[0])

    def statistic(panel: Tile, block: Float) -> Scores:
        spread = block @ pass_.root
        variance = np.einsum("nm,nm->n", spread, spread) + pass_.noise_variance
        return Scores.of(panel.t[:, 0], shift + scale * (block @ pass_.mean), scale**2 * variance)

    return reduce(add, starmap(statistic, _panels(tile, pass_.design)))


def _panels(tile: Tile, *designs: Design) -> Iterator[tuple[Any, ...]]:
    """The panels of a tile, each with its blocks of the designs; the next panel's blocks take the place of the last's.

    Arrays as large as these are fresh pages of the system each time, and filling in new pages would cost as much as the
    kernel.
    """
    height = min(PANEL_ROWS, len(tile.X))
    places = [np.empty((height, design.n_columns)) for design in designs]
    for start in range(0, len(tile.X), PANEL_ROWS):
        rows = slice(start, start + PANEL_ROWS)
        weights = None if tile.weights is None else tile.weights[rows]
        panel = Tile(tile.number, tile.start + start, tile.X[rows], tile.t[rows], weights)
        yield panel, *(design.block(panel.X, place) for design, place in zip(designs, places, strict=True))


_FUNCTIONS: dict[type, Callable[[Any, Tile], Any]] = {
    MomentsPass: _moments,
    GramPass: _gram,
    ResidualPass: _residual,
    ScorePass: _score,
}
