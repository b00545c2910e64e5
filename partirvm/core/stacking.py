"""The share of a second predictor in predictions, from rows that both were left out of.

For numbers, the errors e of a fit and g of the second predictor give the errors (1 − w)·e + w·g.
Their weighted mean square has its minimum at

    w = Σ u e(e − g) / Σ u (e − g)²,

clipped to 0 … 1. The predicted variances of the fit are multiplied by the factor with the highest
log density. For classes, the share with the lowest log loss is one of ``SHARES``.

The share counts as a gain if the loss falls by ``LEAST_GAIN`` and by ``SURE`` standard errors, and
if the log density does not fall.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.link import LINKS
from partirvm.types import Float, Int

LEAST_GAIN = 0.01
"""Minimum decrease of the mean squared error or log loss, relative to the fit alone."""

SURE = 2.0
"""The same in standard errors."""

SHARES = np.linspace(0.0, 1.0, 21)
"""Shares that are tried for classes."""

FEWEST = 40
"""Minimum number of left-out rows."""


@dataclass(frozen=True)
class Mixture:
    """A share and what it does to the losses of left-out rows.

    Attributes:
        share: the share w of the second predictor
        loss: mean loss of the fit alone
        gains: decrease of each row's loss (m,)
        nats: rise of the mean log density
        groups: groups of the rows (m,), or None
    """

    share: float
    loss: float
    gains: Float
    nats: float
    groups: Int | None

    @property
    def gain(self) -> float:
        """Decrease of the mean loss, relative to that of the fit alone."""
        return float(self.gains.mean()) / self.loss if self.loss else 0.0

    @property
    def pays(self) -> bool:
        """True if the share is a clear gain."""
        error = standard_error(self.gains, self.groups)
        least = max(LEAST_GAIN * self.loss, SURE * error)
        return self.share > 0.0 and bool(self.gains.mean() >= least) and self.nats >= 0.0

    @property
    def may_pay(self) -> bool:
        """False if more rows would hardly make the share a clear gain."""
        error = standard_error(self.gains, self.groups)
        return bool(self.gains.mean() + SURE * error >= LEAST_GAIN * self.loss)


@dataclass(frozen=True)
class LeftOutNumbers:
    """Predictions of numbers for left-out rows.

    Attributes:
        rows: row numbers (m,)
        targets: scaled targets (m, T)
        errors: errors of the fit (m, T)
        deviations: predicted standard deviations (m, T)
        weights: row weights (m,), divided by the noise factor if noise is local
        groups: groups of the rows (m,), or None
    """

    rows: Int
    targets: Float
    errors: Float
    deviations: Float
    weights: Float
    groups: Int | None = None

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
        difference = predictions - (self.targets - self.errors)
        weights = self.weights[:, None]
        square = float(np.sum(weights * difference**2))
        product = float(np.sum(weights * self.errors * difference))
        share = float(np.clip(product / square, 0.0, 1.0)) if square > 0.0 else 0.0
        mixed = self.mixed(predictions, share)
        losses = (weights * self.errors**2).sum(axis=1)
        gains = losses - (weights * mixed.errors**2).sum(axis=1)
        nats = float(np.sum(self._log_scales() - mixed._log_scales()))
        return Mixture(share, float(losses.mean()), gains, nats, self.groups)

    def mixed(self, predictions: Float, share: float) -> Self:
        """Return the rows as a mixture predicts them, with the standard deviations of the fit.

        Args:
            predictions: of the second predictor (m, T)
            share: its share
        """
        return replace(
            self, errors=self.errors + share * (self.targets - predictions - self.errors)
        )

    def scaled(self, spreads: Float) -> Self:
        """Return the rows with variances multiplied by factors (T,)."""
        return replace(self, deviations=self.deviations * np.sqrt(spreads))

    def spreads(self) -> Float:
        """Return the factors (T,) of the variances with the highest log density."""
        squares = (self.errors / self.deviations) ** 2
        return np.asarray(np.maximum(squares.mean(axis=0), np.finfo(float).tiny))

    def _log_scales(self) -> Float:
        """Return minus the mean log density (T,) at the best factor, up to a constant."""
        return np.asarray(np.log(self.deviations).mean(axis=0) + 0.5 * np.log(self.spreads()))


@dataclass(frozen=True)
class LeftOutLogits:
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
        losses = [self.mixed(predictions, share)._losses() for share in SHARES.tolist()]
        best = int(np.argmin([of_rows.mean() for of_rows in losses]))
        gains = losses[0] - losses[best]
        nats = float(gains.mean())
        return Mixture(float(SHARES[best]), float(losses[0].mean()), gains, nats, self.groups)

    def mixed(self, predictions: Float, share: float) -> Self:
        """Return the rows as a mixture predicts them.

        Args:
            predictions: logits of the second predictor (m, C)
            share: its share
        """
        return replace(self, logits=self.logits + share * (predictions - self.logits))

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
