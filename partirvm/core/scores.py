"""Prediction scores as additive statistics, for numeric targets and classes; quotients are taken at
the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from partirvm.core.diagnostics import (
    NORMAL_ENDS,
    STATED_LEVELS,
    ClassDiagnostics,
    NumberDiagnostics,
)
from partirvm.core.statistics import FieldSums
from partirvm.scaling.maps import AS_IT_IS, TargetMap
from partirvm.types import Bool, Float, Int

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels of the central intervals whose coverage is a score, a subset of ``STATED_LEVELS``."""

MOST_TARGETS = 4
"""Maximum number of targets with diagnostics, counted from the first."""

MEANS = ("nlpd", "crps", "interval_score_95", *(f"coverage_{100 * level:.0f}" for level in LEVELS))
"""Names of the scores that are means over rows."""


@dataclass(frozen=True)
class Scores(FieldSums):
    """Sums of the scores of n rows, for each of T targets.

    Attributes:
        n: number of rows
        square: sums of squared errors of the predicted mean (T,)
        sums: sums of the scores in ``MEANS`` (T, 8): negative log density in nats, continuous
            ranked probability score, interval score of the central 95 % interval (Gneiting &
            Raftery 2007, eqs. 21 and 43), in the targets' units, and numbers of targets inside
            intervals at ``LEVELS``
        diagnostics: diagnostics of the first targets
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
        multiples: Float = NORMAL_ENDS,
        target: TargetMap = AS_IT_IS,
    ) -> Self:
        """Return the scores of normal predictions.

        Args:
            t: targets (n,) or (n, T)
            mean: predicted means of the mapped target, of the same shape
            variance: predicted variances of the mapped target, with noise, of the same shape
            rows: row numbers (n,); without them, there are no diagnostics
            multiples: of the standard deviations, at the lower and upper ends of the intervals at
                ``STATED_LEVELS``, (2, L), (2, L, T) or (2, L, T, n or 1)
            target: the map of the target
        """
        t, mean, variance = (np.atleast_2d(values.T) for values in (t, mean, variance))
        mapped = target(t)
        sd = np.sqrt(variance)
        residuals = t - target.moments(mean, variance)[0]
        z = (mapped - mean) / sd
        ends = _of_rows(multiples, t.shape)
        low, high = mean + ends[:, STATED_LEVELS.index(0.95)] * sd
        scores = (
            negative_log_density(z, variance) - target.log_slope(t),
            normal_crps(z, sd) if target == AS_IT_IS else _mean_pinball(t, mean, sd, target),
            interval_score(t, target.back(low), target.back(high), 0.95),
            *((ends[0, k] <= z) & (z <= ends[1, k]) for k in map(STATED_LEVELS.index, LEVELS)),
        )
        return cls(
            n=t.shape[1],
            square=np.einsum("tn,tn->t", residuals, residuals),
            sums=np.stack([score.sum(axis=1) for score in scores], axis=1),
            diagnostics=_diagnostics(mapped, mean, sd, ends, rows, target),
        )

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """Return the scores of an evaluation by name: means over rows and targets, and the means
        for each of several ``targets``."""
        means = (self.sums.mean(axis=0) / self.n).tolist()
        figures: dict[str, Any] = {"rmse": self.loss, **dict(zip(MEANS, means, strict=True))}
        if len(targets) > 1:
            figures["targets"] = {
                name: Scores(self.n, self.square[k : k + 1], self.sums[k : k + 1]).figures()
                for k, name in enumerate(targets)
            }
        return figures

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the root mean square error over rows and targets,
        in target units."""
        return float(np.sqrt(np.mean(self.square) / self.n))


def _of_rows(multiples: Float, shape: tuple[int, ...]) -> Float:
    """Return multiples (2, L), (2, L, T) or (2, L, T, n or 1) for each row: (2, L, T, n), with (T,
    n) the ``shape``, without copies."""
    missing = [1] * (4 - multiples.ndim)
    per_row = multiples.reshape(*multiples.shape, *missing)
    return np.broadcast_to(per_row, (*multiples.shape[:2], *shape))


def _diagnostics(
    mapped: Float,
    mean: Float,
    sd: Float,
    ends: Float,
    rows: Int | None,
    target: TargetMap,
) -> tuple[NumberDiagnostics, ...]:
    """Return the diagnostics of the first targets; empty without row numbers.

    Args:
        mapped: mapped targets (T, n)
        mean: predicted means (T, n)
        sd: predicted standard deviations (T, n)
        ends: multiples of sd at the lower and upper ends of the intervals at ``STATED_LEVELS`` (2,
            L, T, n)
        rows: row numbers (n,)
        target: the map of the target
    """
    diagnostics = []
    if rows is not None:
        for k in range(min(len(mapped), MOST_TARGETS)):
            shown = NumberDiagnostics.of(mapped[k], mean[k], sd[k], rows, ends[:, :, k])
            diagnostics.append(shown.scaled(0.0, 1.0, target))
    return tuple(diagnostics)


def negative_log_density(z: Float, variance: Float) -> Float:
    """Return −log p in nats of normal targets, given z = (t − mean)/√variance."""
    return 0.5 * (np.log(2 * np.pi * variance) + z**2)


def normal_crps(z: Float, sd: Float) -> Float:
    """Return the continuous ranked probability score of normal predictions with standard deviation
    ``sd``, z = (t − mean)/sd (Gneiting & Raftery 2007, eq. 21)."""
    expected = z * (2 * ndtr(z) - 1) + np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2)
    return np.asarray(sd * (expected - 1 / np.sqrt(np.pi)))


