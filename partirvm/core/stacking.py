"""The share of a second predictor in predictions, from rows that both were left out of.

With the prediction f of a fit and that h of the second predictor, f + w·(h − f) predicts a number.
The share w is constant or, where local residuals give each row its own standard deviation s, it is
w = s/(s + τ): the fit keeps its predictions where it is certain. The share minimises the mean
squared error. The variance of the mixture is c(1 − w)s², as if h were a further measurement, with
the c of the highest log density. (w = s²/(s² + τ²), which would be right for independent errors
and exact variances, gives larger errors of left-out and of new rows.) For classes, the constant
share of the logits with the lowest log loss is one of ``SHARES``.

A share pays if the loss falls by ``LEAST_GAIN`` and by ``SURE`` standard errors; for numbers, a
fall of the root mean squared error by a tenth may cost a tenth of a nat.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.link import LINKS
from partirvm.types import DeclaredState, Float, Int, squeezed

LEAST_GAIN = 0.01
"""Minimum decrease of the mean squared error or log loss, relative to the fit alone."""

SURE = 1.5
"""The same in standard errors. With 1.5, none of 42 public sets (2,000 rows, three splits) has a
larger mean error than without a share; with 1.0, two had in single splits."""

HOPE = 1.0
"""Standard errors by which the gain of a part of the rows may lie below ``LEAST_GAIN``. With .5,
two of 26 sets lose trees that lower their errors."""

SHARES = np.linspace(0.0, 1.0, 21)
"""Shares that are tried for classes."""

MOST_SHARE = 0.99
"""Maximum constant share for numbers: at 1, nothing is left of the fit's variance."""

LEAST_SHARE = 0.005
"""Minimum mean share: with less, trees hardly change a prediction, but take most of its time."""

MULTIPLES = np.concatenate([[np.inf], np.geomspace(100.0, 0.01, 41)])
"""Values of τ that are tried, in medians of the standard deviations."""

REFITS_OF_NUMBERS = 0.5
"""Weight of refits without a fold in the predictions that judge; the rest is that of left-out rows.
With .75, the error of airfoil noise rises by 1.4 %."""

REFITS_OF_CLASSES = 0.75
"""The same for classes: with .5, the log loss of three sets is higher by 1 to 2 %."""

MOST_RATIO = 1.5
"""Ratio of losses above which refits say nothing of the fit."""

FEWEST = 40
"""Minimum number of left-out rows."""


@dataclass(frozen=True, eq=False)
class Share(DeclaredState):
    """The share of a second predictor.

    Attributes:
        constant: the share, if it is the same for all rows
        halves: standard deviations τ (T,) of the fit, in the model's units, at which the share is
            ½; empty for a constant share
    """

    constant: float
    halves: Float

    @property
    def varies(self) -> bool:
        """True if the share depends on the standard deviation of the fit."""
        return len(self.halves) > 0

    def at(self, deviations: Float | None) -> Float | float:
        """Return the shares, (n, T) or a number, at standard deviations of the fit in the model's
        units, (n, T) or, for one target, (n,)."""
        if not self.varies or deviations is None:
            return self.constant
        return np.asarray(deviations / (deviations + squeezed(self.halves)))


@dataclass(frozen=True)
class Mixture:
    """A share and what it does to the losses of left-out rows.

    Attributes:
        share: how the share is determined
        mean_share: mean share of the rows
        loss: mean loss of the fit alone
        gains: decrease of each row's loss (m,)
        nats: rise of the mean log density
        groups: groups of the rows (m,), or None
    """

    share: Share
    mean_share: float
    loss: float
    gains: Float
    nats: float
    groups: Int | None

    @property
    def gain(self) -> float:
        """Decrease of the mean loss, relative to that of the fit alone."""
        return float(self.gains.mean()) / self.loss if self.loss else 0.0

    @property
    def standard_error(self) -> float:
        """Standard error of ``gain``."""
        return standard_error(self.gains, self.groups) / self.loss if self.loss else 0.0

    @property
    def pays(self) -> bool:
        """True if the share is a clear gain."""
        is_lower = self.gain >= max(LEAST_GAIN, SURE * self.standard_error)
        return self.mean_share > 0.0 and is_lower and self.nats >= -0.5 * self.gain

    @property
    def may_pay(self) -> bool:
        """False if more rows would hardly make the share a clear gain."""
        return self.gain + HOPE * self.standard_error >= LEAST_GAIN


