"""A pass, tile by tile: the pure functions that run wherever the rows are read.

``tile_statistics(passes, source, number)`` reads one tile and returns what it adds to each of the passes that want it.
Within a tile, rows go through in *panels* of a fixed number, so that the design of a tile is never held whole; tiles
and panels are the same on every machine, and with one BLAS thread per task so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import starmap
from operator import add
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.backends.blocks import Fetched, Keeping, OneDesign, TileBlocks
from partirvm.core import tied, tied_laplace
from partirvm.core.augment import ExtraColumns
from partirvm.core.drawing import drawn
from partirvm.core.left_out import LeftOut
from partirvm.core.link import moderated, probabilities, variances
from partirvm.core.logistic import LogisticBlock, LogisticCross, surprises
from partirvm.core.moments import Moments
from partirvm.core.on_demand import DesignRows
from partirvm.core.residuals import LargestErrors, ResidualStatistics, Scores, TargetScores
from partirvm.core.scores import ClassScores
from partirvm.core.statistics import CrossBlock, GramBlock
from partirvm.data.source import Source, Tile
from partirvm.kernels.design import Design
from partirvm.strategies.passes import (
    AugmentPass,
    BendPass,
    DesignPass,
    GainPass,
    GramPass,
    LeaveOneOutPass,
    LogisticPass,
    LogisticScorePass,
    Pass,
    ResidualPass,
    ScorePass,
    SlopePass,
    SurprisePass,
    TargetScorePass,
)
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]
_Total = TypeVar("_Total", Scores, TargetScores)


@dataclass(frozen=True)
class MomentsPass:
    """Over all rows: moments of inputs and targets, and what is not finite."""


AnyPass = Pass | MomentsPass


@dataclass(frozen=True)
class Several:
    """Statistics of several passes over the same rows read, and of their kernel blocks: their sum is that of each."""

    parts: tuple[Any, ...]
    fetched: Fetched = field(default_factory=Fetched)

    def __add__(self, other: Several) -> Several:
        return Several(tuple(map(add, self.parts, other.parts)), self.fetched + other.fetched)


@dataclass(frozen=True)
class Group:
    """Passes that read the same tiles, so that one reading serves all. ``positions`` are theirs in the list given."""

    positions: tuple[int, ...]
    passes: tuple[AnyPass, ...]
    tiles: tuple[int, ...]


def grouped(passes: Sequence[AnyPass], source: Source) -> list[Group]:
    """The passes by the tiles that they read, in order of the first of each group."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, pass_ in enumerate(passes):
        groups.setdefault(tuple(tiles_of(pass_, source)), []).append(position)
    return [Group(tuple(mine), tuple(passes[k] for k in mine), tiles) for tiles, mine in groups.items()]


def ungrouped(groups: Sequence[Group], totals: Sequence[Several]) -> list[Any]:
    """The statistic of each pass, in the order in which the passes were given."""
    found = {
        position: part
        for group, total in zip(groups, totals, strict=True)
        for position, part in zip(group.positions, total.parts, strict=True)
    }
    return [found[position] for position in range(len(found))]


@dataclass(frozen=True)
class _Tile(Tile):
    """A tile with what was kept of its kernel blocks."""

    blocks: TileBlocks = field(default_factory=lambda: TileBlocks(0))


def tile_statistics(
    passes: Sequence[AnyPass], source: Source, number: int, keeping: Keeping | OneDesign | None = None
) -> Several:
    """What one tile adds to each of these passes; ``keeping`` says where kernel blocks are kept, if they are."""
    read, blocks = source.tile(number), TileBlocks(number, keeping)
    tile = _Tile(read.number, read.start, read.X, read.t, read.weights, blocks)
    return Several(tuple(_FUNCTIONS[type(pass_)](pass_, tile) for pass_ in passes), blocks.fetched)


