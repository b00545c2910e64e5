"""Classification: evidence maximisation with the Laplace approximation, one pass per Newton step.

At weights W (M, C) a pass leaves log likelihood, gradient and curvature (``core.logistic``). The likelihood's quadratic
there has for each output the posterior H_k = ΦᵀB_kΦ + A, μ_k = w_k + H_k⁻¹(Φᵀ(t − y_k) − A w_k): that is
H_k⁻¹ΦᵀB_k z with the working response z = Φw_k + B_k⁻¹(t − y_k). (Tipping 2001, eq. 27, prints t in the place of z.)
The evidence is that of the quadratic (MacKay 1992; Tipping 2001, §3),

    log p(t | W) + gᵀδ − ½δᵀGδ + ½ Σ_k [ log|A| − μ_kᵀAμ_k − log|H_k| ],       δ = μ − w,

exact Laplace at the mode, where δ = 0; a prior of α is added (``core.priors``). With α shared by the outputs of one
column, α_i = Σ_kγ_ik / Σ_kμ_ik², and each output has its part of the prior. As B moves with α this fixed point is no
stationary point of the evidence, which need not rise every time.

**Passes.** α is updated on the fixed quadratic, once per pass at first, later until it settles or the mode has moved
too far for the quadratic: long runs on the flat B = ¼ of the start prune what the data need. **Step control.** If the
penalised likelihood falls, the step is taken back, with the columns that it pruned; a plain Newton step at the old α is
shortened until it rises, and others follow until the mode is near: what the quadratic of a flank says of α is nothing.
Columns that were about to enter get the α that each would have alone, as classes that part leave no room for hope.

**Several classes.** Blocks between outputs are left out of H. The true curvature is 0 to 2 times the blocks', since a
row of diag(y) − yyᵀ sums to 0: 2 where two classes part, about 1 where many compete, and 0 where two classes that
compete alone move together, which only the prior resists. A step of ⅔ of the blocks' errs by a third at most for the
first two, and is of no use for the third. Shifting all outputs alike changes nothing but the prior, so that the mode
has Σ_k w_ik = 0: steps are held there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.link import LINKS
from partirvm.core.logistic import LogisticBlock
from partirvm.core.posterior import Posterior, factorise, solve, weakly_correlated
from partirvm.core.priors import FLAT, Prior
from partirvm.core.updates import ALPHA_FLOOR, FADED, LOST, entry_precision, evidence_gain, sparsity_quality

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class LaplaceState:
    """A fit of M columns and C outputs: α, the quadratic about ``weights``, and the posterior of that quadratic.

    ``alpha`` (M, C) is inf where output k has not the column; one that none has is on trial (``core.fast_laplace``).
    ``weights`` (M, C) are where ``block`` was measured, by the ``passes``-th pass of this fit; ``posteriors`` are of
    each output's own columns, in order. ``prior`` is that of each α, and says which stay as they are.
    """

    likelihood: str
    labels: Int
    alpha: Float
    weights: Float
    block: LogisticBlock
    posteriors: tuple[Posterior, ...]
    passes: int = 0
    prior: Prior = FLAT

    @property
    def n(self) -> int:
        """Rows of weight above zero."""
        return self.block.n

    @property
    def n_vectors(self) -> int:
        """Kernel columns of finite α, the leading ones not counted."""
        return int((self.labels[self.active] >= 0).sum())

    @property
    def n_columns(self) -> int:
        """M, the leading ones counted."""
        return len(self.labels)

    @property
    def active(self) -> Int:
        """Positions of the columns that any output has."""
        return np.flatnonzero(np.isfinite(self.alpha).any(axis=1))

    @property
    def iteration(self) -> int:
        """Passes of this fit so far."""
        return self.passes

    @property
    def log_evidence(self) -> float:
        """In nats, of the quadratic at hand, with the prior of α: Laplace's where ``weights`` are the mode."""
        return float(sum(each.log_evidence for each in self.posteriors)) + self.own_prior.log_density(
            self.labels, self.alpha, None
        )

    @property
    def coupled(self) -> bool:
        """Whether outputs share one likelihood and one α per column (``core.link``)."""
        return LINKS[self.likelihood].coupled

    @property
    def own_prior(self) -> Prior:
        """The prior's part of each output."""
        return self.prior.shared(self.alpha.shape[1]) if self.coupled else self.prior

    @property
    def mean(self) -> Float:
        """μ (M, C), zero where an output has not the column."""
        return self._spread([each.mean for each in self.posteriors])

    @property
    def variance(self) -> Float:
        """Diagonals of Σ_k (M, C), zero where an output has not the column."""
        return self._spread([each.variance for each in self.posteriors])

    @property
    def determinedness(self) -> Float:
        """γ (M, C)."""
        return self._spread([each.determinedness for each in self.posteriors])

    def roots(self) -> Float:
        """R_k with Σ_k = R_kR_kᵀ, (C, M, M), zero where an output has not the column."""
        found = np.zeros((len(self.posteriors), len(self.labels), len(self.labels)))
        for k, each in enumerate(self.posteriors):
            active = np.flatnonzero(np.isfinite(self.alpha[:, k]))
            found[k][np.ix_(active, active)] = each.root()
        return found

    @property
    def decrement(self) -> float:
        """By how many nats the penalised likelihood of the quadratic is above that at ``weights``: 0 at the mode."""
        prior = np.where(np.isfinite(self.alpha), self.alpha, 0.0)
        slope = self.block.gradient - prior * self.weights
        return float(0.5 * np.sum(slope * (self.mean - self.weights)))

    @property
    def displacement(self) -> float:
        """½δᵀGδ, nats: how far from ``weights`` the quadratic has its mode, as its likelihood measures distance."""
        delta = self.mean - self.weights
        return float(0.5 * np.einsum("ik,kij,jk->", delta, self.block.curvature, delta, optimize=True))

    def penalised(self) -> float:
        """log p(t | W) − ½ Σ α w² at ``weights``, nats."""
        prior = np.where(np.isfinite(self.alpha), self.alpha, 0.0)
        return float(self.block.log_likelihood.sum() - 0.5 * np.sum(prior * self.weights**2))

    def sparsity_quality(self) -> tuple[Float, Float]:
        """s and q of every column that an output has, (M, C); zero elsewhere."""
        active = np.isfinite(self.alpha)
        pairs = [each.sparsity_and_quality(self.alpha[active[:, k], k]) for k, each in enumerate(self.posteriors)]
        return self._spread([s for s, _ in pairs]), self._spread([q for _, q in pairs])

    def losses(self) -> Float:
        """Evidence that each column's deletion would cost (M,), nats, outputs together."""
        found: Float = evidence_gain(*self.sparsity_quality(), self.own_prior.alpha).sum(axis=1)
        return found

    def take(self, columns: Int) -> LaplaceState:
        """The same with some of its columns; the others' weights are dropped from the quadratic as they are."""
        alpha, weights, block = self.alpha[columns], self.weights[columns], self.block.take(columns)
        return settled(replace(self, labels=self.labels[columns]), alpha, weights, block)

    def _spread(self, values: list[Float]) -> Float:
        found = np.zeros(self.alpha.shape)
        for k, each in enumerate(values):
            found[np.isfinite(self.alpha[:, k]), k] = each
        return found


