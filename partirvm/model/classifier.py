"""A fitted classification model, which predicts class probabilities for any rows.

Weights have the posterior N(μ_k, Σ_k) of the Laplace approximation (Tipping 2001, §3); linear
predictors f_k have mean φᵀμ_k and variance φᵀΣ_kφ. ``moderate`` corrects f_k for the variance
before the link (``core.link.moderated``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.class_groups import ClassGroups
from partirvm.core.link import LINKS, moderated, probability_band
from partirvm.core.predictive import quantile
from partirvm.core.ramp import Ramp
from partirvm.data.frame_rows import checked_rows
from partirvm.data.labels import label_array
from partirvm.errors import UsageError
from partirvm.kernels.trees import mixed
from partirvm.local.tree_share import TreeShare
from partirvm.model.base import FittedModel, OfRows, linear_values
from partirvm.process import one_blas_thread
from partirvm.types import Float


@dataclass(frozen=True, repr=False)
class ClassModel(FittedModel):
    """A classification RVM of M columns and C linear predictors for K classes: C = 1 if K = 2,
    otherwise C = K. Two classes with a ``ramp`` have C = 2.

    Parameters
    ----------
    design : Design
        The M columns: bias, basis functions, and kernels at the relevance vectors.
    mean : ndarray of shape (M, C)
        Posterior means of the weights.
    root : ndarray of shape (C, M, M), or (1, M, M) if predictors share Σ
        R_k with Σ_k = R_k R_kᵀ.
    alpha : ndarray of shape (M,)
        Prior precisions of the weights, which the predictors share.
    log_evidence : float
        In nats.
    n_rows : int
        The number of training rows.
    columns : Columns
        Names of the features and targets, categories and classes.
    likelihood : str
        One of ``core.link.LINKS``.
    moderate : bool
        True if probabilities take the variance of the linear predictors into account.
    ramp : Ramp or None
        A function that turns predictors of class indicators into logits.
    known : ClassGroups or None
        What the fit says of rows of new and of known groups; without ``known_rows``, all rows count
        as rows of new groups.
    trees : TreeShare or None
        Boosted trees and their share in predictions.
    pruned : Pruned
        The number of vectors that ``prune`` deleted, and the cost.
    relevance : ndarray of shape (d,) or None
        Relevance of each feature (``model.sensitivity``); None if no rows were available.
    marginals : ndarray of shape (q, d) or None
        Quantiles of each feature's values in the training rows, for the effects of features
        (``model.feature_effects``); None without an ANOVA kernel.
    assessment : Assessment or None
        Errors on left-out rows and other facts of the fit, for ``summary``.
    """

    one_unit = True
    far_values = "probabilities are close to the constant probabilities that the bias alone gives"

    likelihood: str
    moderate: bool
    ramp: Ramp | None = None
    known: ClassGroups | None = None
    trees: TreeShare | None = None

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels (K,) in the order of their codes and of the probability columns."""
        assert self.columns.classes is not None
        return self.columns.classes

    @property
    def output_names(self) -> tuple[str, ...]:
        """The class labels as text."""
        return tuple(map(str, self.classes))

    def explained_values(self, X: Float) -> Float:
        return self.values(X)[0]

    def sparse(self) -> "ClassModel":
        """Return the relevance vector machine alone, without boosted trees."""
        if self.trees is None:
            return self
        return replace(self, trees=None, assessment=None)

    def of_known_groups(self) -> "ClassModel":
        """Return the model for rows of known groups, without the effects of these groups
        (``known_rows``)."""
        if self.known is None:
            return self
        return replace(self, known=replace(self.known, variance=0.0))

    @property
    def predictive(self) -> "ClassModel":
        """The model that predicts probabilities for new rows, which is this model."""
        return self

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities (n, K) at raw inputs X (n, d). Raises ``DataError`` for wrong or
        infinite features."""
        return self.values(checked_rows(X, self.columns))[0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels (n,) of the most probable classes at raw inputs X. Raises the errors of
        ``predict_proba``."""
        return np.asarray(label_array(self.classes)[self.predict_proba(X).argmax(axis=1)])

    def interval(self, level: float, kind: str = "decision") -> OfRows:
        """Return central credible intervals at this level for the linear predictors or the
        probabilities.

        The result is a function of X (n, d) that returns all lower and then all upper ends, (n,
        2C), or (n, 2K) for ``kind="probability"``, and nearness (n,). Linear predictors are not
        moderated, since the width of the interval shows their uncertainty. Raises ``UsageError``
        for an invalid level or kind.
        """
        if kind not in ("decision", "probability"):
            raise UsageError(f"kind is {kind!r}: an interval is 'decision' or 'probability'")
        return partial(self._ends, quantile(level), kind)

    def _ends(self, multiple: float, kind: str, X: Float) -> tuple[Float, Float]:
        f, variance, near = self.moments(X)
        half = multiple * np.sqrt(variance)
        if self.ramp is not None and self.ramp.correction is not None:
            ends = self.ramp.band(f, half)
        else:
            ends = self._logits(f + half, f - half), self._logits(f - half, f + half)
        low, high, f = (
            self._of_group(self._mixed(logits, X)) for logits in (*ends, self._logits(f, f))
        )
        if (variance := self._unknown_variances(X)) is not None:
            further = multiple**2 * variance
            low = f - np.sqrt((f - low) ** 2 + further)
            high = f + np.sqrt((high - f) ** 2 + further)
        ends = (
            (low, high) if kind == "decision" else probability_band(self.likelihood, f, low, high)
        )
        return np.concatenate(ends, axis=1), near

    def multiples(self, levels: Sequence[float]) -> Float:
        """Return half widths (1, L) of the intervals at L levels, in standard deviations of the
        linear predictors."""
        return np.array([[quantile(level) for level in levels]])

    def value_names(self, *, interval: bool = False) -> tuple[str, ...]:
        """Return the column names of ``values``: ``p_<class>`` for each class; with ``interval``,
        then ``lower_<class>`` and ``upper_<class>``."""
        columns = ("p", "lower", "upper") if interval else ("p",)
        return tuple(f"{column}_{label}" for column in columns for label in self.classes)

    def values(self, X: Float, multiples: Any = None) -> tuple[Float, Float]:
        """Return probabilities (n, K) at X (n, d), followed by interval ends if ``multiples`` (1,
        1) are passed, and nearness (n,)."""
        f, near = self.predictors(X)
        probabilities = LINKS[self.likelihood].probabilities(f)
        return probabilities if multiples is None else np.hstack(
            [probabilities, self._ends(float(multiples[0, 0]), "probability", X)[0]]
        ), near

    def predictors(self, X: Float) -> tuple[Float, Float]:
        """Return linear predictors (n, C) as passed to the link, and nearness (n,), at raw inputs X
        (n, d), float64."""
        logits, near = self.logits(X)
        return self._uncertain(logits, X), near

    def logits(self, X: Float) -> tuple[Float, Float]:
        """Return the logits (n, C) as if all levels and groups were known and had no effects, and
        nearness (n,), at raw inputs X (n, d)."""
        f, variance, near = self.moments(X, variance=self.moderate)
        logits = self.logits_of(f if variance is None else moderated(f, variance))
        return self._mixed(logits, X), near

    def _mixed(self, logits: Float, X: Float) -> Float:
        """Return logits (n, C) mixed with those of boosted trees at raw inputs X (n, d)."""
        if self.trees is None:
            return logits
        return np.asarray(mixed(logits, self.trees.trees(X), self.trees.share.constant))

    def stacked_values(self, X: Float) -> Float:
        """Return the logits (n, C) that may be mixed with those of boosted trees, at raw inputs X
        (n, d)."""
        return self.logits(X)[0]

    def logits_of(self, f: Float) -> Float:
        """Return the logits of moderated linear predictors."""
        return self._logits(f, f)

    def probabilities_of(self, f: Float, X: Float) -> Float:
        """Return the probabilities (n, K) of moderated linear predictors at raw inputs X (n, d)."""
        logits = self._mixed(self.logits_of(f), X)
        return LINKS[self.likelihood].probabilities(self._uncertain(logits, X))

    def _uncertain(self, logits: Float, X: Float) -> Float:
        """Return logits with the effects of their groups, moderated by what is unknown of their
        levels and groups."""
        logits = self._of_group(logits)
        if (unknown := self._unknown_variances(X)) is not None:
            shares = self._logits_of_shares(logits.shape[1])
            logits = shares + moderated(logits - shares, unknown)
        return logits

    def level_variances(self, X: Float) -> Float | None:
        """Return the variances (n, 1) of logits due to uncertain level effects, or None."""
        features = self.design.scaling.features
        return features.level_variances(X) if features is not None and features.variances else None

    def _unknown_variances(self, X: Float) -> Float | None:
        """Return the variances (n, 1) of logits due to uncertain effects of levels and groups, or
        None."""
        of_levels = self.level_variances(X)
        if self.known is None:
            return of_levels
        of_groups = self._group_variances(len(X))
        return of_groups if of_levels is None else of_levels + of_groups

    def _of_group(self, logits: Float) -> Float:
        """Return logits (n, C) with the effects of the rows' groups: none for new groups."""
        return logits

    def _group_variances(self, n: int) -> Float:
        """Return the variances (n, 1) of the effects of n rows' groups."""
        assert self.known is not None
        return np.full((n, 1), self.known.variance)

    def _logits_of_shares(self, n_logits: int) -> Float:
        """Return the logits of the class frequencies in training, (1,) or (K,)."""
        if self.known is not None:
            return self.known.log_shares
        assert self.design.scaling.features is not None
        logs = self.design.scaling.features.log_shares
        return logs if n_logits > 1 else logs[1:] - logs[:1]

    def _logits(self, first: Float, second: Float) -> Float:
        """Return the logits of predictors ``second``; with a ramp and two classes, minus the logits
        of predictors ``first``."""
        if self.ramp is None:
            return second
        logits = self.ramp.logits(second)
        return logits if logits.shape[1] > 2 else logits[:, 1:] - self.ramp.logits(first)[:, :1]

    @one_blas_thread()
    @np.errstate(over="ignore", invalid="ignore")
    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Any, Float]:
        """Return the mean and variance (or None) of the linear predictors, (n, C) each, and the
        nearness, like ``linear_values``."""
        f, spread, near = linear_values(self.design, self.mean, X, self.root if variance else None)
        self._require_finite(X, f, spread)
        return f, spread, near
