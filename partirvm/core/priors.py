"""Gamma priors of α and β, and the updates of α and β with these priors.

Each α_i has a Gamma(a, b) prior and β a Gamma(c, d) prior, with shape a and rate b (Tipping 2001, eq. 5 and appendix
A). The priors are used as densities of log α and log β. Up to constants, these densities add to log p(t | α, β)

    Σ_i (a log α_i − b α_i) + c log β − d β.

Here the maximum a log(a/b) − a is subtracted from each term, so that a term is 0 at the mode of the prior and below 0
elsewhere. So the prior alone never favours a column, sums over different columns can be compared, and the terms do not
depend on units. The default, all zeros, is flat in log α and log β. A prior with a shape but no rate is improper: its
term has no maximum, and is not shifted.

**MacKay's updates** (appendix A, eqs. 48–50), with γ_i = 1 − α_iΣ_ii:

    α_i ← (γ_i + 2a) / (μ_i² + 2b)              β ← (N − Σγ + 2c) / (‖t − Φμ‖² + 2d)

**One column** with sparsity s and quality q changes the log evidence at precision α by (Tipping & Faul 2003, eq. 18)

    ℓ(α) = ½ [ log α − log(α + s) + q²/(α + s) ] + a log α − b α − const.,

whose slope in log α, times 2(α + s)²/s², is with x = α/s, r = q²/s and B = b s

    g(x) = 1 + x − r x + 2 (a − B x)(1 + x)².

With a = b = 0 the optimum is α = s²/(q² − s) if q² > s; otherwise g has no root. With b = 0 the peak of ℓ is at the
smaller root of 2a x² − (r − 1 − 4a) x + 1 + 2a if r ≥ 1 + 4a + √(8a(1 + 2a)); otherwise there is no peak. With b > 0
g has one or three roots, and α stays finite; the middle root of three is a minimum. The column raises the
evidence if ℓ is above 0, the value without the column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

HALVINGS = 64
"""Number of bisection steps in log x, enough for an interval from 10⁻³⁰⁰ to 10³⁰⁰."""


@dataclass(frozen=True)
class GammaDensity:
    """Gamma density of a precision, with mean shape/rate. For shape = rate = 0 it is flat in the log precision."""

    shape: float = 0.0
    rate: float = 0.0

    @property
    def flat(self) -> bool:
        """True if the density is flat."""
        return not (self.shape or self.rate)

    def shared(self, count: int) -> GammaDensity:
        """Return the density divided equally among ``count`` weights that share a precision."""
        return GammaDensity(self.shape / count, self.rate / count)

    def log_density(self, precision: Float) -> Float:
        """Return the log density of the logarithm of each finite precision, minus the maximum, nats; 0 if flat."""
        found = -self.rate * precision
        if self.shape:
            found = found + self.shape * np.log(precision)
            if self.rate:
                found = found - self.shape * (np.log(self.shape / self.rate) - 1.0)
        return found

    def worthless(self, s: Float, square: Float) -> NDArray[np.bool_]:
        """Return True for columns that do not raise the evidence at any α: q² ≤ s if flat (Tipping & Faul, eq. 20)."""
        if self.flat:
            return square <= s
        return ~np.isfinite(self.peak(s, square))

    def peak(self, s: Float, square: Float) -> Float:
        """Return the optimal precision of each column with these s and q²; infinite if the column has no gain."""
        return self._best(s, square)[0]

    def gain(self, s: Float, square: Float) -> Float:
        """Return the gain of evidence, nats, of each column at its optimal precision; 0 if there is no gain.

        For a flat prior the gain is ½[q²/s − 1 − log(q²/s)] (Tipping & Faul 2003, eq. 27). The term of a prior without
        a rate is not included.
        """
        if not self.flat:
            return self._best(s, square)[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(s > 0, square / s, 1.0)
        ratio = np.maximum(ratio, 1.0)
        return 0.5 * (ratio - 1.0 - np.log(ratio))

    def _best(self, s: Float, square: Float) -> tuple[Float, Float]:
        if self.flat:
            excess = square - s
            return np.where(excess > 0, s**2 / np.where(excess > 0, excess, 1.0), np.inf), self.gain(s, square)
        there = s > 0
        s = np.where(there, s, 1.0)
        with np.errstate(all="ignore"):
            peaks = self._bounded(square / s, self.rate * s) if self.rate else self._unbounded(square / s)
            x = np.stack(peaks)
            value = 0.5 * (np.log(x) - np.log1p(x) + square / s / (1.0 + x))
            if self.rate:
                value += self.log_density(x * s)
        value = np.where(np.isfinite(x) & there & (value > 0), value, 0.0)
        first = value.argmax(axis=0)[None]
        gain = np.take_along_axis(value, first, 0)[0]
        alpha = np.where(gain > 0, np.take_along_axis(x, first, 0)[0] * s, np.inf)
        return alpha, gain

    def _unbounded(self, r: Float) -> tuple[Float, ...]:
        """Return the smaller root of g for a rate of 0; infinite if g has no root."""
        a, half = self.shape, r - 1.0 - 4.0 * self.shape
        inside = half**2 - 8.0 * a * (1.0 + 2.0 * a)
        x = 2.0 * (1.0 + 2.0 * a) / (half + np.sqrt(np.maximum(inside, 0.0)))
        return (np.where((half > 0) & (inside >= 0), x, np.inf),)

    def _bounded(self, r: Float, B: Float) -> tuple[Float, ...]:
        """Return the smallest and the largest root of g, by bisection between the zeros of the derivative of g."""
        a = self.shape

        def g(x: Float) -> Float:
            found: Float = 1.0 + x - r * x + 2.0 * (a - B * x) * (1.0 + x) ** 2
            return found

        low, high = 1.0 / (1.0 + r + 8.0 * B), (a + 0.5) / B  # g is above 0 at low, below 0 at high
        p, c = 2.0 * a - 4.0 * B, 0.5 * (r - 1.0 - 4.0 * a + 2.0 * B)
        inside = p**2 - 12.0 * B * c
        stable = p + np.copysign(np.sqrt(np.maximum(inside, 0.0)), p)
        turns = np.stack([stable / (6.0 * B), 2.0 * c / stable])
        turns = np.where((inside > 0) & np.isfinite(turns), turns, 0.0)
        dip, crest = np.clip(turns.min(axis=0), low, high), np.clip(turns.max(axis=0), low, high)
        early, late = g(dip) < 0, g(crest) > 0
        least = _root(g, np.where(early, low, crest), np.where(early, dip, high))
        largest = _root(g, np.where(late, crest, low), np.where(late, high, dip))
        return np.where(early | late, least, np.inf), np.where(late, largest, least)


def _root(g: Callable[[Float], Float], low: Float, high: Float) -> Float:
    """Return the root of g between ``low`` and ``high`` (both positive) where g changes from positive to negative."""
    low, high = np.log(low), np.log(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = g(np.exp(middle)) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    found: Float = np.exp(0.5 * (low + high))
    return found


@dataclass(frozen=True)
class Prior:
    """Priors of α and β, and ``fixed`` values of α as pairs (column's label, α).

    α and β refer to the target in the model's units.
    """

    alpha: GammaDensity = field(default_factory=GammaDensity)
    noise: GammaDensity = field(default_factory=GammaDensity)
    fixed: tuple[tuple[int, float], ...] = ()

    @property
    def keeps_worthless(self) -> bool:
        """True if α can stay finite for a column that does not raise the evidence."""
        return self.alpha.rate > 0

    def shared(self, outputs: int) -> Prior:
        """Return the prior of each of ``outputs`` weights that share α, for updates from means of γ, μ² and Σ_ii."""
        return replace(self, alpha=self.alpha.shared(outputs))

    def held(self, labels: Int) -> NDArray[np.bool_]:
        """Return an array (M,) that is True for columns with these labels whose α is fixed."""
        return np.isin(labels, [label for label, _ in self.fixed])

    def fix(self, labels: Int, alpha: Float) -> Float:
        """Return α (M,) or (M, C) with the fixed values inserted."""
        for label, value in self.fixed:
            mine = (labels == label).reshape(-1, *[1] * (alpha.ndim - 1))
            alpha = np.where(mine, value, alpha)
        return alpha

    def alpha_update(self, determinedness: Float, square: Float, variance: Float) -> Float:
        """Return the next α from γ, μ² and Σ_ii, all of one shape; infinite or NaN where α diverges."""
        a, b = 2.0 * self.alpha.shape, 2.0 * self.alpha.rate
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return (determinedness + a) / (square + b)

    def noise_update(self, n: float, determined: Float, residual: Float, beta: Float) -> tuple[Float, Float]:
        """Return numerator and denominator of the next β, (T,) each, from N, Σγ, ‖t − Φμ‖² and the current β."""
        c, d = 2.0 * self.noise.shape, 2.0 * self.noise.rate
        return np.maximum(n - determined, 1.0) + c, residual + d

    def log_density(self, labels: Int, alpha: Float, beta: float | Float | None) -> float:
        """Return the contribution of the priors to the log evidence, nats; infinite α and β = None contribute zero."""
        found = 0.0
        if not self.alpha.flat:
            free = np.isfinite(alpha) & ~self.held(labels).reshape(-1, *[1] * (alpha.ndim - 1))
            found += float(self.alpha.log_density(alpha[free]).sum())
        if beta is not None and not self.noise.flat:
            found += float(self.noise.log_density(np.array(beta)))
        return found


FLAT = Prior()
"""The default prior: flat."""
