"""Classification as in Tipping (2001), §2.2: K outputs y_k(x) = w_kᵀφ(x), each with its own α for
each column (eq. 28), and one output for two classes (eqs. 23 to 27).

At given α, Newton steps find the mode ŵ (eq. 24) and Laplace's approximation (``literature.mode``).
The joint Hessian of all weights has, for weights of columns φ and φ' of outputs k and l, the
element Σ_n φ φ' y_k (δ_kl − y_l) (eq. 25 for one output), so that outputs are not independent. Then
α ← γ/ŵ² (eq. 16), until no log α changes by more than ``tol``; there is no noise variance.

Σ has the size of the number of all weights: the first steps take (K·N)³ operations.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from partirvm.core.link import LINKS, Link, targets
from partirvm.literature.base import Classifier
from partirvm.literature.dense import DenseModel, log_settled, mackay_alpha, maximise
from partirvm.literature.mode import ModeSearch
from partirvm.types import Float, Int


def link_of(outputs: Float) -> Link:
    """Return the likelihood of C outputs (n, C)."""
    return LINKS["bernoulli" if outputs.shape[1] == 1 else "multinomial"]


@dataclass(frozen=True)
class SoftmaxSearch(ModeSearch):
    """Weights of C outputs, of which each may use other columns.

    Attributes:
        target: 1 for the class of each output (N, C)
        columns: column of each weight (W,)
        outputs: output of each weight (W,)
    """

    target: Float
    columns: Int
    outputs: Int

    beta: ClassVar[float] = 1.0
    """There is no noise."""

    @cached_property
    def table(self) -> Float:
        """The weights (M, C), zero where an output does not use a column."""
        table = np.zeros((self.design.shape[1], self.target.shape[1]))
        table[self.columns, self.outputs] = self.weights
        return table

    @cached_property
    def derivatives(self) -> tuple[Float, Float, Float]:
        """Log likelihood (N, 1), and its slope and curvature in each output (N, C)."""
        return link_of(self.target).derivatives(self.design @ self.table, self.target)

    @property
    def log_likelihood(self) -> float:
        return float(self.derivatives[0].sum())

    @property
    def slopes(self) -> Float:
        return (self.design.T @ self.derivatives[1])[self.columns, self.outputs]

    @property
    def hessian(self) -> Float:
        columns = self.design[:, self.columns]
        weighted = columns * (self.target - self.derivatives[1])[:, self.outputs]
        same = self.outputs[:, None] == self.outputs
        return np.asarray((weighted.T @ columns) * same - weighted.T @ weighted)

    def taken(self, places: Int, alpha: Float, beta: float) -> Self:
        """Return the mode of the weights at these places, with new α."""
        remaining = replace(
            self,
            columns=self.columns[places],
            outputs=self.outputs[places],
            weights=self.weights[places],
            alpha=alpha,
        )
        return remaining.at_mode()


@dataclass(repr=False, eq=False)
class TippingClassifier(Classifier, DenseModel):
    """Relevance vector classification with an α for each class and column (Tipping 2001, §2.2).

    Every α starts at 1; a weight with α > 1e9 is deleted.

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel of ``partirvm.kernels``; None: Gaussian(1.0). A Gaussian's gamma is r⁻² of eq. 30.
    fit_intercept : bool, default=True
        True offers a bias for each output.
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
    >>> TippingClassifier(Gaussian(0.1)).fit(X[::5], y[::5]).weights_.shape[1]
    3
    """

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
        X, codes = self._training(X, y)
        candidates = self._columns(X, np.arange(len(X)))
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        places = np.indices((candidates.n_columns, outputs)).reshape(2, -1)
        first = SoftmaxSearch(
            design=candidates.block(X),
            alpha=np.ones(places.shape[1]),
            weights=np.zeros(places.shape[1]),
            target=targets(codes.astype(np.float64), outputs),
            columns=places[0],
            outputs=places[1],
        )
        state = self._ended(
            maximise(
                first.at_mode(),
                lambda state: (mackay_alpha(state.solution.determinedness, state.weights**2), 1.0),
                log_settled(self.tol),
                max_iter=self.max_iter,
                taken=SoftmaxSearch.taken,
            )
        )
        used = np.unique(state.columns)
        self._keep(X, candidates.all_labels[used])
        self.weights_ = state.table[used]
        return self

    def predict_proba(self, X: Any) -> Float:
        """Return the probabilities of the classes (n, K) at ŵ.

        Parameters
        ----------
        X : array-like (n, d)
        """
        predictors = self._block(X) @ self.weights_
        return link_of(predictors).probabilities(predictors)
