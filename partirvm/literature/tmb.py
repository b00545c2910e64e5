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

from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from partirvm.core.link import LINKS, moderated
from partirvm.errors import UsageError
from partirvm.literature.algorithm_1 import ActiveSetRules, fit_active_set, fit_all
from partirvm.literature.joint_laplace import Errors, LogisticErrors, NormalErrors
from partirvm.literature.joint_parameters import SYSTEMS, JointMarginal
from partirvm.literature.joint_uncertainty import DeltaMethod
from partirvm.types import Float

BOUND = float(np.exp(5.0))
"""The paper's ν."""


class JointEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of ``TMBRegressor`` and ``TMBClassifier``, which share these parameters.

    Parameters
    ----------
    system : {"rvm", "krvm", "pfcvm"}
        "rvm" has one γ for all features (eq. 3); "krvm" has γ_d for each feature with a flat prior
        (eq. 4, §4.2); "pfcvm" has a half-normal prior of each γ_d, with an estimated precision β_d
        (eq. 19, §4.3).
    active_set : bool
        Whether algorithm 1 searches for a small active set. False optimises the α of all rows and
        keeps all weights: the starred versions of §5.
    batch : int
        B, number of rows of the first active set.
    active : {"largest", "random"}
        Whether these are the rows of the largest weights or random rows.
    threshold : float
        δ, size of a weight above which its row joins the active set.
    threshold_unit : {"prior-sd", "weight"}
        Whether δ is compared with the weight in prior standard deviations 1/√ν, or with the weight
        itself. The latter ends with what is left of the first rows (``algorithm_1``).
    bound : float
        ν, upper bound of α, σ⁻² and β_d, on the scale of the standardised data.
    start_log_alpha : float
        log α at the start; at most log ν.
    start_gamma : float or None
        γ or γ_d at the start; None is 1/d.
    tol : float
        Change of the log marginal likelihood, in nats, that ends the rounds.
    max_rounds : int
        Maximum number of rounds of algorithm 1.
    max_iterations : int
        Maximum number of quasi-Newton steps of one round.
    standardize : bool
        Whether inputs and the target of a regression are scaled to mean 0 and variance 1.
    random_state : int, RandomState or None
        For random first rows.

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

    def __init__(
        self,
        system: str = "rvm",
        *,
        active_set: bool = True,
        batch: int = 20,
        active: str = "largest",
        threshold: float = 0.5,
        threshold_unit: str = "prior-sd",
        bound: float = BOUND,
        start_log_alpha: float = 5.0,
        start_gamma: float | None = None,
        tol: float = 1e-6,
        max_rounds: int = 50,
        max_iterations: int = 300,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.system = system
        self.active_set = active_set
        self.batch = batch
        self.active = active
        self.threshold = threshold
        self.threshold_unit = threshold_unit
        self.bound = bound
        self.start_log_alpha = start_log_alpha
        self.start_gamma = start_gamma
        self.tol = tol
        self.max_rounds = max_rounds
        self.max_iterations = max_iterations
        self.standardize = standardize
        self.random_state = random_state

    def _require_known_words(self) -> None:
        """Raise ``UsageError`` for an option whose word is unknown."""
        for name, words in (
            ("system", SYSTEMS),
            ("active", ("largest", "random")),
            ("threshold_unit", ("prior-sd", "weight")),
        ):
            if getattr(self, name) not in words:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}: it must be one of {', '.join(words)}"
                )

    def _fit(self, X: Float, errors: Errors) -> None:
        """Fit the weights and hyperparameters to the errors about the rows X (N, d)."""
        self._require_known_words()
        self._center, self._scale = scaling(X, self.standardize)
        likelihood = JointMarginal(
            X=(X - self._center) / self._scale,
            errors=errors,
            system=self.system,
            bound=self.bound,
            start_gamma=1.0 / X.shape[1] if self.start_gamma is None else self.start_gamma,
            start_log_alpha=min(self.start_log_alpha, float(np.log(self.bound))),
        )
        if self.active_set:
            seed = check_random_state(self.random_state).randint(2**31)
            fit = fit_active_set(likelihood, self._rules(), np.random.default_rng(seed))
        else:
            fit = fit_all(likelihood, self.max_iterations)
        self.joint_ = DeltaMethod(likelihood, fit.point, fit.approximation)
        vectors = (fit.point.columns > 0) & ~likelihood.pruned(fit.point)
        self.relevance_ = fit.point.columns[vectors] - 1
        self.relevance_vectors_ = X[self.relevance_]
        self.n_relevance_vectors_ = len(self.relevance_)
        self.alpha_ = np.exp(fit.point.log_alpha[vectors])
        self.gamma_ = likelihood.gamma(fit.point.widths).copy()
        self.beta_ = np.exp(fit.point.log_beta)
        self.log_evidence_ = fit.approximation.log_evidence
        self.rounds_ = fit.rounds
        self.converged_ = fit.converged

    def _rules(self) -> ActiveSetRules:
        """Return the parameters of algorithm 1."""
        return ActiveSetRules(
            batch=self.batch,
            first=self.active,  # type: ignore[arg-type]
            threshold=self.threshold,
            threshold_unit=self.threshold_unit,  # type: ignore[arg-type]
            tolerance=self.tol,
            max_rounds=self.max_rounds,
            max_iterations=self.max_iterations,
        )

    def _points(self, X: Any) -> Float:
        """Return checked inputs (n, d) in the units of γ."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray((X - self._center) / self._scale)


class TMBRegressor(RegressorMixin, JointEstimator):  # type: ignore[misc]
    """RVM_TMB, KRVM_TMB or PFCVM_TMB for a numeric target: σ², α and γ maximise the marginal
    likelihood jointly.

    The parameters are those of ``JointEstimator``. ``noise_variance_`` is σ² in the target's units.

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
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        center, scale = scaling(y[:, None], self.standardize)
        self._target_center = float(center[0])
        self._target_scale = float(scale[0])
        self._fit(X, NormalErrors((y - self._target_center) / self._target_scale))
        precision = np.exp(self.joint_.point.log_precision)
        self.noise_variance_ = float(self._target_scale**2 / precision)
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
        points = self._points(X)
        mean = self._target_center + self._target_scale * self.joint_.mean(points)
        if not return_std:
            return mean
        return mean, self._std(points, hyperparameters=True, noise=True)

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
        points = self._points(X)
        mean = self._target_center + self._target_scale * self.joint_.mean(points)
        std = self._std(points, hyperparameters=hyperparameters, noise=noise)
        return limits(mean, std, level)

    def _std(self, points: Float, *, hyperparameters: bool, noise: bool) -> Float:
        """Return standard deviations (n,) in the target's units."""
        variance = self._target_scale**2 * self.joint_.variance(
            points, hyperparameters=hyperparameters
        )
        return np.asarray(np.sqrt(variance + (self.noise_variance_ if noise else 0.0)))


