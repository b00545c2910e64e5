"""Fast marginal likelihood maximisation: one column at a time (Tipping & Faul 2003), on sufficient
statistics.

Of K candidate columns, the fit holds M *active* ones. As a function of one α_i alone, the log
evidence is a constant plus ℓ(α_i) (``core.priors``). So each candidate has an *action* (add it,
delete it or re-estimate its α) with a gain in nats. The action with the largest gain is applied
until no gain exceeds ``tol``·N; no action lowers the evidence.

**Rank one.** All candidates have S_k = βφ_kᵀφ_k − β²φ_kᵀΦΣΦᵀφ_k and Q_k = βφ_kᵀ(t − Φμ) (eqs. 24
and 25). Changing one α changes Σ by rank one, from which the changes of μ, S and Q follow in O(KM +
M²) flops. An inactive candidate has s = S and q = Q, an active one s = 1/Σ_ii − α_i and q =
μ_i/Σ_ii: eq. 23 is less accurate.

**Refresh.** A change of σ² changes all s and q. Each refresh estimates σ² as the fixed-point steps
do, counts as an *iteration*, and bounds rounding errors. A candidate whose s is below ``DEPENDENT``
× βφᵀφ is not added: its s is a rounding error. (Other programs limit the cosine to 0.999, which has
excluded columns worth 3 nats.)
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas

from partirvm.core.posterior import Posterior, own_factors, posterior, sparsity_quality
from partirvm.core.priors import DEPENDENT, log_contribution, optimal_alpha
from partirvm.core.statistics import EPS, GramStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import ALPHA_FLOOR, HyperState, StepInfo, Watch, noise_precision
from partirvm.types import Float, Int

FEWEST = 16
"""A refresh follows `FEWEST` + M // `PART` actions: it takes at most a third of the time, and σ²
converges early."""

PART = 8
"""See `FEWEST`."""


class ActiveColumns:
    """Posterior of the M active columns among K candidates, updated when a single column joins or
    leaves. Mutable.

    ``columns`` (M,) are in order of joining, and ``place`` (K,) holds the position of each
    candidate in this order, or −1. ``alpha`` and ``mean`` (M,) refer to the active columns, ``S``
    and ``Q`` to all candidates.

    Args:
        statistics: statistics of the K candidates and one target
        columns: positions of the active candidates (M,)
        alpha: prior precisions of these candidates (M,)
        beta: noise precision
    """

    posterior: Posterior

    def __init__(self, statistics: GramStatistics, columns: Int, alpha: Float, beta: float) -> None:
        M = len(columns)
        self.statistics = statistics
        self.columns = columns.copy()
        self.alpha = alpha.copy()
        self.diagonal: Float = statistics.gram.diagonal()
        self.place: Int = np.full(len(statistics.labels), -1)
        self.place[columns] = np.arange(M)
        # rows of G and Σ of the active columns, with space for further columns
        self._rows: Float = statistics.gram[columns]
        self._Sigma: Float = np.zeros((M, M), order="F")
        self.refresh(beta)

    @property
    def M(self) -> int:
        return len(self.columns)

    @property
    def variance(self) -> Float:
        """The diagonal of Σ (M,)."""
        return self._Sigma.diagonal()[: self.M]

    def refresh(self, beta: float) -> None:
        """Recompute everything at this β with one Cholesky factorisation, in 2M³ + KM² flops."""
        self.beta = beta
        M = self.M
        capacity = len(self._Sigma)
        # the old arrays are freed before new ones are computed
        self.__dict__.pop("posterior", None)
        del self._Sigma
        self.statistics = self.statistics.without_offset_beside(self.columns)
        fresh = posterior(self.statistics.take(self.columns), self.alpha, beta)
        self._Sigma = np.zeros((capacity, capacity), order="F")
        self._Sigma[:M, :M] = fresh.covariances[0]
        self.mean = fresh.mean.copy()
        self.S, self.Q = sparsity_quality(
            fresh,
            beta,
            offset=self.statistics.offset[self.columns, 0],
            cross=self._rows[:M],
            diagonal=self.diagonal,
            projection=self.statistics.projection[:, 0],
        )
        self.posterior = fresh

    def add(self, column: int, alpha: float) -> None:
        """Activate a candidate at this α."""
        M = self.M
        beta = self.beta
        if len(self._rows) == M:
            self._enlarge()
        move = np.zeros(len(self._rows))
        move[:M] = beta * (self._Sigma[:M, :M] @ self._rows[:M, column])
        self._rows[M] = self.statistics.gram[column]
        change = beta * (self._rows[M] - move[:M] @ self._rows[:M])
        variance = 1.0 / (alpha + self.S[column])
        mean = variance * self.Q[column]
        self.S -= variance * change**2
        self.Q -= mean * change
        self.mean = np.append(self.mean - mean * move[:M], mean)
        self.alpha = np.append(self.alpha, alpha)
        self.columns = np.append(self.columns, column)
        self.place[column] = M
        move[M] = -1.0
        blas.dger(variance, move, move[: self.M], a=self._Sigma[:, : self.M], overwrite_a=1)

    def _enlarge(self) -> None:
        """Reserve memory for 64 further active columns."""
        M = self.M
        rows = np.empty((M + 64, len(self.place)))
        Sigma = np.zeros((M + 64, M + 64), order="F")
        rows[:M] = self._rows
        Sigma[:M, :M] = self._Sigma
        self._rows = rows
        self._Sigma = Sigma

    def change(self, column: int, alpha: float) -> None:
        """Change the α of an active candidate."""
        i = self.place[column]
        change = alpha - self.alpha[i]
        # 1 − α_old Σ_ii + α_new Σ_ii is above zero, but rounds to zero if the data say nothing
        # about this column
        self._scale(i, change / max(1.0 + change * self._Sigma[i, i], EPS))
        self.alpha[i] = alpha

    def delete(self, column: int) -> None:
        """Deactivate a candidate. The last active candidate takes its position."""
        i = int(self.place[column])
        last = self.M - 1
        Sigma = self._Sigma
        self._scale(i, 1.0 / Sigma[i, i])
        self.place[self.columns[last]] = i
        self.place[column] = -1
        self._rows[i] = self._rows[last]
        Sigma[:, i] = Sigma[:, last]
        Sigma[i, :] = Sigma[last, :]
        Sigma[i, i] = Sigma[last, last]
        Sigma[last, :] = Sigma[:, last] = 0.0
        for values in (self.mean, self.alpha, self.columns):
            values[i] = values[last]
        self.mean = self.mean[:last]
        self.alpha = self.alpha[:last]
        self.columns = self.columns[:last]

    def now(self) -> tuple[float, float]:
        """Return Σγ and ‖t − Φμ‖² at the current mean and variance."""
        delta = -self.statistics.offset[:, 0]
        delta[self.columns] += self.mean
        quality = self.Q.copy()  # Q = β(b − Gδ), which equals αμ for active columns
        quality[self.columns] = self.alpha * self.mean
        explained = delta @ (self.statistics.projection[:, 0] + quality / self.beta)
        determined = np.clip(1.0 - self.alpha * self.variance, 0.0, 1.0).sum()
        return float(determined), float(self.statistics.sum_squares[0] - explained)

    def drift(self) -> float:
        """Return the largest |Q − αμ| of the active columns in units of √S, which is zero in exact
        arithmetic."""
        off = np.abs(self.Q[self.columns] - self.alpha * self.mean)
        least = DEPENDENT * self.beta * self.diagonal[self.columns]
        return float(np.max(off / np.sqrt(np.maximum(self.S[self.columns], least)), initial=0.0))

    def _scale(self, i: int, kappa: float) -> None:
        """Subtract κΣ_iΣ_iᵀ from Σ, and update μ, S and Q accordingly."""
        M = self.M
        column = self._Sigma[:, i].copy()
        change = self.beta * (column[:M] @ self._rows[:M])
        mean = kappa * self.mean[i]
        self.S += kappa * change**2
        self.Q += mean * change
        self.mean -= mean * column[:M]
        blas.dger(-kappa, column, column[:M], a=self._Sigma[:, :M], overwrite_a=1)  # zero beyond M


@dataclass(frozen=True)
class Action:
    """A change to the candidate at ``column``: its new α (∞ if it is deleted) and the gain in
    nats."""

    column: int
    alpha: float
    gain: float


class Greedy:
    """A fit in progress. It starts with the columns of ``state`` that have not just ``entered``, at
    their α."""

    def __init__(self, state: HyperState) -> None:
        columns = np.arange(len(state.labels))
        if state.entered is not None:
            columns = columns[~state.entered]
        self._state = state
        self._held = state.prior.held(state.labels)
        self.floored = state.floored
        self.iteration = state.iteration
        self.since = 0
        self.active = ActiveColumns(
            state.statistics, columns, state.alpha[columns], float(state.beta)
        )
        self.log_evidence = self.active.posterior.log_evidence

    @property
    def n_vectors(self) -> int:
        return int((self._state.labels[self.active.columns] >= 0).sum())

    def best(self, least: float, *, thin: bool) -> Action | None:
        """Return the action with the largest gain above ``least`` nats; if there is none and
        ``thin`` is true, return the best deletion."""
        active = self.active
        precision = active.beta * active.diagonal[active.columns]
        s, q = own_factors(active, active.alpha)
        alpha = np.maximum(optimal_alpha(s, q), ALPHA_FLOOR * precision)
        alpha = np.where(self._held[active.columns], active.alpha, alpha)
        gain = log_contribution(alpha, s, q) - log_contribution(active.alpha, s, q)
        action = self._largest(active.columns, alpha, gain)
        addition = self._best_addition()
        # a copy gains as much as its original: an active column is preferred
        if action is None or (addition and action.gain < (1.0 - 1e-6) * addition.gain):
            action = addition
        if thin and action and action.gain <= least:
            gain[np.isfinite(alpha)] = 0.0
            action = self._largest(active.columns, alpha, gain)
            least = 0.0
        return action if action and action.gain > least else None

    def _best_addition(self) -> Action | None:
        """Return the addition with the largest gain."""
        active = self.active
        (columns,) = ((active.Q**2 > active.S) & (active.place < 0)).nonzero()
        s = active.S[columns]
        q = active.Q[columns]
        precision = active.beta * active.diagonal[columns]
        alpha = np.maximum(optimal_alpha(s, q), ALPHA_FLOOR * precision)
        alpha[s < DEPENDENT * precision] = np.inf
        return self._largest(columns, alpha, log_contribution(alpha, s, q))

    def _largest(self, columns: Int, alpha: Float, gain: Float) -> Action | None:
        """Return the first action within rounding of the largest gain: ties are common for rows on
        a grid."""
        if not len(gain):
            return None
        largest = float(gain.max())
        i = int((gain >= largest - 1e-9 * abs(largest)).argmax())
        return Action(int(columns[i]), float(alpha[i]), float(gain[i]))

    def do(self, action: Action) -> None:
        active = self.active
        if active.place[action.column] < 0:
            active.add(action.column, action.alpha)
        elif np.isinf(action.alpha):
            active.delete(action.column)
        else:
            active.change(action.column, action.alpha)
        self.log_evidence += action.gain
        self.since += 1

    def is_settled(self, info: StepInfo, done: int, least: float) -> bool:
        """Return True if the refresh after ``done`` actions changed the evidence by at most
        ``least``."""
        return not done and abs(info.change) <= max(
            least, 0.5 * self.active.beta * self.active.posterior.rounding
        )

    def refresh(self) -> StepInfo:
        """Re-estimate σ² unless it is fixed, then recompute everything; ``change`` is the resulting
        change in evidence."""
        before = self.log_evidence
        active = self.active
        beta = self.active.beta
        if not self._state.fixed_noise:
            precision, self.floored = noise_precision(self._state, active.now())
            beta = float(precision)
        active.refresh(beta)
        self.log_evidence = active.posterior.log_evidence
        self.iteration = self.iteration + 1
        self.since = 0
        return StepInfo(
            self.iteration,
            self.n_vectors,
            0,
            self.log_evidence,
            self.log_evidence - before,
            1 / beta,
        )

    def fit(self) -> HyperState:
        """Return the fit of the active columns, in candidate order, with a newly computed
        posterior."""
        order = np.argsort(self.active.columns)
        statistics = self.active.statistics.take(self.active.columns[order])
        alpha = self.active.alpha[order]
        fit = self._state.restarted(
            statistics, alpha, self.active.beta, iteration=self.iteration, floored=self.floored
        )
        del self.active  # free the arrays that only actions need
        return replace(fit, found=fit.posterior)


def grow(
    state: HyperState,
    rule: StopRule,
    on_step: Watch = lambda info: None,
    actions: type[Greedy] = Greedy,
) -> tuple[HyperState, Termination]:
    """Run a dense fit by actions until no gain exceeds ``tol``·N nats and σ² has converged, or the
    rule ends it.

    Each refresh is one iteration for the rule, whose limit ``vectors`` ends a fit that starts with
    more vectors.

    Args:
        state: the state before the first action
        rule: the rule that ends the fit
        on_step: called after each refresh
        actions: the class that chooses and does the actions
    """
    greedy = actions(state)
    least = rule.tol * state.n
    reason = None
    limit = -1 if rule.vectors is None or greedy.n_vectors <= rule.vectors else rule.vectors
    while reason is None:
        action = greedy.best(least, thin=rule.thin)
        halved = greedy.n_vectors <= limit
        since = greedy.since
        drifts = since % 4 == 3 and greedy.active.drift() > 1e-6
        if action and not (halved or drifts or since >= FEWEST + greedy.active.M // PART):
            greedy.do(action)
            continue
        info = greedy.refresh()
        on_step(info)
        if halved:
            reason = Termination.HALVED
        elif greedy.is_settled(info, since, least) and not greedy.best(least, thin=rule.thin):
            reason = Termination.CONVERGED
        elif greedy.iteration >= rule.max_iterations:
            reason = Termination.ITERATIONS
    fit = greedy.fit()
    return fit, Termination.CANCELLED if rule.guard and fit.posterior.cancelled else reason
