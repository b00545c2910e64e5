"""Groups of rows with classes: the uncertainty of logits at new groups, and the effects of known
groups.

The logits ℓ of a fit say what the features say of a class. Rows of a group have an effect in common
that the features do not explain. For a *new* group, it is unknown: the logits are moderated with
its variance τ² as for an unknown level, towards the log frequencies s of the classes,

    s + (ℓ − s)/√(1 + πτ²/8)

(``core.link.moderated``), where τ² ≥ 0 minimises the log loss of rows that are left out by whole
groups. For a *known* group, logits are κℓ + c_g with an effect c_g ~ N(0, v) on each of C logits (a
random intercept, Breslow & Clayton 1993, "Approximate inference in generalized linear mixed
models"), moderated with its variance V_g. The slope κ is usually above 1, because probabilities
over all groups vary less with the features than those in a group. With the curvature H_g of Σ_n
log p at rows that were left out by folds of rows,

    c_g = argmax Σ_n log p(t_n | κℓ_n + c_g) − c_gᵀc_g/(2v),    V_g = tr[(H_g + I/v)⁻¹]/C,

and κ and v maximise the Laplace approximation of the likelihood,

    Σ_g [Σ_n log p(t_n | κℓ_n + c_g) − c_gᵀc_g/(2v) − ½ log det(I + vH_g)].
"""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from partirvm.core.groups import places_among
from partirvm.core.link import LINKS, moderated, targets
from partirvm.types import Bool, Float, Int

LOG_VARIANCES = (-6.0, 6.0)
"""Range of log τ²; at the upper end, a logit says a twelfth of what it seems to."""

LOG_PRIORS = (-6.0, 3.0)
"""Range of log v. Where each group has one class, v would grow without limit and with it V_g, whose
Gaussian is then far wider than the skewed density that it stands for."""

LOG_SLOPES = (-1.0, 2.0)
"""Range of log κ."""

SIMPLEX = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.4]])
"""Values of log v and log κ with which the search begins."""

EVALUATIONS = 60
"""Maximum number of evaluations of the likelihood of κ and v."""

TOLERANCE = 0.03
"""Precision of log κ and log v."""

SURE = 2.0
"""Minimum gain of effects in log likelihood, in nats, for their use."""

STEPS = 60
"""Maximum number of Newton steps to the effects of groups."""

LONGEST_STEP = 2.0
"""Maximum change of a logit's effect in a Newton step."""

PRECISE = 1e-9
"""Change of the effects at which they have converged."""

ROUGH = 1e-3
"""The same in the search for κ and v: an error e of the effects changes their likelihood by e²."""


@dataclass(frozen=True)
class ClassGroups:
    """What a classification says of rows of new and of known groups.

    Attributes:
        log_shares: log frequencies of the classes, for two classes the log odds of the second (C,)
        variance: τ² of new groups
        codes: codes of known groups, increasing (G,)
        slope: κ of known groups
        offsets: effects of known groups on the logits (G, C)
        offset_variances: variances of these effects (G,)
    """

    log_shares: Float
    variance: float
    codes: Int
    slope: float
    offsets: Float
    offset_variances: Float

    def has(self, groups: Int) -> Bool:
        """Return a mask (n,), True for the codes (n,) of known groups."""
        return np.isin(groups, self.codes)

    def effects_of(self, groups: Int) -> tuple[Float, Float]:
        """Return the effects (n, C) and their variances (n, 1) of groups with codes (n,); 0 and τ²
        for unknown groups."""
        places = places_among(self.codes, groups)
        is_known = (places >= 0)[:, None]
        offsets = np.where(is_known, self.offsets[places], 0.0)
        variances = np.where(is_known, self.offset_variances[places, None], self.variance)
        return offsets, variances

    def of_rows(self, n_rows: int) -> Self:
        """Return these groups; they do not depend on the number of the data's rows."""
        return self


