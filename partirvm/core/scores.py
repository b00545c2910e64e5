"""Prediction scores as additive statistics, for numeric targets and classes; quotients are taken at
the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from partirvm.core.diagnostics import (
    NORMAL_MULTIPLES,
    STATED_LEVELS,
    ClassDiagnostics,
    NumberDiagnostics,
)
from partirvm.core.statistics import FieldSums
from partirvm.types import AS_IT_IS, Bool, Float, Int, TargetMap

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels of the central intervals whose coverage is a score, a subset of ``STATED_LEVELS``."""

MOST_TARGETS = 4
"""Maximum number of targets with diagnostics: the first ones."""

MEANS = ("nlpd", "crps", "interval_score_95", *(f"coverage_{100 * level:.0f}" for level in LEVELS))
"""Names of the scores that are means over rows."""


@dataclass(frozen=True)
class Scores(FieldSums):
    """Sums of the scores of n rows, for each of T targets.

    ``square`` (T,) are sums of squared errors of the mean. ``sums`` (T, 8) are those of ``MEANS``:
    negative log density in nats, continuous ranked probability score, interval score of the central
    95 % interval (Gneiting & Raftery 2007, eqs. 21 and 43), in the targets' units, and numbers of
    targets inside intervals at ``LEVELS``.
    """

    n: int
    square: Float
    sums: Float
    diagnostics: tuple[NumberDiagnostics, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls,
        t: Float,
        mean: Float,
        variance: Float,
        rows: Int | None = None,
        multiples: ArrayLike = NORMAL_MULTIPLES,
        target: TargetMap = AS_IT_IS,
    ) -> Self:
        """Return the scores of targets t for normal predictions with this mean and (noisy)
        variance, (n,) or (n, T).

        Intervals at ``STATED_LEVELS`` are mean ± ``multiples``, (L,) or (T, L), × the standard
        deviation. Given the row numbers ``rows`` (n,), the first targets have diagnostics.
        Predictions are of the mapped ``target``.
        """
        t, mean, variance = (np.atleast_2d(each.T) for each in (t, mean, variance))
        own = target(t)
        sd = np.sqrt(variance)
        r = t - target.moments(mean, variance)[0]
        z = (own - mean) / sd
        nll = 0.5 * (np.log(2 * np.pi * variance) + z**2) - target.log_slope(t)
        crps = sd * (
            z * (2 * ndtr(z) - 1) + np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) - 1 / np.sqrt(np.pi)
        )
        if target != AS_IT_IS:
            crps = _mean_pinball(t, mean, sd, target)
        widths = np.broadcast_to(multiples, (len(t), len(STATED_LEVELS)))
        half_widths = dict(zip(STATED_LEVELS, widths.T[:, :, None], strict=True))
        half = half_widths[0.95] * sd
        low = target.back(mean - half)
        high = target.back(mean + half)
        width = high - low + 2 / (1 - 0.95) * np.maximum(np.maximum(low - t, t - high), 0.0)
        sums = [nll.sum(axis=1), crps.sum(axis=1), width.sum(axis=1)]
        sums += [(np.abs(z) <= half_widths[level]).sum(axis=1) for level in LEVELS]
        first = list(zip(own, mean, sd, widths, strict=True))[:MOST_TARGETS]
        shown = (
            []
            if rows is None
            else [NumberDiagnostics.of(k, m, s, rows, some) for k, m, s, some in first]
        )
        diagnostics = tuple(each.scaled(0.0, 1.0, target) for each in shown)
        return cls(t.shape[1], np.einsum("tn,tn->t", r, r), np.stack(sums, axis=1), diagnostics)

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """Return the scores of an evaluation by name: means over rows and targets, and those of
        several ``targets``."""
        found = {
            "rmse": self.loss,
            **dict(zip(MEANS, (self.sums.mean(axis=0) / self.n).tolist(), strict=True)),
        }
        if len(targets) < 2:
            return found
        alone = (
            Scores(self.n, self.square[k : k + 1], self.sums[k : k + 1])
            for k in range(len(targets))
        )
        return found | {
            "targets": {name: scores.figures() for name, scores in zip(targets, alone, strict=True)}
        }

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the root mean square error over rows and targets,
        in target units."""
        return float(np.sqrt(np.mean(self.square) / self.n))


def _mean_pinball(t: Float, mean: Float, sd: Float, target: TargetMap) -> Float:
    """Return twice the mean quantile loss, which is the CRPS (Gneiting & Raftery 2007, §4.2), from
    100 quantiles."""
    levels = (np.arange(100) + 0.5) / 100
    left = t[..., None] - target.back(mean[..., None] + ndtri(levels) * sd[..., None])
    return np.asarray(2 * np.maximum(levels * left, (levels - 1.0) * left).mean(axis=-1))


def ranking(scores: Float, positive: Bool) -> Int:
    """Return the counts (2, 2¹⁶) of negative and positive rows by their scores (n,), rounded to
    half precision.

    The counts are in the order of the scores; ``positive`` (n,) marks rows that should have larger
    scores.
    """
    with np.errstate(over="ignore"):
        halves = (
            (scores.astype(np.float16) + np.float16(0)).view(np.int16).astype(np.int64)
        )  # −0 becomes 0
    places = np.where(
        halves < 0, -halves - 1, halves + (1 << 15)
    )  # integers in the order of the scores
    return np.stack(
        [np.bincount(places[rows], minlength=1 << 16) for rows in (~positive, positive)]
    )


def auc(counts: Int) -> float | None:
    """Return the fraction of pairs whose positive row has the larger score (ties count half); None
    without pairs."""
    negative, positive = counts
    pairs = int(negative.sum()) * int(positive.sum())
    below = np.cumsum(negative) - negative
    return float(positive @ (below + 0.5 * negative)) / pairs if pairs else None


N_BINS = 15
"""Number of bins of the expected calibration error (Guo, Pleiss, Sun & Weinberger 2017)."""


@dataclass(frozen=True)
class ClassScores(FieldSums):
    """Sums over ``n`` rows of class probability scores.

    ``nll`` is −Σ log p of the true class, nats. ``wrong`` counts rows whose most probable class
    (first of equals) differs. ``squares`` is Σ_k (p_k − [t = k])², or for two classes (p_1 − t)²
    (Brier 1950). ``excess`` is the number of correct rows minus the sum of largest probabilities,
    in ``N_BINS`` bins; ``ranking`` (2, 2¹⁶) is for two classes.
    """

    n: int
    nll: float
    wrong: int
    squares: float
    excess: Float
    ranking: Int | None
    diagnostics: tuple[ClassDiagnostics, ...]

    @classmethod
    def of(
        cls,
        codes: NDArray[np.generic],
        probabilities: Float,
        scores: Float | None = None,
        start: int = 0,
    ) -> Self:
        """Return the scores of rows from ``start`` with class ``codes`` (n,), 0 … K−1, and
        ``probabilities`` (n, K).

        For two classes, ``scores`` (n,) rank rows for ROC AUC, as linear predictors do where
        probabilities are 0 or 1.
        """
        classes = np.asarray(codes, dtype=np.int64)
        rows = np.arange(len(classes))
        k = probabilities.shape[1]
        own = probabilities[rows, classes]
        likeliest = probabilities.argmax(axis=1)
        confidence = probabilities[rows, likeliest]
        correct = likeliest == classes
        bins = np.searchsorted(
            np.arange(1, N_BINS) / N_BINS, confidence, side="left"
        )  # closed above
        excess = np.bincount(bins, correct - confidence, minlength=N_BINS).astype(np.float64)
        nll = float(
            -np.log(np.maximum(own, np.finfo(np.float64).eps)).sum()
        )  # clipped as in scikit-learn
        squares = (
            np.einsum("nk,nk->", probabilities, probabilities)
            - own @ own
            + (1.0 - own) @ (1.0 - own)
        )
        squares = float(squares) / (2.0 if k == 2 else 1.0)
        counts = None if scores is None else ranking(scores, classes == 1)
        diagnostics = (ClassDiagnostics.of(classes, probabilities, start),)
        return cls(len(classes), nll, int((~correct).sum()), squares, excess, counts, diagnostics)

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """Return the scores by name; ``ece`` is the expected calibration error (Guo et al. 2017,
        eq. 3)."""
        accuracy = (self.n - self.wrong) / self.n
        brier = self.squares / self.n
        ece = np.abs(self.excess).sum() / self.n
        found = {"accuracy": accuracy, "log_loss": self.loss, "brier": brier, "ece": float(ece)}
        return found if self.ranking is None else found | {"roc_auc": auc(self.ranking)}

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the log loss, the mean of −log p_t over rows, in
        nats."""
        return self.nll / self.n
