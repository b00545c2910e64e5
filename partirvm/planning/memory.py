"""Memory of each step of a fit in bytes, as closed formulas.

Symbols: f = 8 bytes; M kept columns, P candidates and Q ≥ P columns on trial; tiles of R rows with
d features and T targets; panels of B = min(PANEL_ROWS, R) rows. ``threads`` is at most the number
of tiles. In addition to the base memory of the process, a fit takes:

    tile      = 3 f R (d + T + 1)                      read, decoded, scaled panel     = 2 f B (M +
    Q + d + K + 2)              design blocks, their weighted copies; indicators of K classes node
    = f (max((M + P) P, M Q) + K P)          statistic of a Gram pass, or of the pool pass; K
    classes block     = 2 node                                 sum so far, and the panel's product,
    added in place waiting   = (log₂ tiles + threads + 1) node        nodes of the sum that wait for
    their sibling pass      = threads (tile + panel + block) + waiting + (T + 3) f (M + P)² solve
    = (4 T + 6) f (M + P)²                   statistics, active ones, H, factor, inverse, model
    noise     = f S (d + 256) + (T + 3) f (M + P)²     fit of a local noise variance to S rows, 64
    centres; a solve may
                                                       need more
    best      = 2 T f (M + P)²                         only with held-out rows: the best round is
    kept batch     = f E (4 threads + log₂ tiles + 9)       parallel fits whose squared column
    counts sum to E residuals = f N (3 w + d + 20 T)                   left-out rows of local
    residuals, their errors and the changes of
              + f L (k + K) w                          these; w = d + T + 3. L rows teach the kernel
              with k neighbours + f max(I i² (d/2 + 3), L i², J k²,      of K found. Distances of
              neighbours, while I rows search
                      J K (K/2 + 2 w))                 the metric with i, L and J rows teach, and J
                      rows judge
    collected = 3 f N w, or f (2 N w + …)              residuals of all N rows, if not all were left
                                                       out: in memory, or sorted in files, of which
                                                       cells are kept
    compared  = libraries + trees                      boosted trees fitted to N rows after the fit,
              with histograms of + f N (4 (d + 1) + 6 K) + h d            each feature and scores of
              K classes
    kept      = limit − all above − f B C threads      maximum for kept kernel blocks of C columns,
                                                       with P = C and M = 0, or with Q columns on
                                                       trial if these take more

Class indicators share one posterior (T = 1) and take 8 f K (M + P) more. A fit by Newton steps
(``newton``) has C linear predictors: node is multiplied by C, and best has C in place of T. A pass
then takes 3 C f (M + P)², and the solve 12 C f (M + P)².

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

TREE, HISTOGRAM = 16 << 10, 32 * 256 * 20
"""Maximum bytes of a boosted tree, and of a feature's histograms: of 32 nodes, with 256 bins of 20
bytes."""

SCRATCH = 16 << 20
"""Bytes of scikit-learn's scratch arrays and objects, in addition to those that
``comparison_bytes`` counts."""

PROCESS_ROWS, PROCESS_MATRICES = 1600, 6
"""Maximum number of rows of an exact process that judges a kernel, and the number of square
matrices that it holds."""

LEFT_OUT_NUMBERS = 20
"""Numbers of each left-out row and target: errors, variances and targets (twice each), and the
changes of the error without each of 10 folds."""

SORTING, CELLS = 128 << 20, 256 << 20
"""Maximum bytes for sorting the records of local residuals in files, and for keeping their cells in
memory."""

KEPT_BEFORE, KEPT_AFTER = 32 << 20, 80 << 20
"""Maximum bytes of freed small blocks that a process keeps before and after the stage of local
residuals."""

JUDGES = 1024
"""Maximum number of rows that judge local residuals with all neighbours."""

RESIDUAL_SHARE = 10
"""The local residual rows take at most the memory limit divided by this number."""

BATCH = 64
"""Maximum number of fits of P candidates that run in parallel."""


@dataclass(frozen=True)
class DataShape:
    """Sizes of the data and the model, as used in the formulas.

    ``n_outputs`` is the number of posteriors: one per linear predictor with ``newton``, otherwise
        one per target.
    ``n_leading`` counts the columns besides the candidates: the bias (reserved even if there is
        none) and basis
    functions. ``local_noise_rows`` is the number of rows to which a local noise variance is fitted;
    0 if constant. ``measured`` is true if the kernel measures distances, in which rows are near.
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
    return bytes_of_residuals(
        shape.n_features + shape.n_targets + RESIDUAL_COLUMNS, rows, neighbours
    )


