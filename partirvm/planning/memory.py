"""Bytes of each step of a fit, as closed formulas.

f = 8 bytes. A fit of M kept columns, P candidates and Q ≥ P columns on trial, over tiles of R rows, d features and T
targets, with panels of B = min(PANEL_ROWS, R) rows, on ``threads`` threads (no more than there are tiles), takes on top
of the process itself:

    tile      = 3 f R (d + T + 1)                      read, decoded, handed on
    panel     = 2 f B (M + Q + d + 2)                  design blocks, and their weighted or widened copies
    node      = f max((M + P) P, M Q)                  statistic of a gram pass, or of the pool's pass
    block     = 2 node                                 sum so far, and the panel's product, added in place
    waiting   = (log₂ tiles + threads + 1) node        nodes of the sum that wait for their sibling
    pass      = threads (tile + panel + block) + waiting + (T + 3) f (M + P)²
    solve     = (4 T + 6) f (M + P)²                   statistics, active ones, H, factor, inverse, model
    best      = 2 T f (M + P)²                         only with held-out rows: the best round is kept
    batch     = f E (4 threads + log₂ tiles + 9)       fits side by side whose squared columns sum to E
    kept      = limit − all that, less f B C threads   most kernel blocks kept of C columns, where P = C and M = 0, or
                                                       Q on trial if that takes more

Targets that share vectors share their Gram matrix, and each has a posterior of its own. A fit of classes has C linear
predictors: C times node and, with C for T, best; 3 C f (M + P)² in each pass and 12 C f (M + P)² in the solve. Each
pass brings all columns at once, C M² of them; the batch holds statistics of two passes for each fit.

Where a pass brings all columns at once (``whole``: every fit of split-and-merge, and last fits over other rows than the
ones before) M is 0 in these, and P all columns; panels of the pool's pass hold Q and the kept ones all the same.

A sample of R rows that small fits are made of before a fit, or beside it, is held in memory:

    sample    = f R (d + T + 1)                        and f R C for kernel blocks of C columns, where ``kept`` allows

A prediction with a column more for each of G test rows (``core.augment``), in pieces of C = min(EXTRA_COLUMNS, G) of
them, takes the same tiles and, with M columns of the model,

    node      = f G (M + 2)                            statistic of the extra columns
    pass      = threads (tile + 2 f B (M + C + d + 2) + f C M + node) + (log₂ tiles + threads + 2) node
    tested    = 3 f R' (d + T + 4) + 4 f C M           a tile of R' test rows, and the end of a piece
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from partirvm.types import EXTRA_COLUMNS, PANEL_ROWS

FLOAT = 8

ALLOWANCE = 48 << 20
"""Bytes beside the formula: BLAS buffers, the interpreter's garbage, fragments."""

BATCH = 64
"""Most fits of P candidates that run side by side."""


@dataclass(frozen=True)
class DataShape:
    """What the formulas need to know: rows, features, targets, rows per tile, linear predictors, kernels.

    ``n_leading`` columns beside the candidates are in every fit: the bias, or room for it, and functions of the fit's
    own. Without a kernel (0 of them) they are all. Linear predictors are of ``classes``, or of targets that share
    vectors.
    """

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    n_outputs: int = 1
    n_kernels: int = 1
    n_leading: int = 1
    classes: bool = False

    @property
    def n_candidates(self) -> int:
        """Basis functions that all rows offer together."""
        return self.n_rows * self.n_kernels

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return ceil(self.n_rows / self.tile_rows)


@dataclass(frozen=True)
class StepBytes:
    """Bytes of the steps of a fit, without the process's own."""

    tile: int
    panel: int
    block: int
    waiting: int
    gram: int
    solve: int
    best: int
    batch: int = 0

    @property
    def passing(self) -> int:
        """During a pass in this process: what its threads and the driver hold together."""
        return self.gram + self.best + self.batch

    @property
    def solving(self) -> int:
        """During a dense fit."""
        return self.solve + self.best + self.batch

    @property
    def peak(self) -> int:
        """The larger of both."""
        return max(self.passing, self.solving)


def step_bytes(
    shape: DataShape,
    kept: int,
    candidates: int,
    threads: int,
    *,
    pool: int = 0,
    held_out: bool = False,
    elements: int = 0,
) -> StepBytes:
    """The formulas above for M = ``kept`` columns, the leading ones counted, P = ``candidates``, Q = max(P, ``pool``).

    ``elements`` is E.
    """
    columns, d, C = kept + candidates, shape.n_features, shape.n_outputs
    busy = min(threads, shape.n_tiles)
    rows = min(shape.tile_rows, shape.n_rows)
    tile = 3 * FLOAT * rows * (d + shape.n_targets + 1)
    panel = 2 * FLOAT * min(PANEL_ROWS, rows) * (kept + max(candidates, pool) + d + 2)
    node = FLOAT * (C if shape.classes else 1) * max(columns * candidates, kept * pool)
    square = FLOAT * columns**2
    waiting = (ceil(log2(shape.n_tiles)) + busy + 1) * node
    return StepBytes(
        tile=tile,
        panel=panel,
        block=2 * node,
        waiting=waiting,
        gram=busy * (tile + panel + 2 * node) + waiting + (3 * C if shape.classes else C + 3) * square,
        solve=(12 * C if shape.classes else 4 * C + 6) * square,
        best=2 * C * square if held_out else 0,
        batch=elements * _batch_element(shape, threads),
    )


