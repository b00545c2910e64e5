"""Evidence maximisation over α and β: ``step(state) -> (state, info)``, and ``maximise``, which
steps until a rule ends the fit.

One step is MacKay's fixed point (Tipping 2001, eqs. 16–18), γ_i = 1 − α_iΣ_ii, α_i ← γ_i/μ_i², β ←
(N − Σγ)/‖t − Φμ‖², then pruning and a new factorisation, so that α, β, posterior and evidence of a
state are always consistent. Several targets share α, α_i ← Σ_τγ_iτ / Σ_τμ_iτ²; then β and
``target_variance`` are (T,), μ and γ (M, T). The indicators of K classes also share β, hence Σ and
γ (M,) (Thayananthan et al. 2006, "Multivariate relevance vector machines for tracking"): α_i ← γ_i
/ mean_k μ_ik², β ← (N − Σγ) / mean_k ‖t_k − Φμ_k‖², at the cost of one target's fit.

**Pruning.** The evidence as a function of α_i alone peaks at infinity if q_i² ≤ s_i (Tipping & Faul
2003, eq. 20). Near-duplicates all satisfy this while the others are present, so a column is deleted
only if, in addition, γ_i < ``FADED``. A prior can keep γ above this threshold; once such a fit
hardly changes, ``thin`` deletes these columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.group_effects import GroupEffects
from partirvm.core.left_out import Calibration
from partirvm.core.posterior import (
    Posterior,
    own_factors,
    posterior,
    shared,
    sparsity_quality,
    weakly_correlated,
)
from partirvm.core.priors import FLAT, Prior, fails, optimum
from partirvm.core.ramp import Ramp
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.types import Bool, Each, Float, Int

FADED = 1e-3
"""A column that fails q² > s is pruned once its determinedness γ is below this. k near-copies share
one degree of freedom, γ ≈ 1/k each, and all fail q² > s: this must be well below 1/k, or all of
them would be deleted at once."""

LOST = 1e-12
"""Any column is pruned once its γ is below this: γ and s = αγ/(1 − γ) are then rounding errors."""

NOISE_FLOOR = 1e-8
"""Minimum noise variance, as a fraction of the target's mean square: without noise, β would
diverge."""

ALPHA_FLOOR = 1e-12
"""Minimum α_i, as a fraction of the column's data precision βG_ii. It bounds the condition number
of the scaled H: otherwise weights of ±1e7 cancel each other for smooth targets with a wide kernel,
and the residual loses digits."""


@dataclass(frozen=True)
class HyperState:
    """A dense fit in progress: statistics of the active columns, their α (M,), β, and their
    posterior.

    Attributes:
        statistics: of the M active columns
        alpha: α (M,)
        beta: β, (T,) for several targets
        target_variance: the target's mean square, which defines the noise floor; shaped like
            ``beta``
        fixed_noise: True keeps β unchanged
        iteration: number of steps so far
        floored: True if ``NOISE_FLOOR`` limits β
        prior: of α and β
        entered: True for columns that have joined since the last step (M,), or None
        calibration: the prediction uncertainty from left-out rows, or None
        left_out: diagnostics of these rows, or None
        of_known_groups: the prediction uncertainty for rows of known groups, if ``calibration`` is
            that for rows of new groups
        effects: effects of known groups, or None
        least_noise: minimum σ²
        n_classes: number of classes whose indicators are the targets, or 0
        ramp: converts the indicators into probabilities
        found: the posterior, or None if it has not been computed yet
    """

    statistics: GramStatistics
    alpha: Float
    beta: Each
    target_variance: Each
    fixed_noise: bool = False
    iteration: int = 0
    floored: bool = False
    prior: Prior = FLAT
    entered: Bool | None = None
    calibration: Calibration | None = None
    left_out: NumberDiagnostics | None = field(default=None, repr=False)
    of_known_groups: Calibration | None = None
    effects: GroupEffects | None = None
    least_noise: float = 0.0
    n_classes: int = 0
    ramp: Ramp = field(default_factory=Ramp)
    found: Posterior | None = field(default=None, repr=False)

    @property
    def posterior(self) -> Posterior:
        """The posterior at these α and β, computed if needed. Raises ``NumericalError`` as
        ``core.posterior`` does."""
        if self.found is None:
            return posterior(self.statistics, self.alpha, self.beta)
        return self.found

    @property
    def n_vectors(self) -> int:
        """Number of active kernel columns, excluding the leading columns."""
        return int((self.labels >= 0).sum())

    @property
    def labels(self) -> Int:
        return self.statistics.labels

    @property
    def n(self) -> int:
        """Number of rows with positive weight in the posterior."""
        return self.statistics.n

    @property
    def log_evidence(self) -> float:
        """Log evidence, in nats, of the target in the model's units, including the priors on α and
        β."""
        beta = None if self.fixed_noise else self.beta
        density = self.prior.log_density(self.labels, self.alpha, beta)
        return self.posterior.log_evidence + self.sharing * density

    @property
    def sharing(self) -> int:
        """Number of targets that share Σ."""
        return len(self.statistics.sum_squares) // np.size(self.beta)

    @property
    def noise_variance(self) -> Each:
        """σ² of predictions, in the model's units, (T,) for several targets: 1/β or, if rows were
        left out, the estimate from these rows."""
        return 1 / self.beta if self.calibration is None else self.calibration.noise_variance

    def restarted(
        self, statistics: GramStatistics, alpha: Float, beta: Each, **others: Any
    ) -> Self:
        """Return a fit of the same target that starts from other values.

        Args:
            statistics: statistics of its columns
            alpha: α, unless fixed by the prior (M,)
            beta: β
            others: further fields; by default, fields that depend on the columns are empty
        """
        first: dict[str, Any] = {"iteration": 0, "floored": False}
        unknown = dict.fromkeys(
            ("entered", "calibration", "of_known_groups", "effects", "left_out", "found")
        )
        alpha = self.prior.fix(statistics.labels, alpha)
        fields = {**first, **unknown, **others}
        return replace(self, statistics=statistics, alpha=alpha, beta=beta, **fields)

    def reduced(self, share: float) -> "HyperState":
        """Return the fit without the fraction of its kernel columns with the smallest γ."""
        kernels = np.flatnonzero((self.labels >= 0) & ~self.prior.held(self.labels))
        order = np.argsort(self.posterior.determinedness[kernels], kind="stable")
        return without(self, kernels[order[: int(share * len(kernels))]])

    def losses(self) -> Float:
        """Return the evidence lost by deleting each column (M,), in nats."""
        return self.sharing * optimum(*own_factors(self.posterior, self.alpha), joint=True)[1]

    def gains(self, statistic: GramBlock) -> Float:
        """Return the evidence gain (Q,) of adding each pool column alone, in nats; gains on a
        sample are scaled up."""
        scale = self.n / statistic.n if self.n else 1.0
        factors = self.factors(
            scale * statistic.cross, scale * statistic.gram, scale * statistic.projection
        )
        return self.sharing * optimum(*factors, joint=True)[1]

    def factors(self, cross: Float, diagonal: Float, projection: Float) -> tuple[Float, Float]:
        """Return s and q, (P,) or (P, T), of P other columns (Tipping & Faul 2003, eqs. 19 and 22)
        from statistics."""
        current = self.posterior
        offset = self.statistics.offset
        if not current.targets:
            shape = (-1, *current.mean.shape[1:])
            sums = (offset.reshape(shape), cross, diagonal, projection.reshape(shape))
            s, q = sparsity_quality(current, float(self.beta), *sums)
            return s, shared(q, s)
        s = np.empty(projection.shape)
        q = np.empty(projection.shape)
        for k, target in enumerate(current.targets):
            beta = float(np.atleast_1d(self.beta)[k])
            sums = (offset[:, k], cross, diagonal, projection[:, k])
            s[:, k], q[:, k] = sparsity_quality(target, beta, *sums)
        return s, q


@dataclass(frozen=True)
class StepInfo:
    """Information about one step, used only for reports.

    Attributes:
        iteration: number of the step
        n_vectors: number of kernel columns after the step
        pruned: number of columns that the step pruned
        log_evidence: log evidence after the step, in nats
        change: change of the log evidence
        noise_variance: σ², the mean over targets
    """

    iteration: int
    n_vectors: int
    pruned: int
    log_evidence: float
    change: float
    noise_variance: float


Watch = Callable[[StepInfo], None]
"""A function that is called at each step of a dense fit; it may raise an exception to stop the
fit."""


def step(state: HyperState) -> tuple[HyperState, StepInfo]:
    """Update α and β once, prune columns, and factorise once."""
    # update
    old = state.posterior
    determined = _by_target(old.determinedness)
    square = _by_target(shared(old.mean, old.variance) ** 2)
    alpha = state.prior.alpha_update(determined.sum(axis=1), square.sum(axis=1))
    beta = state.beta
    floored = state.floored
    if not state.fixed_noise:
        beta, floored = noise_precision(state)

    # prune: conditions on γ must hold for all targets
    gamma = determined.max(axis=1, initial=0.0)
    remaining = surviving(state, _worthless(state), gamma, alpha)
    statistics = _columns(state, remaining)
    floor = ALPHA_FLOOR * np.max(beta) * np.diagonal(statistics.gram)
    alpha = np.maximum(alpha[remaining], floor)

    # factorise
    new = state.restarted(statistics, alpha, beta, iteration=state.iteration + 1, floored=floored)
    new = replace(new, found=new.posterior)

    # report
    evidence = new.log_evidence
    info = StepInfo(
        iteration=new.iteration,
        n_vectors=new.n_vectors,
        pruned=len(gamma) - len(remaining),
        log_evidence=evidence,
        change=evidence - state.log_evidence,
        noise_variance=float(np.mean(1.0 / beta)),
    )
    return new, info


def surviving(state: Any, worthless: Bool, gamma: Float, alpha: Float) -> Int:
    """Return the positions of the columns that are not pruned.

    Args:
        state: the fit of M columns
        worthless: True for columns that do not raise the evidence at any α (M,)
        gamma: γ (M,)
        alpha: the next α (M,)
    """
    pruned = (worthless & (gamma < FADED)) | (gamma < LOST) | ~np.isfinite(alpha)
    return np.flatnonzero(~pruned | state.prior.held(state.labels))


def _by_target(values: Float) -> Float:
    """Return values, (M,) or (M, T), as (M, T)."""
    return np.atleast_2d(values.T).T


def _worthless(state: HyperState) -> Bool:
    """Return a mask (M,), True for columns that do not raise the evidence at any α."""
    s, q = own_factors(state.posterior, state.alpha)
    return fails(s, q, state.alpha) if s.ndim == 2 else q**2 <= s


def noise_precision(state: HyperState, now: tuple[Any, Any] | None = None) -> tuple[Each, bool]:
    """Return the next β, MacKay's (N − Σγ)/‖t − Φμ‖² (Tipping 2001, eqs. 18 and 50), and True if
    ``NOISE_FLOOR`` limits any of them.

    ``now`` contains Σγ and ‖t − Φμ‖², by default from the posterior.
    """
    if now is None:
        current = state.posterior
        now = current.determinedness.sum(axis=0), current.residual
    determined, residual = map(np.atleast_1d, now)
    prior = state.prior.noise
    freedom = np.maximum(state.n - determined, 1.0) + 2.0 * prior.shape
    residual = residual / state.sharing + 2.0 * prior.rate
    floor = NOISE_FLOOR * np.atleast_1d(state.target_variance)
    ceiling = 1.0 / np.maximum(floor, state.least_noise)
    limited = residual * ceiling <= freedom
    beta = np.where(limited, ceiling, freedom / np.where(limited, 1.0, residual))
    floored = bool((limited & (floor >= state.least_noise)).any())
    return (beta if isinstance(state.beta, np.ndarray) else float(beta[0])), floored


def maximise(
    state: HyperState, rule: StopRule, on_step: Watch = lambda info: None
) -> tuple[HyperState, Termination]:
    """Run a dense fit: step until the rule ends it."""
    state = replace(state, found=state.posterior)
    keeps_worthless = state.prior.keeps_worthless
    reason = None
    while reason is None:
        state, info = step(state)
        on_step(info)
        reason = verdict(state, info, rule)
        # columns kept by a prior are thinned once a step changes little
        slow = keeps_worthless and reason is None and abs(info.change) < 100.0 * rule.tol * state.n
        done = reason is Termination.CONVERGED and (rule.thin or keeps_worthless)
        if (slow or done) and state.iteration < rule.max_iterations:
            thinner = thin(state)
            if thinner is not state:
                reason = None
            state = thinner
    return state, reason


def thin(state: HyperState) -> HyperState:
    """Delete columns that fail q² > s, but only one of several near-copies (``weakly_correlated``);
    return the state itself if none fail."""
    failing = np.flatnonzero(_worthless(state) & ~state.prior.held(state.labels))
    if not len(failing):
        return state
    old = state.posterior
    return without(state, weakly_correlated(old.targets or (old,), failing))


def without(state: HyperState, pruned: Int) -> HyperState:
    """Return the fit at the same α and β without the columns at these positions."""
    remaining = np.setdiff1d(np.arange(len(state.labels)), pruned)
    reduced = replace(
        state, statistics=_columns(state, remaining), alpha=state.alpha[remaining], found=None
    )
    return replace(reduced, found=reduced.posterior)


def _columns(state: HyperState, columns: Int) -> GramStatistics:
    """Return the statistics of the columns at these positions."""
    statistics = state.statistics
    if len(columns) < len(state.labels) and statistics.offset.any():
        # a column about to be deleted has almost no weight, but its offset may date from when it
        # had more
        statistics = statistics.shift(state.posterior.means - statistics.offset)
    return statistics.take(columns)


def verdict(state: HyperState, info: StepInfo, rule: StopRule) -> Termination | None:
    """Return the reason if the fit ends after the step ``info``, which led to ``state``; otherwise
    None.

    The fit converges if the step pruned no column and changed the evidence by less than ``tol``·N
    or the rounding error.
    """
    if rule.guard and state.posterior.cancelled:
        return Termination.CANCELLED
    if rule.vectors is not None and state.n_vectors <= rule.vectors:
        return Termination.HALVED
    rounding = 0.5 * float(np.sum(state.beta * state.posterior.rounding))
    if info.pruned == 0 and abs(info.change) < max(rule.tol * state.n, rounding):
        return Termination.CONVERGED
    return Termination.ITERATIONS if state.iteration >= rule.max_iterations else None
