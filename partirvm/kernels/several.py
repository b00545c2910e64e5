"""Several kernels for the same centres: each centre gives one basis function per kernel.

A target with structure at several scales needs wide and narrow basis functions. The fit keeps the basis functions that
raise the evidence. A sum of kernels is different, because its parts share one weight per centre. With K kernels, column
m of a design belongs to kernel ``labels[m] % K`` and to the centre in row ``labels[m] // K`` (``kernels.design``).
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
"""Number of columns of one kernel that are evaluated together, and then copied to their positions in the block."""


@dataclass(frozen=True)
class Several(Described):
    """Several kernels per centre. This class is not a ``Kernel``, and cannot be a part of a kernel.

    Parameters
    ----------
    kernels : tuple of kernels, or their specs
        Their parameters are learned together, as ``kernels[k].name``.
    weights : tuple of float
        Positive factors of the kernels; default: 1 each. The weights have no effect on fits with one α per column.
        Kernel learning uses one α for all columns, so weights let the amplitudes of the kernels differ. All weights
        except the first are learned as ``weights[k]``, and precede the parameters of the kernels.

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
            raise UsageError(f"several kernels must differ, yet two are equal: {', '.join(map(repr, self.kernels))}")
        weights = tuple(self.weights) or (1.0,) * len(self.kernels)
        right = all(isinstance(value, numbers.Real) and np.isfinite(value) and value > 0 for value in weights)
        if not right or len(weights) != len(self.kernels):
            raise UsageError(
                f"weights of several kernels are {list(weights)}: they must be {len(self.kernels)} positive numbers"
            )
        object.__setattr__(self, "weights", tuple(map(float, weights)))

    @property
    def local(self) -> bool:
        """True if all kernels are local."""
        return all(kernel.local for kernel in self.kernels)

    def peaks(self, points: Float, which: Int) -> Float:
        """Return k(x, x) of each point (n, d) for the kernel with the number ``which`` (n,), shape (n,)."""
        found = np.empty(len(points))
        for k, kernel in enumerate(self.kernels):
            found[which == k] = self.weights[k] * kernel.diagonal(points[which == k])
        return found

    def prepare_each(self, centres: Float, which: Int, origin: Float | None = None) -> PreparedSeveral:
        """Prepare each of the centres (m, d) for the kernel with the number ``which`` (m,)."""
        groups = []
        for k, kernel in enumerate(self.kernels):
            mine = np.flatnonzero(which == k)
            places = [mine[some] for some in runs(len(mine), SIZE)]
            groups.append([(place, kernel.prepare(centres[place], origin)) for place in places])
        return PreparedSeveral(self, tuple(groups))

    @property
    def parameters(self) -> tuple[str, ...]:
        """All weights except the first, then the parameters of the kernels."""
        weights = (f"weights[{k}]" for k in range(1, len(self.kernels)))
        own = (f"kernels[{k}].{name}" for k, kernel in enumerate(self.kernels) for name in kernel.parameters)
        return (*weights, *own)

    @property
    def logs(self) -> Float:
        """The logarithms of all weights except the first, then of the kernels' parameters."""
        return np.concatenate([np.log(self.weights[1:]), *(kernel.logs for kernel in self.kernels)])

    def with_logs(self, logs: Float) -> Self:
        """Return the kernels with the given log weights and log parameters."""
        count = len(self.kernels) - 1
        weights = (self.weights[0], *np.exp(logs[:count]).tolist())
        return replace(self, kernels=with_own_logs(self.kernels, logs[count:]), weights=weights)

    def relevances(self, n_features: int) -> Float | None:
        """Return the largest gamma of each feature over the kernels, or None if a kernel has no gamma."""
        found = [own for kernel in self.kernels if (own := kernel.relevances(n_features)) is not None]
        return np.max(found, axis=0) if len(found) == len(self.kernels) else None

    def per_feature(self, n_features: int) -> Self:
        """Return the kernels with one gamma per feature; kernels without gamma are unchanged."""
        return replace(self, kernels=tuple(kernel.per_feature(n_features) for kernel in self.kernels))

    def rescaled(self, factor: float) -> Self:
        """Return the kernels with every gamma multiplied by a factor."""
        return replace(self, kernels=tuple(kernel.rescaled(factor) for kernel in self.kernels))

    def without_ignored(self, points: Float, k: int) -> Float:
        """Return the points (n, d) with zeros in the columns that kernel k ignores."""
        own = self.kernels[k].relevances(points.shape[1])
        return points if own is None else np.where(own > 0, points, 0.0)


@dataclass(frozen=True)
class PreparedSeveral:
    """The kernels prepared for their centres: groups of positions in the block, each with a prepared kernel."""

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
        """Return the gradient in the log weights (∂Φ/∂ log weight = Φ) and in the log parameters of each kernel."""
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
    """Return copies of the kernel with every gamma multiplied by each factor; for one factor, a single kernel.

    Raises ``UsageError`` for a kernel without gamma.

    >>> from partirvm.kernels import Gaussian
    >>> multiples(Gaussian((0.5, 0.25)), (1.0, 4.0)).relevances(2).round(3)
    array([2., 1.])
    """
    if not any("gamma" in name for name in kernel.parameters):
        raise UsageError(
            f"gamma_multiples is {list(factors)}, but the kernel {kernel.name!r} has no gamma: omit gamma_multiples"
        )
    made = tuple(kernel.rescaled(factor) for factor in factors)
    return made[0] if len(made) == 1 else Several(made)
