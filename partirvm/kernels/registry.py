"""The kernels by name. The package registers its own when it is imported; kernels made of kernels look up here, too."""

from __future__ import annotations

from typing import Any

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel

ALIASES = {"rbf": "gaussian"}
"""Other names that a kernel may be asked for by: scikit-learn's."""

KERNELS: dict[str, type[Kernel]] = {}
"""Every kernel that has a spec, by name; one list feeds the options, the files and the tests."""


def one_kernel(spec: dict[str, Any]) -> Kernel:
    """The kernel that has this spec (``{"name": ..., parameters}``). Raises ``UsageError`` for an unknown name."""
    name = ALIASES.get(spec.get("name", ""), spec.get("name"))
    if name not in KERNELS:
        raise UsageError(f"unknown kernel {name!r}; known: {', '.join(sorted(KERNELS))}")
    return KERNELS[name].from_spec(spec)
