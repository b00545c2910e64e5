"""Classification as a scikit-learn estimator."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from partirvm.core.link import LINKS
from partirvm.data.arrays import in_process
from partirvm.data.labels import Labels, coded, find_classes
from partirvm.estimators.base import RelevanceVectorMachine, documented
from partirvm.model import ClassModel
from partirvm.options.table import Auto, MultiClass
from partirvm.types import Float


@documented
@dataclass(eq=False, repr=False)
class RVMClassifier(ClassifierMixin, RelevanceVectorMachine):
    """Relevance Vector Machine for classification (Tipping 2001, §3), trained out of core.

    A logistic sigmoid or a softmax turns linear predictors Σ_m w_m k(x, z_m) + bias, with few
    relevance vectors z_m among the training rows, into probabilities; two classes have one
    predictor, more classes one each. Weights have Gaussian priors, whose precisions maximise the
    evidence of a Laplace approximation, whose Newton steps are passes over the rows, or of least
    squares on class indicators (``multi_class``).

    Parameters
    ----------
    (The parameters of both estimators.)
    multi_class : {"auto", "pooled", "multinomial"}
        With a given kernel, "auto" is "multinomial" for two classes with at most 50,000 rows,
        whether or not they overlap.
    moderate : {"auto", True, False}
        A linear predictor f with variance σ² is shrunk to f/√(1 + πσ²/8) (MacKay 1992, "The
        evidence framework applied to classification networks"). "auto" is True for two classes and
        at most 10,000 rows.
    class_weight : None, "balanced" or dict of label and weight
        These multiply the row weights. "balanced" is n/(K·count); for weighted rows, the count is
        the sum of weights.

    Attributes
    ----------
    classes_ : ndarray of shape (K,), of y's own dtype, in the order of the probability columns
    weights_ : ndarray of shape (M,) for two classes with a logistic link, otherwise (K, M)
    alpha_ : ndarray of shape (M,), shared by the classes
    intercept_ : float for two classes with a logistic link, otherwise ndarray of shape (K,)
    log_evidence_ : float, nats
        A prior adds its log density with respect to log α, minus the maximum of that density.
    (The attributes of both estimators.)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = np.where(X[:, 0] + 0.3 * rng.normal(size=100) > 0, "right", "left")
    >>> model = RVMClassifier(gamma=0.2).fit(X, y)
    >>> model.predict([[-1.0, 0.0], [1.0, 0.0]]).tolist()
    ['left', 'right']
    >>> bool(model.predict_proba([[1.0, 0.0]])[0, 1] > 0.9), model.n_relevance_vectors_ < 10
    (True, True)
    """

    _: KW_ONLY
    multi_class: MultiClass = "auto"
    moderate: bool | Auto = "auto"
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None

    def _coded(self, y: Any) -> tuple[Any, Labels]:
        y = in_process("y", y)
        labels = find_classes(y)
        return coded(y, labels), labels

    def _take(self, model: ClassModel, variance: Float) -> None:
        super()._take(model, variance)
        outputs = 0 if model.mean.shape[1] == 1 else slice(None)
        self.weights_ = self.weights_.T[outputs]
        self.basis_weights_ = self.basis_weights_[outputs]
        self.intercept_ = model.mean[: int(model.design.bias)].sum(axis=0)[outputs]

    def _predictors(self, X: Any) -> Float:
        """Return the linear predictors (n, C), the inputs of the link."""
        check_is_fitted(self)
        return self._values(self.model_.predictors, X)

    def decision_function(self, X: Any) -> Float:
        """Linear predictors at X (n, d) as passed to the link: moderated or after the ramp, if the
        model uses these.

        Shape (n,) for two classes, where a positive value predicts ``classes_[1]``; otherwise (n,
        K). X is of any kind that ``fit`` takes. Raises ``DataError`` or ``ValueError`` if its
        features differ.
        """
        f = self._predictors(X)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict_proba(self, X: Any) -> Float:
        """Class probabilities (n, K) at X, in the order of ``classes_``; X as in
        ``decision_function``."""
        f = self._predictors(X)  # first checks that the estimator is fitted
        return LINKS[self.model_.likelihood].probabilities(f)

    def predict_interval(
        self, X: Any, level: float = 0.95, kind: str = "decision"
    ) -> tuple[Float, Float]:
        """Central credible intervals at X (n, d) of any kind that ``fit`` takes: lower and upper
        ends.

        ``kind="decision"`` is for the linear predictors: φᵀμ ± the normal quantile × (φᵀΣφ)^½,
        before moderation or passed through the ramp, shaped like ``decision_function``.
        ``kind="probability"`` is for the classes, (n, K): for two classes, the link of the former;
        for more, class k has its own predictor at the end of its interval and the others at their
        means. Raises ``UsageError`` for an invalid level or kind.
        """
        return self._interval(X, level, kind)

    def predict_log_proba(self, X: Any) -> Float:
        """Return the logarithms of the probabilities, (n, K); −inf for a probability that
        underflows to 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Labels:
        """Labels (n,) of the most probable classes at X, of y's own type; X as in
        ``decision_function``."""
        f = self._predictors(X)
        codes = (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)
        return np.asarray(self.classes_[codes])
