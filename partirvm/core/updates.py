"""Evidence maximisation over α and β: ``init`` / ``step -> (state, info)``.

One step is MacKay's fixed point (Tipping 2001, eqs. 16–18), γ_i = 1 − α_iΣ_ii, α_i ← γ_i/μ_i², β ← (N − Σγ)/‖t − Φμ‖²,
followed by pruning and one new factorisation, so that a state's α, β, posterior and evidence always belong together.
Priors of α and β, EM in place of MacKay, and α that are fixed are in ``core.priors``; the evidence counts the priors.

**Pruning.** For an active column the evidence as a function of α_i alone peaks at infinity when q_i² ≤ s_i (Tipping &
Faul 2003, eq. 20). Deleting every such column at once loses evidence, since near-duplicates excuse each other; so a
column goes only when, besides, the data hardly determine it (γ_i < ``FADED``): then deletions no longer interact.
Where a prior or EM keeps α from infinity nothing fades: a fit that hardly moves is thinned out (``thin``).

**Several targets** share α: the fixed point is α_i ← Σ_τγ_iτ / Σ_τμ_iτ², each target has its own β_τ, and a column's
gain is that of all targets together (``core.shared_alpha``). Then β and ``power`` are (T,), μ and γ (M, T).

**Noise floor.** σ² never falls below ``NOISE_FLOOR`` × the mean square of the target: noise-free data and models that
interpolate would send β to infinity. The state says so in ``floored``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from partirvm.core.left_out import LeftOut, Spread
from partirvm.core.posterior import AnyPosterior, JointPosterior, Posterior, any_posterior, residuals, strangers
from partirvm.core.priors import FLAT, GammaDensity, Prior
from partirvm.core.shared_alpha import fails, fixed_point, optimum
from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import Termination

Float = NDArray[np.float64]

FADED = 1e-3
"""A column that fails q² > s is pruned once its determinedness γ is below this.

k near-copies share one degree of freedom, γ ≈ 1/k each, and all fail q² > s: this must be well below 1/k, or they all
go at once and the evidence with them.
"""

LOST = 1e-12
"""A column whose determinedness γ is below this is pruned: γ, and with it s = αγ/(1 − γ), are nothing but rounding."""

NOISE_FLOOR = 1e-8
"""Least noise variance, as a fraction of the target's mean square about its mean."""

ALPHA_FLOOR = 1e-12
"""Least α_i, as a fraction of the column's data precision βG_ii.

It bounds the condition of the scaled H. Smooth targets under a wide kernel ask for weights of ±1e7 that cancel each
other, and with them the digits of the residual; at this floor they fit no worse and nothing cancels.
"""

LINGERING = 100.0
"""Where columns linger they are thinned out once a step changes the evidence by less than this × tol nats per row."""

HOPE = 1e-3
"""Columns that join together start at this fraction of the α that each would have alone.

Columns look alike, and what one of them explains alone several share: started at their own best α they drive each other
out before the noise has fallen. With many candidates at once the difference is hundreds of nats (Friedman#1, all of
3,000 rows: evidence −5,653 against −4,831).
"""

OVERCONFIDENT = 4.0
"""``LeftOut.overconfidence`` from which on the noise of predictions is what rows left out tell.

At 4 standard deviations are half of what they should be. Fits of a sensible kernel have 0.8 to 2, those that
interpolate 7 and more, up to 10⁸.
"""

ABSENT = 1e-200
"""A column whose βφᵀφ is below this is one of zeros."""

DEPENDENT = 1e-8
"""A new column whose s is below this fraction of its βG_ii is taken to be a copy of columns that are there."""


@dataclass(frozen=True)
class StopRule:
    """When a dense fit ends: the evidence changes by less than ``tol``·N nats, or at a limit.

    Limits are ``max_iterations`` and kernel columns down to ``vectors``; None lets it converge. With ``guard`` a fit
    whose residual has cancelled stops to ask for a pass. With ``thin``, or where columns linger (``Prior.lingers``), it
    has converged only when no column is left that the evidence would rather be without.
    """

    tol: float
    max_iterations: int
    vectors: int | None = None
    guard: bool = True
    thin: bool = False


