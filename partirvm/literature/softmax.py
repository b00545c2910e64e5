"""Classification as in Tipping (2001), §2.2: K outputs y_k(x) = w_kᵀφ(x), each with its own α for
each column (eq. 28), and one output for two classes (eqs. 23 to 27).

At given α, Newton steps find the mode ŵ of log p(t | w) − ½ Σ α w² (eq. 24), and Laplace's
approximation has Σ = (H + A)⁻¹. H is the joint Hessian of all weights: for weights of columns φ and
φ' of outputs k and l, its element is Σ_n φ φ' y_k (δ_kl − y_l) (eq. 25 for one output), so that
outputs are not independent. Then α ← γ/ŵ² (eq. 16), until no log α changes by more than ``tol``;
there is no noise variance. The log evidence is log p(t | ŵ) − ½ Σ α ŵ² + ½ (log|A| + log|Σ|).

Σ has the size of the number of all weights: the first steps take (K·N)³ operations.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from partirvm.core.link import LINKS, Link, targets
from partirvm.core.posterior import Solution, solve
from partirvm.errors import UsageError
from partirvm.literature.dense import UNDETERMINED, DenseModel
from partirvm.types import Float, Int

NEWTON_STEPS = 100
"""Maximum number of Newton steps for a mode; about five are usual."""

NEWTON_TOL = 1e-12
"""A mode is found once a Newton step raises the log joint density by less than this, in nats per
row."""

HALVINGS = 30
"""Maximum number of halvings of a Newton step that lowers the density."""


@dataclass(frozen=True)
class Laplace:
    """Weights at given α, and Laplace's approximation there.

    Attributes:
        link: likelihood of C outputs
        design: Φ (N, M)
        target: 1 for the class of each output (N, C)
        columns: column of each weight (W,)
        outputs: output of each weight (W,)
        alpha: α (W,)
        weights: w (W,)
    """

    link: Link
    design: Float
    target: Float
    columns: Int
    outputs: Int
    alpha: Float
    weights: Float

    @cached_property
    def table(self) -> Float:
        """The weights (M, C), zero where an output does not use a column."""
        table = np.zeros((self.design.shape[1], self.target.shape[1]))
        table[self.columns, self.outputs] = self.weights
        return table

    @cached_property
    def derivatives(self) -> tuple[Float, Float, Float]:
        """Log likelihood (N, 1), and its slope and curvature in each output (N, C)."""
        return self.link.derivatives(self.design @ self.table, self.target)

    @cached_property
    def log_joint(self) -> float:
        """log p(t | w) − ½ Σ α w²."""
        return float(self.derivatives[0].sum() - 0.5 * self.alpha @ self.weights**2)

    @property
    def likelihood_slopes(self) -> Float:
        """Slopes of log p(t | w) in the weights (W,)."""
        slopes: Float = self.design.T @ self.derivatives[1]
        return slopes[self.columns, self.outputs]

    @cached_property
    def hessian(self) -> Float:
        """H (W, W)."""
        columns = self.design[:, self.columns]
        weighted = columns * (self.target - self.derivatives[1])[:, self.outputs]
        same = self.outputs[:, None] == self.outputs
        hessian: Float = (weighted.T @ columns) * same - weighted.T @ weighted
        return hessian

    @cached_property
    def solution(self) -> Solution:
        """Σ, and the end of the next Newton step."""
        projection = self.likelihood_slopes + self.hessian @ self.weights
        return solve(self.hessian, self.alpha, projection)

    @property
    def log_evidence(self) -> float:
        """Laplace's approximation of the log marginal likelihood."""
        return self.log_joint + 0.5 * (float(np.log(self.alpha).sum()) - self.solution.log_det)

    def taken(self, relevant: Any, alpha: Float) -> "Laplace":
        """Return the state with some of the weights, and their α (W,)."""
        return replace(
            self,
            columns=self.columns[relevant],
            outputs=self.outputs[relevant],
            weights=self.weights[relevant],
            alpha=alpha[relevant],
        )

    def at_mode(self) -> "Laplace":
        """Return the mode at the same α, by Newton steps that are halved until they raise the
        density, which is concave."""
        state = self
        for _ in range(NEWTON_STEPS):
            step = state.solution.x - state.weights
            for halving in range(HALVINGS):
                following = replace(state, weights=state.weights + step / 2**halving)
                gain = following.log_joint - state.log_joint
                if gain >= 0:
                    break
            if gain >= 0:
                state = following
            if gain <= NEWTON_TOL * len(self.design):
                break
        return state