@dataclass(frozen=True)
class LeftOutLogits:
    """Logits of left-out rows.

    Attributes:
        logits: (n, C), C = 1 for two classes
        codes: classes of the rows (n,)
        weights: row weights (n,)
        groups: groups of the rows (n,)
        variances: variances of the logits that are known, as of unknown levels (n, 1)
    """

    logits: Float
    codes: Float
    weights: Float
    groups: Int
    variances: Float

    def __add__(self, other: Self) -> Self:
        return type(self)(
            np.concatenate([self.logits, other.logits]),
            np.concatenate([self.codes, other.codes]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.groups, other.groups]),
            np.concatenate([self.variances, other.variances]),
        )

    def take(self, places: Int) -> Self:
        """Return the rows at these positions."""
        return type(self)(
            self.logits[places],
            self.codes[places],
            self.weights[places],
            self.groups[places],
            self.variances[places],
        )

    @property
    def link(self) -> str:
        """The name of the link."""
        return "bernoulli" if self.logits.shape[1] == 1 else "multinomial"

    def log_shares(self) -> Float:
        """Return the log frequencies of the classes, or the log odds of the second of two (C,);
        each class counts one row more than it has."""
        C = self.logits.shape[1]
        counts = 1.0 + np.bincount(self.codes.astype(np.int64), self.weights, max(C, 2))
        logs = np.log(counts / counts.sum())
        return np.asarray(logs if C > 1 else logs[1:] - logs[:1])

    def loss(self, log_shares: Float, variance: float) -> float:
        """Return the mean log loss if the logits have this further variance."""
        of_shares = self.logits - log_shares
        logits = log_shares + moderated(of_shares, self.variances + variance)
        log_p = LINKS[self.link].log_probability(logits, self.codes)
        return -float(self.weights @ log_p) / float(self.weights.sum())

    def variance_between_groups(self, log_shares: Float) -> float:
        """Return τ² with the lowest log loss of rows that were left out by groups."""
        from scipy.optimize import minimize_scalar  # importing it takes megabytes

        def loss(log_variance: float) -> float:
            return self.loss(log_shares, float(np.exp(log_variance)))

        best = minimize_scalar(loss, bounds=LOG_VARIANCES, method="bounded")
        return float(np.exp(best.x)) if best.fun < self.loss(log_shares, 0.0) else 0.0


@dataclass(frozen=True)
class EffectsOfClasses:
    """Effects of groups with left-out rows.

    Attributes:
        codes: codes of the groups, increasing (G,)
        offsets: c_g (G, C)
        variances: V_g (G,)
        slope: κ
        prior_variance: v
        log_likelihood: Laplace approximation, in nats
    """

    codes: Int
    offsets: Float
    variances: Float
    slope: float
    prior_variance: float
    log_likelihood: float

    def of_groups(self, groups: Int) -> tuple[Float, Float]:
        """Return the means (n, C) and variances (n,) of the effects of groups with codes (n,): 0
        and v for groups without left-out rows."""
        places = places_among(self.codes, groups)
        is_known = places >= 0
        offsets = np.where(is_known[:, None], self.offsets[places], 0.0)
        return offsets, np.where(is_known, self.variances[places], self.prior_variance)


