"""Memory of each step of a fit in bytes, as closed formulas.

Symbols: f = 8 bytes; M kept columns, P candidates and Q ≥ P columns on trial; tiles of R rows with
d features and T targets; panels of B = min(PANEL_ROWS, R) rows. ``threads`` is at most the number
of tiles. In addition to the base memory of the process, a fit takes:

    tile      = 3 f R (d + T + 1)                      read, decoded, scaled
    panel     = 2 f B (M + Q + d + K + 2)              design blocks, their weighted copies;
                                                       indicators of K classes
    node      = f (max((M + P) P, M Q) + K P)          statistic of a Gram pass, or of the pool
                                                       pass; K classes
    block     = 2 node                                 sum so far, and the panel's product, added
                                                       in place
    waiting   = (log₂ tiles + threads + 1) node        nodes of the sum that wait for their sibling
    pass      = threads (tile + panel + block) + waiting + (T + 3) f (M + P)²
    solve     = (4 T + 6) f (M + P)²                   statistics, active ones, H, factor, inverse,
                                                       model
    noise     = f S (d + 256) + (T + 3) f (M + P)²     fit of a local noise variance to S rows, 64
                                                       centres; a solve may need more
    best      = 2 T f (M + P)²                         only with held-out rows: the best round
    batch     = f E (4 threads + log₂ tiles + 9)       parallel fits whose squared column counts
                                                       sum to E
    residuals = f N (3 w + d + 20 T)                   left-out rows of local residuals, their
              + f L (k + K) w                          errors and the changes of these; w = d + T
              + f max(I i² (d/2 + 3), L i², J k²,      + 3. The kernel is learned from L rows with
                      J K (K/2 + 2 w))                 k of K neighbours. Distances of neighbours,
                                                       while the metric is learned from I rows with
                                                       i neighbours, the kernel from L rows, and
                                                       J rows evaluate
    collected = 3 f N w, or f (2 N w + …)              residuals of all N rows, if not all were left
                                                       out: in memory, or sorted in files, of which
                                                       cells are kept
    compared  = libraries + trees                      boosted trees fitted to N rows after the fit,
              + f N (4 (d + 1) + 6 K) + h d            with histograms of each feature and scores
                                                       of K classes
    kept      = limit − all above − f B C threads      maximum for kept kernel blocks of C columns,
                                                       with P = C and M = 0, or with Q columns on
                                                       trial if these take more

Class indicators share one posterior (T = 1) and take an additional 8 f K (M + P). A fit by Newton
steps (``newton``) has C linear predictors: node and batch are multiplied by C, and best has C in
place of T. A pass then takes 3 C f (M + P)², and the solve 12 C f (M + P)².

If a pass computes all columns at once (``whole``), as in classification, in split-and-merge and in
a last fit over different rows, M is 0 in these formulas and P is the number of all columns. Panels
of the pool pass then hold Q columns plus the kept columns.
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from partirvm.types import (
    NOISE_CENTRES,
    PANEL_ROWS,
    RESIDUAL_COLUMNS,
    RESIDUAL_NEIGHBOURS,
    RESIDUAL_TEACHERS,
    RESIDUAL_TRIAL,
)

FLOAT = 8
"""Bytes of a floating-point number."""

ALLOWANCE = 48 << 20
"""Bytes in addition to the formulas: BLAS buffers, uncollected objects, fragmentation."""

TREE = 16 << 10
"""Maximum bytes of a boosted tree."""

HISTOGRAM = 32 * 256 * 20
"""Maximum bytes of a feature's histograms: of 32 nodes, with 256 bins of 20 bytes."""

SCRATCH = 16 << 20
"""Bytes of scikit-learn's scratch arrays and objects, in addition to those that
``comparison_bytes`` counts."""

PROCESS_ROWS = 1600
"""Maximum number of rows of an exact process for evaluating a kernel."""

PROCESS_MATRICES = 6
"""Number of square matrices that an exact process holds."""

LEFT_OUT_NUMBERS = 20
"""Number of values for each left-out row and target: errors, variances and targets (twice each),
and the changes of the error without each of 10 folds."""

SORTING = 128 << 20
"""Maximum bytes for sorting the records of local residuals in files."""

CELLS = 256 << 20
"""Maximum bytes for keeping the cells of local residuals in memory."""

KEPT_BEFORE = 32 << 20
"""Maximum bytes of freed small blocks that a process keeps before the stage of local residuals."""

KEPT_AFTER = 80 << 20
"""Maximum bytes of freed small blocks that a process keeps after the stage of local residuals."""

JUDGES = 1024
"""Maximum number of rows on which local residuals are evaluated with all neighbours."""

RESIDUAL_SHARE = 10
"""The local residual rows take at most the memory limit divided by this number."""

BATCH = 64
"""Maximum number of fits of P candidates that run in parallel."""


