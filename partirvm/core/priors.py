"""What is believed of α and β before the data speak, and what that makes of their updates.

Each α_i has a Gamma(a, b) prior and β a Gamma(c, d) one, of shape a and rate b (Tipping 2001, eqs. 5 and appendix A).
They are taken as densities of the logarithms: to log p(t | α, β) come, up to constants,

    Σ_i (a log α_i − b α_i) + c log β − d β.

Here each of these terms is less by its largest value, a log(a/b) − a: it is 0 where the prior alone would have α, and
below 0 elsewhere. So a column never gains by the prior alone, sums over different columns can be compared, and the
terms do not depend on units. All zeros, the default, is flat in log α and log β. Shape without rate is improper: it has
no largest value, and its term stays as it is.

**Updates** (appendix A, eqs. 48–50), MacKay's and those of expectation maximisation, γ_i = 1 − α_iΣ_ii:

    α_i ← (γ_i + 2a) / (μ_i² + 2b)              β ← (N − Σγ + 2c) / (‖t − Φμ‖² + 2d)
    α_i ← (1 + 2a) / (μ_i² + Σ_ii + 2b)         β ← (N + 2c) / (‖t − Φμ‖² + Σγ/β + 2d)

EM never lowers the sum; it takes far more steps.

**One column** of sparsity s and quality q adds, at precision α (Tipping & Faul 2003, eq. 18),

    ℓ(α) = ½ [ log α − log(α + s) + q²/(α + s) ] + a log α − b α − const.,

whose slope in log α, times 2(α + s)²/s², is with x = α/s, r = q²/s and B = b s

    g(x) = 1 + x − r x + 2 (a − B x)(1 + x)².

With a = b = 0 its root is s²/(q² − s), and there is none unless q² > s. With b = 0 the peak is the lesser root of
2a x² − (r − 1 − 4a) x + 1 + 2a, and there is none unless r ≥ 1 + 4a + √(8a(1 + 2a)). With b > 0 there is always a
root, and may be three, the middle one a minimum: no α runs to infinity. The column is worth having if ℓ is above 0,
what it would be without the column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

UPDATES = ("mackay", "em")
"""Ways to update α and β."""

HALVINGS = 64
"""Of log x, until a peak is found: from 10³⁰⁰ to the last bits."""


@dataclass(frozen=True)
class GammaDensity:
    """Gamma(shape, rate) on a precision: its mean is shape/rate; both zero is flat in the logarithm."""

    shape: float = 0.0
    rate: float = 0.0

    @property
    def flat(self) -> bool:
        """Whether it says nothing."""
        return not (self.shape or self.rate)

    def shared(self, count: int) -> GammaDensity:
        """The part of each of ``count`` weights that have one precision together."""
        return GammaDensity(self.shape / count, self.rate / count)

    def log_density(self, precision: Float) -> Float:
        """Of the logarithm of each finite precision, nats below its largest value; 0 everywhere if flat."""
        found = -self.rate * precision
        if self.shape:
            found = found + self.shape * np.log(precision)
            if self.rate:
                found = found - self.shape * (np.log(self.shape / self.rate) - 1.0)
        return found

    def worthless(self, s: Float, square: Float) -> NDArray[np.bool_]:
        """Whether columns of these s and q² gain nothing at any precision: q² ≤ s if flat (Tipping & Faul, eq. 20)."""
        if self.flat:
            return square <= s
        return ~np.isfinite(self.peak(s, square))

    def peak(self, s: Float, square: Float) -> Float:
        """The best precision of each column of these s and q², alone; infinite where it gains nothing."""
        return self._best(s, square)[0]

    def gain(self, s: Float, square: Float) -> Float:
        """Nats that each column brings at its peak; 0 where it has none.

        If flat ½[q²/s − 1 − log(q²/s)] (Tipping & Faul 2003, eq. 27). A prior without a rate is left out of it.
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
        """The lesser root of g without a rate, infinite where there is none."""
        a, half = self.shape, r - 1.0 - 4.0 * self.shape
        inside = half**2 - 8.0 * a * (1.0 + 2.0 * a)
        x = 2.0 * (1.0 + 2.0 * a) / (half + np.sqrt(np.maximum(inside, 0.0)))
        return (np.where((half > 0) & (inside >= 0), x, np.inf),)

    def _bounded(self, r: Float, B: Float) -> tuple[Float, ...]:
        """The least and the largest root of g, by bisection between the places where its slope is zero."""
        a = self.shape

        def g(x: Float) -> Float:
            found: Float = 1.0 + x - r * x + 2.0 * (a - B * x) * (1.0 + x) ** 2
            return found

        low, high = 1.0 / (1.0 + r + 8.0 * B), (a + 0.5) / B  # g is above 0 at the one, below at the other
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
    """Where g falls through zero between ``low`` and ``high``, both above zero."""
    low, high = np.log(low), np.log(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = g(np.exp(middle)) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    found: Float = np.exp(0.5 * (low + high))
    return found


@dataclass(frozen=True)
class Prior:
    """Priors of each α and of β, the way of their updates, and α that are ``fixed``: pairs (column's label, α).

    α refers to the target as the model sees it, and so does β here.
    """

    alpha: GammaDensity = field(default_factory=GammaDensity)
    noise: GammaDensity = field(default_factory=GammaDensity)
    updates: str = "mackay"
    fixed: tuple[tuple[int, float], ...] = ()

    @property
    def lingers(self) -> bool:
        """Whether α of a column that is worth nothing stays small enough for the column to stay: unlike MacKay's."""
        return self.updates == "em" or self.alpha.rate > 0

    def shared(self, outputs: int) -> Prior:
        """The same for each of ``outputs`` weights of a column that have one α, by their mean γ, μ² and Σ_ii."""
        return replace(self, alpha=self.alpha.shared(outputs))

    def held(self, labels: Int) -> NDArray[np.bool_]:
        """Which of the columns with these labels have an α that is fixed, (M,)."""
        return np.isin(labels, [label for label, _ in self.fixed])

    def fix(self, labels: Int, alpha: Float) -> Float:
        """α (M,) or (M, C) with those that are fixed as they are to be."""
        for label, value in self.fixed:
            mine = (labels == label).reshape(-1, *[1] * (alpha.ndim - 1))
            alpha = np.where(mine, value, alpha)
        return alpha

    def alpha_update(self, determinedness: Float, square: Float, variance: Float) -> Float:
        """The next α from γ, μ² and Σ_ii, all of one shape; infinite or NaN where nothing holds it."""
        a, b = 2.0 * self.alpha.shape, 2.0 * self.alpha.rate
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.updates == "em":
                return (1.0 + a) / (square + variance + b)
            return (determinedness + a) / (square + b)

    def noise_update(self, n: float, determined: Float, residual: Float, beta: Float) -> tuple[Float, Float]:
        """Numerator and denominator of the next β, from N, Σγ, ‖t − Φμ‖² and the present β of each target, (T,)."""
        c, d = 2.0 * self.noise.shape, 2.0 * self.noise.rate
        if self.updates == "em":
            return np.full_like(residual, n + c), residual + determined / beta + d
        return np.maximum(n - determined, 1.0) + c, residual + d

    def log_density(self, labels: Int, alpha: Float, beta: float | Float | None) -> float:
        """What the priors add to the evidence, nats; infinite α are of columns that are not there, β None is fixed."""
        found = 0.0
        if not self.alpha.flat:
            free = np.isfinite(alpha) & ~self.held(labels).reshape(-1, *[1] * (alpha.ndim - 1))
            found += float(self.alpha.log_density(alpha[free]).sum())
        if beta is not None and not self.noise.flat:
            found += float(self.noise.log_density(np.array(beta)))
        return found


FLAT = Prior()
"""The default: nothing is believed, MacKay's updates."""