@dataclass(frozen=True)
class EffectsOfRows:
    """Rows in the order of their groups, for sums over groups.

    Attributes:
        rows: the rows, in the order of their groups
        starts: position of each group's first row (G,)
        codes: codes of the groups, increasing (G,)
        targets: indicators of the classes (n, C)
    """

    rows: LeftOutLogits
    starts: Int
    codes: Int
    targets: Float = field(init=False)

    def __post_init__(self) -> None:
        indicators = targets(self.rows.codes, self.rows.logits.shape[1])
        object.__setattr__(self, "targets", indicators)

    @classmethod
    def of(cls, rows: LeftOutLogits) -> Self:
        """Return rows in the order of their groups."""
        ordered = rows.take(np.argsort(rows.groups, kind="stable"))
        codes, starts = np.unique(ordered.groups, return_index=True)
        return cls(ordered, starts, codes)

    def sums(self, offsets: Float, slope: float = 1.0) -> tuple[Float, Float, Float]:
        """Return log likelihood (G,), its derivative (G, C) and its curvature H_g (G, C, C) with
        respect to the effects, at effects (G, C) and a slope κ."""
        counts = np.diff(np.append(self.starts, len(self.rows.codes)))
        f = slope * self.rows.logits + np.repeat(offsets, counts, axis=0)
        weights = self.rows.weights[:, None]
        log_p, derivative, diagonal = LINKS[self.rows.link].derivatives(f, self.targets)
        curvature = diagonal[:, :, None]
        if offsets.shape[1] > 1:
            p = self.targets - derivative
            curvature = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None])
        return (
            np.add.reduceat(weights * log_p, self.starts)[:, 0],
            np.add.reduceat(weights * derivative, self.starts),
            np.add.reduceat(weights[:, :, None] * curvature, self.starts),
        )

    def effects(
        self, prior_variance: float, slope: float, start: Float, precision: float = PRECISE
    ) -> EffectsOfClasses:
        """Return the effects by Newton steps.

        Args:
            prior_variance: v
            slope: κ
            start: initial effects (G, C)
            precision: the last step changes no effect by more than this
        """
        offsets = start
        of_prior = np.eye(start.shape[1]) / prior_variance
        for _ in range(STEPS):
            _, derivative, curvature = self.sums(offsets, slope)
            gradient = derivative - offsets / prior_variance
            step = np.linalg.solve(curvature + of_prior, gradient[:, :, None])[:, :, 0]
            offsets = offsets + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
            if np.abs(step).max() < precision:
                break
        log_p, _, curvature = self.sums(offsets, slope)
        precisions = curvature + of_prior
        squares = np.sum(offsets**2, axis=1) / prior_variance
        determinants = np.linalg.slogdet(prior_variance * precisions)[1]
        return EffectsOfClasses(
            self.codes,
            offsets,
            np.mean(np.linalg.inv(precisions).diagonal(axis1=1, axis2=2), axis=1),
            slope,
            prior_variance,
            float(np.sum(log_p - 0.5 * squares - 0.5 * determinants)),
        )

    def no_effects(self) -> Float:
        """Return effects of 0 (G, C)."""
        return np.zeros((len(self.codes), self.rows.logits.shape[1]))


def fitted_class_effects(rows: LeftOutLogits) -> EffectsOfClasses | None:
    """Return the effects of groups from logits of rows that were left out one by one; None if the
    rows show no effects."""
    from scipy.optimize import minimize  # importing it takes megabytes

    ordered = EffectsOfRows.of(rows)
    nothing = ordered.no_effects()
    bounds = [LOG_PRIORS, LOG_SLOPES]

    def loss(logs: Float) -> float:
        variance, slope = np.exp(logs).tolist()
        return -ordered.effects(variance, slope, nothing, ROUGH).log_likelihood

    options = {
        "initial_simplex": SIMPLEX,
        "xatol": TOLERANCE,
        "fatol": TOLERANCE,
        "maxfev": EVALUATIONS,
    }
    best = minimize(loss, SIMPLEX[0], method="Nelder-Mead", bounds=bounds, options=options)
    without = float(ordered.sums(nothing)[0].sum())
    if -best.fun - without <= SURE:
        return None
    variance, slope = np.exp(best.x).tolist()
    return ordered.effects(variance, slope, nothing)


def class_groups(
    known: Int, by_groups: LeftOutLogits, effects: EffectsOfClasses | None
) -> ClassGroups:
    """Return what a classification says of new and of known groups.

    Args:
        known: codes of all groups of the data, increasing (G,)
        by_groups: logits of rows that were left out by groups
        effects: effects of known groups, or None
    """
    log_shares = by_groups.log_shares()
    variance = by_groups.variance_between_groups(log_shares)
    offsets = np.zeros((len(known), len(log_shares)))
    variances = np.zeros(len(known))
    groups = ClassGroups(log_shares, variance, known, 1.0, offsets, variances)
    if effects is None:
        return groups
    offsets, variances = effects.of_groups(known)
    return replace(groups, slope=effects.slope, offsets=offsets, offset_variances=variances)