class TMBClassifier(ClassifierMixin, JointEstimator):  # type: ignore[misc]
    """RVM_TMB, KRVM_TMB or PFCVM_TMB for two classes, with the logistic link and Laplace's
    approximation.

    The parameters are those of ``JointEstimator``. ``classes_`` holds the two labels.

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.literature.tmb import TMBClassifier
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> model = TMBClassifier("krvm").fit(X, X[:, 0] > 0.3)
    >>> model.decision_interval(X).shape
    (80, 2)
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
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise UsageError(
                "Only binary classification is supported. The target has "
                f"{len(self.classes_)} {'class' if len(self.classes_) == 1 else 'classes'}"
            )
        self._fit(X, LogisticErrors(codes.astype(np.float64)))
        return self

    def decision_function(self, X: Any) -> Float:
        """Return f (n,) at inputs X (n, d); the second class has P = 1/(1 + e⁻ᶠ)."""
        points = self._points(X)
        return self.joint_.mean(points)

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
        points = self._points(X)
        variance = self.joint_.variance(points, hyperparameters=hyperparameters)
        return limits(self.joint_.mean(points), np.sqrt(variance), level)

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities (n, 2), moderated by the uncertainty of the weights (MacKay
        1992)."""
        points = self._points(X)
        variance = self.joint_.variance(points, hyperparameters=False)
        predictor = moderated(self.joint_.mean(points), variance)
        return LINKS["bernoulli"].probabilities(predictor[:, None])

    def predict(self, X: Any) -> Any:
        """Return the likelier label (n,) of inputs X (n, d)."""
        second = self.decision_function(X) > 0
        return self.classes_[second.astype(int)]


def scaling(values: Float, standardize: bool) -> tuple[Float, Float]:
    """Return the mean and standard deviation of each column of (N, d), with 1 for constant columns;
    0 and 1 if the values are not standardised."""
    if not standardize:
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    deviations = values.std(axis=0)
    return values.mean(axis=0), np.where(deviations > 0, deviations, 1.0)


def limits(mean: Float, std: Float, level: float) -> Float:
    """Return the limits (n, 2) of normal variables.

    Raises ``UsageError`` for a level outside (0, 1).
    """
    if not 0.0 < level < 1.0:
        raise UsageError(f"level is {level!r}: it must be between 0 and 1")
    half = float(ndtri(0.5 + level / 2)) * std
    return np.column_stack([mean - half, mean + half])
