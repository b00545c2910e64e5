"""Find features whose whole numbers look like codes of categories, for a note of the plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partirvm.core.levels import disorder
from partirvm.data import Source

Float = NDArray[np.float64]

LEVELS = (6, 1000)
"""Least and largest number of levels of a feature that is examined."""

ROWS_PER_LEVEL = 5
"""Minimum of the mean number of rows per level."""

UNORDERED = 0.5
"""Minimum of ``core.levels.disorder`` for codes: it is near 1 for levels in random order."""


def codes_among_numbers(source: Source) -> tuple[str, ...]:
    """Name the numeric features whose levels differ in the mean of the first target, but in no smooth order.

    The first tile is examined, if its rows are a random sample of all rows; otherwise the result is empty. Targets with
    more than two classes are not examined, because the mean of their codes has no meaning.
    """
    columns = source.columns
    if not (source.shuffled or source.n_tiles == 1) or len(columns.classes or ()) > 2:
        return ()
    tile = source.tile(0)
    numbers = [j for j, name in enumerate(columns.features) if name not in columns.categories]
    return tuple(columns.features[j] for j in numbers if looks_coded(tile.X[:, j], tile.t[:, 0]))


def looks_coded(x: Float, t: Float) -> bool:
    """Return whether x (n,) has few levels, all whole numbers, whose mean targets differ in no smooth order.

    >>> random = np.random.default_rng(0)
    >>> hour, noise = random.integers(24, size=4000).astype(float), random.normal(size=4000)
    >>> looks_coded(hour, np.sin(hour / 3) + noise), looks_coded(hour, random.normal(size=24)[hour.astype(int)] + noise)
    (False, True)
    """
    if (x != np.rint(x)).any():
        return False
    levels, codes = np.unique(x, return_inverse=True)
    few = LEVELS[0] <= len(levels) <= min(LEVELS[1], len(x) // ROWS_PER_LEVEL)
    return bool(few) and disorder(codes, t) > UNORDERED
