"""Checks of the arguments of kernels that consist of component kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel
from partirvm.kernels.registry import one_kernel


def part_of(given: Any) -> Kernel:
    """Return a component kernel that is given as a kernel or as its spec."""
    if isinstance(given, dict):
        given = one_kernel(given)
    if not isinstance(given, Kernel):
        raise UsageError(f"{given!r} is not a kernel: pass kernels, such as partirvm.kernels.Gaussian(0.5)")
    return given


def several(name: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | dict) or not np.iterable(given) or not len(found := tuple(given)):
        raise UsageError(f"the parts of the {name} kernel are {given!r}: they must be a non-empty tuple")
    return found


def with_own_logs(parts: tuple[Kernel, ...], logs: NDArray[np.float64]) -> tuple[Kernel, ...]:
    """Split the concatenated log parameters, and return the parts with these parameters."""
    ends = np.cumsum([len(part.logs) for part in parts])
    if len(logs) != ends[-1]:
        raise UsageError(f"{len(logs)} logarithms for {ends[-1]} parameters of a kernel")
    shares = np.split(logs, ends[:-1])
    return tuple(part.with_logs(own) for part, own in zip(parts, shares, strict=True))