def init(
    likelihood: str, labels: Int, alpha: Float, weights: Float, block: LogisticBlock, prior: Prior = FLAT
) -> LaplaceState:
    """Begin at α (M, C), but for those that the prior fixes, with the quadratic ``block`` about ``weights`` (M, C)."""
    alpha = prior.fix(labels, alpha)
    return LaplaceState(likelihood, labels, alpha, weights, block, _posteriors(alpha, weights, block), prior=prior)


def settled(state: LaplaceState, alpha: Float, weights: Float, block: LogisticBlock) -> LaplaceState:
    """The same fit at another α, as far as it is not fixed, or about another point."""
    alpha = state.prior.fix(state.labels, alpha)
    return replace(state, alpha=alpha, weights=weights, block=block, posteriors=_posteriors(alpha, weights, block))


def _posteriors(alpha: Float, weights: Float, block: LogisticBlock) -> tuple[Posterior, ...]:
    """The posterior of each output. A likelihood that outputs share is counted in the first."""
    logs = np.zeros(alpha.shape[1])
    logs[: len(block.log_likelihood)] = block.log_likelihood
    return tuple(
        _posterior(alpha[:, k], weights[:, k], block.gradient[:, k], block.curvature[k], float(logs[k]))
        for k in range(alpha.shape[1])
    )


