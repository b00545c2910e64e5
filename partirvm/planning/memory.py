"""Memory of each step of a fit in bytes, as closed formulas.

Symbols: f = 8 bytes; M kept columns, P candidates and Q ≥ P columns on trial; tiles of R rows with d features and T
targets; panels of B = min(PANEL_ROWS, R) rows. ``threads`` is at most the number of tiles. In addition to the base
memory of the process, a fit takes:

    tile      = 3 f R (d + T + 1)                      read, decoded, scaled
    panel     = 2 f B (M + Q + d + K + 2)              design blocks, their weighted copies; indicators of K classes
    node      = f (max((M + P) P, M Q) + K P)          statistic of a Gram pass, or of the pool pass; K classes
    block     = 2 node                                 sum so far, and the panel's product, added in place
    waiting   = (log₂ tiles + threads + 1) node        nodes of the sum that wait for their sibling
    pass      = threads (tile + panel + block) + waiting + (T + 3) f (M + P)²
    solve     = (4 T + 6) f (M + P)²                   statistics, active ones, H, factor, inverse, model
    noise     = f S (d + 256) + (T + 3) f (M + P)²     fit of a local noise variance to S rows, 64 centres; a solve may
                                                       need more
    best      = 2 T f (M + P)²                         only with held-out rows: the best round is kept
    batch     = f E (4 threads + log₂ tiles + 9)       parallel fits whose squared column counts sum to E
    residuals = f (2 N w + L k (k + w) + J K (K + w))  local residuals of N rows: L rows teach their kernel with k
                                                       neighbours, J rows judge it with K; w = d + T + 3
    compared  = libraries + trees + 4 f N (d + 1)      boosted trees fitted to N rows after the fit
    kept      = limit − all above − f B C threads      maximum for kept kernel blocks of C columns, with P = C and
                                                       M = 0, or with Q columns on trial if these take more

Class indicators share one posterior (T = 1) and take 8 f K (M + P) more. A fit by Newton steps (``newton``) has C
linear predictors: node is multiplied by C, and best has C in place of T. A pass then takes 3 C f (M + P)², and the
solve 12 C f (M + P)².

If a pass computes all columns at once (``whole``), as in classification, in split-and-merge and in a last fit over
different rows, M is 0 in these formulas and P is the number of all columns. Panels of the pool pass then hold Q columns
plus the kept columns.
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from partirvm.types import NOISE_CENTRES, PANEL_ROWS, RESIDUAL_COLUMNS, RESIDUAL_NEIGHBOURS, RESIDUAL_TEACHERS

FLOAT = 8
"""Bytes of a floating-point number."""

ALLOWANCE = 48 << 20
"""Bytes in addition to the formulas: BLAS buffers, uncollected objects, fragmentation."""

TREES = 20 << 20
"""Bytes of boosted trees and their histograms, in addition to the rows (``comparison_bytes``)."""

KEPT_BEFORE, KEPT_AFTER = 32 << 20, 80 << 20
"""Maximum bytes of freed small blocks that a process keeps before and after the stage of local residuals."""

JUDGES = 1024
"""Maximum number of rows that judge local residuals with all neighbours."""

RESIDUAL_SHARE = 10
"""The local residual rows take at most the memory limit divided by this number."""

BATCH = 64
"""Maximum number of fits of P candidates that run in parallel."""


@dataclass(frozen=True)
class DataShape:
    """Sizes of the data and the model, as used in the formulas.

    ``n_outputs`` is the number of posteriors: one per linear predictor with ``newton``, otherwise one per target.
    ``n_leading`` counts the columns besides the candidates: the bias (reserved even if there is none) and basis
    functions. ``local_noise_rows`` is the number of rows to which a local noise variance is fitted; 0 if constant.
    ``measured`` is true if the kernel measures distances, in which rows are near.
    """

    n_rows: int
    n_features: int
    n_targets: int
    tile_rows: int
    n_outputs: int = 1
    n_kernels: int = 1
    n_leading: int = 1
    newton: bool = False
    n_classes: int = 0
    local_noise_rows: int = 0
    measured: bool = True

    @property
    def n_candidates(self) -> int:
        """Number of candidates: all rows with all kernels."""
        return self.n_rows * self.n_kernels

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return ceil(self.n_rows / self.tile_rows)


def residual_bytes(shape: DataShape, rows: int, neighbours: int) -> tuple[int, int]:
    """Return ``bytes_of_residuals`` if every feature is one coordinate."""
    return bytes_of_residuals(shape.n_features + shape.n_targets + RESIDUAL_COLUMNS, rows, neighbours)


def bytes_of_residuals(width: int, rows: int, neighbours: int) -> tuple[int, int]:
    """Return the bytes of local residual rows of ``width`` numbers each, and those for making them."""
    k = min(neighbours, RESIDUAL_NEIGHBOURS)
    return FLOAT * rows * width, FLOAT * (2 * rows * width + RESIDUAL_TEACHERS * k * (k + width))


def trial_bytes(neighbours: int) -> int:
    """Return the bytes of a trial of local residuals: the covariances of its rows' neighbours, and their factors."""
    return 2 * FLOAT * JUDGES * neighbours**2