@dataclass(frozen=True)
class HyperState:
    """A dense fit in progress: statistics of the active columns, their α (M,), β, and the posterior at these.

    The posterior is kept in ``found``: whoever changes the statistics, α or β says there what it is now, or None where
    nobody may need it, as of all candidates that actions begin without.
    ``power`` is the target's mean square, which the noise floor refers to; ``fixed_noise`` keeps β as it is. β is
    estimated every ``noise_every`` steps, from the residual over the rows of ``statistics``, or where there are such
    over those of ``noise``: statistics of the same columns over a ``noise_share`` of all rows. ``prior`` says what is
    believed of α and β, and which α stay as they are. ``entered`` (M,) are the columns that have joined since the last
    step, at an α that no step has seen; None where none has. ``left_out`` are errors of rows
    left out, once they were measured.
    """

    statistics: GramStatistics
    alpha: Float
    beta: float | Float
    power: float | Float
    fixed_noise: bool
    iteration: int = 0
    floored: bool = False
    noise: GramStatistics | None = None
    noise_share: float = 1.0
    noise_every: int = 1
    prior: Prior = FLAT
    entered: NDArray[np.bool_] | None = None
    left_out: LeftOut | None = None
    found: AnyPosterior | None = field(default=None, repr=False)

    @property
    def posterior(self) -> AnyPosterior:
        """At these α and β, computed if it is not known. Raises ``NumericalError`` as ``posterior.factorise`` does."""
        return any_posterior(self.statistics, self.alpha, self.beta) if self.found is None else self.found

    @property
    def n_vectors(self) -> int:
        """Active kernel columns, the leading ones not counted."""
        return int((self.labels >= 0).sum())

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels of the active columns."""
        return self.statistics.labels

    @property
    def n_columns(self) -> int:
        """M, the leading ones counted."""
        return self.statistics.n_columns

    @property
    def n(self) -> int:
        """Rows of weight above zero that the posterior has seen."""
        return self.statistics.n

    @property
    def log_evidence(self) -> float:
        """In nats, of the target as the model sees it, with the priors of α and β."""
        beta = None if self.fixed_noise else self.beta
        return self.posterior.log_evidence + self.prior.log_density(self.labels, self.alpha, beta)

    @property
    def spread(self) -> Spread | None:
        """How far new rows lie from their predictions; None where rows left out do not tell: none were, or too few."""
        return None if self.left_out is None or self.overconfident else self.left_out.spread(self.n_vectors)

    @property
    def overconfident(self) -> bool:
        """Whether rows left out lie so far off (``OVERCONFIDENT``) that 1/β cannot be the noise of predictions."""
        return self.left_out is not None and self.left_out.overconfidence > OVERCONFIDENT

    @property
    def noise_variance(self) -> float | Float:
        """σ² of predictions, as the model sees the target: 1/β, or of an overconfident fit what rows left out tell.

        Of several targets (T,).
        """
        if self.left_out is None or not self.overconfident:
            return 1 / self.beta
        return self.left_out.noise_variance(float(self.beta), float(self.power))

    def losses(self) -> Float:
        """Evidence that each column's deletion would cost (M,), nats."""
        return joint_gain(*self.posterior.sparsity_and_quality(self.alpha), self.prior.alpha)


@dataclass(frozen=True)
class StepInfo:
    """What one step did; feeds reports only."""

    iteration: int
    n_vectors: int
    pruned: int
    log_evidence: float
    change: float
    noise_variance: float


def init(
    statistics: GramStatistics,
    alpha: Float,
    beta: float | Float,
    *,
    power: float | Float,
    fixed_noise: bool = False,
    prior: Prior = FLAT,
) -> HyperState:
    """Start a fit at α (M,), but for those that the prior fixes, and β.

    Of several targets β and ``power`` are (T,).
    """
    alpha, noise = prior.fix(statistics.labels, alpha), fixed_noise
    return HyperState(statistics, alpha, beta, power, noise, prior=prior)


def step(state: HyperState) -> tuple[HyperState, StepInfo]:
    """One update of α and β, pruning, one factorisation."""
    old, prior, before = state.posterior, state.prior, state.log_evidence
    gamma = _most(old.determinedness)
    alpha = _alpha_update(prior, old)
    refresh = not state.fixed_noise and state.iteration % state.noise_every == 0
    beta, floored = noise_precision(state) if refresh else (state.beta, state.floored)
    gone = (_worthless(state) & (gamma < FADED)) | (gamma < LOST) | ~np.isfinite(alpha)
    kept = np.flatnonzero(~gone | prior.held(state.labels))
    statistics, noise = _columns(state, kept)
    floor = ALPHA_FLOOR * np.max(beta) * np.diagonal(statistics.gram)
    alpha = prior.fix(statistics.labels, np.maximum(alpha[kept], floor))
    new = any_posterior(statistics, alpha, beta)
    state = replace(
        state,
        statistics=statistics,
        alpha=alpha,
        beta=beta,
        found=new,
        iteration=state.iteration + 1,
        floored=floored,
        noise=noise,
        entered=None,
        left_out=None,
    )
    evidence = state.log_evidence
    return state, StepInfo(
        state.iteration,
        state.n_vectors,
        len(gone) - len(kept),
        evidence,
        evidence - before,
        float(np.mean(1.0 / beta)),
    )


