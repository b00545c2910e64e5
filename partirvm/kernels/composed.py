"""Kernels built from others: weighted sums, products, kernels on some columns, and several kernels
for the same centres."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self

import numpy as np

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel, PreparedKernel, by_groups, part_of, runs
from partirvm.options.constraints import Check
from partirvm.types import Bool, Float, Int

SIZE = 64
"""Number of columns evaluated together; at least the group size of the component kernels."""


def _items(name: str, given: Any) -> tuple[Any, ...]:
    """Return the items of a tuple or list. Raises ``UsageError`` if there are none."""
    if isinstance(given, str | dict) or not np.iterable(given) or not len(items := tuple(given)):
        raise UsageError(
            f"the parts of the {name} kernel are {given!r}: they must be a non-empty tuple"
        )
    return items


class PreparedParts(PreparedKernel):
    """The parts of a sum or product, prepared for each group of columns; gradients evaluate the
    parts again."""

    def __init__(self, kernel: "Sum | Product", centres: Float, origin: Float | None) -> None:
        self.kernel = kernel
        self.groups = runs(len(centres), SIZE)
        # the number of features is checked even without centres
        chunks = [centres[group] for group in self.groups] or [centres]
        self.prepared = [[part.prepare(chunk, origin) for part in kernel.parts] for chunk in chunks]

    def __call__(self, points: Float, out: Float) -> None:
        def write(some: slice, work: Float) -> None:
            work[...] = self.kernel.join(self._values(some, points))

        by_groups(out, write, SIZE)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        total = np.zeros(len(self.kernel.logs))
        for of_weights, terms in self._terms(points, weights):
            total += np.concatenate(
                [
                    *of_weights,
                    *(part.gradient(points, value, slope) for part, value, slope in terms),
                ]
            )
        return total

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        terms = (term for _, terms in self._terms(points, weights) for term in terms)
        gradients = (part.input_gradient(points, value, slope) for part, value, slope in terms)
        return np.asarray(sum(gradients, np.zeros(points.shape)))

    def _values(self, some: slice, points: Float) -> list[Float]:
        """Return the values (g, n) of each part for a group of columns."""
        values = []
        for part in self.prepared[some.start // SIZE]:
            values.append(np.empty((some.stop - some.start, len(points))))
            part(points, values[-1].T)
        return values

    def _terms(self, points: Float, weights: Float) -> Iterator[tuple[list[Float], list[Any]]]:
        """Yield, for each group, the slopes of the kernel's own parameters, and each part with its
        values and slopes (n, g)."""
        for group, parts in zip(self.groups, self.prepared, strict=False):
            values = self._values(group, points)
            slopes, of_weights = self.kernel.slopes(values, weights.T[group])
            terms = zip(parts, values, slopes, strict=True)
            yield of_weights, [(part, value.T, slope.T) for part, value, slope in terms]


@dataclass(frozen=True)
class Sum(Kernel, name="sum", inside="parts", learned="weights", form=PreparedParts):
    """Weighted sum of kernels, k = Σ_i weights[i]·k_i, with weights ≥ 0 (by default 1 each) that
    are also learned."""

    parts: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        parts = tuple(map(part_of, _items(self.name, self.parts)))
        weights = Check("numbers", least=0.0, size=len(parts))(
            "weights", self.weights or (1.0,) * len(parts)
        )
        if not any(weights):
            raise UsageError(f"the weights of a sum are {weights}: at least one must be positive")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "weights", weights)

    def diagonal(self, points: Float) -> Float:
        return np.asarray(
            np.asarray(self.weights) @ np.array([part.diagonal(points) for part in self.parts])
        )

    def join(self, values: Sequence[Float]) -> Float:
        return reduce(
            np.add,
            (
                weight * part_values
                for weight, part_values in zip(self.weights, values, strict=True)
            ),
        )

    def operations(self, x: Any, Z: Float) -> Any:
        return self.join([part.exported(x, Z) for part in self.parts])

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Return weights ∘ ∂k/∂k_i of each part, ∂k/∂k_i = weights[i], and Σ weights ∘ ∂k/∂ log
        weights[i]."""
        sums = [np.einsum("mn,mn->", weights, part_values) for part_values in values]
        return [weight * weights for weight in self.weights], [np.multiply(self.weights, sums)]


