"""The mode of weights with normal priors, by Newton's method, and Laplace's approximation there.

With w_i ~ N(0, 1/α_i) and a log likelihood ℓ(w), which is concave, let

    J(w) = ℓ(w) − ½ Σ α_i w_i²,    H = −∂²ℓ/∂w∂wᵀ + A,    Σ = H⁻¹.

At the mode ŵ of J, the log marginal likelihood is about L = J(ŵ) + ½ (log|A| − log|H|), the
factors of 2π being equal (Tipping 2001, §2.2; TMB paper, eq. 14). It is exact for normal errors.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from partirvm.core.posterior import Solution, root_of, solve
from partirvm.errors import NumericalError
from partirvm.types import Float

NEWTON_STEPS = 100
"""Maximum number of Newton steps to a mode; from zero weights about eight are needed."""

HALVINGS = 30
"""Maximum number of times that one Newton step is halved."""

DECREMENT = 1e-16
"""Predicted increase of J by a Newton step, in nats, below which the mode is reached. It is then
1e-8 posterior standard deviations away or, because convergence is quadratic, less."""

ROUNDING = 1e-10
"""Predicted increase below which steps that do not get smaller are rounding errors."""


@dataclass(frozen=True)
class ModeSearch:
    """Weights on the way to the mode, or at it.

    A derived class has the likelihood ℓ and its derivatives.

    Attributes:
        design: Φ (N, M)
        alpha: α (W,)
        weights: w (W,)
    """

    design: Float
    alpha: Float
    weights: Float

    @property
    def log_likelihood(self) -> float:
        """ℓ, in nats."""
        raise NotImplementedError

    @property
    def slopes(self) -> Float:
        """∂ℓ/∂w (W,)."""
        raise NotImplementedError

    @property
    def hessian(self) -> Float:
        """−∂²ℓ/∂w∂wᵀ (W, W)."""
        raise NotImplementedError

    @cached_property
    def log_joint(self) -> float:
        """J, in nats."""
        return self.log_likelihood - 0.5 * float(self.alpha @ self.weights**2)

    @cached_property
    def gradient(self) -> Float:
        """∂J/∂w (W,)."""
        return self.slopes - self.alpha * self.weights

    @cached_property
    def solution(self) -> Solution:
        """The Newton step, with the factor of H."""
        return solve(self.hessian, self.alpha, self.gradient)

    @cached_property
    def covariance(self) -> Float:
        """Σ (W, W)."""
        root = root_of(self.solution.factor, self.solution.scale)
        return np.asarray(root @ root.T)

    @property
    def log_evidence(self) -> float:
        """L at the mode, in nats."""
        return self.log_joint + 0.5 * (float(np.log(self.alpha).sum()) - self.solution.log_det)

    def at_mode(self) -> Self:
        """Return the mode. Raises ``NumericalError`` if Newton's steps do not converge."""
        state = self
        last = np.inf
        for _ in range(NEWTON_STEPS):
            decrement = 0.5 * float(state.gradient @ state.solution.x)
            if decrement <= DECREMENT or last / 2 < decrement < ROUNDING:
                return state
            last = decrement
            state = state.uphill()
        raise NumericalError(f"no mode of the weights after {NEWTON_STEPS} Newton steps")

    def uphill(self) -> Self:
        """Return the state after the Newton step, halved until J does not fall."""
        step = self.solution.x
        for _ in range(HALVINGS):
            moved = replace(self, weights=self.weights + step)
            if moved.log_joint >= self.log_joint - 1e-12 * abs(self.log_joint):
                break
            step = 0.5 * step
        return moved
