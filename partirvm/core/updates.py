"""Evidence maximisation over α and β: ``init`` / ``step -> (state, info)``.

One step is MacKay's fixed point (Tipping 2001, eqs. 16–18), γ_i = 1 − α_iΣ_ii, α_i ← γ_i/μ_i², β ← (N − Σγ)/‖t − Φμ‖²,
followed by pruning and one new factorisation, so that a state's α, β, posterior and evidence always belong together.

**Pruning.** For an active column the evidence as a function of α_i alone peaks at infinity when q_i² ≤ s_i (Tipping &
Faul 2003, eq. 20). Deleting every such column at once loses evidence, since near-duplicates excuse each other; so a
column goes only when, besides, the data hardly determine it (γ_i < ``FADED``): then deletions no longer interact.

**Several targets** share α: the fixed point is α_i ← Σ_τγ_iτ / Σ_τμ_iτ², each target has its own β_τ, and a column's
gain is that of all targets together (``core.shared``). Then β and ``power`` are (T,), μ and γ (M, T).

**Noise floor.** σ² never falls below ``NOISE_FLOOR`` × the mean square of the target: noise-free data and models that
interpolate would send β to infinity. The state says so in ``floored``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from partirvm.core.posterior import AnyPosterior, JointPosterior, Posterior, any_posterior, residuals
from partirvm.core.shared import fails, fixed_point, optimum
from partirvm.core.statistics import BIAS, GramStatistics
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

STRANGERS = 0.1
"""Absolute posterior correlation of two weights below which their columns may be deleted at once."""

HOPE = 1e-3
"""Columns that join together start at this fraction of the α that each would have alone.

Columns look alike, and what one of them explains alone several share: started at their own best α they drive each other
out before the noise has fallen. With many candidates at once the difference is hundreds of nats (Friedman#1, all of
3,000 rows: evidence −5,653 against −4,831).
"""

ABSENT = 1e-200
"""A column whose βφᵀφ is below this is one of zeros."""

DEPENDENT = 1e-8
"""A new column whose s is below this fraction of its βG_ii is taken to be a copy of columns that are there."""


@dataclass(frozen=True)
class StopRule:
    """When a dense fit ends: the evidence changes by less than ``tol``·N nats, or at a limit.

    Limits are ``max_iterations`` and kernel columns down to ``vectors``; None lets it converge. With ``guard`` a fit
    whose residual has cancelled stops to ask for a pass. With ``thin`` it has converged only when no column is left
    that the evidence would rather be without.
    """

    tol: float
    max_iterations: int
    vectors: int | None = None
    guard: bool = True
    thin: bool = False


@dataclass(frozen=True)
class HyperState:
    """A dense fit in progress: statistics of the active columns, their α (M,), β, and the posterior at these.

    ``power`` is the target's mean square, which the noise floor refers to; ``fixed_noise`` keeps β as it is. β is
    estimated every ``noise_every`` steps, from the residual over the rows of ``statistics``, or where there are such
    over those of ``noise``: statistics of the same columns over a ``noise_share`` of all rows.
    """

    statistics: GramStatistics
    alpha: Float
    beta: float | Float
    posterior: AnyPosterior
    power: float | Float
    fixed_noise: bool
    iteration: int = 0
    floored: bool = False
    noise: GramStatistics | None = None
    noise_share: float = 1.0
    noise_every: int = 1

    @property
    def n_vectors(self) -> int:
        """Active kernel columns, the bias not counted."""
        return int((self.labels != BIAS).sum())

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels of the active columns."""
        return self.statistics.labels

    @property
    def n_columns(self) -> int:
        """M, the bias counted."""
        return self.statistics.n_columns

    @property
    def n(self) -> int:
        """Rows of weight above zero that the posterior has seen."""
        return self.statistics.n

    @property
    def log_evidence(self) -> float:
        """In nats, of the target as the model sees it."""
        return self.posterior.log_evidence

    def losses(self) -> Float:
        """Evidence that each column's deletion would cost (M,), nats."""
        return joint_gain(*self.posterior.sparsity_and_quality(self.alpha))


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
) -> HyperState:
    """Start a fit at α (M,) and β, and factorise there. Of several targets β and ``power`` are (T,)."""
    return HyperState(statistics, alpha, beta, any_posterior(statistics, alpha, beta), power, fixed_noise)


def step(state: HyperState) -> tuple[HyperState, StepInfo]:
    """One update of α and β, pruning, one factorisation."""
    old = state.posterior
    alpha = fixed_point(old.determinedness, old.mean)
    gamma = _most(old.determinedness)
    refresh = not state.fixed_noise and state.iteration % state.noise_every == 0
    beta, floored = noise_precision(state) if refresh else (state.beta, state.floored)
    sparsity, quality = old.sparsity_and_quality(state.alpha)
    gone = (fails(sparsity, quality, state.alpha) & (gamma < FADED)) | (gamma < LOST) | ~np.isfinite(alpha)
    kept = np.flatnonzero(~gone)
    statistics, noise = _columns(state, kept)
    alpha = np.maximum(alpha[kept], ALPHA_FLOOR * np.max(beta) * np.diagonal(statistics.gram))
    new = any_posterior(statistics, alpha, beta)
    state = replace(
        state,
        statistics=statistics,
        alpha=alpha,
        beta=beta,
        posterior=new,
        iteration=state.iteration + 1,
        floored=floored,
        noise=noise,
    )
    change = new.log_evidence - old.log_evidence
    return state, StepInfo(
        state.iteration, state.n_vectors, len(gone) - len(kept), new.log_evidence, change, float(np.mean(1.0 / beta))
    )