def _posterior(alpha: Float, weights: Float, gradient: Float, curvature: Float, log_likelihood: float) -> Posterior:
    active = np.isfinite(alpha)
    if not active.all():
        alpha, weights, gradient = alpha[active], weights[active], gradient[active]
        curvature = curvature[np.ix_(active, active)]
    H = curvature.copy()
    H.flat[:: len(H) + 1] += alpha
    factor, scale, jitter = factorise(H)
    delta, variance = solve(factor, scale, gradient - alpha * weights)
    mean = weights + delta
    predicted = log_likelihood + float(delta @ (gradient - 0.5 * (curvature @ delta)))
    log_evidence = predicted + 0.5 * float(
        np.log(alpha).sum() - alpha @ mean**2 - 2 * (np.log(np.diagonal(factor)).sum() - np.log(scale).sum())
    )
    determinedness = np.clip(1.0 - alpha * variance, 0.0, 1.0)
    return Posterior(mean, variance, determinedness, -2 * predicted, log_evidence, factor, scale, jitter, 0.0)


def update(state: LaplaceState) -> LaplaceState:
    """One update of α on the fixed quadratic, MacKay's unless the prior has another, and pruning."""
    gamma, square, variance, prior = state.determinedness, state.mean**2, state.variance, state.own_prior
    s, q = state.sparsity_quality()
    gamma, square, variance, s, q = _alike(state, gamma, square, variance, s, q**2)
    alpha = prior.alpha_update(gamma, square, variance)
    gone = (prior.alpha.worthless(s, q) & (gamma < FADED)) | (gamma < LOST) | ~np.isfinite(alpha)
    gone = (gone & ~prior.held(state.labels)[:, None]) | ~np.isfinite(state.alpha)
    floor = ALPHA_FLOOR * np.einsum("kmm->mk", state.block.curvature)
    if state.coupled:
        floor = np.broadcast_to(floor.max(axis=1, keepdims=True), floor.shape)
    return _left(state, gone, np.where(gone, np.inf, np.maximum(alpha, floor)))


def thin(state: LaplaceState) -> LaplaceState:
    """Delete columns that gain nothing, but of near-copies only one at a time; see ``core.updates.thin``.

    Returns the state itself where there are none.
    """
    s, q = state.sparsity_quality()
    s, q = _alike(state, s, q**2)
    there = np.isfinite(state.alpha)
    failing = state.own_prior.alpha.worthless(s, q) & there & ~state.prior.held(state.labels)[:, None]
    if not failing.any():
        return state
    gone = ~there
    if state.coupled:
        gone[weakly_correlated(state.posteriors, np.flatnonzero(failing[:, 0]))] = True
    else:
        for k, each in enumerate(state.posteriors):
            active = np.flatnonzero(there[:, k])
            gone[active[weakly_correlated((each,), np.flatnonzero(failing[active, k]))], k] = True
    return _left(state, gone, np.where(gone, np.inf, state.alpha))


def _alike(state: LaplaceState, *values: Float) -> tuple[Float, ...]:
    """Values (M, C), or their means over outputs where these have one α."""
    if not state.coupled:
        return values
    return tuple(np.broadcast_to(value.mean(axis=1, keepdims=True), value.shape) for value in values)


def _left(state: LaplaceState, gone: NDArray[np.bool_], alpha: Float) -> LaplaceState:
    """What is left at this α (M, C) without the columns that are gone from outputs."""
    kept = np.flatnonzero(~gone.all(axis=1))
    weights, block = _relieved(state, gone)
    return settled(replace(state, labels=state.labels[kept]), alpha[kept], weights[kept], block.take(kept))


def moved_to(state: LaplaceState, alpha: Float) -> LaplaceState:
    """At this α (M, C), all columns kept: those at ∞ are on trial, at weight zero, and no part of the posterior."""
    return settled(state, alpha, *_relieved(state, ~np.isfinite(alpha)))