class LeftOutRows:
    """Left-out rows of numbers or classes, with losses."""

    def _losses(self) -> Float:
        """Return the weighted losses (m,)."""
        raise NotImplementedError

    def _credible(self, judging: Float, name: str) -> Self:
        """Return the rows with values from refits, unless they are missing or have far larger
        losses.

        Args:
            judging: the values (m, C)
            name: name of the field
        """
        if np.isnan(judging).any():
            return self
        rows: Any = self
        refitted: Self = replace(rows, **{name: judging})
        is_far = refitted._losses().mean() > MOST_RATIO * self._losses().mean()
        return self if is_far else refitted


@dataclass(frozen=True)
class LeftOutNumbers(LeftOutRows):
    """Predictions of numbers for left-out rows.

    Attributes:
        rows: row numbers (m,)
        targets: scaled targets (m, T)
        errors: errors of the fit (m, T)
        deviations: predicted standard deviations (m, T)
        weights: row weights (m,), divided by the noise factor if noise is local
        groups: groups of the rows (m,), or None
        varies: True if the standard deviations are those of local residuals
    """

    rows: Int
    targets: Float
    errors: Float
    deviations: Float
    weights: Float
    groups: Int | None = None
    varies: bool = False

    @property
    def outputs(self) -> int:
        """Number T of outputs of the second predictor."""
        return int(self.targets.shape[1])

    def judging(self, by_refits: Float, weights: Float) -> Self:
        """Return the rows with the weighted mean errors of the fit and of its refits.

        Args:
            by_refits: predictions of refits (m, T), NaN without them
            weights: row weights (m,)
        """
        moved = REFITS_OF_NUMBERS * (self.targets - by_refits - self.errors)
        return replace(self, weights=weights)._credible(self.errors + moved, "errors")

    def scored_classes(self) -> None:
        """Return None: numbers have no probabilities."""
        return

    def take(self, places: Int) -> Self:
        """Return the rows at these positions."""
        return replace(
            self,
            rows=self.rows[places],
            targets=self.targets[places],
            errors=self.errors[places],
            deviations=self.deviations[places],
            weights=self.weights[places],
            groups=None if self.groups is None else self.groups[places],
        )

    def mixture(self, predictions: Float) -> Mixture:
        """Return the best share of a second predictor with these ``predictions`` (m, T)."""
        share = self._best_share(predictions)
        mixed = self.mixed(predictions, share)
        losses = self._losses()
        return Mixture(
            share=share,
            mean_share=float(np.mean(share.at(self.deviations))),
            loss=float(losses.mean()),
            gains=losses - mixed._losses(),
            nats=float(np.sum(self._log_scales() - mixed._log_scales())),
            groups=self.groups,
        )

    def _best_share(self, predictions: Float) -> Share:
        """Return the share with the lowest mean squared error."""
        if self.varies:
            halves = np.median(self.deviations, axis=0)
            shares = [Share(0.0, multiple * halves) for multiple in MULTIPLES.tolist()]
            losses = [self.mixed(predictions, share)._losses().mean() for share in shares]
            return shares[int(np.argmin(losses))]
        difference = predictions - (self.targets - self.errors)
        weights = self.weights[:, None]
        square = float(np.sum(weights * difference**2))
        product = float(np.sum(weights * self.errors * difference))
        best = float(np.clip(product / square, 0.0, MOST_SHARE)) if square > 0.0 else 0.0
        return Share(best, np.zeros(0))

    def mixed(self, predictions: Float, share: Share) -> Self:
        """Return the rows as a mixture predicts them, up to a factor of the variances.

        Args:
            predictions: of the second predictor (m, T)
            share: its share
        """
        shares = share.at(self.deviations)
        return replace(
            self,
            errors=self.errors + shares * (self.targets - predictions - self.errors),
            deviations=self.deviations * np.sqrt(1.0 - shares),
        )

    def scaled(self, spreads: Float) -> Self:
        """Return the rows with variances multiplied by factors (T,)."""
        return replace(self, deviations=self.deviations * np.sqrt(spreads))

    def spreads(self) -> Float:
        """Return the factors (T,) of the variances with the highest log density."""
        squares = (self.errors / self.deviations) ** 2
        return np.asarray(np.maximum(squares.mean(axis=0), np.finfo(float).tiny))

    def _losses(self) -> Float:
        """Return the weighted squared errors (m,)."""
        return np.asarray(self.weights * (self.errors**2).sum(axis=1))

    def _log_scales(self) -> Float:
        """Return minus the mean log density (T,) at the best factor, up to a constant."""
        return np.asarray(np.log(self.deviations).mean(axis=0) + 0.5 * np.log(self.spreads()))