def residual_stage_bytes(shape: DataShape, rows: int, neighbours: int) -> int:
    """Return the bytes of the stage that makes local residuals of ``rows`` rows, predicted from ``neighbours``."""
    width = shape.n_features + shape.n_targets + RESIDUAL_COLUMNS
    k = min(neighbours, RESIDUAL_NEIGHBOURS)
    learning = min(rows, RESIDUAL_TEACHERS) * k * (k + width)
    judging = min(rows, JUDGES) * neighbours * (neighbours + width)
    return FLOAT * (2 * rows * width + learning + judging)


def comparison_bytes(shape: DataShape, rows: int, libraries: int) -> int:
    """Return the bytes for boosted trees fitted to ``rows`` rows, whose ``libraries`` have yet to be loaded."""
    return libraries + TREES + 4 * FLOAT * rows * (shape.n_features + 1)


@dataclass(frozen=True)
class StepBytes:
    """Bytes during a pass (its threads and the driver together) and a dense fit, without the base memory."""

    passing: int
    solving: int

    @property
    def peak(self) -> int:
        """The larger of ``passing`` and ``solving``."""
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
    whole: bool = False,
) -> StepBytes:
    """Evaluate the formulas above: M = ``kept``, leading included, P = ``candidates``, Q = max(P, ``pool``), E."""
    if whole:
        kept, candidates, pool = 0, kept + candidates, pool and pool + kept
    columns, C, busy = kept + candidates, shape.n_outputs, min(threads, shape.n_tiles)
    square, held, dense = FLOAT * columns**2, C + 3, 4 * C + 6
    node = FLOAT * max(columns * candidates, kept * pool)
    if shape.newton:
        node, held, dense = C * node, 3 * C, 12 * C
    else:
        node += FLOAT * shape.n_classes * candidates
    rows = min(shape.tile_rows, shape.n_rows)
    width = kept + max(candidates, pool) + shape.n_features + shape.n_classes + 2
    tile = 3 * FLOAT * rows * (shape.n_features + shape.n_targets + 1)
    passing = busy * (tile + 2 * FLOAT * min(PANEL_ROWS, rows) * width + 2 * node)
    passing += (ceil(log2(shape.n_tiles)) + busy + 1) * node + held * square
    solving = dense * square
    if S := shape.local_noise_rows:
        solving = max(solving, FLOAT * S * (shape.n_features + 4 * NOISE_CENTRES) + (C + 3) * square)
    beside = (2 * C * square if held_out else 0) + elements * _batch_element(shape, threads)
    beside += 0 if shape.newton else 8 * FLOAT * shape.n_classes * columns
    return StepBytes(passing + beside, solving + beside)


def _batch_element(shape: DataShape, threads: int) -> int:
    return FLOAT * shape.n_outputs * (4 * threads + ceil(log2(max(shape.n_tiles, 2))) + 9)


def batch_elements(shape: DataShape, candidates: int, threads: int, spare: int, fits: int = BATCH) -> int:
    """Compute E for ``spare`` bytes: at least one fit of ``candidates`` columns, at most ``BATCH`` or ``fits``."""
    one = (candidates + shape.n_leading) ** 2
    return min(max(spare // _batch_element(shape, threads), one), min(BATCH, fits) * one)


def kept_bytes(shape: DataShape, columns: int, threads: int, budget: int, *, pool: int = 0, **how: Any) -> int:
    """Compute the bytes of ``budget`` that a fit of ``columns`` columns leaves for kept kernel blocks."""
    steps = step_bytes(shape, 0, columns, threads, **how), step_bytes(shape, columns, 0, threads, pool=pool, **how)
    peak = max(step.peak for step in steps)
    return max(budget - peak - threads * FLOAT * min(PANEL_ROWS, shape.tile_rows) * columns, 0)


def sample_bytes(shape: DataShape, rows: int) -> int:
    """Compute the bytes of up to ``rows`` rows in memory: inputs, targets and weights."""
    return FLOAT * min(rows, shape.n_rows) * (shape.n_features + shape.n_targets + 1)


def max_columns_within(shape: DataShape, candidates: int, threads: int, budget: int, **how: Any) -> int:
    """Return the maximum number of columns, including ``candidates`` new ones, whose peak fits in ``budget`` bytes.

    Returns 0 if memory is too small for the candidates alone. ``how`` holds further ``step_bytes`` arguments.

    >>> shape = DataShape(20_000_000, 16, 1, 8192)
    >>> most = max_columns_within(shape, 64, 2, 200 << 20)
    >>> step_bytes(shape, most - 64, 64, 2).peak <= 200 << 20 < step_bytes(shape, most - 63, 64, 2).peak
    True
    """
    kept = range(shape.n_leading, 1 << 40)
    fitting = bisect_right(kept, budget, key=lambda M: step_bytes(shape, M, candidates, threads, **how).peak)
    return shape.n_leading + candidates + fitting - 1 if fitting else 0