def _alpha_update(prior: Prior, old: AnyPosterior) -> Float:
    """The next α (M,): of several targets MacKay's, no other prior than the flat one is for these."""
    if isinstance(old, JointPosterior):
        return fixed_point(old.determinedness, old.mean)
    return prior.alpha_update(old.determinedness, old.mean**2, old.variance)


def _worthless(state: HyperState) -> NDArray[np.bool_]:
    """Whether evidence and prior would rather be without each column (M,)."""
    s, q = state.posterior.sparsity_and_quality(state.alpha)
    return fails(s, q, state.alpha) if s.ndim == 2 else state.prior.alpha.worthless(s, q**2)


def _most(values: Float) -> Float:
    """Of values (M,) or (M, T) the largest over targets (M,): what all of them can do without."""
    return values if values.ndim == 1 else np.asarray(values.max(axis=1, initial=0.0))


def noise_precision(state: HyperState) -> tuple[float | Float, bool]:
    """The next β, MacKay's (N − Σγ)/‖t − Φμ‖² (Tipping 2001, eq. 18), and whether the noise floor held (any of) it.

    Of other rows, the residual and N − Σγ are those of a ``noise_share`` of all.
    """
    n, residual, share = state.statistics.n, np.atleast_1d(state.posterior.residual), 1.0
    if state.noise is not None:
        n, share = state.noise.n, state.noise_share
        residual = residuals(state.noise, state.posterior.means)
    determined = share * np.atleast_1d(state.posterior.determinedness.sum(axis=0))
    freedom, residual = state.prior.noise_update(n, determined, residual, np.atleast_1d(state.beta))
    ceiling = 1.0 / (NOISE_FLOOR * np.atleast_1d(state.power))
    held = residual * ceiling <= freedom
    beta = np.where(held, ceiling, freedom / np.where(held, 1.0, residual))
    return (beta if isinstance(state.beta, np.ndarray) else float(beta[0])), bool(held.any())


def maximise(
    state: HyperState, rule: StopRule, on_step: Callable[[StepInfo], None] = lambda info: None
) -> tuple[HyperState, Termination]:
    """A dense fit: step until the rule ends it. ``on_step`` hears of each step, and may raise to leave."""
    state, reason = replace(state, found=state.posterior), None
    while reason is None:
        state, info = step(state)
        on_step(info)
        reason = verdict(state, info, rule)
        slow = state.prior.lingers and reason is None and abs(info.change) < LINGERING * rule.tol * state.n
        done = reason is Termination.CONVERGED and (rule.thin or state.prior.lingers)
        if (slow or done) and state.iteration < rule.max_iterations:
            thinner = thin(state)
            reason, state = (reason if thinner is state else None), thinner
    return state, reason


def thin(state: HyperState) -> HyperState:
    """Delete columns that fail q² > s, or whatever the prior makes of it, but of near-copies only one at a time.

    Near-copies share what they explain, and each of them fails while the others are there; columns whose weights are
    hardly correlated in the posterior (``strangers``) do not know of each other's deletion. Returns the state
    itself where none fails. A column's deletion never lowers the evidence (Tipping & Faul 2003, eq. 20).
    """
    old = state.posterior
    failing = np.flatnonzero(_worthless(state) & ~state.prior.held(state.labels))
    if not len(failing):
        return state
    each = old.each if isinstance(old, JointPosterior) else (old,)
    kept = np.setdiff1d(np.arange(len(state.alpha)), strangers(each, failing))
    statistics, noise = _columns(state, kept)
    alpha = state.alpha[kept]
    new = any_posterior(statistics, alpha, state.beta)
    return replace(state, statistics=statistics, alpha=alpha, found=new, noise=noise)


def _columns(state: HyperState, kept: NDArray[np.int64]) -> tuple[GramStatistics, GramStatistics | None]:
    """Statistics of the columns at these positions, and those of the noise."""
    statistics = state.statistics
    if len(kept) == len(state.alpha):
        return statistics, state.noise
    if statistics.offset.any():
        # a column about to go has hardly any weight left, but its offset may date from when it had
        statistics = statistics.shift(state.posterior.means - statistics.offset)
    return statistics.take(kept), None if state.noise is None else state.noise.take(kept)


