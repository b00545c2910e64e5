"""Regression of several targets with one independent fit for each target."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone

from partirvm.errors import UsageError
from partirvm.estimators.base import array_of
from partirvm.estimators.diagnosed import Diagnosed
from partirvm.setup.parameters import check_parameters


class IndependentTargets(Diagnosed):
    """Estimator that keeps one fit per target in ``estimators_`` if ``multi_output="independent"``."""

    estimators_: list[Any]
    basis: Any

    def _fit_each(self, X: Any, y: Any, targets: int, sample_weight: Any, validation: Any) -> Self:
        """Fit one estimator for each column of y."""
        check_parameters(self.parameters())
        if validation is not None and not isinstance(validation, tuple | list):
            raise UsageError("validation must be a pair (X, y), y with a column for each target")
        fitted = []
        for target in range(targets):
            held_out = None if validation is None else (validation[0], column(validation[1], target))
            one: Any = self._one()
            fitted.append(one.fit(X, column(y, target), sample_weight, held_out))
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # attributes of an earlier fit of all targets
        self.__dict__.pop("_stream", None)
        self.estimators_ = fitted
        return self._take_each()

    def _one(self) -> Self:
        """Return an estimator of one target; ``basis`` is shared, because a clone of a transformer is not fitted."""
        one: Self = clone(self)
        one.basis = self.basis
        return one

    def _take_each(self) -> Self:
        """Set the attributes of all targets from the fits of the single targets."""
        if hasattr(self.estimators_[0], "feature_names_in_"):
            self.feature_names_in_ = self.estimators_[0].feature_names_in_
        self.n_features_in_ = self.estimators_[0].n_features_in_
        for name in ("intercept_", "noise_variance_", "n_relevance_vectors_"):
            setattr(self, name, np.array([getattr(one, name) for one in self.estimators_]))
        self.log_evidence_ = float(sum(one.log_evidence_ for one in self.estimators_))
        return self


def columns_of(y: Any) -> int:
    """Return the number of targets: 1 for y of shape (N,) or (N, 1), T for (N, T)."""
    found = None if y is None else array_of(y)
    return int(found.shape[1]) if found is not None and found.ndim == 2 else 1


def column(y: Any, number: int) -> Any:
    """Return one column of y (N, T)."""
    return array_of(y)[:, number]
