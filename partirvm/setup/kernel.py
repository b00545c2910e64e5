"""Make a kernel from the options ``kernel`` (a name, a value or a function) and ``gamma``."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.errors import UsageError
from partirvm.kernels import (
    ALIASES,
    NAMES,
    WITH_GAMMA,
    Categorical,
    Gaussian,
    Kernel,
    LocalFunction,
    NamedFunction,
    NoKernel,
    Several,
    kernel_from_spec,
)
from partirvm.kernels.several import multiples
from partirvm.options import Request
from partirvm.options.values import KernelFamily
from partirvm.setup.categories import kinds, mixed_kernel, pooled_variance, scale_gammas
from partirvm.types import Columns

AUTO = "auto"
"""Name of the kernel whose family is chosen if gamma is learned; else it is the Gaussian kernel."""

BY_GAMMA: dict[str, type[Kernel]] = {**WITH_GAMMA, AUTO: Gaussian}
"""Kernels that are fully specified by a name and gamma, as options name them."""

LEARN = ("learn", "learn-per-feature")
"""Values of gamma that request kernel learning."""

RULES = ("auto", "scale", *LEARN)
"""Values of gamma that are words."""


def learns(parameters: Request) -> bool:
    """True if the request includes kernel learning."""
    return chooses(parameters) or (isinstance(parameters.gamma, str) and parameters.gamma in LEARN)


def chooses(parameters: Request) -> bool:
    """True if gamma is "auto" for a kernel with gamma given by name: the form of the kernel is then chosen too."""
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

    None becomes "none" and "rbf" becomes "gaussian"; "auto", other names and ``module:function`` stay unchanged. A
    kernel value, the spec of a kernel and a callable become a kernel. A list becomes a tuple of these. Raises
    ``UsageError`` for any other value. No module is imported.
    """
    if given is None or (isinstance(given, str) and given == NoKernel.name):
        return NoKernel.name
    if isinstance(given, list | tuple) and given:
        if None in given or NoKernel.name in given:
            raise UsageError(f"kernel is {given!r}: None cannot be part of a list; for no kernel give kernel=None")
        return tuple(map(checked_kernel, given))
    if isinstance(given, str) and ":" in given:
        return NamedFunction(given).function
    if isinstance(given, str) and (given == AUTO or ALIASES.get(given, given) in NAMES):
        return ALIASES.get(given, given)
    if isinstance(given, dict):
        return kernel_from_spec(given)
    if isinstance(given, KernelFamily):
        raise UsageError(
            f"kernel is a list with {given!r}, whose gamma is not a number: in a list give kernels with numbers, "
            f"such as partirvm.kernels.{type(given).__name__}(0.5)"
        )
    value = isinstance(given, Kernel | Several)
    if isinstance(given, type) or not (value or callable(given)):
        raise UsageError(
            f"kernel is {given!r}; known: {AUTO}, {', '.join(NAMES)}, the path 'module:function' of a function, a "
            "value such as partirvm.kernels.Gaussian(0.5), or a list of these; None for no kernel"
        )
    return given if value else LocalFunction(given)


def portable_kernel(kernel: Any) -> Any:
    """Convert a checked kernel to plain JSON for a job, a cluster or a file.

    Raises ``UsageError`` for a callable or an unregistered kernel, because other processes cannot import these.
    """
    if isinstance(kernel, tuple):
        return list(map(portable_kernel, kernel))
    if isinstance(kernel, str):
        return kernel
    spec = kernel.spec()
    kernel_from_spec(spec)
    return spec


def resolve_kernel(parameters: Request, moments: Moments, columns: Columns) -> Kernel | Several:
    """Make the kernel with numeric parameters; for kernel learning, make the initial kernel.

    A kernel given by name and gamma compares categorical columns for equality (``setup.categories``). A list of
    kernels, or several ``gamma_multiples``, give a ``Several``. Raises ``UsageError`` if gamma is invalid or the kernel
    has no gamma, if the number of features does not match, and if a function cannot be imported.
    """
    given, factors = checked_kernel(parameters.kernel), parameters.gamma_multiples
    if isinstance(given, tuple):
        kernel = _listed(given, parameters, moments, columns)
    else:
        kernel = _resolved(given, parameters, moments, columns)
    if tuple(factors) == (1.0,):
        return kernel
    if isinstance(kernel, NoKernel):
        raise UsageError(f"gamma_multiples is {list(factors)}, but there is no kernel: leave gamma_multiples out")
    if isinstance(kernel, Several):
        raise UsageError(
            "gamma_multiples cannot be combined with a list of kernels: add a kernel to the list for each multiple"
        )
    return multiples(kernel, factors)


