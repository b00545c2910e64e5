"""The kernels by name. The package registers its kernels on import; kernels with component kernels use it, too."""

from __future__ import annotations

from typing import Any

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel

ALIASES = {"rbf": "gaussian"}
"""Alternative names of kernels: those of scikit-learn."""

KERNELS: dict[str, type[Kernel]] = {}
"""All kernels that have a spec, by name; this list is used by options, files and tests."""


def one_kernel(spec: dict[str, Any]) -> Kernel:
    """The kernel of this spec (``{"name": ..., parameters}``). Raises ``UsageError`` for an unknown name."""
    name = ALIASES.get(spec.get("name", ""), spec.get("name"))
    if name not in KERNELS:
        raise UsageError(f"unknown kernel {name!r}; known: {', '.join(sorted(KERNELS))}")
    return KERNELS[name].from_spec(spec)
