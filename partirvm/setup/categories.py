"""Kernels for data with categorical columns: a product of a kernel of the numbers and one of the categories.

A kernel that a name and gamma describe never sees codes as numbers. With numbers x and categories c it becomes

    k(x, z)·exp(−Σ_j gamma_j [c_j ≠ c'_j]),

so that gamma_j is what another level costs, as it is what a squared unit costs of a number. Where a rule needs a
column's variance, that of categories is v = (1 − 1/L)/2 with L levels: half the chance that two rows differ if all
levels were as frequent, as the variance is half the mean squared difference. Of two levels that is the variance 1/4 of
a code 0 or 1, so such a column counts alike as a number and as a category.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.kernels import Categorical, Kernel, OnColumns, Product, Several, Sum
from partirvm.kernels.widths import Widths
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def kinds(columns: Columns) -> tuple[Int, Int]:
    """Positions of the numbers and of the categories among the features."""
    coded = np.array([name in columns.categories for name in columns.features], dtype=np.bool_)
    return np.flatnonzero(~coded), np.flatnonzero(coded)


def variance_of(columns: Columns, j: int) -> float:
    """That of a categorical column."""
    return 0.5 * (1 - 1 / max(len(columns.categories[columns.features[j]]), 1))


def scale_gammas(columns: Columns, moments: Moments, standardize: bool) -> tuple[float, float]:
    """1/(d·var) of the numbers and of the categories, var being that of all of them together; 1 where it is 0."""
    numbers, codes = kinds(columns)
    inputs = moments.inputs
    variance, mean = inputs.variance[numbers], inputs.mean[numbers]
    pooled = [0.0, float(np.mean([variance_of(columns, j) for j in codes])) if len(codes) else 0.0]
    if len(numbers):
        varying = float(np.mean(~inputs.constant[numbers]))
        pooled[0] = varying if standardize else float(np.mean(variance) + np.var(mean))
    of_numbers, of_codes = (1.0 / (len(columns.features) * var) if var > 0 else 1.0 for var in pooled)
    return of_numbers, of_codes


def mixed_kernel(
    kernel: type[Kernel], columns: Columns, of_numbers: Sequence[float], of_codes: Sequence[float]
) -> Kernel:
    """The product of a kernel of the numbers with these gamma and of one of the categories with those.

    One gamma for all or one for each. Columns whose gamma are all 0 have no part in it.
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


def described(kernel: Kernel | Several) -> str:
    """What a kernel is made of, for people.

    >>> from partirvm.kernels import Gaussian
    >>> described(Product((OnColumns(Gaussian(0.5), (0, 1)), OnColumns(Categorical(1.0), (2,)))))
    'gaussian × categorical'
    """
    if isinstance(kernel, Several):
        return f"{len(kernel.kernels)} kernels ({', '.join(dict.fromkeys(map(described, kernel.kernels)))})"
    if isinstance(kernel, OnColumns):
        return described(kernel.kernel)
    if isinstance(kernel, Product | Sum):
        sign = " × " if isinstance(kernel, Product) else " + "
        inner = (f"({described(part)})" if isinstance(part, Sum) else described(part) for part in kernel.parts)
        return sign.join(inner)
    return kernel.name


def parameter_names(kernel: Kernel | Several, features: Sequence[str]) -> list[str]:
    """Names of a kernel's parameters for people: a gamma that belongs to one feature is called after it.

    >>> from partirvm.kernels import Gaussian
    >>> mixed = Product((OnColumns(Gaussian((0.5, 1.0)), (0, 1)), OnColumns(Categorical(1.0), (2,))))
    >>> parameter_names(mixed, ("miles", "hour", "zone"))
    ['gamma of miles', 'gamma of hour', 'gamma of zone']
    """
    names = _names(kernel, features)
    return names if len(set(names)) == len(names) else list(kernel.parameters)


def _names(kernel: Kernel | Several, features: Sequence[str]) -> list[str]:
    if isinstance(kernel, Several):
        weights = [f"weight ({k + 1})" for k in range(1, len(kernel.kernels))]
        own = [f"{name} ({k + 1})" for k, each in enumerate(kernel.kernels) for name in _names(each, features)]
        return weights + own
    if isinstance(kernel, OnColumns):
        return _names(kernel.kernel, [features[j] for j in kernel.columns])
    if isinstance(kernel, Product | Sum):
        own = list(kernel.parameters[: len(kernel.parameters) - sum(len(part.parameters) for part in kernel.parts)])
        for part in kernel.parts:
            own += [f"{described(part)} gamma" if name == "gamma" else name for name in _names(part, features)]
        return own
    if isinstance(kernel, Widths):
        each = [f"gamma of {name}" for name in features]
        several = dict(zip((f"gamma[{j}]" for j in range(len(features))), each, strict=True))
        called = {"gamma": each[0]} if len(features) == 1 else several
        return [called.get(name, name) for name in kernel.parameters]
    return list(kernel.parameters)
