"""Solvers of the older literature: EM updates, and the thresholds of the classical algorithm.

EM (Tipping 2001, appendix A) updates, with the Gamma priors of ``core.priors``,

    α_i ← (1 + 2a) / (μ_i² + Σ_ii + 2b)         β ← (N + 2c) / (‖t − Φμ‖² + Σγ/β + 2d).

It never lowers the evidence, but takes many more steps than MacKay's updates. The classical algorithm (Denœux's slides,
p. 32; Ben-Shimon & Shmilovici 2006, §1) has three absolute thresholds, for the standardised problem: a column is pruned
once its α exceeds τ, and for no other reason; a fit ends when no α changes by ε_α, and β does not change by ε_β.

``classical`` adds a solver to ``core.solvers.SOLVERS``, for one target and known to this process only:
``RVMRegressor(solver=classical("em", em=True))``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.priors import Prior
from partirvm.core.solvers import SOLVERS, Watch
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import HyperState, StepInfo, maximise, settled
from partirvm.errors import UsageError
from partirvm.types import Bool, Float

STEPS = 10
"""Steps of EM that a fit may take for each step of another solver."""


@dataclass(frozen=True)
class ClassicalPrior(Prior):
    """Priors with the updates of EM, or with α infinite beyond ``limit``, so that such columns are deleted."""

    em: bool = False
    limit: float | None = None

    @property
    def keeps_worthless(self) -> bool:
        """True for EM: α stays finite for a column that does not raise the evidence."""
        return self.em or super().keeps_worthless

    def worthless(self, s: Float, square: Float) -> Bool:
        """Return False for all columns if there is a limit: no column is deleted because of the evidence."""
        return super().worthless(s, square) & (self.limit is None)

    def alpha_update(self, determinedness: Float, square: Float, variance: Float) -> Float:
        """Return the next α."""
        found = super().alpha_update(determinedness, square, variance)
        if self.em:
            found = (1.0 + 2.0 * self.alpha.shape) / (square + variance + 2.0 * self.alpha.rate)
        return found if self.limit is None else np.where(found > self.limit, np.inf, found)

    def noise_update(self, n: float, determined: Float, residual: Float, beta: Float) -> tuple[Float, Float]:
        """Return numerator and denominator of the next β."""
        if not self.em:
            return super().noise_update(n, determined, residual, beta)
        c, d = 2.0 * self.noise.shape, 2.0 * self.noise.rate
        return np.full_like(residual, n + c), residual + determined / beta + d


def classical(
    name: str,
    *,
    em: bool = False,
    alpha_limit: float | None = None,
    alpha_tol: float | None = None,
    beta_tol: float | None = None,
) -> str:
    """Make the solver ``name`` with EM or MacKay's updates and the thresholds τ, ε_α and ε_β, and return its name.

    None stands for the criteria of evidence.
    """

    def run(state: HyperState, rule: StopRule, on_step: Watch) -> tuple[HyperState, Termination]:
        if isinstance(state.beta, np.ndarray):
            raise UsageError(f"solver {name!r} needs a single target")
        given, last = state.prior, state
        prior = ClassicalPrior(given.alpha, given.noise, given.fixed, em, alpha_limit)
        state = replace(state, prior=prior)
        rule = replace(rule, max_iterations=STEPS * rule.max_iterations if em else rule.max_iterations)

        def still(now: HyperState, info: StepInfo, rule: StopRule) -> bool:
            """True if the last step pruned no column, and α and β changed by less than their thresholds."""
            nonlocal last
            before, last = last, now
            if info.pruned or not np.max(np.abs(now.alpha - before.alpha), initial=0.0) < (alpha_tol or np.inf):
                return False
            return abs(float(now.beta) - float(before.beta)) < (beta_tol or np.inf)

        rests = settled if alpha_tol is None and beta_tol is None else still
        found, reason = maximise(state, rule, on_step, rests)
        return replace(found, prior=given), reason

    SOLVERS[name] = run
    return name
