"""Classification: evidence maximisation with the Laplace approximation, one pass per Newton step.

A pass at weights W (M, C) returns the log likelihood, gradient and curvature (``core.link``). They
define a quadratic, on which each output has the posterior H_k = ΦᵀB_kΦ + A, μ_k = w_k + H_k⁻¹(Φᵀ(t
− y_k) − A w_k), that is H_k⁻¹ΦᵀB_k z with the working response z = Φw_k + B_k⁻¹(t − y_k). (Tipping
2001, eq. 27, prints t instead of z.) Its evidence is (MacKay 1992; Tipping 2001, §3)

    log p(t | W) + gᵀδ − ½δᵀGδ + ½ Σ_k [ log|A| − μ_kᵀAμ_k − log|H_k| ],       δ = μ − w,

the Laplace approximation at the mode, where δ = 0, plus the log prior of α. The outputs share the α
of a column: α_i = Σ_kγ_ik / Σ_kμ_ik². B changes with α, so this fixed point is not a stationary
point of the evidence. α is updated on the fixed quadratic: initially once per pass (B is then ¼,
and more updates would prune columns that the data need), later until α converges or the mode has
moved too far from W.

**Several classes.** The blocks of H between different outputs are omitted. The true curvature along
a step is 0 to 2 times the curvature of the diagonal blocks: 2 if two classes move apart, about 1 if
many compete; so taking ⅔ of the step is wrong by at most one third. A constant added to all outputs
changes only the prior, so the mode has Σ_k w_ik = 0.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from partirvm.core.link import LogisticBlock
from partirvm.core.posterior import Posterior, own_factors, solve, weakly_correlated
from partirvm.core.priors import FLAT, Prior, optimum
from partirvm.core.updates import ALPHA_FLOOR, surviving
from partirvm.types import Bool, Float, Int


@dataclass(frozen=True)
class LaplaceState:
    """State of a fit of M columns and C outputs: α, a quadratic about ``weights``, and the
    posterior.

    Attributes:
        labels: column labels (M,)
        alpha: α, shared by the outputs (M,)
        weights: the weights at which ``block`` was measured (M, C)
        block: the statistic of pass ``iteration``
        posteriors: one for each output
        iteration: number of the last pass
        prior: prior of α
    """

    labels: Int
    alpha: Float
    weights: Float
    block: LogisticBlock
    posteriors: tuple[Posterior, ...]
    iteration: int = 0
    prior: Prior = FLAT

    @property
    def n(self) -> int:
        """Number of rows with a positive weight."""
        return self.block.n

    @property
    def n_vectors(self) -> int:
        """Number of kernel columns, excluding the leading columns."""
        return int((self.labels >= 0).sum())

    @cached_property
    def mean(self) -> Float:
        """μ (M, C)."""
        return np.column_stack([output.mean for output in self.posteriors])

    @cached_property
    def variance(self) -> Float:
        """Diagonals of Σ_k (M, C)."""
        return np.column_stack([output.variance for output in self.posteriors])

    @cached_property
    def determinedness(self) -> Float:
        """γ (M, C)."""
        return np.column_stack([output.determinedness for output in self.posteriors])

    def roots(self) -> Float:
        """Return R_k with Σ_k = R_kR_kᵀ, (C, M, M)."""
        return np.stack([output.root() for output in self.posteriors])

    def penalised(self) -> float:
        """Return the penalised likelihood log p(t | W) − ½ Σ α w² at ``weights``, in nats."""
        return float(
            self.block.log_likelihood - 0.5 * np.sum(self.alpha[:, None] * self.weights**2)
        )

    @property
    def decrement(self) -> float:
        """Increase of the penalised likelihood from ``weights`` to the quadratic's mode, in nats; 0
        at the mode."""
        slope = self.block.gradient - self.alpha[:, None] * self.weights
        return float(0.5 * np.sum(slope * (self.mean - self.weights)))

    @cached_property
    def log_evidence(self) -> float:
        """Log evidence of the quadratic with the prior of α, in nats; the Laplace approximation at
        the mode."""
        density = self.prior.shared(self.weights.shape[1]).log_density(
            self.labels, self.alpha, None
        )
        return float(sum(output.log_evidence + density for output in self.posteriors))

    def losses(self) -> Float:
        """Return the evidence lost by deleting each column (M,), in nats, summed over outputs."""
        return np.asarray(optimum(*own_factors(self, self.alpha))[1].sum(axis=1))


def init(
    labels: Int, alpha: Float, weights: Float, block: LogisticBlock, prior: Prior = FLAT
) -> LaplaceState:
    """Return the first state of a fit.

    Args:
        labels: column labels (M,)
        alpha: α, unless fixed by the prior (M,)
        weights: the weights at which ``block`` was measured (M, C)
        block: the quadratic
        prior: prior of α
    """
    state = LaplaceState(labels, alpha, weights, block, (), prior=prior)
    return settled(state, alpha, weights, block)


def settled(
    state: LaplaceState, alpha: Float, weights: Float, block: LogisticBlock
) -> LaplaceState:
    """Return the state of the same fit at different values, with the corresponding posterior.

    Args:
        state: any state of the fit with the same columns
        alpha: α, unless fixed by the prior (M,)
        weights: the centre of the quadratic (M, C)
        block: the quadratic
    """
    alpha = state.prior.fix(state.labels, alpha)
    posteriors = tuple(_posterior(k, alpha, weights[:, k], block) for k in range(weights.shape[1]))
    return replace(state, alpha=alpha, weights=weights, block=block, posteriors=posteriors)


def _posterior(k: int, alpha: Float, weights: Float, block: LogisticBlock) -> Posterior:
    """Return the posterior of output k; the first output's posterior holds the shared log
    likelihood.

    Args:
        k: the output
        alpha: α (M,)
        weights: the output's weights at the quadratic's centre (M,)
        block: the quadratic
    """
    G = block.curvature[k]
    gradient = block.gradient[:, k]
    solution = solve(G, alpha, gradient - alpha * weights)
    delta = solution.x
    mean = weights + delta
    log_likelihood = 0.0 if k else block.log_likelihood
    predicted = log_likelihood + delta @ (gradient - 0.5 * (G @ delta))
    evidence = predicted + 0.5 * (np.log(alpha).sum() - alpha @ mean**2 - solution.log_det)
    return solution.posterior(mean, -2 * float(predicted), float(evidence), 0.0)


def update(state: LaplaceState) -> LaplaceState:
    """Update α once on the fixed quadratic, using the prior's update rule, and prune columns."""
    gamma = state.determinedness.mean(axis=1)
    square = (state.mean**2).mean(axis=1)
    alpha = state.prior.shared(state.weights.shape[1]).alpha_update(gamma, square)
    remaining = surviving(state, _worthless(state), gamma, alpha)
    floor = ALPHA_FLOOR * np.einsum("kmm->mk", state.block.curvature).max(axis=1)
    return _of_columns(state, remaining, np.maximum(alpha, floor))