def interval_score(t: Float, low: Float, high: Float, level: float) -> Float:
    """Return the score of central intervals (Gneiting & Raftery 2007, eq. 43): their widths plus a
    penalty for targets outside them.

    Args:
        t: targets
        low: lower ends
        high: upper ends
        level: probability of the intervals
    """
    outside = np.maximum(np.maximum(low - t, t - high), 0.0)
    return high - low + 2 / (1 - level) * outside


def _mean_pinball(t: Float, mean: Float, sd: Float, target: TargetMap) -> Float:
    """Return twice the mean quantile loss, which is the CRPS (Gneiting & Raftery 2007, §4.2), from
    100 quantiles.

    Args:
        t: targets
        mean: predicted means of the mapped target
        sd: predicted standard deviations of the mapped target
        target: the map of the target
    """
    levels = (np.arange(100) + 0.5) / 100
    differences = t[..., None] - target.back(mean[..., None] + ndtri(levels) * sd[..., None])
    return np.asarray(
        2 * np.maximum(levels * differences, (levels - 1.0) * differences).mean(axis=-1)
    )


def ranking(scores: Float, positive: Bool) -> Int:
    """Return the counts (2, 2¹⁶) of negative and positive rows by their scores (n,), rounded to
    half precision.

    The counts are in the order of the scores; ``positive`` (n,) marks rows that should have larger
    scores.
    """
    with np.errstate(over="ignore"):
        halves = scores.astype(np.float16) + np.float16(0)  # −0 becomes 0
    bits = halves.view(np.int16).astype(np.int64)
    places = np.where(bits < 0, -bits - 1, bits + (1 << 15))  # integers in the order of the scores
    classes = (places[~positive], places[positive])
    return np.stack([np.bincount(of_class, minlength=1 << 16) for of_class in classes])


def auc(counts: Int) -> float | None:
    """Return the fraction of pairs whose positive row has the larger score (ties count as half);
    None if there are no pairs."""
    negative, positive = counts
    pairs = int(negative.sum()) * int(positive.sum())
    below = np.cumsum(negative) - negative
    return float(positive @ (below + 0.5 * negative)) / pairs if pairs else None


N_BINS = 15
"""Number of bins of the expected calibration error (Guo, Pleiss, Sun & Weinberger 2017)."""


@dataclass(frozen=True)
class ClassScores(FieldSums):
    """Sums of class probability scores over rows.

    Attributes:
        n: number of rows
        nll: −Σ log p of the true class, in nats
        wrong: number of rows whose most probable class (the first in a tie) differs from the true
            one
        squares: Σ_k (p_k − [t = k])², or for two classes (p_1 − t)² (Brier 1950)
        excess: number of correct rows minus the sum of largest probabilities, in bins (``N_BINS``,)
        ranking: for two classes, counts of rows by score (2, 2¹⁶)
        diagnostics: diagnostics of the rows
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
        """Return the scores of consecutive rows.

        Args:
            codes: classes of the rows, 0 … K−1 (n,)
            probabilities: (n, K)
            scores: for two classes, values that rank the rows for ROC AUC, such as linear
                predictors, which differ even where probabilities are 0 or 1 (n,)
            start: number of the first row
        """
        classes = np.asarray(codes, dtype=np.int64)
        rows = np.arange(len(classes))
        p = probabilities[rows, classes]
        likeliest = probabilities.argmax(axis=1)
        correct = likeliest == classes
        clipped = np.maximum(p, np.finfo(np.float64).eps)  # as in scikit-learn
        return cls(
            n=len(classes),
            nll=float(-np.log(clipped).sum()),
            wrong=int((~correct).sum()),
            squares=brier_sum(probabilities, p),
            excess=accuracy_excess(correct, probabilities[rows, likeliest]),
            ranking=None if scores is None else ranking(scores, classes == 1),
            diagnostics=(ClassDiagnostics.of(classes, probabilities, start),),
        )

    def figures(self, targets: Sequence[str] = ()) -> dict[str, Any]:
        """Return the scores by name; ``ece`` is the expected calibration error (Guo et al. 2017,
        eq. 3)."""
        figures = {
            "accuracy": (self.n - self.wrong) / self.n,
            "log_loss": self.loss,
            "brier": self.squares / self.n,
            "ece": float(np.abs(self.excess).sum() / self.n),
        }
        return figures if self.ranking is None else figures | {"roc_auc": auc(self.ranking)}

    @property
    def loss(self) -> float:
        """The loss minimised by early stopping: the log loss, the mean of −log p_t over rows, in
        nats."""
        return self.nll / self.n


def brier_sum(probabilities: Float, p: Float) -> float:
    """Return the sum over rows of Σ_k (p_k − [t = k])² (Brier 1950), or half of it for two classes;
    ``p`` (n,) contains the probabilities of the rows' classes."""
    squares = np.einsum("nk,nk->", probabilities, probabilities) - p @ p + (1.0 - p) @ (1.0 - p)
    return float(squares) / (2.0 if probabilities.shape[1] == 2 else 1.0)


def ece_by_chance(confidence: Float) -> float:
    """Return the expected calibration error that n rows would have if each were correct with the
    probability ``confidence`` (n,): the mean absolute value of normal sums in the bins."""
    edges = np.arange(1, N_BINS) / N_BINS
    bins = np.searchsorted(edges, confidence, side="left")
    variances = np.bincount(bins, confidence * (1.0 - confidence), minlength=N_BINS)
    return float(np.sqrt(2 / np.pi * variances).sum() / len(confidence))


def accuracy_excess(correct: Bool, confidence: Float) -> Float:
    """Return the number of correct rows minus the sum of their confidence, in ``N_BINS`` bins."""
    edges = np.arange(1, N_BINS) / N_BINS  # bins include their upper edges
    bins = np.searchsorted(edges, confidence, side="left")
    return np.bincount(bins, correct - confidence, minlength=N_BINS).astype(np.float64)
