"""Classification: evidence maximisation with the Laplace approximation, one pass per Newton step.

A pass at weights W (M, C) returns log likelihood, gradient and curvature (``core.link``), and so a quadratic. With it
each output has the posterior H_k = ΦᵀB_kΦ + A, μ_k = w_k + H_k⁻¹(Φᵀ(t − y_k) − A w_k), that is H_k⁻¹ΦᵀB_k z with the
working response z = Φw_k + B_k⁻¹(t − y_k). (Tipping 2001, eq. 27, prints t in the place of z.) Its evidence is (MacKay
1992; Tipping 2001, §3)

    log p(t | W) + gᵀδ − ½δᵀGδ + ½ Σ_k [ log|A| − μ_kᵀAμ_k − log|H_k| ],       δ = μ − w,

the Laplace approximation at the mode, where δ = 0, plus the log prior of α. If the outputs share the α of a column, α_i
= Σ_kγ_ik / Σ_kμ_ik². B changes with α, so this fixed point is not a stationary point of the evidence. α is updated on
the fixed quadratic: at first once per pass (B = ¼, and more updates would prune columns that the data need), later
until α converges or the mode has moved too far from W.

**Several classes.** The blocks of H between different outputs are omitted. The true curvature along a step is 0 to 2
times that of the diagonal blocks: 2 if two classes move apart, about 1 if many compete; so ⅔ of the step is wrong by at
most one third. A constant added to all outputs changes only the prior, so with a shared α the mode has Σ_k w_ik = 0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from partirvm.core.link import LINKS, Link, LogisticBlock, LogisticCross
from partirvm.core.posterior import Posterior, factorise, solve, sparsity_quality, weakly_correlated
from partirvm.core.priors import FLAT, Prior, optimum
from partirvm.core.updates import ALPHA_FLOOR, FADED, LOST
from partirvm.types import Bool, Float, Int


@dataclass(frozen=True)
class LaplaceState:
    """State of a fit of M columns and C outputs: α, a quadratic about ``weights``, and the posterior.

    ``alpha`` (M, C) is inf if output k lacks the column. ``block`` is the statistic that pass ``iteration`` measured at
    ``weights`` (M, C). ``posteriors`` has one posterior per output, of the columns of this output in order.
    """

    likelihood: str
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
        """Number of kernel columns, without the leading columns."""
        return int((self.labels >= 0).sum())

    @property
    def link(self) -> Link:
        """The link of the likelihood."""
        return LINKS[self.likelihood]

    @property
    def own_prior(self) -> Prior:
        """The part of the prior that each output has."""
        return self.prior.shared(self.alpha.shape[1]) if self.link.coupled else self.prior

    @cached_property
    def present(self) -> Bool:
        """True for the columns that an output has, (M, C)."""
        return np.isfinite(self.alpha)

    @cached_property
    def mean(self) -> Float:
        """μ (M, C); zero where an output lacks the column."""
        return self._spread([each.mean for each in self.posteriors])

    @cached_property
    def variance(self) -> Float:
        """Diagonals of Σ_k (M, C); zero where an output lacks the column."""
        return self._spread([each.variance for each in self.posteriors])

    @cached_property
    def determinedness(self) -> Float:
        """γ (M, C)."""
        return self._spread([each.determinedness for each in self.posteriors])

    def _spread(self, values: list[Float]) -> Float:
        found = np.zeros(self.alpha.shape)
        found.T[self.present.T] = np.concatenate(values)
        return found

    def roots(self) -> Float:
        """Return R_k with Σ_k = R_kR_kᵀ, (C, M, M); zero where an output lacks the column."""
        found = np.zeros((len(self.posteriors), len(self.labels), len(self.labels)))
        for root, active, each in zip(found, self.present.T, self.posteriors, strict=True):
            root[np.ix_(active, active)] = each.root()
        return found

    @cached_property
    def precision(self) -> Float:
        """α (M, C), zero where an output lacks the column."""
        return np.where(self.present, self.alpha, 0.0)

    def penalised(self) -> float:
        """Return the penalised likelihood log p(t | W) − ½ Σ α w² at ``weights``, nats."""
        return float(self.block.log_likelihood.sum() - 0.5 * np.sum(self.precision * self.weights**2))

    @property
    def decrement(self) -> float:
        """Increase of the penalised likelihood from ``weights`` to the mode of the quadratic, nats; 0 at the mode."""
        slope = self.block.gradient - self.precision * self.weights
        return float(0.5 * np.sum(slope * (self.mean - self.weights)))

    @cached_property
    def evidences(self) -> Float:
        """Part of each output (C,) in the log evidence, nats."""
        density = self.own_prior.log_density
        pairs = zip(self.posteriors, self.alpha.T, strict=True)
        return np.array([each.log_evidence + density(self.labels, alpha, None) for each, alpha in pairs])

    @property
    def log_evidence(self) -> float:
        """Log evidence of the quadratic with the prior of α, nats; at the mode the Laplace approximation."""
        return float(sum(self.evidences.tolist()))

    def sparsity_quality(self) -> tuple[Float, Float]:
        """Return s and q of each column, (M, C); zero where an output lacks the column."""
        inverse = np.where(self.present, 1.0 / np.where(self.present, self.variance, 1.0), 0.0)
        return np.maximum(inverse - self.precision, 0.0), self.mean * inverse

    def losses(self) -> Float:
        """Return the loss of evidence by the deletion of each column (M,), nats, summed over outputs."""
        return np.asarray(optimum(*self.sparsity_quality())[1].sum(axis=1))

    def gains(self, statistic: LogisticCross) -> Float:
        """Return the gain of adding each column of a pool alone (Q,), nats, summed; those of a sample are scaled up."""
        scale = self.n / statistic.n if self.n else 1.0
        cross, diagonal = scale * statistic.cross, scale * statistic.diagonal.T
        s, q = trial_factors(self, cross, diagonal, scale * statistic.gradient)
        return np.asarray(optimum(s, q)[1].sum(axis=1))


def init(
    likelihood: str, labels: Int, alpha: Float, weights: Float, block: LogisticBlock, prior: Prior = FLAT
) -> LaplaceState:
    """Return the first state, at α (M, C) or fixed values, with the quadratic ``block`` about ``weights`` (M, C)."""
    return settled(LaplaceState(likelihood, labels, alpha, weights, block, (), prior=prior), alpha, weights, block)


def settled(
    state: LaplaceState, alpha: Float, weights: Float, block: LogisticBlock, same: Collection[int] = ()
) -> LaplaceState:
    """Return the state of the same fit with other ``alpha``, ``weights`` and ``block``; nothing differs for outputs
    ``same``.
    """
    alpha = state.prior.fix(state.labels, alpha)
    logs = np.zeros(alpha.shape[1])
    logs[: len(block.log_likelihood)] = block.log_likelihood  # the first posterior holds a likelihood that is shared
    kept = {k: state.posteriors[k] for k in same if k or len(block.log_likelihood) > 1}
    posteriors = tuple(
        kept.get(k) or _posterior(k, alpha[:, k], weights[:, k], block, logs[k]) for k in range(len(logs))
    )
    return replace(state, alpha=alpha, weights=weights, block=block, posteriors=posteriors)


def _posterior(k: int, alpha: Float, weights: Float, block: LogisticBlock, log_likelihood: float) -> Posterior:
    """Return the posterior of output k, of the columns whose α (M,) is finite."""
    own = np.flatnonzero(np.isfinite(alpha))
    G = block.curvature[k]  # the matrix may be large
    G = G if len(own) == len(alpha) else G[own[:, None], own]
    alpha, weights, gradient = alpha[own], weights[own], block.gradient[own, k]
    H = G.copy()
    H.flat[:: len(H) + 1] += alpha
    factor, scale = factorise(H)
    delta, variance = solve(factor, scale, gradient - alpha * weights)
    mean = weights + delta
    predicted = log_likelihood + delta @ (gradient - 0.5 * (G @ delta))
    log_det = 2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum())
    evidence = float(predicted + 0.5 * (np.log(alpha).sum() - alpha @ mean**2 - log_det))
    determinedness = np.clip(1.0 - alpha * variance, 0.0, 1.0)
    return Posterior(mean, variance, determinedness, -2 * float(predicted), evidence, factor, scale, 0.0)


def update(state: LaplaceState, going: Bool | None = None) -> LaplaceState:
    """Update α once on the fixed quadratic, by the rule of the prior, and prune columns; of outputs ``going`` (C,)."""
    s, q = state.sparsity_quality()
    gamma, square = _alike(state, state.determinedness), _alike(state, state.mean**2)
    alpha = state.own_prior.alpha_update(gamma, square)
    gone = ((_alike(state, q**2) <= _alike(state, s)) & (gamma < FADED)) | (gamma < LOST) | ~np.isfinite(alpha)
    gone = (gone & ~state.prior.held(state.labels)[:, None]) | ~state.present
    floor = ALPHA_FLOOR * np.einsum("kmm->mk", state.block.curvature)
    if state.link.coupled:
        floor = np.broadcast_to(floor.max(axis=1, keepdims=True), floor.shape)
    alpha = np.where(gone, np.inf, np.maximum(alpha, floor))
    if going is None or state.link.coupled:
        return _without(state, gone, alpha)
    gone, alpha = np.where(going, gone, ~state.present), np.where(going, alpha, state.alpha)
    return _without(state, gone, alpha, np.flatnonzero(~going).tolist())


def thin(state: LaplaceState) -> LaplaceState:
    """Delete columns that do not raise the evidence, of correlated ones one at a time; the state itself if none."""
    s, q = state.sparsity_quality()
    worthless = _alike(state, q**2) <= _alike(state, s)
    failing = worthless & state.present & ~state.prior.held(state.labels)[:, None]
    if not failing.any():
        return state
    gone = ~state.present
    if state.link.coupled:
        gone[weakly_correlated(state.posteriors, np.flatnonzero(failing[:, 0]))] = True
    else:
        for k, each in enumerate(state.posteriors):
            active = np.flatnonzero(state.present[:, k])
            gone[active[weakly_correlated((each,), np.flatnonzero(failing[active, k]))], k] = True
    return _without(state, gone, np.where(gone, np.inf, state.alpha))


def _alike(state: LaplaceState, value: Float) -> Float:
    """Return a value (M, C), or its mean over outputs that share α."""
    return np.broadcast_to(value.mean(axis=1, keepdims=True), value.shape) if state.link.coupled else value


def _without(state: LaplaceState, gone: Bool, alpha: Float, same: Collection[int] = ()) -> LaplaceState:
    """Return the state at this α without the columns ``gone`` (M, C): the quadratic with zeros in their place."""
    shift, block = np.where(gone, state.weights, 0.0), state.block
    if shift.any():
        moved, outputs = np.zeros_like(shift), np.flatnonzero(shift.any(axis=0))
        curvature = block.curvature if len(outputs) == shift.shape[1] else block.curvature[outputs]
        moved[:, outputs] = np.einsum("kij,jk->ik", curvature, shift[:, outputs])
        change = -np.einsum("ik,ik->k", shift, block.gradient + 0.5 * moved)
        logs = block.log_likelihood + (change if len(block.log_likelihood) > 1 else change.sum())
        block = replace(block, log_likelihood=logs, gradient=block.gradient + moved)
    kept = np.flatnonzero(~gone.all(axis=1))
    state, weights = replace(state, labels=state.labels[kept]), (state.weights - shift)[kept]
    return settled(state, alpha[kept], weights, block.take(kept), same)


def trial_factors(state: LaplaceState, cross: Float, diagonal: Float, gradient: Float) -> tuple[Float, Float]:
    """Return s and q (P, C) of columns on trial, by Tipping & Faul (2003), eqs. 19 and 22, on each output's quadratic.

    ``cross`` is (C, M, P); ``diagonal`` and ``gradient`` are (P, C), measured at the weights of ``state``.
    """
    pairs = []
    for k, each in enumerate(state.posteriors):
        active = np.flatnonzero(state.present[:, k])
        offset = state.weights[active, k]
        pairs.append(sparsity_quality(each, 1.0, offset, cross[k][active], diagonal[:, k], gradient[:, k]))
    return np.stack([s for s, _ in pairs], axis=1), np.stack([q for _, q in pairs], axis=1)