@dataclass(frozen=True)
class LeftOutClassLogits(LeftOutRows):
    """Predictions of classes for left-out rows.

    Attributes:
        rows: row numbers (m,)
        codes: classes of the rows (m,)
        logits: logits of the fit (m, C)
        weights: row weights (m,)
        link: name of the link
        groups: groups of the rows (m,), or None
    """

    rows: Int
    codes: Int
    logits: Float
    weights: Float
    link: str
    groups: Int | None = None

    @property
    def outputs(self) -> int:
        """Number C of outputs of the second predictor."""
        return int(self.logits.shape[1])

    def judging(self, by_refits: Float, weights: Float) -> Self:
        """Return the rows with the weighted mean logits of the fit and of its refits.

        Args:
            by_refits: logits of refits (m, C), NaN without them
            weights: row weights (m,)
        """
        moved = REFITS_OF_CLASSES * (by_refits - self.logits)
        return replace(self, weights=weights)._credible(self.logits + moved, "logits")

    def scored_classes(self) -> Self:
        """Return the rows, whose probabilities are scored."""
        return self

    def take(self, places: Int) -> Self:
        """Return the rows at these positions."""
        return replace(
            self,
            rows=self.rows[places],
            codes=self.codes[places],
            logits=self.logits[places],
            weights=self.weights[places],
            groups=None if self.groups is None else self.groups[places],
        )

    def mixture(self, predictions: Float) -> Mixture:
        """Return the best share of a second predictor with these logits ``predictions`` (m, C)."""
        shares = [Share(share, np.zeros(0)) for share in SHARES.tolist()]
        losses = [self.mixed(predictions, share)._losses() for share in shares]
        best = int(np.argmin([of_rows.mean() for of_rows in losses]))
        gains = losses[0] - losses[best]
        return Mixture(
            share=shares[best],
            mean_share=shares[best].constant,
            loss=float(losses[0].mean()),
            gains=gains,
            nats=float(gains.mean()),
            groups=self.groups,
        )

    def mixed(self, predictions: Float, share: Share) -> Self:
        """Return the rows as a mixture predicts them.

        Args:
            predictions: logits of the second predictor (m, C)
            share: its share
        """
        moved = share.constant * (predictions - self.logits)
        return replace(self, logits=self.logits + moved)

    def spreads(self) -> Float:
        """Return no factors: classes have no variances."""
        return np.zeros(0)

    def probabilities(self) -> Float:
        """Return the probabilities (m, K) of the classes."""
        return LINKS[self.link].probabilities(self.logits)

    def _losses(self) -> Float:
        """Return the weighted log losses (m,)."""
        codes = self.codes.astype(np.float64)
        return np.asarray(-self.weights * LINKS[self.link].log_probability(self.logits, codes))
