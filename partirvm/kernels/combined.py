"""Weighted sums and products of kernels.

Blocks are computed for a group of columns at a time: first the values of all parts, then their sum or product.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Kernel, PreparedKernel, PreparedSmooth, by_groups, runs
from partirvm.kernels.parts import part_of, several, with_own_logs
from partirvm.kernels.widths import logs_of, values_of

Float = NDArray[np.float64]

SIZE = 64
"""Number of columns that are evaluated together; at least the group size of the component kernels."""


@dataclass(frozen=True)
class _Parts(Described):
    """Base of kernels with component kernels ``parts``, whose parameters are named ``parts[i].name``."""

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(map(part_of, several(self.name, self.parts))))

    @property
    def local(self) -> bool:
        """True if all parts are local."""
        return all(part.local for part in self.parts)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of all parts."""
        return tuple(f"parts[{i}].{name}" for i, part in enumerate(self.parts) for name in part.parameters)

    @property
    def logs(self) -> Float:
        """The logarithms of the parameters of all parts."""
        return np.concatenate([part.logs for part in self.parts])

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel whose parts have the given log parameters."""
        return replace(self, parts=with_own_logs(self.parts, logs))

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel whose parts have one gamma per feature; parts without gamma are unchanged."""
        return replace(self, parts=tuple(part.per_feature(n_features) for part in self.parts))

    def rescaled(self, factor: float) -> Self:
        """Return the kernel with every gamma of every part multiplied by a factor."""
        return replace(self, parts=tuple(part.rescaled(factor) for part in self.parts))

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedParts:
        """Prepare the parts for the centres (m, d), one group of centres at a time."""
        m = len(centres)
        chunks = [centres[some] for some in runs(m, SIZE)] or [centres]  # checks d even if there are no centres
        return PreparedParts(self, [[part.prepare(chunk, origin) for part in self.parts] for chunk in chunks], m)

    def join(self, values: Sequence[Float], work: Float) -> None:
        """Compute k from the values of the parts and write it to ``work`` (g, n); the values may be overwritten."""
        raise NotImplementedError

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Return weights ∘ ∂k/∂k_i for each part i, and the gradient in the kernel's own log parameters."""
        raise NotImplementedError


@dataclass(frozen=True)
class Sum(_Parts):
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

    weights: tuple[float, ...] = ()
    name = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = tuple(self.weights) or (1.0,) * len(self.parts)
        right = all(isinstance(value, numbers.Real) and np.isfinite(value) and value >= 0 for value in weights)
        if not right or len(weights) != len(self.parts) or not any(weights):
            raise UsageError(
                f"weights of the sum kernel are {list(weights)}: they must be {len(self.parts)} numbers ≥ 0, one per "
                "part, at least one of them positive"
            )
        object.__setattr__(self, "weights", tuple(map(float, weights)))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The weights, then the parameters of the parts."""
        return (*(f"weights[{i}]" for i in range(len(self.weights))), *super().parameters)

    @property
    def logs(self) -> Float:
        """The logarithms of the weights, then of the parts' parameters."""
        return np.concatenate([logs_of(self.weights), super().logs])

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel with the given log weights and log parameters of the parts."""
        count = len(self.weights)
        return replace(super().with_logs(logs[count:]), weights=values_of(logs[:count], count))

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) of each point (n, d), shape (n,)."""
        return np.asarray(np.asarray(self.weights) @ np.array([part.diagonal(points) for part in self.parts]))

    def relevances(self, n_features: int) -> Float | None:
        """Return the weighted sum of the parts' gamma, or None if a part has no gamma."""
        found = [part.relevances(n_features) for part in self.parts]
        weighted = [weight * own for weight, own in zip(self.weights, found, strict=True) if own is not None]
        return np.sum(weighted, axis=0) if len(weighted) == len(found) else None

    def join(self, values: Sequence[Float], work: Float) -> None:
        """Write Σ_i weights[i]·values[i] to ``work``."""
        np.multiply(values[0], self.weights[0], out=work)
        for weight, own in zip(self.weights[1:], values[1:], strict=True):
            own *= weight
            work += own

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Apply ∂k/∂k_i = weights[i] and ∂k/∂ log weights[i] = weights[i]·k_i."""
        own = [
            np.array([weight * np.einsum("mn,mn->", weights, part)])
            for weight, part in zip(self.weights, values, strict=True)
        ]
        return [weight * weights for weight in self.weights], own


@dataclass(frozen=True)
class Product(_Parts):
    """Product of kernels, k = Π_i k_i.

    Examples
    --------
    >>> from partirvm.kernels import Categorical, Gaussian, OnColumns
    >>> numbers, zone = OnColumns(Gaussian((0.5, 0.1)), (0, 1)), OnColumns(Categorical(1.0), (2,))
    >>> Product((numbers, zone)).relevances(3)
    array([0.5, 0.1, 1. ])
    """

    name = "product"

    def diagonal(self, points: Float) -> Float:
        """Return k(x, x) of each point (n, d), shape (n,)."""
        return np.asarray(np.prod([part.diagonal(points) for part in self.parts], axis=0))

    def relevances(self, n_features: int) -> Float | None:
        """Return the sum of the parts' gamma, or None if a part has no gamma."""
        found = [own for part in self.parts if (own := part.relevances(n_features)) is not None]
        return np.sum(found, axis=0) if len(found) == len(self.parts) else None

    def join(self, values: Sequence[Float], work: Float) -> None:
        """Write Π_i values[i] to ``work``."""
        work[...] = values[0]
        for own in values[1:]:
            work *= own

    def slopes(self, values: Sequence[Float], weights: Float) -> tuple[list[Float], list[Float]]:
        """Compute ∂k/∂k_i as the product of the other parts; the quotient k/k_i would fail for k_i = 0."""
        found = []
        for i in range(len(values)):
            slope = weights.copy()
            for other in (*values[:i], *values[i + 1 :]):
                slope *= other
            found.append(slope)
        return found, []


@dataclass(frozen=True)
class PreparedParts:
    """The parts of a sum or product, prepared for each group of columns."""

    kernel: _Parts
    prepared: list[list[PreparedKernel]]
    n_centres: int

    def __call__(self, points: Float, out: Float) -> None:
        """Write k(points, centres) into ``out`` (n, m)."""
        places = self._places(points)

        def write(some: slice, work: Float) -> None:
            self.kernel.join(_values(self.prepared[some.start // SIZE], points, places[:, : len(work)]), work)

        by_groups(out, write, SIZE)

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the gradient by the chain rule; the parts are evaluated again."""
        total, places = np.zeros(len(self.kernel.logs)), self._places(points)
        for some in runs(self.n_centres, SIZE):
            parts = self.prepared[some.start // SIZE]
            found = _values(parts, points, places[:, : some.stop - some.start])
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
            parts = self.prepared[some.start // SIZE]
            found = _values(parts, points, places[:, : some.stop - some.start])
            slopes, _ = self.kernel.slopes(found, weights.T[some])
            for part, value, slope in zip(parts, found, slopes, strict=True):
                total += cast(PreparedSmooth, part).input_gradient(points, value.T, slope.T)
        return total

    def _places(self, points: Float) -> Float:
        return np.empty((len(self.prepared[0]), min(SIZE, self.n_centres), len(points)))


def _values(parts: Sequence[PreparedKernel], points: Float, values: Float) -> list[Float]:
    """Evaluate each part for a group of columns and write the values to ``values`` (parts, g, n)."""
    for part, own in zip(parts, values, strict=True):
        part(points, own.T)
    return list(values)
