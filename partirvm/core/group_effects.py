"""Effects of known groups: the means of their rows' errors, which other features do not explain.

The error e_n of a row of group g that was left out of the fit alone is c_g plus noise of variance
σ²/u_n, with c_g ~ N(0, τ²) (a random intercept, Laird & Ware 1982, "Random-effects models for
longitudinal data"). With λ = τ²/σ² and the sums S_g = Σ u and b_g = Σ u e over the group's rows,
the best predictor of c_g, its variance, and the log likelihood of n errors at the best σ² are

    c_g = λ b_g/(1 + λS_g),    V_g = σ² λ/(1 + λS_g),
    −½ n log σ² − ½ Σ_g log(1 + λS_g),    σ² = (Σ u e² − Σ_g b_g c_g)/n,

and λ maximises the likelihood. Without row n, the predictor of c_g gives the error (e_n − c_g)/(1 −
h_n), and its variance is σ²h_n/(u_n(1 − h_n)), where h_n = λu_n/(1 + λS_g).
"""

from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.groups import places_among
from partirvm.core.left_out import LeftOut
from partirvm.types import Float, Int

LOG_RATIOS = (-12.0, 12.0)
"""Range of log λ: at its ends, effects are negligible, or the groups' means are not shrunken."""

SURE = 2.0
"""Minimum gain of effects in log likelihood, in nats, for their use."""


@dataclass(frozen=True)
class GroupEffects:
    """Effects of groups with left-out rows, in a model's units.

    Attributes:
        codes: codes of the groups, increasing (G,)
        means: c_g (G,)
        variances: V_g (G,)
        prior_variance: τ²
        noise_variance: σ²
    """

    codes: Int
    means: Float
    variances: Float
    prior_variance: float
    noise_variance: float

    def precision(self, beta: float) -> float:
        """Return the precision of the noise within groups, given that of a fit whose noise includes
        the effects."""
        return max(beta, 1.0 / self.noise_variance)

    def of_groups(self, groups: Int) -> tuple[Float, Float]:
        """Return the means and variances (n,) of the effects of groups with codes (n,): 0 and τ²
        for groups without left-out rows."""
        places = places_among(self.codes, groups)
        is_known = places >= 0
        means = np.where(is_known, self.means[places], 0.0)
        variances = np.where(is_known, self.variances[places], self.prior_variance)
        return means, variances


@dataclass(frozen=True)
class EffectsFit:
    """Effects of groups, and the errors of rows that were left out of their estimate, too."""

    effects: GroupEffects
    left_out: LeftOut


@dataclass(frozen=True)
class EffectsLikelihood:
    """The likelihood of errors as a function of log λ.

    Attributes:
        sums: S_g (G,)
        products: b_g (G,)
        square: Σ u e²
        n: number of errors
    """

    sums: Float
    products: Float
    square: float
    n: int

    def noise_variance(self, ratio: float) -> float:
        """Return the best σ² for λ."""
        explained = ratio * self.products**2 / (1.0 + ratio * self.sums)
        least = np.finfo(float).tiny
        return max((self.square - float(explained.sum())) / self.n, least)

    def loss(self, log_ratio: float) -> float:
        """Return minus the log likelihood, up to a constant."""
        ratio = float(np.exp(log_ratio))
        determinant = float(np.log1p(ratio * self.sums).sum())
        return 0.5 * (self.n * float(np.log(self.noise_variance(ratio))) + determinant)

    def best_ratio(self) -> float:
        """Return the λ of the highest likelihood; 0 if effects gain less than ``SURE``."""
        from scipy.optimize import minimize_scalar  # importing it takes megabytes

        best = minimize_scalar(self.loss, bounds=LOG_RATIOS, method="bounded")
        without = 0.5 * self.n * np.log(self.noise_variance(0.0))
        return float(np.exp(best.x)) if without - best.fun > SURE else 0.0


def fitted_effects(left_out: LeftOut, groups: Int) -> EffectsFit | None:
    """Return the effects of ``groups`` (n,) from errors of n rows that were left out one by one;
    None if the errors show no effects."""
    scaled_errors = left_out.expected()[0]  # √u e
    units = left_out.targets[:, 1]
    codes, places = np.unique(groups, return_inverse=True)
    sums: Float = np.bincount(places, units).astype(np.float64)
    products: Float = np.bincount(places, np.sqrt(units) * scaled_errors).astype(np.float64)
    square = float(scaled_errors @ scaled_errors)
    likelihood = EffectsLikelihood(sums, products, square, len(units))
    ratio = likelihood.best_ratio() if square else 0.0
    if not ratio:
        return None
    noise = likelihood.noise_variance(ratio)
    shrinkage = ratio / (1.0 + ratio * sums)
    means = shrinkage * products
    effects = GroupEffects(codes, means, noise * shrinkage, ratio * noise, noise)
    leverage = units * shrinkage[places]
    alone = (means[places] - leverage * scaled_errors / np.sqrt(units)) / (1.0 - leverage)
    return EffectsFit(
        effects,
        replace(
            left_out,
            errors=left_out.errors - (np.sqrt(units) * alone)[:, None],
            variances=left_out.variances + (noise * leverage / (1.0 - leverage))[:, None],
            targets=left_out.targets - np.column_stack([alone, np.zeros(len(alone))]),
        ),
    )
