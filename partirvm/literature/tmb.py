"""RVM_TMB, KRVM_TMB and PFCVM_TMB (TMB paper, §4) as scikit-learn estimators for regression and two
classes.

``TMBRegressor`` and ``TMBClassifier`` have the system as an option, "rvm", "krvm" or "pfcvm", so
that a grid search can compare them. They hold the kernel matrix in memory and factorise it, so they
are meant for up to some thousand rows; the main path is ``RVMRegressor`` and ``RVMClassifier``.

Departures from the paper, where it is silent: inputs and the target of a regression are
standardised by the training rows, and γ starts at 1/d instead of 1, because with many standardised
features all kernels between rows are 0 at γ_d = 1, and so are all slopes. The units of δ are
explained in ``algorithm_1``.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from partirvm.core.link import LINKS, moderated
from partirvm.errors import UsageError
from partirvm.literature.algorithm_1 import fit_active_set, fit_all
from partirvm.literature.base import Classifier, Estimator, Regressor, interval
from partirvm.literature.joint_laplace import Errors, LogisticErrors, NormalErrors
from partirvm.literature.joint_parameters import SYSTEMS, JointMarginal, JointOptions
from partirvm.literature.joint_uncertainty import DeltaMethod
from partirvm.options.constraints import Check
from partirvm.types import BIAS, Float

WORDS = {
    "system": SYSTEMS,
    "active": ("largest", "random"),
    "threshold_unit": ("prior-sd", "weight"),
}
"""Words of options."""


@dataclass(repr=False, eq=False)
class JointEstimator(JointOptions, Estimator):
    """Base class of ``TMBRegressor`` and ``TMBClassifier``.

    Parameters
    ----------
    system, active_set, batch, active, threshold, threshold_unit : optional
        As for ``JointOptions``.
    bound, start_log_alpha, start_gamma, tol, max_rounds, max_iterations : optional
        As for ``JointOptions``.
    standardize : bool
        Whether inputs and the target of a regression are scaled to mean 0 and variance 1.
    random_state : int
        Seed of random first rows.

    Attributes
    ----------
    relevance_ : ndarray (M,)
        Numbers of the rows that are relevance vectors: their α is below ν.
    relevance_vectors_ : ndarray (M, d)
        Their inputs.
    n_relevance_vectors_ : int
        M.
    alpha_ : ndarray (M,)
        Their α, on the scale of the standardised data.
    gamma_ : ndarray (d,)
        γ_d of the standardised features.
    beta_ : ndarray (d,) or (0,)
        β_d of "pfcvm".
    log_evidence_ : float
        Laplace's log marginal likelihood, without the prior of γ_d, in the target's units.
    rounds_ : tuple of Round
        What the rounds of algorithm 1 did.
    converged_ : bool
        Whether they ended before ``max_rounds`` (``max_iterations`` without an active set).
    joint_ : DeltaMethod
        The predictor on standardised inputs, with its variance.
    """

    _: KW_ONLY
    standardize: bool = True
    random_state: int = 0

    def _fit(self, X: Float, errors: Errors) -> None:
        """Fit the weights and hyperparameters to the errors about the rows X (N, d)."""
        for name, words in WORDS.items():
            Check("word", words)(name, getattr(self, name))
        scaler = StandardScaler(with_mean=self.standardize, with_std=self.standardize)
        self._scaler = scaler.fit(X)
        likelihood = JointMarginal(self._scaler.transform(X), errors, options=clone(self))
        if self.active_set:
            fit = fit_active_set(likelihood, np.random.default_rng(self.random_state))
        else:
            fit = fit_all(likelihood)
        self.joint_ = DeltaMethod(likelihood, fit.point)
        vectors = (fit.point.labels != BIAS) & ~likelihood.pruned(fit.point)
        self.relevance_ = fit.point.labels[vectors]
        self.relevance_vectors_ = X[self.relevance_]
        self.n_relevance_vectors_ = len(self.relevance_)
        self.alpha_ = np.exp(fit.point.log_alpha[vectors])
        self.gamma_ = np.resize(likelihood.gamma(fit.point.widths), X.shape[1])
        self.beta_ = np.exp(fit.point.log_beta)
        self.log_evidence_ = self.joint_.approximation.log_evidence
        self.rounds_ = fit.rounds
        self.converged_ = fit.converged

    def _mean(self, X: Any) -> Float:
        """Return f (n,) on the standardised scale."""
        X = self._rows(X)
        return self.joint_.mean(self._scaler.transform(X))

    def _std(self, X: Any, hyperparameters: bool) -> Float:
        """Return the standard deviations of f (n,) on the standardised scale."""
        X = self._rows(X)
        variance = self.joint_.variance(self._scaler.transform(X), hyperparameters=hyperparameters)
        return np.sqrt(variance)


class TMBRegressor(Regressor, JointEstimator):
    """RVM_TMB, KRVM_TMB or PFCVM_TMB for a numeric target: σ², α and γ maximise the marginal
    likelihood jointly.

    The parameters are those of ``JointOptions``, with ``standardize`` and ``random_state``;
    ``noise_variance_`` is σ² in the target's units.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.literature.tmb import TMBRegressor
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
    >>> model = TMBRegressor("rvm").fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like (N, d)
            Inputs.
        y : array-like (N,)
            Targets.
        """
        X, y = self._training(X, y)
        self._target_center = float(y.mean()) if self.standardize else 0.0
        self._target_scale = float(y.std()) or 1.0 if self.standardize else 1.0
        self._fit(X, NormalErrors((y - self._target_center) / self._target_scale))
        self.noise_variance_ = self._target_scale**2 / np.exp(self.joint_.point.log_tau[0])
        self.log_evidence_ -= len(y) * np.log(self._target_scale)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean, and the standard deviation of a new target.

        Parameters
        ----------
        X : array-like (n, d)
            Inputs.
        return_std : bool
            Whether to return the standard deviation (n,), with uncertain hyperparameters, too.
        """
        mean = self._mean(X) * self._target_scale + self._target_center
        if not return_std:
            return mean
        return mean, self._target_std(X, hyperparameters=True, noise=True)

    def predict_interval(
        self,
        X: Any,
        level: float = 0.95,
        *,
        hyperparameters: bool = True,
        noise: bool = True,
    ) -> Float:
        """Return lower and upper limits (n, 2), as in Figure 2.

        Parameters
        ----------
        X : array-like (n, d)
            Inputs.
        level : float
            Probability of the interval.
        hyperparameters : bool
            Whether σ², α and γ are uncertain (left), or the weights alone (right).
        noise : bool
            Whether the interval is that of a new target (outer bands) or of f (inner bands).
        """
        return interval(self.predict(X), self._target_std(X, hyperparameters, noise), level)

    def _target_std(self, X: Any, hyperparameters: bool, noise: bool) -> Float:
        """Return standard deviations (n,) in the target's units."""
        std = self._target_scale * self._std(X, hyperparameters)
        return np.hypot(std, np.sqrt(self.noise_variance_)) if noise else std


