"""Several kernels for the same centres: each centre gives one basis function per kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel, PreparedKernel, runs
from partirvm.kernels.composed import SIZE, checked_weights, components
from partirvm.kernels.family import part_of

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Several(Kernel):
    """Several kernels for the same centres: each centre gives one basis function per kernel.

    A target with structure at several scales needs wide and narrow basis functions, of which a fit keeps those that
    raise the evidence. The parts of a sum share one weight per centre instead. With K kernels, column m of a design
    belongs to kernel ``labels[m] % K`` and to the centre in row ``labels[m] // K``. Several kernels have no common
    values, and cannot be a part of a kernel.

    Parameters
    ----------
    kernels : tuple of kernels, or their specs
    weights : tuple of float
        Positive factors of the kernels; default: 1 each. They have no effect on fits with one α per column. Kernel
        learning uses one α for all columns, so weights let the amplitudes of the kernels differ. The first is fixed.

    Examples
    --------
    >>> from partirvm.kernels import Gaussian
    >>> Several((Gaussian(0.5), Gaussian(8.0))).parameters
    ('weights[1]', 'kernels[0].gamma', 'kernels[1].gamma')
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...] = ()
    name: ClassVar[str] = "several"
    inside: ClassVar[str] = "kernels"
    learned: ClassVar[tuple[str, ...]] = ("weights",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(map(part_of, components(self.name, self.kernels))))
        if len(set(map(repr, self.kernels))) < len(self.kernels):
            raise UsageError(f"several kernels must differ, yet two are equal: {', '.join(map(repr, self.kernels))}")
        object.__setattr__(self, "weights", checked_weights(self.name, self.weights, len(self.kernels), positive=True))

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedKernel:
        """Raise ``UsageError``, because the values depend on the kernel of each column; see ``prepare_each``."""
        raise UsageError("several kernels have a basis function each: they have no common value")

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
        return super().parameters[1:]

    @property
    def logs(self) -> Float:
        """The logarithms of all weights except the first, then of the kernels' parameters."""
        return super().logs[1:]

    def with_logs(self, logs: Float) -> Self:
        if len(logs) != len(self.logs):
            raise UsageError(f"{len(logs)} logarithms for {len(self.logs)} parameters of a kernel")
        found = super().with_logs(np.append(0.0, logs))
        return replace(found, weights=(self.weights[0], *found.weights[1:]))

    def relevances(self, n_features: int) -> Float | None:
        """Return the largest gamma of each feature over the kernels, or None if a kernel has no gamma."""
        found = [own for kernel in self.kernels if (own := kernel.relevances(n_features)) is not None]
        return np.max(found, axis=0) if len(found) == len(self.kernels) else None

    def without_ignored(self, points: Float, k: int) -> Float:
        """Return the points (n, d) with zeros in the columns that kernel k ignores."""
        own = self.kernels[k].relevances(points.shape[1])
        return points if own is None else np.where(own > 0, points, 0.0)


@dataclass(frozen=True)
class PreparedSeveral(PreparedKernel):
    """The kernels prepared for their centres: groups of positions in the block, each with a prepared kernel."""

    several: Several
    groups: tuple[list[tuple[Int, PreparedKernel]], ...]

    def __call__(self, points: Float, out: Float) -> None:
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
