"""Kernels made of kernels: weighted sums, products, and kernels on some columns.

Blocks are computed for a group of columns at a time: first the values of all components, then what is made of them.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel, PreparedKernel, by_groups, runs
from partirvm.kernels.family import part_of
from partirvm.kernels.radial import Directions, RadialKernel

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SIZE = 64
"""Number of columns that are evaluated together; at least the group size of the component kernels."""


def components(name: str, given: Any) -> tuple[Any, ...]:
    """Return the items of a tuple or list. Raises ``UsageError`` if there are none."""
    if isinstance(given, str | dict) or not np.iterable(given) or not len(found := tuple(given)):
        raise UsageError(f"the parts of the {name} kernel are {given!r}: they must be a non-empty tuple")
    return found


def checked_weights(name: str, given: Any, count: int, positive: bool) -> tuple[float, ...]:
    """Return checked weights of ``count`` components, by default 1 each."""
    weights: tuple[Any, ...] = tuple(given) or (1.0,) * count
    right = all(isinstance(value, numbers.Real) and 0 <= float(value) < np.inf for value in weights)
    if not right or len(weights) != count or not (all(weights) if positive else any(weights)):
        which = "positive numbers" if positive else "numbers ≥ 0, one per part, at least one of them positive"
        raise UsageError(f"weights of the {name} kernel are {list(weights)}: they must be {count} {which}")
    return tuple(map(float, weights))


@dataclass(frozen=True)
class Sum(Kernel):
    """Weighted sum of kernels, k = Σ_i weights[i]·k_i.

    Parameters
    ----------
    parts : tuple of kernels
    weights : tuple of float
        One number ≥ 0 per part, at least one of them positive; default: 1 each. The weights are learned as
        ``weights[i]``, and precede the parameters of the parts.

    Examples
    --------
    >>> from partirvm.kernels import Gaussian, Linear
    >>> kernel = Sum((Gaussian(0.5), Linear()), (1.0, 0.1))
    >>> kernel.parameters
    ('weights[0]', 'weights[1]', 'parts[0].gamma')
    """

    parts: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()
    name: ClassVar[str] = "sum"
    inside: ClassVar[str] = "parts"
    learned: ClassVar[tuple[str, ...]] = ("weights",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(map(part_of, components(self.name, self.parts))))
        object.__setattr__(self, "weights", checked_weights(self.name, self.weights, len(self.parts), positive=False))

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedParts:
        return PreparedParts.of(self, centres, origin)

    def diagonal(self, points: Float) -> Float:
        return np.asarray(np.asarray(self.weights) @ np.array([part.diagonal(points) for part in self.parts]))

    def relevances(self, n_features: int) -> Float | None:
        """Return the weighted sum of the parts' gamma, or None if a part has no gamma."""
        found = [part.relevances(n_features) for part in self.parts]
        weighted = [weight * own for weight, own in zip(self.weights, found, strict=True) if own is not None]
        return np.sum(weighted, axis=0) if len(weighted) == len(found) else None

    def join(self, values: Sequence[Float], work: Float) -> None:
        """Write Σ_i weights[i]·values[i] to ``work`` (g, n); the values are overwritten."""
        np.multiply(values[0], self.weights[0], out=work)
        for weight, own in zip(self.weights[1:], values[1:], strict=True):
            own *= weight
            work += own

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Return weights ∘ ∂k/∂k_i of each part, ∂k/∂k_i = weights[i], and Σ weights ∘ ∂k/∂ log weights[i]."""
        own = [
            np.array([weight * np.einsum("mn,mn->", weights, part)])
            for weight, part in zip(self.weights, values, strict=True)
        ]
        return [weight * weights for weight in self.weights], own


@dataclass(frozen=True)
class Product(Kernel):
    """Product of kernels, k = Π_i k_i.

    Examples
    --------
    >>> from partirvm.kernels import Categorical, Gaussian, OnColumns
    >>> numbers, zone = OnColumns(Gaussian((0.5, 0.1)), (0, 1)), OnColumns(Categorical(1.0), (2,))
    >>> Product((numbers, zone)).relevances(3)
    array([0.5, 0.1, 1. ])
    """

    parts: tuple[Kernel, ...]
    name: ClassVar[str] = "product"
    inside: ClassVar[str] = "parts"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(map(part_of, components(self.name, self.parts))))

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedParts:
        return PreparedParts.of(self, centres, origin)

    def diagonal(self, points: Float) -> Float:
        return np.asarray(np.prod([part.diagonal(points) for part in self.parts], axis=0))

    def relevances(self, n_features: int) -> Float | None:
        """Return the sum of the parts' gamma, or None if a part has no gamma."""
        found = [own for part in self.parts if (own := part.relevances(n_features)) is not None]
        return np.sum(found, axis=0) if len(found) == len(self.parts) else None

    def join(self, values: Sequence[Float], work: Float) -> None:
        """Write Π_i values[i] to ``work`` (g, n)."""
        work[...] = values[0]
        for own in values[1:]:
            work *= own

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Return weights ∘ ∂k/∂k_i, by the product of the other parts: the quotient k/k_i would fail for k_i = 0."""
        found = []
        for i in range(len(values)):
            slope = weights.copy()
            for other in (*values[:i], *values[i + 1 :]):
                slope *= other
            found.append(slope)
        return found, []


@dataclass(frozen=True)
class PreparedParts(PreparedKernel):
    """The parts of a sum or product, prepared for each group of columns."""

    kernel: Sum | Product
    prepared: list[list[PreparedKernel]]
    n_centres: int

    @classmethod
    def of(cls, kernel: Sum | Product, centres: Float, origin: Float | None) -> PreparedParts:
        m = len(centres)
        chunks = [centres[some] for some in runs(m, SIZE)] or [centres]  # checks d even if there are no centres
        return cls(kernel, [[part.prepare(chunk, origin) for part in kernel.parts] for chunk in chunks], m)

    def __call__(self, points: Float, out: Float) -> None:
        places = self._places(points)

        def write(some: slice, work: Float) -> None:
            self.kernel.join(self._values(some, points, places)[1], work)

        by_groups(out, write, SIZE)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the gradient by the chain rule; the parts are evaluated again."""
        total, places = np.zeros(len(self.kernel.logs)), self._places(points)
        for some in runs(self.n_centres, SIZE):
            parts, found = self._values(some, points, places)
            slopes, own = self.kernel.slopes(found, weights.T[some])
            inner = (
                part.gradient(points, value.T, slope.T) for part, value, slope in zip(parts, found, slopes, strict=True)
            )
            total += np.concatenate([*own, *inner])
        return total

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n of smooth parts by the chain rule, shape (n, d)."""
        total, places = np.zeros(points.shape), self._places(points)
        for some in runs(self.n_centres, SIZE):
            parts, found = self._values(some, points, places)
            slopes, _ = self.kernel.slopes(found, weights.T[some])
            for part, value, slope in zip(parts, found, slopes, strict=True):
                total += part.input_gradient(points, value.T, slope.T)
        return total

    def _places(self, points: Float) -> Float:
        return np.empty((len(self.prepared[0]), min(SIZE, self.n_centres), len(points)))

    def _values(self, some: slice, points: Float, places: Float) -> tuple[list[PreparedKernel], list[Float]]:
        """Return the parts for a group of columns, and their values (g, n), which are written to ``places``."""
        parts, values = self.prepared[some.start // SIZE], list(places[:, : some.stop - some.start])
        for part, own in zip(parts, values, strict=True):
            part(points, own.T)
        return parts, values


@dataclass(frozen=True)
class OnColumns(Kernel):
    """Kernel applied to the columns at some positions; the other columns have no effect.

    Examples
    --------
    >>> from partirvm.kernels import Gaussian
    >>> OnColumns(Gaussian(0.5), (2,)).relevances(3)
    array([0. , 0. , 0.5])
    """

    kernel: Kernel
    columns: tuple[int, ...]
    name: ClassVar[str] = "columns"
    inside: ClassVar[str] = "kernel"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", part_of(self.kernel))
        columns = components(self.name, self.columns)
        right = all(isinstance(j, int | np.integer) and not isinstance(j, bool) and j >= 0 for j in columns)
        if not right or len(set(columns)) < len(columns):
            raise UsageError(
                f"columns of a kernel are {list(columns)}: they must be different positions of features, from 0"
            )
        object.__setattr__(self, "columns", tuple(map(int, columns)))

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedColumns:
        mine = self._mine(centres.shape[1])
        origin = None if origin is None else origin[mine]
        return PreparedColumns(self.kernel.prepare(centres[:, mine], origin), mine)

    def diagonal(self, points: Float) -> Float:
        return self.kernel.diagonal(points[:, self._mine(points.shape[1])])

    def relevances(self, n_features: int) -> Float | None:
        """Return the relevances of the kernel's columns, and 0 for the other columns."""
        own = self.kernel.relevances(len(self.columns))
        if own is None:
            return None
        found = np.zeros(n_features)
        found[self._mine(n_features)] = own
        return found

    def _seen(self, n_features: int) -> int:
        return len(self.columns)

    def _mine(self, n_features: int) -> list[int]:
        if max(self.columns) >= n_features:
            raise UsageError(
                f"the kernel applies to the columns {list(self.columns)}, but the data have {n_features} features, "
                "counted from 0"
            )
        return list(self.columns)


