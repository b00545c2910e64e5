"""Whether the errors of rows that follow each other in a table resemble each other.

The rows of a batch, a day or a machine often stand one after the other, and share an error that the
features do not explain. The products of the standardised errors z of successive rows i and i + 1
then have a positive mean. A fit with too few vectors has such products, too, if the features change
slowly along the table, as on a grid. So each product is compared with that of a *control* c, the
row nearest to row i in the features of those that are far from it in the table:

    ρ = mean(z_i z_{i+1} − z_i z_c) ÷ mean(z²),

over the rows whose control is at least as near to them in the features as their successor is. If
only the features matter, or if the rows are in random order, the expected value is 0 (a matched
comparison, as in Rosenbaum 1987). If a common error of successive rows has the fraction ρ of the
variance, errors of rows of new groups are 1/√(1 − ρ) × those of rows whose group's error is known.
"""

from dataclasses import dataclass

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.types import Float

NEAREST = 32
"""Number of nearest rows among which a control is looked for."""

WINDOWS = 20
"""Controls are at least this fraction of the table, 1/20, away."""

BLOCKS = 30
"""Number of blocks of successive rows whose sums give the standard error."""

LEAST_PAIRS = 50
"""Minimum number of rows with a control."""


@dataclass(frozen=True)
class Resemblance:
    """How much errors of successive rows resemble each other.

    Attributes:
        correlation: ρ
        standard_error: of ρ
    """

    correlation: float
    standard_error: float


def resemblance(points: Float, z: Float) -> Resemblance | None:
    """Return how much standardised errors z (n,) of successive rows resemble each other; None with
    too few controls.

    ``points`` (n, r) are the rows' features in the order of the table, in coordinates in which the
    fit measures distances.
    """
    from scipy.spatial import cKDTree  # importing it takes megabytes

    n = len(z)
    square = float(np.mean(z**2))
    if n <= LEAST_PAIRS or not square:
        return None
    rows = np.arange(n - 1)
    steps = np.sqrt(np.sum(np.diff(points, axis=0) ** 2, axis=1))
    distances, neighbours = cKDTree(points).query(points[:-1], k=min(NEAREST, n))
    is_far = np.abs(neighbours - rows[:, None]) > max(n // WINDOWS, 1)
    first = is_far.argmax(axis=1)
    matched = is_far.any(axis=1) & (distances[rows, first] <= steps)
    if np.count_nonzero(matched) < LEAST_PAIRS:
        return None
    controls = neighbours[rows, first]
    differences = (z[:-1] * (z[1:] - z[controls]) / square)[matched]
    blocks = (rows * BLOCKS // n)[matched]
    return Resemblance(float(differences.mean()), standard_error(differences, blocks))