def _relieved(state: LaplaceState, gone: NDArray[np.bool_]) -> tuple[Float, LogisticBlock]:
    """Weights, zero where columns are gone from outputs, and the quadratic about these.

    A column that goes takes its part of the quadratic's centre with it: the gradient is that of the others there.
    """
    shift = np.where(gone, state.weights, 0.0)
    return state.weights - shift, _without(state.block, shift)


def _without(block: LogisticBlock, shift: Float) -> LogisticBlock:
    """The quadratic about W − shift instead of W, by algebra."""
    if not shift.any():
        return block
    moved = np.einsum("kij,jk->ik", block.curvature, shift)
    change = -np.einsum("ik,ik->k", shift, block.gradient + 0.5 * moved)
    logs = block.log_likelihood + (change if len(block.log_likelihood) > 1 else change.sum())
    return replace(block, log_likelihood=logs, gradient=block.gradient + moved)


def entry_factors(state: LaplaceState, block: LogisticBlock) -> tuple[Float, Float, Float]:
    """s, q (P, C) and the data's precision ΦᵀBΦ (P, C) of columns that ``block`` has beyond those of ``state``.

    ``block`` holds the state's columns first, at their weights, the new ones at weight zero.
    """
    M = state.n_columns
    diagonal = np.einsum("kmm->mk", block.curvature)[M:]
    s, q = trial_factors(state, block.curvature[:, :M, M:], diagonal, block.gradient[M:])
    return s, q, diagonal


def trial_factors(state: LaplaceState, cross: Float, diagonal: Float, gradient: Float) -> tuple[Float, Float]:
    """s and q (P, C) of P columns on trial, measured at the weights of ``state``: cross (C, M, P), the others (P, C).

    Tipping & Faul (2003), eqs. 19 and 22, for each output's quadratic.
    """
    pairs = []
    for k, each in enumerate(state.posteriors):
        active = np.flatnonzero(np.isfinite(state.alpha[:, k]))
        offset = state.weights[active, k]
        pairs.append(sparsity_quality(each, 1.0, offset, cross[k][active], diagonal[:, k], gradient[:, k]))
    return np.stack([s for s, _ in pairs], axis=1), np.stack([q for _, q in pairs], axis=1)


def enter(
    likelihood: str,
    labels: Int,
    block: LogisticBlock,
    known: Int,
    alpha: Float,
    weights: Float,
    prior: Prior = FLAT,
    *,
    wait: bool = False,
) -> LaplaceState:
    """A fit of the columns ``labels``, begun where ``block`` was measured.

    ``known`` (k,) are the columns that have α (k, C) and weights (k, C) already, at which the block was measured; the
    others were at weight zero, and start where Tipping & Faul (2003) put them, with one α for all outputs where they
    share it: that of the mean s and the mean q². Where they are to ``wait`` they start at α = ∞.
    """
    old = np.flatnonzero(np.isin(labels, known))
    new = np.flatnonzero(~np.isin(labels, known))
    order = np.argsort(known, kind="stable")[np.searchsorted(np.sort(known), labels[old])]
    together = block.take(np.concatenate([old, new]))
    begun = together.take(np.arange(len(old)))
    floor = ALPHA_FLOOR * np.einsum("kmm->mk", begun.curvature)
    there = init(likelihood, labels[old], np.maximum(alpha[order], floor), weights[order], begun, prior)
    joint, start = np.full((len(labels), weights.shape[1]), np.inf), np.zeros((len(labels), weights.shape[1]))
    joint[old], start[old] = there.alpha, weights[order]
    if not wait:
        joint[new] = _entry(there, together)
    return init(likelihood, labels, joint, start, block, prior)


def _entry(there: LaplaceState, together: LogisticBlock) -> Float:
    """α (P, C) at which the columns that ``together`` has beyond those of the fit start."""
    s, q, precision = entry_factors(there, together)
    if there.coupled:
        shape = s.shape
        s, q, precision = (np.broadcast_to(value.mean(axis=1, keepdims=True), shape) for value in (s, q**2, precision))
        q = np.sqrt(q)
    return entry_precision(s, q, precision, there.own_prior.alpha)