class TMBClassifier(Classifier, JointEstimator):
    """RVM_TMB, KRVM_TMB or PFCVM_TMB for two classes, with the logistic link and Laplace's
    approximation.

    The parameters are those of ``JointOptions``, with ``standardize`` and ``random_state``;
    ``classes_`` holds the two labels.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.literature.tmb import TMBClassifier
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = TMBClassifier("rvm").fit(X, X[:, 0] > 0.3)
    >>> model.decision_interval(X).shape
    (40, 2)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like (N, d)
            Inputs.
        y : array-like (N,)
            Labels of two classes.
        """
        X, codes = self._training(X, y)
        if len(self.classes_) > 2:
            raise UsageError(
                "Only binary classification is supported. The target has "
                f"{len(self.classes_)} classes"
            )
        self._fit(X, LogisticErrors(codes.astype(np.float64)))
        return self

    def decision_function(self, X: Any) -> Float:
        """Return f (n,) at inputs X (n, d); the second class has P = 1/(1 + e⁻ᶠ)."""
        return self._mean(X)

    def decision_interval(
        self, X: Any, level: float = 0.95, *, hyperparameters: bool = True
    ) -> Float:
        """Return lower and upper limits (n, 2) of f, whose zero contours are those of Figure 3.

        Parameters
        ----------
        X : array-like (n, d)
            Inputs.
        level : float
            Probability of the interval.
        hyperparameters : bool
            Whether α and γ are uncertain, or the weights alone.
        """
        return interval(self._mean(X), self._std(X, hyperparameters), level)

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities (n, 2), moderated by the uncertainty of the weights (MacKay
        1992)."""
        predictor = moderated(self._mean(X), self._std(X, hyperparameters=False) ** 2)
        return LINKS["bernoulli"].probabilities(predictor[:, None])
