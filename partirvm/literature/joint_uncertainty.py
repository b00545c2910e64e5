"""Variances of the predictor by the delta method (TMB paper, §5.5).

With the hyperparameters θ near-normal about their maximum, with covariance C = (−∂²L/∂θ∂θᵀ)⁻¹,

    Var f(x) = φᵀΣφ + gᵀCg,        g = ∂(φ(x; θ)ᵀŵ(θ))/∂θ.

The first term alone has the weights uncertain (Figure 2, right), both have the hyperparameters
uncertain, too (left). C comes from central differences of the exact slopes. Coordinates at a bound
are known. A direction of θ in which L is flatter than a normal density of standard deviation
``REACH`` gets that density, because g is no approximation for larger changes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from partirvm.core.predictive import REACH
from partirvm.literature.joint_laplace import Marginal
from partirvm.literature.joint_parameters import AT_BOUND, Hyperparameters, JointMarginal
from partirvm.types import Bool, Float

STEP = 1e-4
"""Step of differences of slopes, whose relative error is about its square."""


@dataclass(frozen=True)
class DeltaMethod:
    """The predictor's variance about a maximum.

    Attributes:
        likelihood: of the rows
        point: the maximum θ
        approximation: Laplace's approximation there
    """

    likelihood: JointMarginal
    point: Hyperparameters
    approximation: Marginal

    @cached_property
    def vector(self) -> Float:
        """θ (K,)."""
        return self.likelihood.vector(self.point)

    @cached_property
    def free(self) -> Bool:
        """Coordinates of θ (K,) that are not at a bound."""
        lower, upper = self.likelihood.bounds(self.point)
        inside = (self.vector > lower + AT_BOUND) & (self.vector < upper - AT_BOUND)
        return np.asarray(inside)

    @cached_property
    def information(self) -> Float:
        """−∂²L/∂θ∂θᵀ of the free coordinates (F, F)."""
        places = np.flatnonzero(self.free)
        rows = np.empty((len(places), len(places)))
        for row, place in enumerate(places):
            step = np.zeros(len(self.vector))
            step[place] = STEP
            change = self.slopes(self.vector - step) - self.slopes(self.vector + step)
            rows[row] = change[places] / (2 * STEP)
        return 0.5 * (rows + rows.T)

    @cached_property
    def covariance(self) -> Float:
        """C (K, K), with 0 for coordinates at a bound."""
        values, vectors = np.linalg.eigh(self.information)
        inner = (vectors / np.maximum(values, 1.0 / REACH**2)) @ vectors.T
        covariance = np.zeros((len(self.vector), len(self.vector)))
        covariance[np.ix_(self.free, self.free)] = inner
        return covariance

    def slopes(self, vector: Float) -> Float:
        """Return the slopes of L and the log prior at a vector θ (K,)."""
        point = self.likelihood.point(vector, self.point)
        approximation = self.likelihood.at(point, self.approximation.mean)
        return self.likelihood.slopes(point, approximation)

    def design(self, points: Float) -> Float:
        """Return the model's columns at points (n, d)."""
        return self.likelihood.design(points, self.point.columns, self.point.widths)

    def predictor_slopes(self, points: Float) -> Float:
        """Return g at points (n, d), shape (n, K)."""
        at = self.approximation
        design = self.design(points)
        modes = list(at.mode_by_log_alpha().T)
        if self.likelihood.errors.noisy:
            modes.append(at.mode_by_log_precision())
        slopes = [design @ mode for mode in modes]
        columns = self.point.columns
        widths = self.point.widths
        at_rows = self.likelihood.width_slopes(self.likelihood.X, columns, widths)
        at_points = self.likelihood.width_slopes(points, columns, widths)
        for row_change, point_change in zip(at_rows, at_points, strict=True):
            moved = design @ at.mode_by_design(row_change)
            slopes.append(moved + point_change @ at.mean)
        slopes += [np.zeros(len(points))] * len(self.point.log_beta)
        return np.column_stack(slopes)

    def mean(self, points: Float) -> Float:
        """Return f at points (n, d)."""
        return np.asarray(self.design(points) @ self.approximation.mean)

    def variance(self, points: Float, *, hyperparameters: bool = True) -> Float:
        """Return the variance of f at points (n, d), with uncertain hyperparameters or weights
        alone."""
        spread = np.sum((self.design(points) @ self.approximation.root) ** 2, axis=1)
        if hyperparameters:
            slopes = self.predictor_slopes(points)
            spread = spread + np.einsum("nk,kl,nl->n", slopes, self.covariance, slopes)
        return np.asarray(spread)