@dataclass(frozen=True)
class DataShape:
    """Sizes of the data and the model, as used in the formulas.

    Attributes:
        n_rows: the number of rows.
        n_features: the number of features.
        n_targets: the number of targets.
        tile_rows: the number of rows of a tile.
        n_outputs: the number of posteriors: one per linear predictor with ``newton``, otherwise one
            per target.
        n_kernels: the number of kernels of each candidate row.
        n_leading: the number of columns in addition to the candidates: the bias (reserved even if
            there is none) and basis functions.
        newton: True if each step of a fit is a pass for one matrix per linear predictor.
        n_classes: the number of classes; 0 for numbers.
        local_noise_rows: the number of rows to which a local noise variance is fitted; 0 if the
            noise is constant.
        measured: True if the kernel measures distances between rows, and local residuals can be
            learned from left-out errors.
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
    """Return ``bytes_of_residuals`` for one coordinate per feature."""
    return bytes_of_residuals(
        shape.n_features + shape.n_targets + RESIDUAL_COLUMNS, rows, neighbours
    )


def bytes_of_residuals(width: int, rows: int, neighbours: int) -> tuple[int, int]:
    """Return the bytes of local residual rows of ``width`` numbers each, and the bytes for making
    these rows."""
    k = min(neighbours, RESIDUAL_NEIGHBOURS)
    return FLOAT * rows * width, FLOAT * (2 * rows * width + RESIDUAL_TEACHERS * k * (k + width))


def trial_bytes(neighbours: int) -> int:
    """Return the bytes of a trial of local residuals: the covariances of its rows' neighbours, and
    their factors."""
    return 2 * FLOAT * JUDGES * neighbours**2


def residual_stage_bytes(
    shape: DataShape, rows: int, neighbours: int, *, in_memory: bool = True
) -> int:
    """Return the bytes of the stage that makes local residuals from ``rows`` left-out rows.

    Args:
        shape: the sizes of the data.
        rows: the number of left-out rows.
        neighbours: the number of neighbours from which an error is predicted.
        in_memory: True if the residuals of all rows, which are collected if not all were left out,
            are held in memory.
    """
    width = shape.n_features + shape.n_targets + RESIDUAL_COLUMNS
    k = min(neighbours, RESIDUAL_NEIGHBOURS)
    trial_neighbours = min(neighbours, RESIDUAL_TRIAL[1])
    tried = min(rows, RESIDUAL_TRIAL[0])
    teachers = min(rows, RESIDUAL_TEACHERS)
    judges = min(rows, JUDGES)
    left_out = rows * (3 * width + shape.n_features + LEFT_OUT_NUMBERS * shape.n_targets)
    near = teachers * (k + neighbours) * width
    searching = tried * trial_neighbours**2 * (shape.n_features + 6) // 2
    learning = max(teachers * trial_neighbours**2, judges * k**2)
    judging = judges * neighbours * (neighbours + 4 * width) // 2
    stage = FLOAT * (left_out + near + max(searching, learning, judging))
    if rows == shape.n_rows:
        return stage
    records = FLOAT * shape.n_rows * width
    if in_memory:
        return stage + 3 * records
    return stage + min(2 * records, SORTING) + min(2 * records, CELLS)


def comparison_bytes(shape: DataShape, rows: int, libraries: int, trees: int) -> int:
    """Return the bytes for boosted trees fitted to ``rows`` rows.

    Args:
        shape: the sizes of the data.
        rows: the number of rows.
        libraries: the bytes of the libraries that have yet to be loaded.
        trees: the number of trees that are kept.
    """
    numbers = 4 * (shape.n_features + 1) + 6 * shape.n_classes
    return (
        libraries + SCRATCH + TREE * trees + HISTOGRAM * shape.n_features + FLOAT * rows * numbers
    )


def judging_bytes(n_rows: int, libraries: int) -> int:
    """Return the bytes for comparing a kernel with rivals, and for continuing its search on as many
    rows.

    Args:
        n_rows: the number of rows of the data.
        libraries: the bytes of the libraries that have yet to be loaded.
    """
    return libraries + SCRATCH + PROCESS_MATRICES * FLOAT * min(n_rows, PROCESS_ROWS) ** 2


@dataclass(frozen=True)
class StepBytes:
    """Bytes during a pass (its threads and the driver together) and a dense fit, without the base
    memory."""

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
    """Evaluate the formulas in the module's docstring.

    Args:
        shape: the sizes of the data.
        kept: M, the number of columns kept so far, including the leading ones.
        candidates: P, the number of new columns.
        threads: the number of threads of a process.
        pool: the number of trial columns; Q is the larger of P and this number.
        held_out: True if each pass reads validation rows.
        elements: E, the number of elements of all Gram matrices that run in parallel.
        whole: True if no statistics are kept from an earlier round, so that M columns are new.
    """
    if whole:
        pool = pool and pool + kept
        candidates = kept + candidates
        kept = 0
    columns = kept + candidates
    square = FLOAT * columns**2
    C = shape.n_outputs
    node = _node_bytes(shape, kept, candidates, pool)
    busy = min(threads, shape.n_tiles)
    nodes = ceil(log2(shape.n_tiles)) + busy + 1
    squares = 3 * C if shape.newton else C + 3
    passing = busy * (_task_bytes(shape, kept + max(candidates, pool)) + 2 * node)
    passing += nodes * node + squares * square
    solving = (12 * C if shape.newton else 4 * C + 6) * square
    if noise_rows := shape.local_noise_rows:
        noise = FLOAT * noise_rows * (shape.n_features + 4 * NOISE_CENTRES) + (C + 3) * square
        solving = max(solving, noise)
    shared = elements * _batch_element(shape, threads)
    if held_out:
        shared += 2 * C * square
    if not shape.newton:
        shared += 8 * FLOAT * shape.n_classes * columns
    return StepBytes(passing + shared, solving + shared)


def _node_bytes(shape: DataShape, kept: int, candidates: int, pool: int) -> int:
    """Return the bytes of a node of the summation tree.

    Args:
        shape: the sizes of the data.
        kept: the number of columns kept so far.
        candidates: the number of new columns.
        pool: the number of trial columns.
    """
    node = FLOAT * max((kept + candidates) * candidates, kept * pool)
    if shape.newton:
        return shape.n_outputs * node
    return node + FLOAT * shape.n_classes * candidates


def _task_bytes(shape: DataShape, columns: int) -> int:
    """Return the bytes of the tile and the panels of a task that evaluates ``columns`` columns."""
    rows = min(shape.tile_rows, shape.n_rows)
    width = columns + shape.n_features + shape.n_classes + 2
    tile = 3 * FLOAT * rows * (shape.n_features + shape.n_targets + 1)
    return tile + 2 * FLOAT * min(PANEL_ROWS, rows) * width


def _batch_element(shape: DataShape, threads: int) -> int:
    return FLOAT * shape.n_outputs * (4 * threads + ceil(log2(max(shape.n_tiles, 2))) + 9)


def batch_elements(
    shape: DataShape, candidates: int, threads: int, spare: int, fits: int = BATCH
) -> int:
    """Compute E for ``spare`` bytes: at least one fit of ``candidates`` columns, at most ``BATCH``
    or ``fits`` fits.

    Args:
        shape: the sizes of the data.
        candidates: the number of candidates of a fit.
        threads: the number of threads of a process.
        spare: the bytes for the fits in parallel.
        fits: the number of fits.
    """
    of_fit = (candidates + shape.n_leading) ** 2
    return min(max(spare // _batch_element(shape, threads), of_fit), min(BATCH, fits) * of_fit)


def kept_bytes(
    shape: DataShape, columns: int, threads: int, budget: int, *, pool: int = 0, **options: Any
) -> int:
    """Compute the bytes of ``budget`` that a fit of ``columns`` columns leaves for kept kernel
    blocks.

    Args:
        shape: the sizes of the data.
        columns: the number of columns of the fit.
        threads: the number of threads of a process.
        budget: the bytes available to the fit.
        pool: the number of trial columns.
        options: further arguments of ``step_bytes``.
    """
    steps = (
        step_bytes(shape, 0, columns, threads, **options),
        step_bytes(shape, columns, 0, threads, pool=pool, **options),
    )
    peak = max(step.peak for step in steps)
    return max(budget - peak - threads * FLOAT * min(PANEL_ROWS, shape.tile_rows) * columns, 0)


def sample_bytes(shape: DataShape, rows: int) -> int:
    """Compute the bytes of up to ``rows`` rows in memory: inputs, targets and weights."""
    return FLOAT * min(rows, shape.n_rows) * (shape.n_features + shape.n_targets + 1)


def max_columns_within(
    shape: DataShape, candidates: int, threads: int, budget: int, **options: Any
) -> int:
    """Return the maximum number of columns, including ``candidates`` new ones, whose peak fits in
    ``budget`` bytes.

    Returns 0 if memory is too small for the candidates alone.

    Args:
        shape: the sizes of the data.
        candidates: the number of new columns.
        threads: the number of threads of a process.
        budget: the bytes available to the fit.
        options: further arguments of ``step_bytes``.

    >>> shape = DataShape(20_000_000, 16, 1, 8192)
    >>> most = max_columns_within(shape, 64, 2, 200 << 20)
    >>> step_bytes(shape, most - 64, 64, 2).peak <= 200 << 20
    True
    >>> step_bytes(shape, most - 63, 64, 2).peak <= 200 << 20
    False
    """
    kept_columns = range(shape.n_leading, 1 << 40)
    fitting = bisect_right(
        kept_columns,
        budget,
        key=lambda M: step_bytes(shape, M, candidates, threads, **options).peak,
    )
    return shape.n_leading + candidates + fitting - 1 if fitting else 0