def _listed(given: tuple[Any, ...], parameters: Request, moments: Moments, columns: Columns) -> Kernel | Several:
    """Make the kernels of a list; a gamma that is not learned applies only to kernels given by name and gamma."""
    described = [isinstance(each, str) and each in BY_GAMMA for each in given]
    others = parameters if learns(parameters) or not any(described) else replace(parameters, gamma="auto")
    found = tuple(
        _resolved(each, parameters if own else others, moments, columns)
        for each, own in zip(given, described, strict=True)
    )
    return found[0] if len(found) == 1 else Several(found)


def _resolved(given: Any, parameters: Request, moments: Moments, columns: Columns) -> Any:
    if isinstance(given, str) and given in BY_GAMMA:
        gammas = _gamma(parameters, moments)
        if separates_categories(given, columns):
            return _mixed(BY_GAMMA[given], gammas, parameters, moments, columns)
        return BY_GAMMA[given].from_spec({"gamma": gammas})
    gamma = parameters.gamma
    if given == NoKernel.name:
        if not (isinstance(gamma, str) and gamma == "auto"):
            raise UsageError(f"gamma is {gamma!r}, but there is no kernel: leave gamma out")
        return NoKernel()
    if not learns(parameters) and not (isinstance(gamma, str) and gamma == "auto"):
        why = f"the kernel {given!r} has none" if isinstance(given, str) else "the kernel has its own parameters"
        raise UsageError(f"gamma is {gamma!r}, but {why}: leave gamma out")
    if isinstance(given, str):
        given = NAMES[given].from_spec({}) if given in NAMES else NamedFunction(given)
    d = len(moments.inputs.mean)
    for kernel in given.kernels if isinstance(given, Several) else (given,):
        kernel.prepare(np.zeros((0, d)))
    return _learnable(given, gamma, d) if learns(parameters) else given


def separates_categories(kernel: Any, columns: Columns) -> bool:
    """True if the option ``kernel`` treats categorical columns separately; "categorical" compares all columns."""
    described = isinstance(kernel, str) and kernel in BY_GAMMA and kernel != Categorical.name
    return described and bool(len(kinds(columns)[1]))


def codes_as_numbers(kernel: Any, columns: Columns) -> str:
    """List the categorical columns whose codes a named kernel would treat as numbers; an empty text if none."""
    if not isinstance(kernel, str) or kernel in BY_GAMMA or ":" in kernel:
        return ""
    return ", ".join(columns.features[j] for j in kinds(columns)[1])


def _mixed(
    kernel: type[Kernel], gammas: list[float], parameters: Request, moments: Moments, columns: Columns
) -> Kernel:
    """Make the kernel of numeric and categorical features; the rules for gamma use one scale for each of the two."""
    shared, kind = len(gammas) == 1, kinds(columns)
    each = [gammas if shared else [gammas[j] for j in positions] for positions in kind]
    if isinstance(parameters.gamma, str) and parameters.gamma in RULES:
        scales = scale_gammas(columns, moments, parameters.standardize)
        each = [[scale] * len(gamma) for scale, gamma in zip(scales, each, strict=True)]
    return mixed_kernel(kernel, columns, *each)


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
            scale = scale_gamma(moments, parameters.standardize)
            gamma = [scale] * d if gamma == "learn-per-feature" else scale
    values = [gamma] if isinstance(gamma, numbers.Real) else list(gamma) if _is_sequence(gamma) else None
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        rules = ", ".join(map(repr, RULES))
        raise UsageError(f"gamma is {gamma!r}: it must be {rules}, a positive number or one number per feature")
    if len(values) not in (1, d):
        raise UsageError(
            f"gamma has {len(values)} values, but the data have {d} features: give one value, or one per feature"
        )
    return [float(value) for value in values]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1


def scale_gamma(moments: Moments, standardize: bool) -> float:
    """Compute 1/(d·var), where var is the pooled variance of all values of the scaled inputs; return 1 if var is 0."""
    d = len(moments.inputs.mean)
    variance = pooled_variance(moments, np.arange(d), standardize)
    return 1.0 / (d * variance) if variance > 0 else 1.0