def bytes_of_residuals(width: int, rows: int, neighbours: int) -> tuple[int, int]:
    """Return the bytes of local residual rows of ``width`` numbers each, and those for making
    them."""
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

    shape : the data and the model
    rows : the number of left-out rows
    neighbours : the number of neighbours from which an error is predicted
    in_memory : True if the residuals of all rows, which are collected if not all were left out,
        stay in memory
    """
    width = shape.n_features + shape.n_targets + RESIDUAL_COLUMNS
    k = min(neighbours, RESIDUAL_NEIGHBOURS)
    few = min(neighbours, RESIDUAL_TRIAL[1])
    tried, teachers, judges = (
        min(rows, most) for most in (RESIDUAL_TRIAL[0], RESIDUAL_TEACHERS, JUDGES)
    )
    left_out = rows * (3 * width + shape.n_features + LEFT_OUT_NUMBERS * shape.n_targets)
    near = teachers * (k + neighbours) * width
    searching = tried * few**2 * (shape.n_features + 6) // 2
    learning = max(teachers * few**2, judges * k**2)
    judging = judges * neighbours * (neighbours + 4 * width) // 2
    found = FLOAT * (left_out + near + max(searching, learning, judging))
    if rows == shape.n_rows:
        return found
    whole = FLOAT * shape.n_rows * width
    return found + (3 * whole if in_memory else min(2 * whole, SORTING) + min(2 * whole, CELLS))


def comparison_bytes(shape: DataShape, rows: int, libraries: int, trees: int) -> int:
    """Return the bytes for boosted trees fitted to some rows.

    shape : the data and the model
    rows : the number of rows
    libraries : bytes of the libraries that have yet to be loaded
    trees : the number of trees that are kept
    """
    numbers = 4 * (shape.n_features + 1) + 6 * shape.n_classes
    return (
        libraries + SCRATCH + TREE * trees + HISTOGRAM * shape.n_features + FLOAT * rows * numbers
    )


def judging_bytes(n_rows: int, libraries: int) -> int:
    """Return the bytes for judging a kernel beside rivals, and for continuing its search on as many
    rows.

    n_rows : the number of rows of the data
    libraries : bytes of the libraries that have yet to be loaded
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
    """Evaluate the formulas above: M = ``kept``, leading included, P = ``candidates``, Q = max(P,
    ``pool``), E."""
    if whole:
        pool = pool and pool + kept
        candidates = kept + candidates
        kept = 0
    columns = kept + candidates
    C = shape.n_outputs
    busy = min(threads, shape.n_tiles)
    square = FLOAT * columns**2
    held = C + 3
    dense = 4 * C + 6
    node = FLOAT * max(columns * candidates, kept * pool)
    if shape.newton:
        node = C * node
        held = 3 * C
        dense = 12 * C
    else:
        node += FLOAT * shape.n_classes * candidates
    rows = min(shape.tile_rows, shape.n_rows)
    width = kept + max(candidates, pool) + shape.n_features + shape.n_classes + 2
    tile = 3 * FLOAT * rows * (shape.n_features + shape.n_targets + 1)
    passing = busy * (tile + 2 * FLOAT * min(PANEL_ROWS, rows) * width + 2 * node)
    passing += (ceil(log2(shape.n_tiles)) + busy + 1) * node + held * square
    solving = dense * square
    if S := shape.local_noise_rows:
        solving = max(
            solving, FLOAT * S * (shape.n_features + 4 * NOISE_CENTRES) + (C + 3) * square
        )
    beside = (2 * C * square if held_out else 0) + elements * _batch_element(shape, threads)
    beside += 0 if shape.newton else 8 * FLOAT * shape.n_classes * columns
    return StepBytes(passing + beside, solving + beside)


def _batch_element(shape: DataShape, threads: int) -> int:
    return FLOAT * shape.n_outputs * (4 * threads + ceil(log2(max(shape.n_tiles, 2))) + 9)


def batch_elements(
    shape: DataShape, candidates: int, threads: int, spare: int, fits: int = BATCH
) -> int:
    """Compute E for ``spare`` bytes: at least one fit of ``candidates`` columns, at most ``BATCH``
    or ``fits``."""
    one = (candidates + shape.n_leading) ** 2
    return min(max(spare // _batch_element(shape, threads), one), min(BATCH, fits) * one)


def kept_bytes(
    shape: DataShape, columns: int, threads: int, budget: int, *, pool: int = 0, **how: Any
) -> int:
    """Compute the bytes of ``budget`` that a fit of ``columns`` columns leaves for kept kernel
    blocks."""
    steps = (
        step_bytes(shape, 0, columns, threads, **how),
        step_bytes(shape, columns, 0, threads, pool=pool, **how),
    )
    peak = max(step.peak for step in steps)
    return max(budget - peak - threads * FLOAT * min(PANEL_ROWS, shape.tile_rows) * columns, 0)


def sample_bytes(shape: DataShape, rows: int) -> int:
    """Compute the bytes of up to ``rows`` rows in memory: inputs, targets and weights."""
    return FLOAT * min(rows, shape.n_rows) * (shape.n_features + shape.n_targets + 1)


def max_columns_within(
    shape: DataShape, candidates: int, threads: int, budget: int, **how: Any
) -> int:
    """Return the maximum number of columns, including ``candidates`` new ones, whose peak fits in
    ``budget`` bytes.

    Returns 0 if memory is too small for the candidates alone. ``how`` holds further ``step_bytes``
    arguments.

    >>> shape = DataShape(20_000_000, 16, 1, 8192)
    >>> most = max_columns_within(shape, 64, 2, 200 << 20)
    >>> step_bytes(shape, most - 64, 64, 2).peak <= 200 << 20
    True
    >>> step_bytes(shape, most - 63, 64, 2).peak <= 200 << 20
    False
    """
    kept = range(shape.n_leading, 1 << 40)
    fitting = bisect_right(
        kept, budget, key=lambda M: step_bytes(shape, M, candidates, threads, **how).peak
    )
    return shape.n_leading + candidates + fitting - 1 if fitting else 0
