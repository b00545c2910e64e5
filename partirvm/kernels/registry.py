"""The dictionary of all kernels by name. The package ``partirvm.kernels`` registers its kernels on import."""

from __future__ import annotations

from typing import Any

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel
from partirvm.options.constraints import near

ALIASES = {"rbf": "gaussian"}
"""Alternative names of kernels, as in scikit-learn."""

KERNELS: dict[str, type[Kernel]] = {}
"""Dictionary of all kernels that have a spec, by name; used by options, files and tests."""


def one_kernel(spec: dict[str, Any]) -> Kernel:
    """Return the kernel of a spec (``{"name": ..., parameters}``). Raises ``UsageError`` for an unknown name."""
    name = ALIASES.get(spec.get("name", ""), spec.get("name"))
    if name not in KERNELS:
        raise UsageError(f"unknown kernel {name!r}; known: {', '.join(sorted(KERNELS))}{near(name, KERNELS)}")
    return KERNELS[name].from_spec(spec)
