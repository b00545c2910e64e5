"""From what a user asks of the kernel to a kernel: its name, its value or its function, and what gamma means."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from partirvm.core.moments import Moments
from partirvm.errors import UsageError
from partirvm.kernels import NAMES, WITH_GAMMA, Kernel, LocalFunction, NamedFunction, kernel_from_spec
from partirvm.types import FitParameters


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
    """The kernel with its parameters as numbers, for so many features.

    Raises ``UsageError`` for a gamma that cannot be or that the kernel has no use for, for another number of features,
    and for a function that cannot be imported.
    """
    given = checked_kernel(parameters.kernel)
    if isinstance(given, str) and given in WITH_GAMMA:
        return WITH_GAMMA[given].from_spec({"gamma": _gamma(parameters, moments)})
    gamma = parameters.gamma
    if not (isinstance(gamma, str) and gamma == "auto"):
        why = f"the kernel {given!r} has none" if isinstance(given, str) else "the kernel has its own parameters"
        raise UsageError(f"gamma is {gamma!r}, but {why}: leave gamma out")
    if isinstance(given, str):
        given = NAMES[given].from_spec({}) if given in NAMES else NamedFunction(given)
    given.prepare(np.zeros((0, len(moments.inputs.mean))))
    return given


def _gamma(parameters: FitParameters, moments: Moments) -> list[float]:
    """gamma as numbers. ``"scale"`` (and ``"auto"``) is 1/(d·var) of what the kernel sees."""
    gamma, d = parameters.gamma, len(moments.inputs.mean)
    if isinstance(gamma, str):
        try:
            gamma = [float(part) for part in gamma.split(",")]
        except ValueError:
            if gamma not in ("auto", "scale"):
                known = "auto, scale, a positive number, one number per feature"
                raise UsageError(f"gamma is {gamma!r}; known: {known}") from None
            gamma = scale_gamma(moments, parameters.standardize)
    values = [gamma] if isinstance(gamma, numbers.Real) else list(gamma) if _is_sequence(gamma) else None
    if not values or not all(isinstance(value, numbers.Real) for value in values):
        raise UsageError(f"gamma is {gamma!r}: it must be 'auto', 'scale', a positive number or one number per feature")
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