@dataclass(repr=False, eq=False)
class TippingClassifier(ClassifierMixin, DenseModel):  # type: ignore[misc]
    """Relevance vector classification with an α for each class and column (Tipping 2001, §2.2).

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel of ``partirvm.kernels``; None: Gaussian(1.0). A Gaussian's gamma is r⁻² of eq. 30.
    fit_intercept : bool, default=True
        True offers a bias for each output.
    alpha_init : float, default=1.0
        First α.
    alpha_max : float, default=1e9
        A weight whose α exceeds this is deleted.
    tol : float, default=1e-3
        Largest change of log α at the end.
    max_iter : int, default=1000
        Maximum number of updates of α.

    Attributes
    ----------
    classes_ : ndarray (K,)
    relevance_vectors_ : ndarray (m, d)
        Vectors of any class.
    n_relevance_vectors_ : int
    weights_ : ndarray (M, C)
        Zero where a class does not use a column; C is 1 for two classes, otherwise K.
    alpha_ : ndarray (W,)
        α of the weights of all classes.
    log_evidence_ : float
    n_iter_ : int
    converged_ : bool

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from partirvm.kernels import Gaussian
    >>> from partirvm.literature.softmax import TippingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> TippingClassifier(Gaussian(0.1)).fit(X[::3], y[::3]).weights_.shape[1]
    3
    """

    alpha_init: float = 1.0
    alpha_max: float = 1e9
    tol: float = 1e-3
    max_iter: int = 1000

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model; every row is a candidate.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
            Labels.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise UsageError("y has one class: classification needs at least two")
        labels = self._labels(len(X))
        design = self._design(X, X, labels)
        indicators = targets(
            codes.astype(np.float64), 1 if len(self.classes_) == 2 else len(self.classes_)
        )
        columns, outputs = np.indices((len(labels), indicators.shape[1])).reshape(2, -1)
        alpha = np.full(len(columns), self.alpha_init)
        zero = np.zeros(len(columns))
        state = Laplace(self._link, design, indicators, columns, outputs, alpha, zero)
        state = self._solve(state.at_mode())
        used = np.unique(state.columns)
        self._keep(X, labels[used])
        self.weights_ = state.table[used]
        self.alpha_ = state.alpha
        self.log_evidence_ = state.log_evidence
        return self

    @property
    def _link(self) -> Link:
        return LINKS["bernoulli" if len(self.classes_) == 2 else "multinomial"]

    def _solve(self, state: Laplace) -> Laplace:
        """Return the last state."""
        self.converged_ = False
        self.n_iter_ = 0
        while self.n_iter_ < self.max_iter and not self.converged_:
            determinedness = state.solution.determinedness
            with np.errstate(divide="ignore"):
                alpha = determinedness / state.weights**2
            alpha[determinedness <= UNDETERMINED] = np.inf
            relevant = alpha <= self.alpha_max
            relevant[alpha.argmin()] = True
            change = np.abs(np.log(alpha / state.alpha)).max()
            self.converged_ = bool(relevant.all() and change <= self.tol)
            state = state.taken(relevant, np.minimum(alpha, self.alpha_max)).at_mode()
            self.n_iter_ += 1
        return state

    def predict_proba(self, X: Any) -> Float:
        """Return the probabilities of the classes (n, K) at ŵ.

        Parameters
        ----------
        X : array-like (n, d)
        """
        design = self._new_design(X)
        return self._link.probabilities(design @ self.weights_)

    def predict(self, X: Any) -> Any:
        """Return the most probable labels (n,).

        Parameters
        ----------
        X : array-like (n, d)
        """
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]
