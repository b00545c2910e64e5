"""Gamma priors on α and β, the updates under these priors, and the gain of a column, for one or
several targets.

α_i has a Gamma(a, b) prior and β a Gamma(c, d) prior, with shape a and rate b (Tipping 2001, eq. 5
and appendix A), used as densities of log α and log β; zeros give a flat prior. They add Σ_i (a log
α_i − b α_i) + c log β − d β to log p(t | α, β). The maximum a log(a/b) − a is subtracted from each
term, so that it is 0 at the mode; without a rate there is no mode.

**One column** with sparsity s and quality q changes the log evidence at α by (Tipping & Faul 2003,
eq. 18) ℓ(α) = ½ [ log α − log(α + s) + q²/(α + s) ], which is largest at α = s²/(q² − s) if q² > s;
the prior, never above 0, is ignored.

**Several targets** share α_i: ℓ(α) is the sum of their terms, and with γ_τ = s_τ/(α + s_τ), μ_τ =
q_τ/(α + s_τ) a step towards MacKay's fixed point α = Σγ_τ / Σμ_τ² always increases ℓ. ℓ can have a
peak above zero even if Σq² ≤ Σs, when one target needs the column and another, with a large s, does
not. So a column *fails* only if, in addition, ℓ(α) ≤ 0.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from partirvm.types import Bool, Each, Float, Int

JOINING = 1e-3
"""Columns that join together start at this fraction of their individually optimal α. Similar
columns share what each explains alone: if they started at their individual optima, they would
eliminate each other before the noise estimate decreased, which costs hundreds of nats (Friedman#1,
all 3,000 rows: −5,653 instead of −4,831)."""

ABSENT = 1e-200
"""A column whose βφᵀφ is below this counts as zero."""

DEPENDENT = 1e-8
"""A new column whose s is below this fraction of its βG_ii counts as a copy of columns already
present."""


def log_contribution(alpha: Float, s: Float, q: Float) -> Float:
    """Return ℓ(α), the contribution of columns with these s and q to the log evidence, in nats; 0
    at α = ∞. Arrays may have any shape."""
    return 0.5 * (q**2 / (alpha + s) - np.log1p(s / alpha))


@dataclass(frozen=True)
class GammaDensity:
    """Gamma density of a precision, with mean shape/rate. For shape = rate = 0 it is flat in the
    log precision."""

    shape: float = 0.0
    rate: float = 0.0

    def log_density(self, precision: Float) -> Float:
        """Return the log density of the logarithm of each finite precision, minus its maximum, in
        nats; 0 if flat."""
        density = -self.rate * precision
        if self.shape:
            density = density + self.shape * np.log(precision)
            if self.rate:
                density = density - self.shape * (np.log(self.shape / self.rate) - 1.0)
        return density


@dataclass(frozen=True)
class Prior:
    """Priors on α and β in the model's units, and ``fixed`` values of α as pairs (column label,
    α)."""

    alpha: GammaDensity = field(default_factory=GammaDensity)
    noise: GammaDensity = field(default_factory=GammaDensity)
    fixed: tuple[tuple[int, float], ...] = ()

    @property
    def is_flat(self) -> bool:
        """True if the prior of α, unless it is fixed, and of β is flat."""
        return replace(self, fixed=()) == FLAT

    @property
    def keeps_worthless(self) -> bool:
        """True if α can remain finite for a column that does not raise the evidence."""
        return self.alpha.rate > 0

    def shared(self, outputs: int) -> "Prior":
        """Return the prior of each of ``outputs`` weights that share α, for updates from means of γ
        and μ²."""
        return replace(
            self, alpha=GammaDensity(self.alpha.shape / outputs, self.alpha.rate / outputs)
        )

    def held(self, labels: Int) -> Bool:
        """Return an array (M,) that is True for columns with these labels whose α is fixed."""
        return (
            np.isin(labels, [label for label, _ in self.fixed])
            if self.fixed
            else np.zeros(len(labels), np.bool_)
        )

    def fix(self, labels: Int, alpha: Float) -> Float:
        """Return α (M,) with the fixed values inserted."""
        if not self.fixed:
            return alpha
        fixed_labels, values = map(np.array, zip(*sorted(self.fixed), strict=True))
        places = np.minimum(np.searchsorted(fixed_labels, labels), len(values) - 1)
        return np.where(fixed_labels[places] == labels, values[places], alpha)

    def alpha_update(self, determinedness: Float, square: Float) -> Float:
        """Return the next α (appendix A, eq. 48) from γ and μ² of the same shape; ∞ or NaN where α
        diverges."""
        a = 2.0 * self.alpha.shape
        b = 2.0 * self.alpha.rate
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return (determinedness + a) / (square + b)

    def log_density(self, labels: Int, alpha: Float, beta: Each | None) -> float:
        """Return the priors' contribution to the log evidence, in nats; infinite α and β = None
        contribute zero."""
        if self.alpha == self.noise == GammaDensity():
            return 0.0
        density = float(
            self.alpha.log_density(alpha[np.isfinite(alpha) & ~self.held(labels)]).sum()
        )
        if beta is not None:
            density += float(np.sum(self.noise.log_density(np.array(beta))))
        return density


FLAT = Prior()
"""The default prior: flat."""


def joint_contribution(s: Float, q: Float, alpha: Float) -> Float:
    """Return ℓ(α) (P,), in nats, for columns with these s and q (P, T) at α (P,)."""
    total = alpha[:, None] + s
    with np.errstate(divide="ignore", invalid="ignore"):
        gain: Float = 0.5 * (np.log(alpha[:, None] / total) + q**2 / total).sum(axis=1)
    return np.where(np.isfinite(alpha), gain, 0.0)


def fails(s: Float, q: Float, alpha: Float) -> Bool:
    """Return a mask (P,), True for columns at α (P,) whose deletion does not lower the evidence,
    given s and q (P, T)."""
    return np.asarray(
        ((q**2).sum(axis=1) <= s.sum(axis=1)) & (joint_contribution(s, q, alpha) <= 0)
    )


def joint_optimum(s: Float, q: Float) -> tuple[Float, Float]:
    """Return the optimal α (P,) of columns with these s and q (P, T), and ℓ at the optimum (P,), in
    nats.

    α is ∞ for columns without a peak above zero. Every peak lies above the smallest optimum of a
    single target, s²/(q² − s).
    """
    excess = q**2 - s
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where((excess > 0) & (s > 0), s**2 / excess, np.inf).min(axis=1).clip(ABSENT)
    best = np.zeros(len(s))
    alpha = np.full(len(s), np.inf)
    columns = np.flatnonzero(np.isfinite(low))
    peak = _joint_peak(s[columns], q[columns], low[columns])
    value = joint_contribution(s[columns], q[columns], peak)
    alpha[columns] = np.where(value > 0, peak, np.inf)
    best[columns] = np.maximum(value, 0.0)
    return alpha, best


def _joint_peak(s: Float, q: Float, low: Float) -> Float:
    """Return the α (P,) above ``low`` (P,) with the largest ℓ, for columns with these s and q (P,
    T): the best point of a grid, refined by steps towards the fixed point."""
    high = np.maximum(1e4 * s.max(axis=1), 2 * low)  # beyond this, ℓ behaves like Σ(q² − s)/2α
    grid = np.array([low * (high / low) ** (step / 47) for step in range(48)])
    values = np.array([joint_contribution(s, q, alpha) for alpha in grid])
    peak: Float = grid[values.argmax(axis=0), np.arange(len(s))]
    for _ in range(8):
        total = peak[:, None] + s
        moved = (s / total).sum(axis=1) / ((q / total) ** 2).sum(axis=1)
        rises = joint_contribution(s, q, moved) > joint_contribution(s, q, peak)
        peak = np.where(rises, moved, peak)
    return peak


def optimal_alpha(s: Float, q: Float) -> Float:
    """Return s²/(q² − s), the α with the largest ℓ (Tipping & Faul 2003, eq. 20), or ∞ where q² ≤
    s. Arrays may have any shape."""
    excess = q**2 - s
    return np.asarray(np.divide(s**2, excess, out=np.full(s.shape, np.inf), where=excess > 0))


def optimum(s: Float, q: Float, *, joint: bool = False) -> tuple[Float, Float]:
    """Return ``optimal_alpha`` of columns with these s and q, and the evidence gain there, in nats.
    Arrays may have any shape.

    The gain is ½[q²/s − 1 − log(q²/s)] (Tipping & Faul 2003, eq. 27), and 0 if α is ∞. If
    ``joint``, s and q (P, T) are for several targets that share α, and the results are (P,).
    """
    if joint and s.ndim == 2:
        return joint_optimum(s, q)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.maximum(np.where(s > 0, q**2 / s, 1.0), 1.0)
    return optimal_alpha(s, q), 0.5 * (ratio - 1.0 - np.log(ratio))


def entry_precision(s: Float, q: Float, precision: Float, *, joint: bool = False) -> Float:
    """Return the initial α of new columns: ``JOINING`` × the optimum, or × s if there is none.

    A column that gains nothing alone may gain together with others: a small α makes its prior weak
    at first. Shapes are as in ``optimum``.

    Args:
        s: sparsity; for a near-copy of present columns it is a rounding error, and is raised to a
            fraction of ``precision``
        q: quality
        precision: βφᵀφ
        joint: True for several targets that share α
    """
    s = np.maximum(s, DEPENDENT * precision)
    best = optimum(s, q, joint=joint)[0]
    if best.ndim < s.ndim:
        s = s.mean(axis=1)
        precision = precision.max(axis=1)
    # a centre far from every row has a column of zeros: any α is valid, and the first step prunes
    # it
    return np.where(precision > ABSENT, JOINING * np.where(np.isfinite(best), best, s), 1.0)