def pool_columns(pool: int, kept: int) -> int:
    """Columns of the panels of a pool's pass where M is 0 in the formulas: those on trial, and the kept ones.

    >>> pool_columns(400, 1000), pool_columns(0, 1000)
    (1400, 0)
    """
    return pool + kept if pool else 0


def _batch_element(shape: DataShape, threads: int) -> int:
    return FLOAT * shape.n_outputs * (4 * threads + ceil(log2(max(shape.n_tiles, 2))) + 9)


def batch_elements(shape: DataShape, candidates: int, threads: int, spare: int, fits: int = BATCH) -> int:
    """E: squared columns of fits side by side, as ``spare`` bytes allow: from one fit of P candidates to ``BATCH``.

    No more than there are ``fits`` of P candidates.
    """
    one = (candidates + shape.n_leading) ** 2
    return min(max(spare // _batch_element(shape, threads), one), min(BATCH, fits) * one)


def kept_bytes(
    shape: DataShape,
    columns: int,
    threads: int,
    budget: int,
    *,
    pool: int = 0,
    held_out: bool = False,
    elements: int = 0,
) -> int:
    """Bytes that a fit of so many columns leaves of ``budget`` for kernel blocks; new ones are evaluated beside it."""
    step = step_bytes(shape, 0, columns, threads, held_out=held_out, elements=elements)
    trial = step_bytes(shape, columns, 0, threads, pool=pool, held_out=held_out, elements=elements) if pool else step
    fresh = threads * FLOAT * min(PANEL_ROWS, shape.tile_rows) * columns
    return max(budget - max(step.peak, trial.peak) - fresh, 0)


def sample_bytes(shape: DataShape, rows: int) -> int:
    """Bytes of so many rows held in memory, no more than there are: inputs, targets and weights.

    >>> sample_bytes(DataShape(20_000_000, 16, 1, 8192), 8000)
    1152000
    """
    return FLOAT * min(rows, shape.n_rows) * (shape.n_features + shape.n_targets + 1)


def most_columns(
    shape: DataShape,
    candidates: int,
    threads: int,
    budget: int,
    *,
    pool: int = 0,
    held_out: bool = False,
    whole: bool = False,
) -> int:
    """The most columns M + P whose peak stays within ``budget`` bytes, P being ``candidates``; 0 if not even P fit.

    With ``whole`` any pass may bring all of them at once.

    >>> shape = DataShape(20_000_000, 16, 1, 8192)
    >>> most = most_columns(shape, 64, 2, 200 << 20)
    >>> step_bytes(shape, most - 64, 64, 2).peak <= 200 << 20 < step_bytes(shape, most - 63, 64, 2).peak
    True
    """

    def fits(columns: int) -> bool:
        kept = 0 if whole else columns - candidates
        beside = pool_columns(pool, columns - candidates) if whole else pool
        return step_bytes(shape, kept, columns - kept, threads, pool=beside, held_out=held_out).peak <= budget

    least = candidates + shape.n_leading
    if not fits(least):
        return 0
    low, high = least, least + 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def augment_bytes(shape: DataShape, columns: int, extra: int, threads: int, tested: int) -> int:
    """Bytes of a pass with G = ``extra`` columns beside the M = ``columns`` of a model, over training rows of a shape.

    ``tested`` are the rows of a tile of test rows.
    """
    d, piece = shape.n_features, min(EXTRA_COLUMNS, extra)
    rows = min(shape.tile_rows, shape.n_rows)
    tile = 3 * FLOAT * rows * (d + shape.n_targets + 1)
    panel = 2 * FLOAT * min(PANEL_ROWS, rows) * (columns + piece + d + 2)
    node = FLOAT * extra * (columns + 2)
    waiting = (ceil(log2(max(shape.n_tiles, 2))) + threads + 2) * node
    ending = 3 * FLOAT * tested * (d + shape.n_targets + 4) + 4 * FLOAT * piece * columns
    return threads * (tile + panel + FLOAT * piece * columns + node) + waiting + ending


def augment_rows(shape: DataShape, columns: int, threads: int, budget: int, tested: int, most: int) -> int:
    """The most test rows, ``most`` at most and in whole pieces, of a pass within ``budget`` bytes; 0 if none fit.

    >>> augment_rows(DataShape(20_000_000, 16, 1, 8192), 1000, 2, 200 << 20, 8192, 3840)
    720
    """
    for rows in range(most - most % EXTRA_COLUMNS, 0, -EXTRA_COLUMNS):
        if augment_bytes(shape, columns, rows, threads, tested) <= budget:
            return rows
    return 0
