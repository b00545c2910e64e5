"""What kernels made of kernels are given: kernels or their specs, and tuples of something."""

from __future__ import annotations

from typing import Any

import numpy as np

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel


def part_of(given: Any) -> Kernel:
    """A part, given as a kernel or as its spec."""
    from partirvm.kernels import kernel_from_spec  # knows all kernels, these too

    if isinstance(given, dict):
        return kernel_from_spec(given)
    if not isinstance(given, Kernel):
        raise UsageError(f"{given!r} is no kernel: kernels are made of kernels, such as partirvm.kernels.Gaussian(0.5)")
    return given


def several(name: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | dict) or not np.iterable(given) or not len(found := tuple(given)):
        raise UsageError(f"the {name} kernel is made of {given!r}: it must be a tuple of at least one")
    return found
