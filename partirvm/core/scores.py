"""Scores of predictions as additive statistics: of numbers, and of class probabilities.

The statistics hold sums, and quotients are computed at the end, so that a pass can add tiles in its tree. ROC AUC needs
the order of all scores. Too many scores are rounded to the finest grid that fits into memory, and a bound of the error
is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from partirvm.core.diagnostics import MOST_TARGETS, ClassDiagnostics, NumberDiagnostics
from partirvm.core.predictive import quantile
from partirvm.core.reduction import FieldSums

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Keys = NDArray[np.uint64]

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels of the central intervals whose coverage is measured."""

NORMAL = tuple(map(quantile, LEVELS))
"""Half widths of these intervals of a standard normal."""


@dataclass(frozen=True)
class Scores:
    """Sums of the scores of n rows: of squared and absolute errors, of negative log densities (nats), and others.

    ``crps`` is the continuous ranked probability score, ``interval_score`` that of the central 95 % interval (Gneiting
    & Raftery 2007, eqs. 21 and 43), ``covered`` (5,) the number of targets inside their central interval at each of
    ``LEVELS``. Errors are in the units of the targets, squares in the square of ``unit``. For several targets these are
    means over targets, so ``rmse`` is the root of the mean of their squares. ``diagnostics`` are those of the first
    targets, or none.
    """

    n: int
    square: float
    absolute: float
    nll: float
    crps: float
    interval_score: float
    covered: tuple[float, ...]
    unit: float = 1.0
    diagnostics: tuple[NumberDiagnostics, ...] = field(default=(), compare=False)

    @classmethod
    def over(cls, targets: Sequence[Scores]) -> Scores:
        """The mean over targets of the scores of the same rows."""
        if len(targets) == 1:
            return targets[0]
        unit = max(one.unit for one in targets)
        squares = [one.square * (one.unit / unit) ** 2 for one in targets]
        sums = [[s, *one._sums()[1:]] for s, one in zip(squares, targets, strict=True)]
        diagnostics = tuple(each for one in targets for each in one.diagnostics)[:MOST_TARGETS]
        return cls._of_sums(targets[0].n, np.mean(sums, axis=0).tolist(), unit, diagnostics)

    @classmethod
    def of(
        cls, t: Float, mean: Float, variance: Float, unit: float = 1.0, multiples: Sequence[float] = NORMAL
    ) -> Scores:
        """Scores of targets t (n,) under normal predictions with this mean and (noisy) variance, both (n,).

        The variance is in the square of ``unit``. Intervals are the mean ± ``multiples`` × the standard deviation, one
        multiple for each of ``LEVELS``.
        """
        r, sd = (t - mean) / unit, np.sqrt(variance)
        z = r / sd
        nll = 0.5 * (np.log(2 * np.pi * variance) + z**2) + np.log(unit)
        crps = sd * (z * (2 * ndtr(z) - 1) + np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) - 1 / np.sqrt(np.pi))
        half = multiples[LEVELS.index(0.95)] * sd
        width = 2 * half + 2 / (1 - 0.95) * np.maximum(np.abs(r) - half, 0.0)
        covered = [int((np.abs(z) <= multiple).sum()) for multiple in multiples]
        errors = (float(each.sum()) * unit for each in (np.abs(r), crps, width))
        absolute, ranked, scored = errors
        return cls(len(t), float(r @ r), absolute, float(nll.sum()), ranked, scored, tuple(covered), unit)

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """The scores of an evaluation, by name: means over rows."""
        coverage = {f"coverage_{100 * level:.0f}": found for level, found in zip(LEVELS, self.coverage, strict=True)}
        own = {"crps": self.crps / self.n, "interval_score_95": self.interval_score / self.n}
        return {"rmse": self.rmse, "nlpd": self.nlpd, **own, **coverage}

    def _sums(self) -> list[float]:
        return [self.square, self.absolute, self.nll, self.crps, self.interval_score, *self.covered]

    @classmethod
    def _of_sums(cls, n: int, sums: Sequence[float], unit: float, diagnostics: tuple[NumberDiagnostics, ...]) -> Scores:
        square, absolute, nll, crps, interval_score, *covered = sums
        return cls(n, square, absolute, nll, crps, interval_score, tuple(covered), unit, diagnostics)

    def __add__(self, other: Scores) -> Scores:
        sums = [mine + theirs for mine, theirs in zip(self._sums(), other._sums(), strict=True)]
        diagnostics = tuple(one + more for one, more in zip(self.diagnostics, other.diagnostics, strict=True))
        return self._of_sums(self.n + other.n, sums, self.unit, diagnostics)

    @property
    def rmse(self) -> float:
        """Root mean square error."""
        return float(np.sqrt(self.square / self.n)) * self.unit

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the root mean square error."""
        return self.rmse

    @property
    def nlpd(self) -> float:
        """Mean negative log predictive density per row, in nats."""
        return self.nll / self.n

    @property
    def coverage(self) -> tuple[float, ...]:
        """Fraction of targets inside their central interval at each of ``LEVELS``."""
        return tuple(count / self.n for count in self.covered)


@dataclass(frozen=True)
class TargetScores:
    """Scores of the same rows, separately for ``each`` of several targets."""

    each: tuple[Scores, ...]

    def __add__(self, other: TargetScores) -> TargetScores:
        return TargetScores(tuple(one + more for one, more in zip(self.each, other.each, strict=True)))

    @property
    def n(self) -> int:
        """Rows."""
        return self.each[0].n

    def figures(self, targets: Sequence[str]) -> dict[str, Any]:
        """Those of the mean, and in ``targets`` those of each by its name."""
        each = {name: one.figures() for name, one in zip(targets, self.each, strict=True)}
        return {**self.mean.figures(), "targets": each}

    @property
    def diagnostics(self) -> tuple[NumberDiagnostics, ...]:
        """Those of the first targets."""
        return tuple(found for one in self.each for found in one.diagnostics)

    @property
    def mean(self) -> Scores:
        """The mean over targets."""
        return Scores.over(self.each)


EPSILON = float(np.finfo(np.float64).eps)
"""Minimum to which probabilities are clipped: log p of a certain wrong class is −36 nats, as in scikit-learn."""

N_BINS = 15
"""Number of bins of the expected calibration error (Guo, Pleiss, Sun & Weinberger 2017)."""

LIMIT = 1 << 17
"""Maximum number of distinct scores in a ranking, about 3 MB."""


@dataclass(frozen=True)
class Ranking:
    """Counts of negative and positive rows for each distinct score, in order of the score.

    ``keys`` (u,) uint64, increasing, encode the scores in numerical order without the lowest ``level`` bits. At level 0
    each distinct score has a separate key, and each further level merges pairs of neighbouring grid cells. ``negative``
    and ``positive`` are (u,) int64. The level is the lowest level with at most ``LIMIT`` keys. A sum of rankings does
    not depend on the order of its terms.
    """

    level: int
    keys: Keys
    negative: Int
    positive: Int

    @classmethod
    def of(cls, scores: Float, positive: NDArray[np.bool_]) -> Ranking:
        """Return the ranking of finite scores (n,); ``positive`` (n,) marks rows that should have larger scores."""
        return _thinned(0, _ordered(scores), (~positive).astype(np.int64), positive.astype(np.int64))

    def __add__(self, other: Ranking) -> Ranking:
        level = max(self.level, other.level)
        keys = [part.keys >> np.uint64(level - part.level) for part in (self, other)]
        return _thinned(
            level,
            np.concatenate(keys),
            np.concatenate([self.negative, other.negative]),
            np.concatenate([self.positive, other.positive]),
        )

    @property
    def pairs(self) -> int:
        """Number of pairs of a positive and a negative row."""
        return int(self.positive.sum()) * int(self.negative.sum())

    @property
    def auc(self) -> float | None:
        """Return the fraction of pairs whose positive row has the larger score; ties count half. None without pairs."""
        below = np.cumsum(self.negative) - self.negative
        ranked = float(self.positive @ (below + 0.5 * self.negative))
        return ranked / self.pairs if self.pairs else None

    @property
    def auc_error(self) -> float:
        """Return a bound of the error of ``auc``: Σ_b positive_b negative_b / (2 PN) over keys b; 0 at level 0."""
        if self.level == 0 or not self.pairs:
            return 0.0
        return float(self.positive.astype(np.float64) @ self.negative) / (2.0 * self.pairs)


def _ordered(scores: Float) -> Keys:
    """Encode finite numbers as integers with the same order; −0 becomes 0."""
    bits = (scores + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _thinned(level: int, keys: Keys, negative: Int, positive: Int) -> Ranking:
    """Merge equal keys, and then neighbouring keys until at most ``LIMIT`` keys remain."""
    order = np.argsort(keys, kind="stable")
    keys, negative, positive = keys[order], negative[order], positive[order]
    while True:
        first = np.ones(len(keys), dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        if len(starts):
            keys = keys[starts]
            negative, positive = np.add.reduceat(negative, starts), np.add.reduceat(positive, starts)
        if len(keys) <= LIMIT:
            return Ranking(level, keys, negative, positive)
        level, keys = level + 1, keys >> np.uint64(1)


@dataclass(frozen=True)
class ClassScores(FieldSums):
    """Sums over ``n`` rows of scores of class probabilities.

    ``nll`` is −Σ log p_t in nats, with the probability p_t of the true class. ``correct`` counts rows whose most
    probable class (the first of equal classes) is the true class. ``squares`` is the sum of Σ_k (p_k − [t = k])², or
    for two classes of (p_1 − t)². Rows are assigned to ``N_BINS`` bins by their largest probability. ``bin_correct``
    (``N_BINS``,) int64 counts the correct rows of each bin, and ``bin_confidence`` (``N_BINS``,) sums the largest
    probabilities. ``ranking`` is None except for two classes. ``diagnosed`` are the counts of the
    diagnostics.
    """

    n: int
    nll: float
    correct: int
    squares: float
    bin_correct: Int
    bin_confidence: Float
    ranking: Ranking | None
    diagnosed: ClassDiagnostics

    @classmethod
    def of(
        cls, codes: NDArray[np.generic], probabilities: Float, scores: Float | None = None, start: int = 0
    ) -> ClassScores:
        """Return the scores of rows with class codes ``codes`` (n,), 0 … K−1, and ``probabilities`` (n, K).

        ``start`` is the number of the first row.

        For two classes, ``scores`` (n,) rank the rows for ROC AUC, with larger values for class 1. Linear predictors
        as scores still rank rows whose probabilities are rounded to 0 or 1.
        """
        classes = np.asarray(codes, dtype=np.int64)
        rows, k = np.arange(len(classes)), probabilities.shape[1]
        own = probabilities[rows, classes]
        likeliest = probabilities.argmax(axis=1)
        confidence = probabilities[rows, likeliest]
        correct = likeliest == classes
        squares = np.einsum("nk,nk->", probabilities, probabilities) - own @ own + (1.0 - own) @ (1.0 - own)
        edges = np.linspace(0.0, 1.0, N_BINS + 1)
        bins = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, N_BINS - 1)
        return cls(
            n=len(classes),
            nll=float(-np.log(np.clip(own, EPSILON, 1.0)).sum()),
            correct=int(correct.sum()),
            squares=float(squares) / (2.0 if k == 2 else 1.0),
            bin_correct=np.bincount(bins[correct], minlength=N_BINS),
            bin_confidence=np.bincount(bins, confidence, minlength=N_BINS).astype(np.float64),
            ranking=None if scores is None else Ranking.of(scores, classes == 1),
            diagnosed=ClassDiagnostics.of(classes, probabilities, start),
        )

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """Return the scores of an evaluation by name; ``roc_auc`` only for two classes."""
        ranked = {"roc_auc": self.roc_auc} if self.ranking is not None else {}
        return {name: getattr(self, name) for name in ("accuracy", "log_loss", "brier", "ece")} | ranked

    @property
    def diagnostics(self) -> tuple[ClassDiagnostics, ...]:
        """The diagnostics of the only target."""
        return (self.diagnosed,)

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the log loss."""
        return self.log_loss

    @property
    def log_loss(self) -> float:
        """Mean −log p_t per row, in nats."""
        return self.nll / self.n

    @property
    def accuracy(self) -> float:
        """Fraction of rows whose most probable class is the true class."""
        return self.correct / self.n

    @property
    def error(self) -> float:
        """1 − accuracy."""
        return (self.n - self.correct) / self.n

    @property
    def brier(self) -> float:
        """Mean of (p_1 − t)² for two classes, of Σ_k (p_k − [t = k])² for more (Brier 1950)."""
        return self.squares / self.n

    @property
    def ece(self) -> float:
        """Expected calibration error: Σ_b |correct_b − Σ confidence_b| / n (Guo et al. 2017, eq. 3)."""
        return float(np.abs(self.bin_correct - self.bin_confidence).sum()) / self.n

    @property
    def roc_auc(self) -> float | None:
        """Area under the ROC curve (``Ranking.auc``); None for more than two classes, or if a class has no rows."""
        return None if self.ranking is None else self.ranking.auc

    @property
    def auc_error(self) -> float:
        """Bound of the error of ``roc_auc`` caused by merged scores."""
        return 0.0 if self.ranking is None else self.ranking.auc_error