@dataclass(frozen=True)
class PreparedColumns(PreparedKernel):
    """A prepared kernel on a subset of the columns."""

    inner: PreparedKernel
    columns: list[int]

    def __call__(self, points: Float, out: Float) -> None:
        self.inner(points[:, self.columns], out)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the gradient in the kernel's log parameters."""
        return self.inner.gradient(points[:, self.columns], values, weights)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return Σ_m weights[n, m] ∂k(x_n, z_m)/∂x_n of a smooth kernel, 0 in the other columns, shape (n, d)."""
        found = np.zeros(points.shape)
        found[:, self.columns] = self.inner.input_gradient(points[:, self.columns], values, weights)
        return found


def replaced(kernel: Kernel, columns: Int, make: Callable[[Kernel, Int], Kernel]) -> Kernel:
    """Return the kernel with each simple kernel in sums, products and columns replaced by ``make(kernel, columns)``.

    ``columns`` are the positions of the features that a kernel sees, all of them to begin with. Several kernels and
    directions count as simple.

    >>> from partirvm.kernels import Gaussian, Matern52
    >>> product = Product((OnColumns(Gaussian(0.5), (0, 2)), OnColumns(Gaussian(1.0), (1,))))
    >>> replaced(product, np.arange(3), lambda kernel, columns: Matern52(kernel.gamma)).parts[0].kernel
    Matern52(gamma=(0.5,))
    """
    if isinstance(kernel, OnColumns):
        return replace(kernel, kernel=replaced(kernel.kernel, columns[list(kernel.columns)], make))
    if isinstance(kernel, Product | Sum):
        return replace(kernel, parts=tuple(replaced(part, columns, make) for part in kernel.parts))
    return make(kernel, columns)


def _simple(kernel: Kernel, n_features: int) -> list[tuple[Kernel, Int]]:
    """Return the simple kernels inside a kernel, each with the positions of its features."""
    found: list[tuple[Kernel, Int]] = []

    def add(each: Kernel, columns: Int) -> Kernel:
        found.append((each, columns))
        return each

    replaced(kernel, np.arange(n_features), add)
    return found


def with_radial(kernel: Kernel, columns: Int, make: Callable[[RadialKernel, Int], RadialKernel | Directions]) -> Kernel:
    """Return the kernel with each radial kernel replaced by ``make(kernel, columns)``.

    The kernel of directions is replaced inside them, where ``make`` gives a radial kernel.
    """

    def of(each: Kernel, positions: Int) -> Kernel:
        if isinstance(each, Directions):
            inner = make(each.kernel, positions)
            return replace(each, kernel=inner) if isinstance(inner, RadialKernel) else each
        return make(each, positions) if isinstance(each, RadialKernel) else each

    return replaced(kernel, columns, of)


def radials(kernel: Kernel, n_features: int) -> list[tuple[RadialKernel, Int]]:
    """Return the radial kernels inside a kernel, also along directions, each with the positions of its features."""
    found = ((each.kernel if isinstance(each, Directions) else each, own) for each, own in _simple(kernel, n_features))
    return [(each, columns) for each, columns in found if isinstance(each, RadialKernel)]


def directions_of(kernel: Kernel, n_features: int) -> list[tuple[Directions, Int]]:
    """Return the kernels of directions inside a kernel, each with the positions of its features."""
    return [(each, columns) for each, columns in _simple(kernel, n_features) if isinstance(each, Directions)]
