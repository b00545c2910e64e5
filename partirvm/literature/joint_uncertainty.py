"""Variances of the predictor by the delta method (TMB paper, §5.5).

With the hyperparameters θ near-normal about their maximum, with covariance C = (−∂²L/∂θ∂θᵀ)⁻¹,

    Var f(x) = φᵀΣφ + gᵀCg,        g = ∂(φ(x; θ)ᵀŵ(θ))/∂θ.

The first term alone has the weights uncertain (Figure 2, right), both have the hyperparameters
uncertain, too (left). C comes from central differences of the exact slopes, and g from those of the
mode and the design. Coordinates at a bound are known. A direction of θ in which L is flatter than a normal density of standard deviation
``REACH`` gets that density, because g is no approximation for larger changes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from partirvm.core.predictive import REACH
from partirvm.literature.base import quadratic
from partirvm.literature.joint_laplace import Marginal
from partirvm.literature.joint_parameters import AT_BOUND, Hyperparameters, JointMarginal
from partirvm.types import Float, Int

STEP = 1e-4
"""Step of differences, whose relative error is about its square."""


@dataclass(frozen=True)
class Neighbour:
    """A point near the maximum.

    Attributes:
        point: θ
        weights: the mode there (M,)
        slopes: of L and the log prior (K,)
    """

    point: Hyperparameters
    weights: Float
    slopes: Float


@dataclass(frozen=True)
class DeltaMethod:
    """The predictor's variance about a maximum.

    Attributes:
        likelihood: of the rows
        point: the maximum θ
    """

    likelihood: JointMarginal
    point: Hyperparameters

    @cached_property
    def approximation(self) -> Marginal:
        """Laplace's approximation at the maximum."""
        return self.likelihood.at(self.point)

    @cached_property
    def free(self) -> Int:
        """The F coordinates of θ that are not at a bound."""
        lower, upper = self.likelihood.bounds(self.point)
        margins = np.minimum(self.point.vector - lower, upper - self.point.vector)
        return np.flatnonzero(margins > AT_BOUND)

    def neighbour(self, place: int, step: float) -> Neighbour:
        """Return the point after a step of one coordinate."""
        vector = self.point.vector.copy()
        vector[place] += step
        point = self.point.moved(vector)
        approximation = self.likelihood.at(point, self.approximation.weights)
        slopes = self.likelihood.slopes(point, approximation)
        return Neighbour(point, approximation.weights, slopes)

    @cached_property
    def neighbours(self) -> list[tuple[Neighbour, Neighbour]]:
        """The points below and above the maximum, of each free coordinate."""
        return [(self.neighbour(i, -STEP), self.neighbour(i, STEP)) for i in self.free]

    @cached_property
    def information(self) -> Float:
        """−∂²L/∂θ∂θᵀ of the free coordinates (F, F)."""
        changes = [below.slopes - above.slopes for below, above in self.neighbours]
        rows = np.reshape(changes, (len(self.free), -1))[:, self.free] / (2 * STEP)
        return 0.5 * (rows + rows.T)

    @cached_property
    def covariance(self) -> Float:
        """C of the free coordinates (F, F)."""
        values, vectors = np.linalg.eigh(self.information)
        return np.asarray((vectors / np.maximum(values, 1.0 / REACH**2)) @ vectors.T)

    def predictor_slopes(self, points: Float) -> Float:
        """Return g of the free coordinates at points (n, d), shape (n, F)."""
        slopes = np.empty((len(points), len(self.free)))
        for column, (below, above) in enumerate(self.neighbours):
            low = self.likelihood.design(points, below.point) @ below.weights
            high = self.likelihood.design(points, above.point) @ above.weights
            slopes[:, column] = (high - low) / (2 * STEP)
        return slopes

    def mean(self, points: Float) -> Float:
        """Return f at points (n, d)."""
        design = self.likelihood.design(points, self.point)
        return np.asarray(design @ self.approximation.weights)

    def variance(self, points: Float, *, hyperparameters: bool = True) -> Float:
        """Return the variance of f at points (n, d), with uncertain hyperparameters or weights
        alone."""
        design = self.likelihood.design(points, self.point)
        spread = quadratic(design, self.approximation.covariance)
        if hyperparameters:
            spread = spread + quadratic(self.predictor_slopes(points), self.covariance)
        return spread