def verdict(state: HyperState, info: StepInfo, rule: StopRule) -> Termination | None:
    """Whether the fit is over after this step, and why."""
    if rule.guard and state.posterior.cancelled:
        return Termination.CANCELLED
    if rule.vectors is not None and state.n_vectors <= rule.vectors:
        return Termination.HALVED
    noise = 0.5 * float(np.sum(state.beta * state.posterior.rounding))
    refreshed = (state.iteration - 1) % state.noise_every == 0
    if refreshed and info.pruned == 0 and abs(info.change) < max(rule.tol * state.statistics.n, noise):
        return Termination.CONVERGED
    if state.iteration >= rule.max_iterations:
        return Termination.ITERATIONS
    return None


def candidate_factors(state: HyperState, statistics: GramStatistics) -> tuple[Float, Float]:
    """s and q (Tipping & Faul 2003, eqs. 19 and 22) of the columns that ``statistics`` has beyond those of ``state``.

    ``statistics`` must hold the state's columns first, in order, with the same offset. Shapes (P,), of several
    targets (P, T).
    """
    M = state.statistics.n_columns
    cross, diagonal = statistics.gram[:M, M:], np.diagonal(statistics.gram)[M:]
    return any_sparsity_quality(state, statistics.offset[:M], cross, diagonal, statistics.projection[M:])


def any_sparsity_quality(
    state: HyperState, offset: Float, cross: Float, diagonal: Float, projection: Float
) -> tuple[Float, Float]:
    """s and q, (P,) or (P, T), of columns from offset (M, T), cross (M, P), diagonal (P,) and projection (P, T)."""
    old, beta = state.posterior, state.beta
    if not isinstance(old, JointPosterior):
        return sparsity_quality(old, float(beta), offset[:, 0], cross, diagonal, projection[:, 0])
    found = [
        sparsity_quality(one, b, offset[:, k], cross, diagonal, projection[:, k])
        for k, (one, b) in enumerate(zip(old.each, np.atleast_1d(beta).tolist(), strict=True))
    ]
    return np.column_stack([s for s, _ in found]), np.column_stack([q for _, q in found])


def sparsity_quality(
    old: Posterior, beta: float, offset: Float, cross: Float, diagonal: Float, projection: Float
) -> tuple[Float, Float]:
    """s = βφᵀφ − β²φᵀΦΣΦᵀφ and q = βφᵀ(t − Φμ) from cross (M, P), diagonal (P,) and projection (P,), one target."""
    if not len(cross):
        return beta * diagonal, beta * projection
    # the transposed problem: rows of ``cross`` as they lie are columns for BLAS, and nothing is copied
    whitened = blas.dtrsm(1.0, old.factor, (old.scale[:, None] * cross).T, side=1, lower=1, trans_a=1, overwrite_b=1)
    s = beta * diagonal - beta**2 * np.einsum("pm,pm->p", whitened, whitened)
    q = beta * (projection - cross.T @ (old.mean - offset))
    return np.maximum(s, 0.0), q


def evidence_gain(s: Float, q: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """Rise of the log evidence when a column of these s and q joins at its best α: ½[q²/s − 1 − log(q²/s)], else 0.

    Tipping & Faul (2003), eq. 27 at α = s²/(q² − s); with a prior of α as ``core.priors`` has it. Nats, of any shape.
    """
    return prior.gain(s, q**2)


def joint_gain(s: Float, q: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """The same of each column (P,), where several targets share its α from s and q (P, T)."""
    return optimum(s, q)[1] if s.ndim == 2 else evidence_gain(s, q, prior)


def entry_precision(s: Float, q: Float, precision: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """α at which new columns start: ``HOPE`` × the best for each alone, or × s where there is none. Of any shape.

    The best is s²/(q² − s) where q² > s (Tipping & Faul 2003, eq. 20), or what the prior makes of it. A column that
    gains nothing alone may do so beside others: a small α lets the data speak first. ``precision`` is βφᵀφ: the s of a
    near-copy of columns that are there is rounding error, and is raised to a fraction of it.
    """
    s = np.maximum(s, DEPENDENT * precision)
    return _entry(prior.peak(s, q**2), s, precision)


def joint_entry(s: Float, q: Float, precision: Float, prior: GammaDensity = FLAT.alpha) -> Float:
    """The same of each column (P,), where several targets share its α from s, q and precision (P, T)."""
    if s.ndim == 1:
        return entry_precision(s, q, precision, prior)
    s = np.maximum(s, DEPENDENT * precision)
    return _entry(optimum(s, q)[0], s.mean(axis=1), precision.max(axis=1))


def _entry(best: Float, s: Float, precision: Float) -> Float:
    # a centre far from every row has a column of zeros: any α will do, the first step prunes it
    return np.where(precision > ABSENT, HOPE * np.where(np.isfinite(best), best, s), 1.0)
