"""Replace the radial kernels inside a kernel, such as the kernel of the numeric columns in a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.base import Kernel
from partirvm.kernels.combined import Product, Sum
from partirvm.kernels.directions import Directions
from partirvm.kernels.on_columns import OnColumns
from partirvm.kernels.radial import RadialKernel
from partirvm.kernels.several import Several

Int = NDArray[np.int64]


def with_radial(kernel: Kernel, columns: Int, make: Callable[[RadialKernel, Int], RadialKernel | Directions]) -> Kernel:
    """Return the kernel with each radial kernel replaced by ``make(kernel, columns)``.

    ``columns`` are the positions of the features that the kernel sees, all of them to begin with. The kernel of
    directions is replaced inside them, where ``make`` gives a radial kernel.

    >>> from partirvm.kernels import Gaussian, Matern52
    >>> product = Product((OnColumns(Gaussian(0.5), (0, 2)), OnColumns(Gaussian(1.0), (1,))))
    >>> with_radial(product, np.arange(3), lambda kernel, columns: Matern52(kernel.gamma)).parts[0].kernel
    Matern52(gamma=(0.5,))
    """
    if isinstance(kernel, RadialKernel):
        return make(kernel, columns)
    if isinstance(kernel, Directions):
        inner = make(kernel.kernel, columns)
        return replace(kernel, kernel=inner) if isinstance(inner, RadialKernel) else kernel
    if isinstance(kernel, OnColumns):
        return replace(kernel, kernel=with_radial(kernel.kernel, columns[list(kernel.columns)], make))
    if isinstance(kernel, Product | Sum):
        return replace(kernel, parts=tuple(with_radial(part, columns, make) for part in kernel.parts))
    return kernel


def radials(kernel: Kernel | Several, n_features: int) -> list[tuple[RadialKernel, Int]]:
    """Return the radial kernels inside a kernel of ``n_features`` features, each with the positions of its features.

    The list is empty for several kernels.
    """
    if isinstance(kernel, Several):
        return []
    found: list[tuple[RadialKernel, Int]] = []

    def add(each: RadialKernel, columns: Int) -> RadialKernel:
        found.append((each, columns))
        return each

    with_radial(kernel, np.arange(n_features), add)
    return found


def directions_of(kernel: Kernel, columns: Int) -> list[tuple[Directions, Int]]:
    """Return the kernels of directions inside a kernel, each with the positions of its features among ``columns``."""
    if isinstance(kernel, Directions):
        return [(kernel, columns)]
    if isinstance(kernel, OnColumns):
        return directions_of(kernel.kernel, columns[list(kernel.columns)])
    if isinstance(kernel, Product | Sum):
        return [found for part in kernel.parts for found in directions_of(part, columns)]
    return []


def with_directions(kernel: Kernel, make: Callable[[Directions], Directions]) -> Kernel:
    """Return the kernel with each kernel of directions replaced."""
    if isinstance(kernel, Directions):
        return make(kernel)
    if isinstance(kernel, OnColumns):
        return replace(kernel, kernel=with_directions(kernel.kernel, make))
    if isinstance(kernel, Product | Sum):
        return replace(kernel, parts=tuple(with_directions(part, make) for part in kernel.parts))
    return kernel
