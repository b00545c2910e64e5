"""From what a user asks of the kernel to a kernel: its name, its value or its function, and what gamma means."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.errors import UsageError
from partirvm.kernels import NAMES, WITH_GAMMA, Kernel, LocalFunction, NamedFunction, kernel_from_spec
from partirvm.kernels.widths import Widths
from partirvm.types import FitParameters

LEARN = ("learn", "learn-per-feature")
"""What gamma may be where the kernel is learned."""


def learns(parameters: FitParameters) -> bool:
    """Whether the kernel is to be learned."""
    return chooses(parameters) or (isinstance(parameters.gamma, str) and parameters.gamma in LEARN)


def chooses(parameters: FitParameters) -> bool:
    """Whether it is left open how: "auto" for a kernel that a name and gamma describe."""
    gamma, kernel = parameters.gamma, parameters.kernel
    return isinstance(gamma, str) and gamma == "auto" and isinstance(kernel, str) and kernel in WITH_GAMMA


def checked_kernel(given: Any) -> str | Kernel:
    """A name or ``module:function`` as it is, a kernel for anything else: a kernel, its spec, a callable.

    Raises ``UsageError`` for what is none of these. No module is imported.
    """
    if isinstance(given, str) and ":" in given:
        return NamedFunction(given).function
    if isinstance(given, str) and given in NAMES:
        return given
    if isinstance(given, dict):
        return kernel_from_spec(given)
    if isinstance(given, type) or not (isinstance(given, Kernel) or callable(given)):
        raise UsageError(
            f"kernel is {given!r}; known: {', '.join(NAMES)}, a function's 'module:function', or a value such as "
            "partirvm.kernels.Gaussian(0.5)"
        )
    return given if isinstance(given, Kernel) else LocalFunction(given)


def portable(kernel: Any) -> Any:
    """A checked kernel as plain JSON: what a job, a cluster or a file holds of it.

    Raises ``UsageError`` for one that only this process has, or knows.
    """
    if isinstance(kernel, str):
        return kernel
    spec = kernel.spec()
    kernel_from_spec(spec)
    return spec


def resolve_kernel(parameters: FitParameters, moments: Moments) -> Kernel:
    """The kernel with its parameters as numbers, for so many features; where it is learned, the one to begin with.

    Raises ``UsageError`` for a gamma that cannot be or that the kernel has no use for, for another number of features,
    and for a function that cannot be imported.
    """
    given = checked_kernel(parameters.kernel)
    if isinstance(given, str) and given in WITH_GAMMA:
        return WITH_GAMMA[given].from_spec({"gamma": _gamma(parameters, moments)})
    gamma = parameters.gamma
    if not learns(parameters) and not (isinstance(gamma, str) and gamma == "auto"):
        why = f"the kernel {given!r} has none" if isinstance(given, str) else "the kernel has its own parameters"
        raise UsageError(f"gamma is {gamma!r}, but {why}: leave gamma out")
    if isinstance(given, str):
        given = NAMES[given].from_spec({}) if given in NAMES else NamedFunction(given)
    d = len(moments.inputs.mean)
    given.prepare(np.zeros((0, d)))
    return _learnable(given, gamma, d) if learns(parameters) else given


def _learnable(kernel: Kernel, gamma: str, d: int) -> Kernel:
    """The kernel to begin with; its one gamma is given to each feature where that is asked for."""
    kernel.spec()
    if not np.isfinite(kernel.logs).any():
        raise UsageError(
            f"gamma is {gamma!r}, but the kernel {kernel.name!r} cannot be learned: it has no parameters that could "
            "be; leave gamma out, or choose another kernel"
        )
    if gamma == "learn-per-feature" and isinstance(kernel, Widths) and len(kernel.gamma) == 1:
        return replace(kernel, gamma=kernel.gamma * d)
    return kernel


def _gamma(parameters: FitParameters, moments: Moments) -> list[float]:
    """gamma as numbers. ``"scale"`` is 1/(d·var) of what the kernel sees, where what learns begins."""
    gamma, d = parameters.gamma, len(moments.inputs.mean)
    if isinstance(gamma, str):
        try:
            gamma = [float(part) for part in gamma.split(",")]
        except ValueError:
            if gamma not in ("auto", "scale", *LEARN):
                known = f"auto, scale, {', '.join(LEARN)}, a positive number, one number per feature"
                raise UsageError(f"gamma is {gamma!r}; known: {known}") from None
            scale = scale_gamma(moments, parameters.standardize)
            gamma = [scale] * d if gamma == "learn-per-feature" else scale
    values = [gamma] if isinstance(gamma, numbers.Real) else list(gamma) if _is_sequence(gamma) else None
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        rules = ", ".join(map(repr, ("auto", "scale", *LEARN)))
        raise UsageError(f"gamma is {gamma!r}: it must be {rules}, a positive number or one number per feature")
    if len(values) not in (1, d):
        raise UsageError(f"gamma has {len(values)} values but the data have {d} features: give one, or one per feature")
    return [float(value) for value in values]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1


def scale_gamma(moments: Moments, standardize: bool) -> float:
    """1/(d·var), var being the variance of all values of the inputs together, as the kernel sees them; 1 if it is 0."""
    inputs = moments.inputs
    if standardize:
        variance = float(np.mean(inputs.variance > 0))
    else:
        variance = float(np.mean(inputs.variance) + np.var(inputs.mean))
    return 1.0 / (len(inputs.mean) * variance) if variance > 0 else 1.0
