"""Kernels and design matrices: pure NumPy functions that compute blocks of the design matrix from coordinates."""

from __future__ import annotations

from typing import Any

from partirvm.kernels.absent import NoKernel
from partirvm.kernels.base import Kernel
from partirvm.kernels.categorical import Categorical
from partirvm.kernels.combined import Product, Sum
from partirvm.kernels.directions import Directions
from partirvm.kernels.functions import LocalFunction, NamedFunction
from partirvm.kernels.gaussian import Gaussian
from partirvm.kernels.inner import Linear, Polynomial, Sigmoid
from partirvm.kernels.laplacian import Laplacian
from partirvm.kernels.matern import Matern32, Matern52
from partirvm.kernels.on_columns import OnColumns
from partirvm.kernels.registry import ALIASES, KERNELS, one_kernel
from partirvm.kernels.several import Several
from partirvm.kernels.spline import LinearSpline

__all__ = [
    "ALIASES",
    "KERNELS",
    "NAMES",
    "WITH_GAMMA",
    "Categorical",
    "Directions",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "LinearSpline",
    "LocalFunction",
    "Matern32",
    "Matern52",
    "NamedFunction",
    "NoKernel",
    "OnColumns",
    "Polynomial",
    "Product",
    "Several",
    "Sigmoid",
    "Sum",
    "kernel_from_spec",
]

WITH_GAMMA: dict[str, type[Kernel]] = {
    kernel.name: kernel for kernel in (Gaussian, Laplacian, Matern32, Matern52, Polynomial, Sigmoid, Categorical)
}
"""Kernels that are fully specified by a name and gamma."""

NAMES: dict[str, type[Kernel]] = {**WITH_GAMMA, Linear.name: Linear, LinearSpline.name: LinearSpline}
"""Kernels that can be selected by name alone."""

KERNELS.update(NAMES)
KERNELS.update({kernel.name: kernel for kernel in (Sum, Product, OnColumns, Directions, NamedFunction, NoKernel)})


def kernel_from_spec(spec: dict[str, Any]) -> Kernel | Several:
    """Return the kernel, or the several kernels, of a spec (``{"name": ..., parameters}``).

    Raises ``UsageError`` for an unknown name.
    """
    return Several.from_spec(spec) if spec.get("name") == Several.name else one_kernel(spec)