@dataclass(frozen=True)
class Product(Kernel, name="product", inside="parts", form=PreparedParts):
    """Product of kernels, k = Π_i k_i."""

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(map(part_of, _items(self.name, self.parts))))

    def join(self, values: Sequence[Float]) -> Float:
        return reduce(np.multiply, values)

    def operations(self, x: Any, Z: Float) -> Any:
        return self.join([part.exported(x, Z) for part in self.parts])

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Return weights ∘ ∂k/∂k_i, computed as the product of the other parts: the quotient k/k_i
        would fail for k_i = 0."""
        others = ([*values[:i], *values[i + 1 :]] for i in range(len(values)))
        return [reduce(np.multiply, other_values, weights) for other_values in others], []


class PreparedColumns(PreparedKernel):
    """A prepared kernel on a subset of the columns."""

    def __init__(self, kernel: "OnColumns", centres: Float, origin: Float | None) -> None:
        self.columns = columns = kernel.mine(centres.shape[1])
        self.inner = kernel.kernel.prepare(
            centres[:, columns], None if origin is None else origin[columns]
        )

    def __call__(self, points: Float, out: Float) -> None:
        self.inner(points[:, self.columns], out)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        return self.inner.gradient(points[:, self.columns], values, weights)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        gradients = np.zeros(points.shape)
        gradients[:, self.columns] = self.inner.input_gradient(
            points[:, self.columns], values, weights
        )
        return gradients


@dataclass(frozen=True)
class OnColumns(Kernel, name="columns", inside="kernel", form=PreparedColumns):
    """Kernel applied only to the columns at the given positions."""

    kernel: Kernel
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", part_of(self.kernel))
        columns = _items(self.name, self.columns)
        right = all(
            isinstance(j, int | np.integer) and not isinstance(j, bool) and j >= 0 for j in columns
        )
        if not right or len(set(columns)) < len(columns):
            raise UsageError(
                f"the columns of a kernel are {columns}: they must be distinct feature positions, "
                "from 0"
            )
        object.__setattr__(self, "columns", tuple(map(int, columns)))

    def relevances(self, n_features: int) -> Float | None:
        widths = self.kernel.relevances(len(self.columns))
        relevances = np.zeros(n_features)
        relevances[self.mine(n_features)] = 0.0 if widths is None else widths
        return None if widths is None else relevances

    def effective(self, n_features: int) -> Bool:
        is_effective = np.zeros(n_features, dtype=np.bool_)
        is_effective[self.mine(n_features)] = self.kernel.effective(len(self.columns))
        return is_effective

    def operations(self, x: Any, Z: Float) -> Any:
        columns = list(self.columns)
        return self.kernel.exported(x.take(columns), Z[:, columns])

    def per_feature(self, n_features: int) -> Self:
        return replace(self, kernel=self.kernel.per_feature(len(self.columns)))

    def mine(self, n_features: int) -> list[int]:
        """Return the positions of the columns. Raises ``UsageError`` if the data have fewer
        features."""
        if max(self.columns) >= n_features:
            where = (
                f"the columns {list(self.columns)}, but the data have {n_features} features, "
                "counted from 0"
            )
            raise UsageError(f"the kernel applies to {where}")
        return list(self.columns)


@dataclass(frozen=True)
class Several(Kernel, name="several", inside="kernels"):
    """Several kernels for the same centres: each centre contributes one basis function per kernel.

    A target with structure at several scales needs wide and narrow basis functions. ``Several`` has
    no single value (``prepare``) and cannot be part of another kernel.
    """

    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(map(part_of, _items(self.name, self.kernels))))
        if len(set(map(repr, self.kernels))) < len(self.kernels):
            raise UsageError(
                "several kernels must differ, yet two are equal: "
                f"{', '.join(map(repr, self.kernels))}"
            )


class PreparedSeveral(PreparedKernel):
    """Several kernels, each prepared for its own centres.

    ``groups`` holds, for each group, the kernel number, positions in the block, and the prepared
    kernel.

    Args:
        several: the kernels
        centres: (m, d), centres of all kernels
        which: (m,), kernel number of each centre
        origin: (d,), from which coordinates are measured, or None
    """

    def __init__(self, several: Several, centres: Float, which: Int, origin: Float | None) -> None:
        self.several = several
        self.groups = list[tuple[int, Int, PreparedKernel]]()
        for k, kernel in enumerate(several.kernels):
            columns = np.flatnonzero(which == k)
            places = [columns[group] for group in runs(len(columns), SIZE)]
            self.groups += [(k, place, kernel.prepare(centres[place], origin)) for place in places]

    def __call__(self, points: Float, out: Float) -> None:
        for _, place, prepared in self.groups:
            values = np.empty((len(place), len(points)))
            prepared(points, values.T)
            out.T[place] = values

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        gradients = [np.zeros(len(kernel.logs)) for kernel in self.several.kernels]
        for k, place, prepared in self.groups:
            gradients[k] += prepared.gradient(points, values.T[place].T, weights.T[place].T)
        return np.concatenate(gradients)

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        gradients = np.zeros(points.shape)
        for _, place, prepared in self.groups:
            gradients += prepared.input_gradient(points, values.T[place].T, weights.T[place].T)
        return gradients


def replaced(kernel: Kernel, columns: Int, kind: Any, make: Callable[[Any, Int], Kernel]) -> Kernel:
    """Return the kernel with all inner kernels of a class replaced.

    Args:
        kernel: the kernel
        columns: the numbers of the columns that the kernel uses
        kind: the class
        make: returns the new kernel, given the inner kernel and its columns
    """
    if isinstance(kernel, OnColumns):
        return replace(
            kernel, kernel=replaced(kernel.kernel, columns[list(kernel.columns)], kind, make)
        )
    if isinstance(kernel, Product | Sum):
        return replace(
            kernel, parts=tuple(replaced(part, columns, kind, make) for part in kernel.parts)
        )
    return make(kernel, columns) if isinstance(kernel, kind) else kernel


def inside(kernel: Kernel, n_features: int, kind: Any) -> list[tuple[Any, Int]]:
    """Return the simple kernels of a class inside a kernel, each with the positions of its
    features."""
    kernels: list[tuple[Any, Int]] = []

    def note(each: Kernel, columns: Int) -> Kernel:
        kernels.append((each, columns))
        return each

    replaced(kernel, np.arange(n_features), kind, note)
    return kernels