def thin(state: LaplaceState) -> LaplaceState:
    """Delete columns that do not raise the evidence, correlated ones one at a time; return the
    state itself if there are none."""
    failing = np.flatnonzero(_worthless(state) & ~state.prior.held(state.labels))
    if not len(failing):
        return state
    pruned = weakly_correlated(state.posteriors, failing)
    return _of_columns(state, np.setdiff1d(np.arange(len(state.labels)), pruned), state.alpha)


def _worthless(state: LaplaceState) -> Bool:
    """Return a mask (M,), True for columns that do not raise the evidence at any α."""
    s, q = own_factors(state, state.alpha)
    return np.asarray((q**2).mean(axis=1) <= s.mean(axis=1))


def _of_columns(state: LaplaceState, columns: Int, alpha: Float) -> LaplaceState:
    """Return the state at this α with only the columns at these positions; in the quadratic, the
    weights of the others are zero."""
    shift = state.weights.copy()
    shift[columns] = 0.0
    block = state.block
    if shift.any():
        moved = np.einsum("kij,jk->ik", block.curvature, shift)
        change = float(np.sum(shift * (block.gradient + 0.5 * moved)))
        block = replace(
            block, log_likelihood=block.log_likelihood - change, gradient=block.gradient + moved
        )
    weights = (state.weights - shift)[columns]
    reduced = replace(state, labels=state.labels[columns])
    return settled(reduced, alpha[columns], weights, block.take(columns))
