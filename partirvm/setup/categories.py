"""Kernels for data with categorical columns: the product of a numeric kernel and a categorical kernel.

A kernel that is given by name and gamma never treats category codes as numbers. For numeric features x and
categorical features c the kernel is

    k(x, z)·exp(−Σ_j gamma_j [c_j ≠ c'_j]),

where gamma_j is subtracted from the exponent if the two rows have different levels of the feature c_j. For a numeric
feature, gamma_j is multiplied by the squared difference instead.

Some rules need the variance of each column. The variance of a numeric column is half the mean squared difference of
two rows. The variance of a categorical column with L equally frequent levels is defined likewise, as half the
probability that two rows differ: v = (1 − 1/L)/2. For two levels, v = 1/4 is also the variance of a column with the
codes 0 and 1, so such a column has the same weight as a number and as a category.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.kernels import Categorical, Kernel, OnColumns, Product
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FARTHEST = 1e100
"""Largest absolute mean of an unscaled column that enters the pooled variance."""


def kinds(columns: Columns) -> tuple[Int, Int]:
    """Return the positions of the numeric features and the positions of the categorical features."""
    coded = np.array([name in columns.categories for name in columns.features], dtype=np.bool_)
    return np.flatnonzero(~coded), np.flatnonzero(coded)


def variance_of(columns: Columns, j: int) -> float:
    """Compute the variance v = (1 − 1/L)/2 of the categorical column j with L levels."""
    return 0.5 * (1 - 1 / max(len(columns.categories[columns.features[j]]), 1))


def pooled_variance(moments: Moments, columns: Int, standardize: bool) -> float:
    """Compute the variance of all scaled values of numeric columns together, as if they were one column.

    A column beyond ``FARTHEST`` counts as one around zero: its square may overflow, and rounding makes it constant.
    """
    inputs = moments.inputs
    if standardize:
        return float(np.mean(~inputs.constant[columns]))
    mean = inputs.mean[columns]
    return float(np.mean(inputs.variance[columns]) + np.var(np.where(np.abs(mean) < FARTHEST, mean, 0.0)))


def scale_gammas(columns: Columns, moments: Moments, standardize: bool) -> tuple[float, float]:
    """Compute gamma = 1/(d·var) for the numeric features and for the categorical features.

    ``var`` is the pooled variance of the numeric features, or the mean variance of the categorical features. gamma
    is 1 if ``var`` is 0.
    """
    numbers, codes = kinds(columns)
    pooled = [0.0, float(np.mean([variance_of(columns, j) for j in codes])) if len(codes) else 0.0]
    if len(numbers):
        pooled[0] = pooled_variance(moments, numbers, standardize)
    of_numbers, of_codes = (1.0 / (len(columns.features) * var) if var > 0 else 1.0 for var in pooled)
    return of_numbers, of_codes


def mixed_kernel(
    kernel: type[Kernel], columns: Columns, of_numbers: Sequence[float], of_codes: Sequence[float]
) -> Kernel:
    """Multiply a kernel of the numeric features by a kernel of the categorical features.

    ``of_numbers`` and ``of_codes`` are the gamma of these kernels: one value, or one value per feature. A factor is
    left out if all of its gamma are 0.
    """
    numbers, codes = kinds(columns)
    made: tuple[tuple[type[Kernel], Int, Sequence[float]], ...] = (
        (kernel, numbers, of_numbers),
        (Categorical, codes, of_codes),
    )
    parts = tuple(
        OnColumns(of.from_spec({"gamma": list(gamma)}), tuple(mine.tolist()))
        for of, mine, gamma in made
        if len(mine) and any(gamma)
    )
    return parts[0] if len(parts) == 1 else Product(parts)
