"""Variances of the predictor by the delta method (TMB paper, §5.5).

With the hyperparameters θ near-normal about their maximum, with covariance C = (−∂²L/∂θ∂θᵀ)⁻¹,

    Var f(x) = φᵀΣφ + gᵀCg,        g = ∂(φ(x; θ)ᵀŵ(θ))/∂θ.

The first term alone has the weights uncertain (Figure 2, right), both have the hyperparameters
uncertain, too (left). C comes from central differences of the exact slopes, and g from those of f.
Coordinates at a bound are known. A direction of θ in which L is flatter than a normal density of
standard deviation ``REACH`` gets that density, because g is no approximation for larger changes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
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

    def differences(self, function: Callable[["DeltaMethod"], Float]) -> Float:
        """Return the central differences (F, n) of a function (n,) of the maximum, by each free
        coordinate."""
        vector = self.point.vector
        rows = []
        for step in STEP * np.eye(len(vector))[self.free]:
            above = function(replace(self, point=self.point.moved(vector + step)))
            below = function(replace(self, point=self.point.moved(vector - step)))
            rows.append((above - below) / (2 * STEP))
        return np.array(rows)

    @property
    def slopes(self) -> Float:
        """Slopes of L and the log prior at the point (K,)."""
        return self.likelihood.slopes(self.point, self.approximation)

    @cached_property
    def information(self) -> Float:
        """−∂²L/∂θ∂θᵀ of the free coordinates (F, F)."""
        curvature = self.differences(lambda moved: moved.slopes[self.free])
        return -0.5 * (curvature + curvature.T)

    @cached_property
    def covariance(self) -> Float:
        """C of the free coordinates (F, F)."""
        values, vectors = np.linalg.eigh(self.information)
        return np.asarray((vectors / np.maximum(values, 1.0 / REACH**2)) @ vectors.T)

    def predictor_slopes(self, points: Float) -> Float:
        """Return g of the free coordinates at points (n, d), shape (n, F)."""
        return self.differences(lambda moved: moved.mean(points)).T

    def block(self, points: Float) -> Float:
        """Return the model's columns at points (n, d), in the units of γ."""
        return self.likelihood.design(self.point).block(points)

    def mean(self, points: Float) -> Float:
        """Return f at points (n, d)."""
        return np.asarray(self.block(points) @ self.approximation.weights)

    def variance(self, points: Float, *, hyperparameters: bool = True) -> Float:
        """Return the variance of f at points (n, d), with uncertain hyperparameters or weights
        alone."""
        spread = quadratic(self.block(points), self.approximation.covariance)
        if hyperparameters and len(self.free):
            spread = spread + quadratic(self.predictor_slopes(points), self.covariance)
        return spread