def _most(values: Float) -> Float:
    """Of values (M,) or (M, T) the largest over targets (M,): what all of them can do without."""
    return values if values.ndim == 1 else np.asarray(values.max(axis=1, initial=0.0))


def noise_precision(state: HyperState) -> tuple[float | Float, bool]:
    """MacKay's β = (N − Σγ)/‖t − Φμ‖² (Tipping 2001, eq. 18), and whether the noise floor held (any of) it back.

    Of other rows, the residual and N − Σγ are those of a ``noise_share`` of all.
    """
    n, residual, share = state.statistics.n, np.atleast_1d(state.posterior.residual), 1.0
    if state.noise is not None:
        n, share = state.noise.n, state.noise_share
        residual = residuals(state.noise, state.posterior.means)
    freedom = np.maximum(n - share * np.atleast_1d(state.posterior.determinedness.sum(axis=0)), 1.0)
    ceiling = 1.0 / (NOISE_FLOOR * np.atleast_1d(state.power))
    held = residual * ceiling <= freedom
    beta = np.where(held, ceiling, freedom / np.where(held, 1.0, residual))
    return (beta if isinstance(state.beta, np.ndarray) else float(beta[0])), bool(held.any())


def maximise(
    state: HyperState, rule: StopRule, on_step: Callable[[StepInfo], None] = lambda info: None
) -> tuple[HyperState, Termination]:
    """A dense fit: step until the rule ends it. ``on_step`` hears of each step, and may raise to leave."""
    reason = None
    while reason is None:
        state, info = step(state)
        on_step(info)
        reason = verdict(state, info, rule)
        if reason is Termination.CONVERGED and rule.thin and state.iteration < rule.max_iterations:
            thinner = thin(state)
            reason, state = (reason if thinner is state else None), thinner
    return state, reason


def thin(state: HyperState) -> HyperState:
    """Delete columns that fail q² > s, but of those that stand in for each other only one at a time.

    Near-copies share what they explain, and each of them fails while the others are there; columns whose weights are
    hardly correlated in the posterior (below ``STRANGERS``) do not know of each other's deletion. Returns the state
    itself where none fails. A column's deletion never lowers the evidence (Tipping & Faul 2003, eq. 20).
    """
    old = state.posterior
    sparsity, quality = old.sparsity_and_quality(state.alpha)
    failing = np.flatnonzero(fails(sparsity, quality, state.alpha))
    if not len(failing):
        return state
    order = failing[np.argsort(_most(old.determinedness)[failing], kind="stable")]
    correlation = old.correlations(order)
    gone: list[int] = []
    for k in range(len(order)):
        if not gone or correlation[k, gone].max() < STRANGERS:
            gone.append(k)
    kept = np.setdiff1d(np.arange(len(state.alpha)), order[gone])
    statistics, noise = _columns(state, kept)
    alpha = state.alpha[kept]
    new = any_posterior(statistics, alpha, state.beta)
    return replace(state, statistics=statistics, alpha=alpha, posterior=new, noise=noise)


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
    whitened = solve_triangular(old.factor, old.scale[:, None] * cross, lower=True, check_finite=False)
    s = beta * diagonal - beta**2 * np.einsum("mp,mp->p", whitened, whitened)
    q = beta * (projection - cross.T @ (old.mean - offset))
    return np.maximum(s, 0.0), q


def evidence_gain(s: Float, q: Float) -> Float:
    """Rise of the log evidence when a column of these s and q joins at its best α: ½[q²/s − 1 − log(q²/s)], else 0.

    Tipping & Faul (2003), eq. 27 at α = s²/(q² − s). Shape (P,), nats.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(s > 0, q**2 / s, 1.0)
    ratio = np.maximum(ratio, 1.0)
    return 0.5 * (ratio - 1.0 - np.log(ratio))


def entry_precision(s: Float, q: Float, precision: Float) -> Float:
    """α at which new columns start (P,): ``HOPE`` × the best for each alone, or × s where there is none.

    The best is s²/(q² − s) where q² > s (Tipping & Faul 2003, eq. 20). A column that gains nothing alone may do so
    beside others: a small α lets the data speak first. ``precision`` (P,) is βφᵀφ: the s of a near-copy of columns that
    are there is rounding error, and is raised to a fraction of it.
    """
    s = np.maximum(s, DEPENDENT * precision)
    excess = q**2 - s
    alpha = HOPE * np.where(excess > 0, s**2 / np.where(excess > 0, excess, 1.0), s)
    # a centre far from every row has a column of zeros: any α will do, the first step prunes it
    return np.where(precision > ABSENT, alpha, 1.0)


def joint_gain(s: Float, q: Float) -> Float:
    """``evidence_gain`` of columns (P,) of one target, or where s and q are (P, T) of all targets that share them."""
    return evidence_gain(s, q) if s.ndim == 1 else optimum(s, q)[1]


def joint_entry(s: Float, q: Float, precision: Float) -> Float:
    """``entry_precision`` (P,), likewise: with (P, T) the α of each column that is best for all targets together."""
    if s.ndim == 1:
        return entry_precision(s, q, precision)
    s = np.maximum(s, DEPENDENT * precision)
    best = optimum(s, q)[0]
    return np.where(precision.max(axis=1) > ABSENT, HOPE * np.where(np.isfinite(best), best, s.mean(axis=1)), 1.0)
