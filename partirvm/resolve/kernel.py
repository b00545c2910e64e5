"""Make a kernel from the options ``kernel`` (a name, a value or a function) and ``gamma``.

A family never treats the codes of categorical columns as numbers. For numeric features x and categorical features c
its kernel is

    k(x, z)·exp(−Σ_j gamma_j [c_j ≠ c'_j]),

where gamma_j is subtracted from the exponent if the two rows have different levels of the feature c_j. For a numeric
feature, gamma_j is multiplied by the squared difference instead.

Some rules need the variance of each column. The variance of a numeric column is half the mean squared difference of
two rows. The variance of a categorical column with L equally frequent levels is defined likewise, as half the
probability that two rows differ: v = (1 − 1/L)/2. For two levels, v = 1/4 is also the variance of a column with the
codes 0 and 1, so such a column has the same weight as a number and as a category.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.errors import UsageError
from partirvm.kernels import (
    ALIASES,
    NAMES,
    WITH_GAMMA,
    Categorical,
    Family,
    FunctionKernel,
    Gaussian,
    Kernel,
    NoKernel,
    OnColumns,
    Product,
    Several,
    kernel_from_spec,
)
from partirvm.options import Request
from partirvm.types import Columns

Int = NDArray[np.int64]

AUTO = "auto"
"""Name of the kernel whose family is chosen if gamma is learned; else it is the Gaussian kernel."""

BY_GAMMA: dict[str, type[Family]] = {**WITH_GAMMA, AUTO: Gaussian}
"""Families by name, as options name them."""

LEARN = ("learn", "learn-per-feature")
"""Values of gamma that request kernel learning."""

RULES = ("auto", "scale", *LEARN)
"""Values of gamma that are words."""

FARTHEST = 1e100
"""Largest absolute mean of an unscaled column that enters the pooled variance."""


def learns(parameters: Request) -> bool:
    """True if the request includes kernel learning."""
    return chooses(parameters) or (isinstance(parameters.gamma, str) and parameters.gamma in LEARN)


def chooses(parameters: Request) -> bool:
    """True if gamma is "auto" for a family given by name: the form of the kernel is then chosen too."""
    gamma, kernel = parameters.gamma, parameters.kernel
    return isinstance(gamma, str) and gamma == "auto" and isinstance(kernel, str) and kernel in BY_GAMMA


def chooses_family(parameters: Request) -> bool:
    """True if the kernel is "auto" and its widths are learned: the family of the kernel is then chosen too."""
    return isinstance(parameters.kernel, str) and parameters.kernel == AUTO and learns(parameters)


def metric_of(parameters: Request) -> str:
    """Return the metric of kernel learning; "auto" is "widths" unless gamma is "auto" too."""
    return "widths" if parameters.metric == "auto" and not chooses(parameters) else parameters.metric


def checked_kernel(given: Any) -> Any:
    """Check the type of the option ``kernel``, and normalise its value.

    None becomes "none" and "rbf" becomes "gaussian"; "auto", other names and ``module:function`` stay unchanged. The
    spec of a kernel and a callable become a kernel. A list becomes a tuple of these. Raises ``UsageError`` for any
    other value. No module is imported.
    """
    if given is None or (isinstance(given, str) and given == NoKernel.name):
        return NoKernel.name
    if isinstance(given, list | tuple) and given:
        if None in given or NoKernel.name in given:
            raise UsageError(f"kernel is {given!r}: None cannot be part of a list; for no kernel give kernel=None")
        return tuple(map(checked_kernel, given))
    if isinstance(given, str) and ":" in given:
        return FunctionKernel(given).function
    if isinstance(given, str) and (given == AUTO or ALIASES.get(given, given) in NAMES):
        return ALIASES.get(given, given)
    if isinstance(given, dict):
        return kernel_from_spec(given)
    if isinstance(given, Kernel):
        return given.with_numbers() if isinstance(given, Family) else given
    if isinstance(given, str | type) or not callable(given):
        raise UsageError(
            f"kernel is {given!r}; known: {AUTO}, {', '.join(NAMES)}, the path 'module:function' of a function, a "
            "value such as partirvm.kernels.Gaussian(0.5), or a list of these; None for no kernel"
        )
    return FunctionKernel(given)


def portable_kernel(kernel: Any) -> Any:
    """Convert a checked kernel to plain JSON for a job, a cluster or a file.

    Raises ``UsageError`` for a callable or an unregistered kernel, because other processes cannot import these.
    """
    if isinstance(kernel, str | tuple):
        return kernel if isinstance(kernel, str) else list(map(portable_kernel, kernel))
    spec = kernel.spec()
    kernel_from_spec(spec)
    return spec


def resolve_kernel(parameters: Request, moments: Moments, columns: Columns) -> Kernel:
    """Make the kernel with numeric parameters; for kernel learning, make the initial kernel.

    A family compares categorical columns for equality. A list of kernels, or several ``gamma_multiples``, give a
    ``Several``. Raises ``UsageError`` if gamma is invalid or the kernel has no gamma, if the number of features does
    not match, and if a function cannot be imported.
    """
    given, factors = checked_kernel(parameters.kernel), parameters.gamma_multiples
    several = given if isinstance(given, tuple) else (given,)
    named = [isinstance(each, str) and each in BY_GAMMA for each in several]
    # A gamma that is not learned applies only to the families of a list that are given by name.
    others = parameters if learns(parameters) or not any(named) else replace(parameters, gamma="auto")
    found = tuple(
        _resolved(each, parameters if own else others, moments, columns)
        for each, own in zip(several, named, strict=True)
    )
    kernel = found[0] if len(found) == 1 else Several(found)
    if tuple(factors) == (1.0,):
        return kernel
    if isinstance(kernel, NoKernel):
        raise UsageError(f"gamma_multiples is {list(factors)}, but there is no kernel: leave gamma_multiples out")
    if isinstance(kernel, Several):
        raise UsageError(
            "gamma_multiples cannot be combined with a list of kernels: add a kernel to the list for each multiple"
        )
    if not any("gamma" in name for name in kernel.parameters):
        raise UsageError(
            f"gamma_multiples is {list(factors)}, but the kernel {kernel.name!r} has no gamma: omit gamma_multiples"
        )
    made = tuple(kernel.rescaled(factor) for factor in factors)
    return made[0] if len(made) == 1 else Several(made)


def _resolved(given: Any, parameters: Request, moments: Moments, columns: Columns) -> Any:
    gamma, d = parameters.gamma, len(moments.inputs.mean)
    if isinstance(given, str) and given in BY_GAMMA:
        scales = None
        if isinstance(gamma, str) and gamma in RULES:
            scales = scale_gammas(columns, moments, parameters.standardize)
        return _separated(BY_GAMMA[given], _gamma(parameters, moments), columns, scales)
    automatic = isinstance(gamma, str) and gamma == "auto"
    if given == NoKernel.name:
        if not automatic:
            raise UsageError(f"gamma is {gamma!r}, but there is no kernel: leave gamma out")
        return NoKernel()
    if not learns(parameters) and not automatic:
        why = f"the kernel {given!r} has none" if isinstance(given, str) else "the kernel has its own parameters"
        raise UsageError(f"gamma is {gamma!r}, but {why}: leave gamma out")
    if isinstance(given, str):
        given = NAMES[given]() if given in NAMES else FunctionKernel(given)
    for kernel in given.kernels if isinstance(given, Several) else (given,):
        kernel.prepare(np.zeros((0, d)))
    if isinstance(given, Family) and not isinstance(given, Categorical):
        family = given
        given = _separated(lambda own: replace(family, gamma=own), given.gamma, columns)
    return _learnable(given, gamma, d) if learns(parameters) else given


def _separated(
    make: Callable[[tuple[float, ...]], Kernel],
    gammas: Sequence[float],
    columns: Columns,
    scales: tuple[float, float] | None = None,
) -> Kernel:
    """Multiply a kernel of the numeric features by a categorical kernel of the others, if there are any.

    ``gammas`` is one value, or one per feature; ``scales`` replace the values of each kind. A kind of features is left
    out if all of its gamma are 0.
    """
    positions = kinds(columns)
    if make is Categorical or not len(positions[1]):
        return make(tuple(gammas))
    parts = []
    for k, (of, mine) in enumerate(zip((make, Categorical), positions, strict=True)):
        own = tuple(gammas) if len(gammas) == 1 else tuple(gammas[j] for j in mine)
        own = own if scales is None else (scales[k],) * len(own)
        if len(mine) and any(own):
            parts.append(OnColumns(of(own), tuple(mine.tolist())))
    return parts[0] if len(parts) == 1 else Product(tuple(parts))


def codes_as_numbers(kernel: Any, columns: Columns) -> str:
    """List the categorical columns whose codes a named kernel would treat as numbers; an empty text if none."""
    if not isinstance(kernel, str) or kernel in BY_GAMMA or ":" in kernel:
        return ""
    return coded_features(columns)


def coded_features(columns: Columns) -> str:
    """List the categorical features by name."""
    return ", ".join(columns.features[j] for j in kinds(columns)[1])


def kinds(columns: Columns) -> tuple[Int, Int]:
    """Return the positions of the numeric features and the positions of the categorical features."""
    coded = np.array([name in columns.categories for name in columns.features], dtype=np.bool_)
    return np.flatnonzero(~coded), np.flatnonzero(coded)


def variance_of(columns: Columns, j: int) -> float:
    """Compute the variance v = (1 − 1/L)/2 of the categorical column j with L levels."""
    return 0.5 * (1 - 1 / max(len(columns.categories[columns.features[j]]), 1))


def _learnable(kernel: Any, gamma: str, d: int) -> Any:
    """Return the initial kernel of learning; "learn-per-feature" gives its gamma to each feature."""
    kernel.spec()
    if isinstance(kernel, Several):
        return replace(kernel, kernels=tuple(_learnable(each, gamma, d) for each in kernel.kernels))
    if not np.isfinite(kernel.logs).any():
        raise UsageError(
            f"gamma is {gamma!r}, but the kernel {kernel.name!r} has no parameters that can be learned: "
            "leave gamma out, or choose another kernel"
        )
    return kernel.per_feature(d) if gamma == "learn-per-feature" else kernel


def _gamma(parameters: Request, moments: Moments) -> list[float]:
    """Convert gamma to numbers; ``"scale"``, which is also the start of learning, is 1/(d·var) of the scaled inputs."""
    gamma, d = parameters.gamma, len(moments.inputs.mean)
    if isinstance(gamma, str):
        try:
            gamma = [float(part) for part in gamma.split(",")]
        except ValueError:
            if gamma not in RULES:
                known = f"auto, scale, {', '.join(LEARN)}, a positive number, one number per feature"
                raise UsageError(f"gamma is {gamma!r}; known: {known}") from None
            scale = _scale(d, _pooled_variance(moments, np.arange(d), parameters.standardize))
            gamma = [scale] * (d if gamma == "learn-per-feature" else 1)
    values = [gamma] if isinstance(gamma, numbers.Real) else list(gamma) if np.ndim(gamma) == 1 else None
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        rules = ", ".join(map(repr, RULES))
        raise UsageError(f"gamma is {gamma!r}: it must be {rules}, a positive number or one number per feature")
    if len(values) not in (1, d):
        raise UsageError(
            f"gamma has {len(values)} values, but the data have {d} features: give one value, or one per feature"
        )
    return [float(value) for value in values]


def scale_gammas(columns: Columns, moments: Moments, standardize: bool) -> tuple[float, float]:
    """Compute gamma = 1/(d·var) for the numeric features and for the categorical features.

    ``var`` is the pooled variance of the numeric features, or the mean variance of the categorical features.
    """
    (number, codes), d = kinds(columns), len(columns.features)
    of_codes = float(np.mean([variance_of(columns, j) for j in codes])) if len(codes) else 0.0
    of_numbers = _pooled_variance(moments, number, standardize) if len(number) else 0.0
    return _scale(d, of_numbers), _scale(d, of_codes)


def _scale(n_features: int, variance: float) -> float:
    return 1.0 / (n_features * variance) if variance > 0 else 1.0


def _pooled_variance(moments: Moments, columns: Int, standardize: bool) -> float:
    """Compute the variance of all scaled values of numeric columns together, as if they were one column.

    A column beyond ``FARTHEST`` counts as one around zero: its square may overflow, and rounding makes it constant.
    """
    inputs = moments.inputs
    if standardize:
        return float(np.mean(~inputs.constant[columns]))
    mean = inputs.mean[columns]
    return float(np.mean(inputs.variance[columns]) + np.var(np.where(np.abs(mean) < FARTHEST, mean, 0.0)))
