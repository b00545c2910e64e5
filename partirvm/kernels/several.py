"""Several kernels for the same centres: each centre offers a basis function for each of them.

A target with structure of several sizes wants wide functions and narrow ones, of which the fit keeps those that it
needs. This is not a sum of kernels, whose parts share one weight at each centre. Column m of a design is that of kernel
``labels[m] % K`` at its centre, which is row ``labels[m] // K`` (``kernels.design``).
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described, Kernel, PreparedKernel, runs
from partirvm.kernels.parts import part_of, several, with_own_logs

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SIZE = 64
"""Columns of one kernel that are evaluated together, and then brought to their places."""


@dataclass(frozen=True)
class Several(Described):
    """Kernels that centres have side by side; no ``Kernel`` itself, and no part of one.

    Parameters
    ----------
    kernels : tuple of kernels, or their specs
        Their parameters are learned together, as ``kernels[k].name``.
    weights : tuple of float
        Positive factors of the kernels; without them each is 1. A fit with an α for each column does not care, but
        kernels are learned with one α for all columns, and so narrow functions can be as large as they should. All but
        the first are learned, as ``weights[k]``, and come before the kernels' own parameters.

    Examples
    --------
    >>> from partirvm.kernels import Gaussian
    >>> Several((Gaussian(0.5), Gaussian(8.0))).parameters
    ('weights[1]', 'kernels[0].gamma', 'kernels[1].gamma')
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()
    name = "several"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(map(part_of, several(self.name, self.kernels))))
        if len(set(map(repr, self.kernels))) < len(self.kernels):
            raise UsageError(f"two of several kernels are the same: {', '.join(map(repr, self.kernels))}")
        weights = tuple(self.weights) or (1.0,) * len(self.kernels)
        right = all(isinstance(value, numbers.Real) and np.isfinite(value) and value > 0 for value in weights)
        if not right or len(weights) != len(self.kernels):
            raise UsageError(
                f"weights of several kernels are {list(weights)}: they must be {len(self.kernels)} positive numbers"
            )
        object.__setattr__(self, "weights", tuple(map(float, weights)))

    @property
    def local(self) -> bool:
        """Whether all kernels are."""
        return all(kernel.local for kernel in self.kernels)

    def peaks(self, points: Float, which: Int) -> Float:
        """k(x, x) of each point (n, d) for the kernel with its number in ``which`` (n,), shape (n,)."""
        found = np.empty(len(points))
        for k, kernel in enumerate(self.kernels):
            found[which == k] = self.weights[k] * kernel.diagonal(points[which == k])
        return found

    def prepare_each(self, centres: Float, which: Int, origin: Float | None = None) -> PreparedSeveral:
        """Work in the centres (m, d), each for the kernel with its number in ``which`` (m,)."""
        groups = []
        for k, kernel in enumerate(self.kernels):
            mine = np.flatnonzero(which == k)
            places = [mine[some] for some in runs(len(mine), SIZE)]
            groups.append([(place, kernel.prepare(centres[place], origin)) for place in places])
        return PreparedSeveral(self, tuple(groups))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The weights but the first, then those of the kernels."""
        weights = (f"weights[{k}]" for k in range(1, len(self.kernels)))
        own = (f"kernels[{k}].{name}" for k, kernel in enumerate(self.kernels) for name in kernel.parameters)
        return (*weights, *own)

    @property
    def logs(self) -> Float:
        """Logarithms of these weights, then those of the kernels."""
        return np.concatenate([np.log(self.weights[1:]), *(kernel.logs for kernel in self.kernels)])

    def with_logs(self, logs: Float) -> Self:
        """The kernels with these log weights, and each with its own."""
        count = len(self.kernels) - 1
        weights = (self.weights[0], *np.exp(logs[:count]).tolist())
        return replace(self, kernels=with_own_logs(self.kernels, logs[count:]), weights=weights)

    def relevances(self, n_features: int) -> Float | None:
        """The largest gamma of each feature, whatever the weights; None if a kernel has none."""
        found = [own for kernel in self.kernels if (own := kernel.relevances(n_features)) is not None]
        return np.max(found, axis=0) if len(found) == len(self.kernels) else None

    def per_feature(self, n_features: int) -> Self:
        """Each kernel with a gamma for each feature, as far as it has one."""
        return replace(self, kernels=tuple(kernel.per_feature(n_features) for kernel in self.kernels))

    def rescaled(self, factor: float) -> Self:
        """Each kernel with every gamma times a factor."""
        return replace(self, kernels=tuple(kernel.rescaled(factor) for kernel in self.kernels))

    def seen(self, points: Float, k: int) -> Float:
        """Points (n, d) with zeros in the columns that kernel k does not see: where equal, its functions are."""
        own = self.kernels[k].relevances(points.shape[1])
        return points if own is None else np.where(own > 0, points, 0.0)


@dataclass(frozen=True)
class PreparedSeveral:
    """Groups of columns of each kernel: their places in the block, and the kernel with their centres."""

    several: Several
    groups: tuple[list[tuple[Int, PreparedKernel]], ...]

    def __call__(self, points: Float, out: Float) -> None:
        """Write the block of points (n, d) into ``out`` (n, m)."""
        work = np.empty((SIZE, len(points)))
        for weight, group in zip(self.several.weights, self.groups, strict=True):
            for place, prepared in group:
                values = work[: len(place)]
                prepared(points, values.T)
                values *= weight
                out.T[place] = values

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """That of each kernel over its own columns; ∂Φ/∂ log weight = Φ."""
        of_weights, of_kernels = np.zeros(len(self.groups)), []
        for k, (weight, group) in enumerate(zip(self.several.weights, self.groups, strict=True)):
            own = np.zeros(len(self.several.kernels[k].logs))
            for place, prepared in group:
                value, slope = values.T[place], weights.T[place]
                of_weights[k] += np.einsum("mn,mn->", value, slope)
                own += prepared.gradient(points, (value / weight).T, (slope * weight).T)
            of_kernels.append(own)
        return np.concatenate([of_weights[1:], *of_kernels])


def multiples(kernel: Kernel, factors: tuple[float, ...]) -> Kernel | Several:
    """The kernel with each of its gamma times each factor: several kernels, or one for a single factor.

    Raises ``UsageError`` for a kernel without gamma.

    >>> from partirvm.kernels import Gaussian
    >>> multiples(Gaussian((0.5, 0.25)), (1.0, 4.0)).relevances(2).round(3)
    array([2., 1.])
    """
    if not any("gamma" in name for name in kernel.parameters):
        raise UsageError(
            f"gamma_multiples is {list(factors)}, but the kernel {kernel.name!r} has no gamma: leave it out"
        )
    made = tuple(kernel.rescaled(factor) for factor in factors)
    return made[0] if len(made) == 1 else Several(made)