def tiles_of(pass_: AnyPass, source: Source) -> list[int]:
    """Numbers of the tiles that a pass reads: all, or those that hold its rows, in increasing order."""
    rows = getattr(pass_, "rows", None)
    return list(range(source.n_tiles)) if rows is None else np.unique(rows // source.tile_rows).tolist()


def _moments(pass_: MomentsPass, tile: Tile) -> Moments:
    return Moments.of(tile.X, tile.t, tile.weights, tile.start)


def _gram(pass_: GramPass, tile: Tile) -> GramBlock | CrossBlock:
    make: Callable[..., Any] = CrossBlock.of if pass_.diagonal else GramBlock.of
    total: Any = None
    for panel, kept, new in _panels(tile, pass_.rows, pass_.kept, pass_.new):
        target = pass_.new.scaling.targets(panel.t)
        if pass_.offset.any():
            target = target - kept @ pass_.offset
        block = make(kept, new, target, panel.weights)
        total = block if total is None else total.accumulate(block)
    return cast(GramBlock | CrossBlock, total)


def _design(pass_: DesignPass, tile: Tile) -> DesignRows:
    scaling, panels = pass_.design.scaling, _panels(tile, pass_.rows, pass_.design)
    return reduce(add, (DesignRows.of(block, scaling.targets(panel.t), panel.weights) for panel, block in panels))


def _residual(pass_: ResidualPass, tile: Tile) -> ResidualStatistics:
    def statistic(panel: _Panel, block: Float) -> ResidualStatistics:
        r = pass_.design.scaling.targets(panel.t) - block @ pass_.mean
        weighted = r if panel.weights is None else r * panel.weights[:, None]
        excluded = _between(pass_.exclude, panel.rows[0], panel.rows[-1])
        eligible = np.isin(panel.rows, excluded, assume_unique=True, invert=True)
        if panel.weights is not None:
            eligible &= panel.weights > 0
        if not pass_.select:
            eligible[:] = False
        errors = np.abs(r[:, 0]) if r.shape[1] == 1 else np.sqrt(np.einsum("nt,nt->n", r, r))
        return ResidualStatistics(
            n=len(r) if panel.weights is None else int((panel.weights > 0).sum()),
            energy=np.einsum("nt,nt->t", r, weighted),
            projection=block.T @ weighted,
            largest=LargestErrors.of(pass_.select, errors[eligible], panel.rows[eligible], panel.X[eligible]),
        )

    return reduce(add, starmap(statistic, _panels(tile, pass_.rows, pass_.design)))


def _leave_one_out(pass_: LeaveOneOutPass, tile: Tile) -> LeftOut:
    design, leading = pass_.design, pass_.design.n_leading

    def statistic(panel: _Panel, block: Float) -> LeftOut:
        first = panel.rows[0]
        mine = np.flatnonzero((design.rows >= first) & (design.rows <= panel.rows[-1]))
        own = [(row - first, leading + mine[design.rows[mine] == row]) for row in np.unique(design.rows[mine])]
        t = design.scaling.targets(panel.t)[:, 0]
        return LeftOut.of(block, t, pass_.mean, pass_.root, pass_.beta, panel.weights, own)

    return reduce(add, starmap(statistic, _panels(tile, None, design)))


def _logistic(pass_: LogisticPass, tile: Tile) -> LogisticBlock:
    total: LogisticBlock | None = None
    for panel, block in _panels(tile, pass_.rows, pass_.design):
        part = LogisticBlock.of(pass_.likelihood, block, panel.t[:, 0], pass_.mean, panel.weights)
        total = part if total is None else total.accumulate(part)
    return cast(LogisticBlock, total)


def _gain(pass_: GainPass, tile: Tile) -> LogisticCross:
    total: LogisticCross | None = None
    for panel, kept, pool in _panels(tile, pass_.rows, pass_.design, pass_.pool):
        part = LogisticCross.of(pass_.likelihood, kept, pool, panel.t[:, 0], pass_.mean, panel.weights)
        total = part if total is None else total.accumulate(part)
    return cast(LogisticCross, total)


def _surprise(pass_: SurprisePass, tile: Tile) -> LargestErrors:
    def statistic(panel: _Panel, block: Float) -> LargestErrors:
        keys = surprises(pass_.likelihood, panel.t[:, 0], block @ pass_.mean)
        if pass_.draw is not None:
            keys = drawn(keys + pass_.floor, panel.rows, pass_.draw)
        eligible = np.isin(panel.rows, _between(pass_.exclude, panel.rows[0], panel.rows[-1]), invert=True)
        if panel.weights is not None:
            eligible &= panel.weights > 0
        return LargestErrors.of(pass_.select, keys[eligible], panel.rows[eligible], panel.X[eligible])

    return reduce(add, starmap(statistic, _panels(tile, pass_.rows, pass_.design)))


def _score(pass_: ScorePass, tile: Tile) -> Scores:
    return _scores(pass_, tile, Scores.over)


def _target_score(pass_: TargetScorePass, tile: Tile) -> TargetScores:
    return _scores(pass_, tile, lambda each: TargetScores(tuple(each)))


def _scores(pass_: ScorePass, tile: Tile, of: Callable[[list[Scores]], _Total]) -> _Total:
    """What ``of`` makes of the scores of each target, summed over panels."""
    scaling, n_targets = pass_.design.scaling, len(pass_.design.scaling.t_scale)
    means = pass_.mean.reshape(-1, n_targets)
    roots = pass_.root.reshape(n_targets, len(means), len(means))
    noise = np.atleast_1d(pass_.noise_variance)

    def score(panel: _Panel, block: Float, target: int) -> Scores:
        shift, scale, unit = (float(each[target]) for each in (scaling.t_shift, scaling.t_scale, scaling.t_unit))
        spread = block @ roots[target]
        variance = np.einsum("nm,nm->n", spread, spread) + noise[target]
        mean = shift + scale * (block @ means[:, target])
        return Scores.of(panel.t[:, target], mean, float(scaling.t_variance[target]) * variance, unit)

    def statistic(panel: _Panel, block: Float) -> _Total:
        return of([score(panel, block, target) for target in range(n_targets)])

    return reduce(add, starmap(statistic, _panels(tile, None, pass_.design)))


def _logistic_score(pass_: LogisticScorePass, tile: Tile) -> ClassScores:
    f = np.empty((len(tile.X), pass_.mean.shape[1]))
    for panel, block in _panels(tile, None, pass_.design):
        rows = slice(panel.rows[0] - tile.start, panel.rows[-1] - tile.start + 1)
        f[rows] = block @ pass_.mean
        if pass_.moderate:
            f[rows] = moderated(f[rows], variances(block, pass_.roots))
    codes = tile.t[:, 0].astype(np.int64)
    if pass_.codes is not None:
        codes = np.array(pass_.codes)[codes]
    # one ranking of a tile: sorting and joining those of its panels would take longer than their design
    return ClassScores.of(codes, probabilities(pass_.likelihood, f), f[:, 0] if f.shape[1] == 1 else None)


def _bend(pass_: BendPass, tile: Tile) -> Float:
    def statistic(panel: _Panel, block: Float) -> Float:
        bends = tied_laplace.bends(pass_.likelihood, block, pass_.mean, pass_.covariance, panel.weights)
        return block.T @ bends

    return reduce(add, starmap(statistic, _panels(tile, pass_.rows, pass_.design)))


def _slope(pass_: SlopePass, tile: Tile) -> Float:
    design, mean = pass_.design, pass_.mean

    def statistic(panel: _Panel, block: Float) -> Float:
        if pass_.shift is None:
            t, betas = design.scaling.targets(panel.t), np.atleast_1d(pass_.beta)
            slopes = reduce(
                add,
                (
                    tied.slopes(block, t[:, k], mean[:, k], pass_.covariance[k], float(beta), panel.weights)
                    for k, beta in enumerate(betas)
                ),
            )
        else:
            codes, shift = panel.t[:, 0], pass_.shift
            slopes = tied_laplace.slopes(pass_.likelihood, block, codes, mean, pass_.covariance, shift, panel.weights)
        return design.gradient(panel.X, block, slopes)

    return reduce(add, starmap(statistic, _panels(tile, pass_.rows, design)))


def _augment(pass_: AugmentPass, tile: Tile) -> ExtraColumns:
    design, ends = pass_.design, np.cumsum([0, *(extra.n_columns for extra in pass_.extras)])
    widest = max((extra.n_columns for extra in pass_.extras), default=0)
    place = np.empty(min(PANEL_ROWS, len(tile.X)) * widest)
    total = ExtraColumns.none(int(ends[-1]), design.n_columns)
    for panel, block in _panels(tile, None, design):
        residual = design.scaling.targets(panel.t)[:, 0] - block @ pass_.mean
        if panel.weights is not None:
            block *= panel.weights[:, None]
            residual *= panel.weights
        for extra, first, end in zip(pass_.extras, ends[:-1], ends[1:], strict=True):
            F = extra.block(panel.X, _columns(place, len(panel.X), extra.n_columns))
            total.accumulate(slice(first, end), F, block, residual, panel.weights)
    return total


@dataclass(frozen=True)
class _Panel:
    """Some rows of a tile: their numbers, inputs, targets and weights."""

    rows: Int
    X: Float
    t: Float
    weights: Float | None


def _panels(tile: Tile, wanted: Int | None, *designs: Design) -> Iterator[tuple[Any, ...]]:
    """The panels of a tile's wanted rows, each with its blocks of the designs, which take the place of the last's.

    Arrays as large as these are fresh pages of the system each time, and filling in new pages would cost as much as the
    kernel. Blocks are stored column by column. They come from what was kept of the tile, if anything was.
    """
    rows = tile.start + np.arange(len(tile.X), dtype=np.int64)
    if wanted is not None:
        rows = _between(wanted, rows[0], rows[-1])
    blocks = tile.blocks if isinstance(tile, _Tile) else TileBlocks(tile.number)
    digest = blocks.digest(None if wanted is None else rows)
    height = min(PANEL_ROWS, len(rows))
    places = [np.empty(height * design.n_columns) for design in designs]
    for number, start in enumerate(range(0, len(rows), PANEL_ROWS)):
        numbers = rows[start : start + PANEL_ROWS]
        # whole tiles, the rule, are cut without a copy
        some: Any = slice(start, start + PANEL_ROWS) if wanted is None else numbers - tile.start
        weights = None if tile.weights is None else tile.weights[some]
        panel = _Panel(numbers, tile.X[some], tile.t[some], weights)
        yield (
            panel,
            *(
                blocks.block(design, panel.X, _columns(place, len(numbers), design.n_columns), digest, number)
                for design, place in zip(designs, places, strict=True)
            ),
        )


def _columns(place: Float, n: int, columns: int) -> Float:
    """An array (n, columns) at the beginning of ``place``, stored column by column without gaps."""
    return place[: n * columns].reshape(columns, n).T


def _between(sorted_rows: Int, first: int, last: int) -> Int:
    return sorted_rows[np.searchsorted(sorted_rows, first) : np.searchsorted(sorted_rows, last, side="right")]


_FUNCTIONS: dict[type, Callable[[Any, Tile], Any]] = {
    MomentsPass: _moments,
    GramPass: _gram,
    DesignPass: _design,
    ResidualPass: _residual,
    LeaveOneOutPass: _leave_one_out,
    ScorePass: _score,
    TargetScorePass: _target_score,
    LogisticPass: _logistic,
    SurprisePass: _surprise,
    GainPass: _gain,
    LogisticScorePass: _logistic_score,
    BendPass: _bend,
    SlopePass: _slope,
    AugmentPass: _augment,
}
