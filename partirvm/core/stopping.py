"""Rules that end a dense fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Thresholds:
    """Absolute thresholds of the classical algorithm (Denœux's slides, p. 32; Ben-Shimon & Shmilovici 2006, §1).

    ``alpha_limit`` τ: a column is pruned once its α exceeds this, and for no other reason. The fit has converged when
    no α_i changes by ``alpha_tol`` ε_α and β does not change by ``beta_tol`` ε_β. None stands for the criteria of
    evidence. α and β are those of the problem as it is scaled.
    """

    alpha_limit: float | None = None
    alpha_tol: float | None = None
    beta_tol: float | None = None

    @property
    def ends(self) -> bool:
        """True if they decide when the fit ends."""
        return self.alpha_tol is not None or self.beta_tol is not None

    def converged(self, alpha: Float, beta: Float) -> bool:
        """Return True if the changes of α (M,) and β in one step are below the thresholds."""
        of_alpha = np.inf if self.alpha_tol is None else self.alpha_tol
        of_beta = np.inf if self.beta_tol is None else self.beta_tol
        return bool(np.max(np.abs(alpha), initial=0.0) < of_alpha and np.max(np.abs(beta)) < of_beta)


@dataclass(frozen=True)
class StopRule:
    """When a dense fit ends: the evidence changes by less than ``tol``·N nats, or a limit is reached.

    Limits are ``max_iterations``, and a number of kernel columns, ``vectors``, to which pruning reduces the fit; None
    means convergence. With ``guard`` a fit whose residual has cancelled stops and requests a pass. With ``thin``, or if
    the prior keeps worthless columns (``Prior.lingers``), it has converged only if no such column is left. ``order`` is
    the seed of a random order of actions on single columns; None means the action of largest gain. ``thresholds`` are
    those of steps that update all α together.
    """

    tol: float
    max_iterations: int
    vectors: int | None = None
    guard: bool = True
    thin: bool = False
    order: int | None = None
    thresholds: Thresholds = Thresholds()
