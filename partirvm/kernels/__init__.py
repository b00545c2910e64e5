"""Kernels and the design matrices made of them. Pure: numpy alone, coordinates in, blocks out."""

from __future__ import annotations

from typing import Any

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel
from partirvm.kernels.gaussian import Gaussian

KERNELS: dict[str, type[Kernel]] = {"gaussian": Gaussian}
"""Every kernel by name; one list feeds the options, the model files and the tests."""


def kernel_from_spec(spec: dict[str, Any]) -> Kernel:
    """The kernel that has this spec (``{"name": ..., parameters}``). Raises ``UsageError`` for an unknown name."""
    name = spec.get("name")
    if name not in KERNELS:
        raise UsageError(f"unknown kernel {name!r}; known: {', '.join(sorted(KERNELS))}")
    return KERNELS[name].from_spec(spec)
