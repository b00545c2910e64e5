"""A kernel on a subset of the columns, for example as a part of a sum or product for mixed data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Kernel, PreparedKernel, PreparedSmooth
from partirvm.kernels.parts import part_of, several

Float = NDArray[np.float64]


@dataclass(frozen=True)
class OnColumns(Described):
    """Kernel applied to the columns at some positions; the other columns have no effect.

    Examples
    --------
    >>> from partirvm.kernels import Gaussian
    >>> OnColumns(Gaussian(0.5), (2,)).relevances(3)
    array([0. , 0. , 0.5])
    """

    kernel: Kernel
    columns: tuple[int, ...]
    name = "columns"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", part_of(self.kernel))
        columns = several(self.name, self.columns)
        right = all(isinstance(j, int | np.integer) and not isinstance(j, bool) and j >= 0 for j in columns)
        if not right or len(set(columns)) < len(columns):
            raise UsageError(
                f"columns of a kernel are {list(columns)}: they must be different positions of features, from 0"
            )
        object.__setattr__(self, "columns", tuple(map(int, columns)))

    @property
    def local(self) -> bool:
        """True if the kernel is local."""
        return self.kernel.local

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedColumns:
        """Prepare the kernel for the centres (m, d), of which only the given columns are used."""
        mine = self._mine(centres.shape[1])
        origin = None if origin is None else origin[mine]
        return PreparedColumns(self.kernel.prepare(centres[:, mine], origin), mine)

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) for each point (n, d), shape (n,)."""
        return self.kernel.diagonal(points[:, self._mine(points.shape[1])])

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the kernel."""
        return self.kernel.parameters

    @property
    def logs(self) -> Float:
        """The logarithms of the kernel's parameters."""
        return self.kernel.logs

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel with the given log parameters, on the same columns."""
        return replace(self, kernel=self.kernel.with_logs(logs))

    def relevances(self, n_features: int) -> Float | None:
        """Return the relevances of the kernel's columns, and 0 for the other columns."""
        own = self.kernel.relevances(len(self.columns))
        if own is None:
            return None
        found = np.zeros(n_features)
        found[self._mine(n_features)] = own
        return found

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel with one gamma per column."""
        return replace(self, kernel=self.kernel.per_feature(len(self.columns)))

    def rescaled(self, factor: float) -> Self:
        """Return the kernel with every gamma multiplied by a factor."""
        return replace(self, kernel=self.kernel.rescaled(factor))

    def _mine(self, n_features: int) -> list[int]:
        if max(self.columns) >= n_features:
            raise UsageError(
                f"the kernel applies to the columns {list(self.columns)}, but the data have {n_features} features, "
                "counted from 0"
            )
        return list(self.columns)


@dataclass(frozen=True)
class PreparedColumns:
    """A prepared kernel on a subset of the columns."""

    inner: PreparedKernel
    columns: list[int]

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        self.inner(points[:, self.columns], out)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the gradient in the kernel's log parameters."""
        return self.inner.gradient(points[:, self.columns], values, weights)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n of a smooth kernel, 0 in the other columns, shape (n, d)."""
        found = np.zeros(points.shape)
        inner = cast(PreparedSmooth, self.inner)
        found[:, self.columns] = inner.input_gradient(points[:, self.columns], values, weights)
        return found
