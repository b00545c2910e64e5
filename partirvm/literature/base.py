"""What the estimators of this package have in common: columns, and checks of rows, targets and
labels."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from partirvm.core.predictive import quantile
from partirvm.errors import UsageError
from partirvm.kernels import Kernel
from partirvm.kernels.design import Design
from partirvm.scaling.maps import Scaling
from partirvm.types import Float, Int


def columns_of(kernel: Kernel, X: Float, rows: Int, bias: bool) -> Design:
    """Return the columns of the bias, if ``bias``, and of the kernel at some of the rows X (N, d),
    which are labelled by their numbers; nothing is scaled.

    Args:
        kernel: of all columns
        X: all rows (N, d)
        rows: numbers of the centres (m,)
        bias: True for a column of ones
    """
    d = X.shape[1]
    scaling = Scaling(np.zeros(d), np.ones(d), np.zeros(1), np.ones(1))
    return Design(kernel, scaling, X[rows], rows, bias)


def quadratic(vectors: Float, matrix: Float) -> Float:
    """Return vᵀCv of each row v (n, K) of an array, for a matrix C ≥ 0 (K, K)."""
    return np.asarray(np.sum((vectors @ matrix) * vectors, axis=1)).clip(0.0)


def interval(mean: Float, std: Float, level: float) -> Float:
    """Return lower and upper limits (n, 2) of normal variables. Raises ``UsageError`` for a level
    outside (0, 1)."""
    half = quantile(level) * std
    return np.column_stack([mean - half, mean + half])


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Base class of all estimators."""

    def _rows(self, X: Any) -> Float:
        """Return new rows (n, d), checked."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))


class Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """Base class of regressors."""

    def _training(self, X: Any, y: Any) -> tuple[Float, Float]:
        """Return training rows (n, d) and targets (n,), checked."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)


class Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Base class of classifiers, which define ``predict_proba``."""

    def _training(self, X: Any, y: Any) -> tuple[Float, Int]:
        """Return training rows (n, d) and codes of the classes (n,), checked; set ``classes_``."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise UsageError("y has one class: classification needs at least two")
        return X, codes

    def predict(self, X: Any) -> Any:
        """Return the most probable labels (n,).

        Parameters
        ----------
        X : array-like (n, d)
        """
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]
