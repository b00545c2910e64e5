"""A fitted classifier as a value: class probabilities at any rows.

Weights have the posterior N(μ_k, Σ_k) of the Laplace approximation (Tipping 2001, §3), and linear predictors
f_k = φᵀμ_k the variance φᵀΣ_kφ. ``moderate`` models account for it before the link (``core.link.moderated``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.core.link import LINKS, moderated, probabilities, probability_band, variances
from partirvm.core.rowwise import products
from partirvm.core.uncertainty import quantile
from partirvm.errors import DataError, UsageError
from partirvm.kernels.design import Design
from partirvm.model.label_arrays import label_array, plain_labels
from partirvm.model.rows import check_predictions, checked_rows, digest, nearness, panels
from partirvm.quoting import quoted
from partirvm.types import Columns

Float = NDArray[np.float64]

KINDS = ("decision", "probability")
"""Quantities of an interval: the linear predictors, or the class probabilities."""


class ClassFit(Protocol):
    """Fields of a fit used by the model: mean and α (M, C), log evidence in nats, number of rows, roots (C, M, M)."""

    @property
    def mean(self) -> Float: ...
    @property
    def alpha(self) -> Float: ...
    @property
    def log_evidence(self) -> float: ...
    @property
    def n(self) -> int: ...
    def roots(self) -> Float: ...


@dataclass(frozen=True)
class ClassModel:
    """A classification RVM of M columns and C linear predictors for K classes: C = 1 if K = 2, else C = K.

    ``mean`` (M, C), ``root`` (C, M, M) with Σ_k = R_k R_kᵀ, and ``alpha`` (M, C), infinite if predictor k lacks the
    column; mean and root are zero there. ``likelihood`` is one of ``core.link.LINKS``. ``columns.classes`` are
    the labels of the codes 0 … K−1.
    """

    design: Design
    mean: Float
    root: Float
    alpha: Float
    likelihood: str
    moderate: bool
    log_evidence: float
    n_rows: int
    columns: Columns

    @classmethod
    def from_fit(cls, design: Design, fit: ClassFit, columns: Columns, likelihood: str, moderate: bool) -> ClassModel:
        """The model of a dense fit. Raises ``DataError`` for labels that cannot be stored (``plain_labels``)."""
        assert columns.classes is not None
        return cls(
            design=design,
            mean=fit.mean,
            root=fit.roots(),
            alpha=fit.alpha,
            likelihood=likelihood,
            moderate=moderate,
            log_evidence=float(fit.log_evidence),
            n_rows=fit.n,
            columns=replace(columns, classes=plain_labels(columns.classes)),
        )

    def digest(self) -> str:
        """Hash of everything that predictions depend on: models of equal digest predict the same bits."""
        columns = asdict(replace(self.columns, classes=plain_labels(self.classes)))
        facts = [self.design.kernel.spec(), self.design.bias, self.likelihood, self.moderate, columns]
        return digest(facts, self.design, (self.mean, self.root))

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels, (K,), in the order of their codes, which is the order of the columns of probabilities."""
        assert self.columns.classes is not None
        return self.columns.classes

    @property
    def predictive(self) -> ClassModel:
        """The model that states probabilities for new rows: this one."""
        return self

    @property
    def n_vectors(self) -> int:
        """Relevance vectors; the bias and basis functions are not counted."""
        return len(self.design.centres)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.design.scaling.x_shift)

    def decision_function(self, X: Any) -> Float:
        """Linear predictors at raw inputs X (n, d), as passed to the link (moderated if the model moderates).

        Shape (n,) for two classes, where positive values predict the second class; otherwise (n, K), where the largest
        value gives the class. Raises ``DataError`` if X has other features than the model, or non-finite values.
        """
        f, _ = self.predictors(checked_rows(X, self.columns))
        return f[:, 0] if f.shape[1] == 1 else f

    def predict_proba(self, X: Any) -> Float:
        """Probabilities (n, K) of the classes, in order, at raw inputs X (n, d). Errors as ``decision_function``."""
        return probabilities(self.likelihood, self.predictors(checked_rows(X, self.columns))[0])

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,) of the most probable classes at raw inputs X (n, d). Errors as ``decision_function``."""
        labels: NDArray[Any] = label_array(self.classes)[self.predict_proba(X).argmax(axis=1)]
        return labels

    def interval(self, level: float, kind: str = "decision") -> ClassInterval:
        """Central credible intervals at this level, of the linear predictors or of probabilities.

        ``kind`` is ``"decision"`` or ``"probability"``. Raises ``UsageError`` for another level or kind.
        """
        if kind not in KINDS:
            raise UsageError(f"kind is {kind!r}: an interval is {' or '.join(map(repr, KINDS))}")
        return ClassInterval(self, quantile(level), kind)

    def value_names(self, *, interval: bool = False) -> tuple[str, ...]:
        """Names of ``values``: ``p_<class>`` for each class, in their order.

        With an ``interval`` after these ``lower_<class>`` for all, then ``upper_<class>``. Raises ``DataError`` where
        two classes have the same text.
        """
        names = tuple(f"p_{label}" for label in self.classes)
        twice = [label for label in self.classes if names.count(f"p_{label}") > 1]
        if twice:
            raise DataError(
                f"the classes {quoted(twice[0])} and {quoted(twice[1])} would both have the column 'p_{twice[0]}'"
            )
        ends = ("lower", "upper") if interval else ()
        return (*names, *(f"{end}_{label}" for end in ends for label in self.classes))

    def values(self, X: Float) -> tuple[Float, Float]:
        """Probabilities (n, K) of raw inputs X (n, d), and nearness (n,)."""
        f, near = self.predictors(X)
        return probabilities(self.likelihood, f), near

    def band(self, level: float) -> ClassInterval:
        """The interval of this level that stands beside ``values``."""
        return self.interval(level, "probability")

    @property
    def far_prediction(self) -> str:
        """What is known of rows that are far from every relevance vector."""
        return "probabilities are little more than those that the bias alone gives, everywhere the same"

    def predictors(self, X: Float) -> tuple[Float, Float]:
        """Linear predictors (n, C) as passed to the link, and nearness (n,), at raw inputs X (n, d) of float64."""
        f, variance, near = self.moments(X, variance=self.moderate)
        return f if variance is None else moderated(f, variance, LINKS[self.likelihood].moderation), near

    @np.errstate(over="ignore", invalid="ignore")
    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Float | None, Float]:
        """Mean and optionally variance, (n, C) each, of the linear predictors at raw inputs X (n, d); nearness (n,).

        Nearness is the largest kernel value of a row as a fraction of the kernel's peak: below ``FAR`` a row is far
        from all relevance vectors; 1 without vectors. Raises ``DataError`` for another number of features.
        """
        heights, shape = self.design.peaks(), (len(X), self.mean.shape[1])
        f, near = np.empty(shape), np.empty(len(X))
        spread = np.empty(shape) if variance else None
        for rows, block in panels(self.design, X):
            f[rows] = products(block, self.mean)
            if spread is not None:
                spread[rows] = variances(block, self.root)
            near[rows] = nearness(self.design, block, heights)
        check_predictions(X, self.columns, f, spread)
        return f, spread, near


@dataclass(frozen=True)
class ClassInterval:
    """Central credible intervals: φᵀμ_k ± ``quantile`` × (φᵀΣ_kφ)^½, of linear predictors or of probabilities.

    The linear predictors are not moderated: their uncertainty is the width of the interval.
    """

    model: ClassModel
    quantile: float
    kind: str

    def __call__(self, X: Float) -> tuple[Float, Float]:
        """All lower ends, then all upper ends, (n, 2C) or for probabilities (n, 2K), and nearness (n,), at X (n, d)."""
        f, variance, near = self.model.moments(X)
        assert variance is not None
        half = self.quantile * np.sqrt(variance)
        if self.kind == "decision":
            return np.concatenate([f - half, f + half], axis=1), near
        return np.concatenate(probability_band(self.model.likelihood, f, half), axis=1), near
