"""A fitted classification model, which predicts class probabilities at any rows.

Weights have the posterior N(μ_k, Σ_k) of the Laplace approximation (Tipping 2001, §3). Linear predictors f_k have the
mean φᵀμ_k and the variance φᵀΣ_kφ. If ``moderate`` is true, f_k is corrected for this variance before the link
(``core.link.moderated``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.blas_threads import one_blas_thread
from partirvm.core.link import LINKS, moderated, probabilities, probability_band, variances
from partirvm.core.predictive import products, quantile
from partirvm.errors import DataError, UsageError
from partirvm.kernels.design import Design
from partirvm.model.label_arrays import label_array, plain_labels
from partirvm.model.rows import check_predictions, checked_rows, digest, nearness, panels
from partirvm.quoting import html_table, quoted
from partirvm.types import Columns

Float = NDArray[np.float64]

KINDS = ("decision", "probability")
"""Kinds of intervals: of the linear predictors, or of the class probabilities."""


class ClassFit(Protocol):
    """Fields of a fit that a model needs: mean and α (M, C), log evidence in nats, number of rows, roots (C, M, M)."""

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
    """A classification RVM of M columns and C linear predictors for K classes: C = 1 if K = 2, otherwise C = K.

    ``mean`` is (M, C), ``alpha`` is (M, C), and ``root`` (C, M, M) holds R_k with Σ_k = R_k R_kᵀ. If predictor k lacks
    a column, α is infinite, and mean and root are zero. ``likelihood`` is one of ``core.link.LINKS``.
    ``columns.classes`` are the labels of the codes 0 … K−1.
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
        """Return the model of a dense fit. Raises ``DataError`` for labels that cannot be stored (``plain_labels``)."""
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

    def __repr__(self) -> str:
        return f"<ClassModel of {self.n_vectors:,} relevance vectors, {self.design.kernel.name} kernel>"

    def _repr_html_(self) -> str:
        """The main facts, for a notebook."""
        facts: list[tuple[str, Any]] = [
            ("relevance vectors", f"{self.n_vectors:,} of {self.n_rows:,} rows"),
            ("classes", ", ".join(str(label) for label in (self.columns.classes or ())[:10])),
            ("kernel", self.design.kernel.name),
            ("log evidence", f"{self.log_evidence:,.2f} nats"),
        ]
        return html_table("Model of a classification", facts)

    def digest(self) -> str:
        """Return a hash of all values that affect predictions. Models with equal digests predict the same bits."""
        columns = asdict(replace(self.columns, classes=plain_labels(self.classes)))
        facts = [self.design.kernel.spec(), self.design.bias, self.likelihood, self.moderate, columns]
        return digest(facts, self.design, (self.mean, self.root))

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels (K,) in the order of their codes and of the columns of probabilities."""
        assert self.columns.classes is not None
        return self.columns.classes

    @property
    def predictive(self) -> ClassModel:
        """The model that states probabilities for new rows: this one."""
        return self

    @property
    def n_vectors(self) -> int:
        """Number of relevance vectors, without the bias and basis functions."""
        return len(self.design.centres)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.design.scaling.x_shift)

    def decision_function(self, X: Any) -> Float:
        """Return linear predictors at raw inputs X (n, d), as passed to the link (moderated if ``moderate`` is true).

        For two classes the shape is (n,), and positive values predict the second class. Otherwise the shape is (n, K),
        and the largest value gives the class. Raises ``DataError`` if X has other features than the model, or
        non-finite values.
        """
        f, _ = self.predictors(checked_rows(X, self.columns))
        return f[:, 0] if f.shape[1] == 1 else f

    def predict_proba(self, X: Any) -> Float:
        """Return class probabilities (n, K) at raw inputs X (n, d). Raises the errors of ``decision_function``."""
        return probabilities(self.likelihood, self.predictors(checked_rows(X, self.columns))[0])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels (n,) of the most probable classes at raw inputs X; errors as for ``decision_function``."""
        labels: NDArray[Any] = label_array(self.classes)[self.predict_proba(X).argmax(axis=1)]
        return labels

    def interval(self, level: float, kind: str = "decision") -> ClassInterval:
        """Return central credible intervals at this level, of the linear predictors or of probabilities.

        ``kind`` is ``"decision"`` or ``"probability"``. Raises ``UsageError`` for another level or kind.
        """
        if kind not in KINDS:
            raise UsageError(f"kind is {kind!r}: an interval is {' or '.join(map(repr, KINDS))}")
        return ClassInterval(self, quantile(level), kind)

    def value_names(self, *, interval: bool = False) -> tuple[str, ...]:
        """Return names of the columns of ``values``: ``p_<class>`` for each class, in order.

        If ``interval`` is true, ``lower_<class>`` for all classes and then ``upper_<class>`` follow. Raises
        ``DataError`` if two classes have the same text.
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
        """Return probabilities (n, K) at raw inputs X (n, d), and nearness (n,)."""
        f, near = self.predictors(X)
        return probabilities(self.likelihood, f), near

    def band(self, level: float) -> ClassInterval:
        """Return the interval at this level that is written beside ``values``."""
        return self.interval(level, "probability")

    @property
    def far_prediction(self) -> str:
        """Text of the warning about predictions for rows that are far from every relevance vector."""
        return "probabilities are close to the constant probabilities that the bias alone gives"

    def predictors(self, X: Float) -> tuple[Float, Float]:
        """Return linear predictors (n, C) as passed to the link, and nearness (n,), at raw inputs X (n, d), float64."""
        f, variance, near = self.moments(X, variance=self.moderate)
        return f if variance is None else moderated(f, variance, LINKS[self.likelihood].moderation), near

    @one_blas_thread()
    @np.errstate(over="ignore", invalid="ignore")
    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Float | None, Float]:
        """Return mean and optionally variance, (n, C) each, of linear predictors at raw inputs X (n, d), and nearness.

        Nearness (n,) is the largest kernel value of a row as a fraction of the kernel's peak. A row with nearness below
        ``FAR`` is far from all relevance vectors. Without vectors, nearness is 1. Raises ``DataError`` for another
        number of features.
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

    The linear predictors are not moderated, since the width of the interval shows their uncertainty.
    """

    model: ClassModel
    quantile: float
    kind: str

    def __call__(self, X: Float) -> tuple[Float, Float]:
        """Return interval ends at X (n, d), and nearness (n,).

        The ends, first all lower and then all upper ends, are (n, 2C), or (n, 2K) for probabilities.
        """
        f, variance, near = self.model.moments(X)
        assert variance is not None
        half = self.quantile * np.sqrt(variance)
        if self.kind == "decision":
            return np.concatenate([f - half, f + half], axis=1), near
        return np.concatenate(probability_band(self.model.likelihood, f, half), axis=1), near
