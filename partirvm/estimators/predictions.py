"""Predictions of regression: means, standard deviations, intervals and samples from the posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partirvm.data import as_source
from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.estimators.base import in_memory
from partirvm.estimators.targets import column
from partirvm.estimators.updating import Updatable
from partirvm.model import Model
from partirvm.predict.prediction import check_features
from partirvm.predict.rvm_star import augmented_rows, require_augmentable

Float = NDArray[np.float64]


class RegressionPredictions(Updatable):
    """Prediction methods of regression, for one or several targets."""

    memory_limit: int | str

    def predict(self, X: Any, return_std: bool = False, augment: Any = None) -> Any:
        """Mean (n,) of the target at X (n, d); with ``return_std`` also the standard deviation of a new noisy target.

        Of T targets both are (n, T). Mean ± 1.645 × the standard deviation is the 90 % interval of
        ``predict_interval``, so the Gaussian of this standard deviation is the stated predictive density.
        X is of any kind that ``fit`` takes.

        ``augment`` gives the rows of the fit again, in any order: a pair (X, y), a triple (X, y, sample_weight), or
        DATA. Each row is then predicted by RVM* (Rasmussen & Quiñonero-Candela 2005): with a basis function more at
        itself (of the first of several kernels), so that the standard deviation grows away from these rows, to
        √(noise variance + variance of y) where there are none, and not back to that of the noise. It takes passes
        over them, N·n·M products for N rows of the fit, n of X and M basis functions.

        Raises ``DataError`` or ``ValueError`` if X has other features, or ``augment`` are not the rows of the fit;
        ``MemoryLimitError`` where not even a few rows at a time fit in ``memory_limit``.
        """
        check_is_fitted(self)
        if hasattr(self, "estimators_"):
            again = self._augments(augment)
            each = [
                one.predict(X, return_std=return_std, augment=rows)
                for one, rows in zip(self.estimators_, again, strict=True)
            ]
            return tuple(map(np.column_stack, zip(*each, strict=True))) if return_std else np.column_stack(each)
        model: Model = self.model_
        if augment is not None:
            both = self._augmented(X, self._training_again(augment))
            return both if return_std else both[0]
        found = self._values(model.predictive.values if return_std else model.means, X)
        columns = slice(model.n_targets) if model.n_targets > 1 else 0
        mean, std = found[:, columns], found[:, model.n_targets :]
        return (mean, std if model.n_targets > 1 else std[:, 0]) if return_std else mean

    def predict_interval(
        self, X: Any, level: float = 0.95, kind: str = "prediction", hyperparameters: bool = True
    ) -> tuple[Float, Float]:
        """Central intervals at X (n, d): their lower and upper ends, (n,) each, in the target's units.

        Of T independent targets (n, T) each; targets that share vectors have none.

        Parameters
        ----------
        X : of any kind that ``fit`` takes
        level : float in (0, 1)
        kind : {"prediction", "credible"}
            Where a new noisy target lies with this probability, or its mean.
        hyperparameters : bool
            True includes the uncertainty of the precisions α and of the noise: the weights' covariance grows by the
            delta method (``core.predictive``), and the quantiles and the noise variance are those of the errors of
            training rows that are left out, each without the basis function centred at it (``core.left_out``).
            Credible intervals, and intervals of a fit whose noise was given or that has fewer than 20 rows, use
            quantiles of Student's t with the degrees of freedom of the noise. False gives the interval of the
            posterior alone, at the noise of maximum evidence (Tipping 2001, eqs. 20 to 22). The uncertainty of a
            learned kernel is included in neither, but in ``joint_laplace``.

        Raises
        ------
        UsageError, DataError
            For a level or kind that is none, or X with other features; both are ``ValueError``.
        """
        check_is_fitted(self)
        if hasattr(self, "estimators_"):
            each = [one.predict_interval(X, level, kind, hyperparameters) for one in self.estimators_]
            return np.column_stack([lower for lower, _ in each]), np.column_stack([upper for _, upper in each])
        ends = self._values(self.model_.interval(level, kind, hyperparameters=hyperparameters), X)
        return ends[:, 0], ends[:, 1]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, *, noise: bool = False) -> Float:
        """Functions from the posterior at X (n, d), in the target's units: an array (n, n_samples).

        Each column is one function: weights drawn from N(μ, Σ), the same for all rows, with the covariance Σ of the
        stated uncertainty. ``noise`` adds that of a new target to each value, so that the standard deviation of the
        values is that of ``predict``. ``random_state`` is an int, a RandomState or None. X is of any kind that ``fit``
        takes. Of T independent targets (n, T, n_samples). Raises ``DataError`` or ``ValueError`` if X has other
        features.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        if hasattr(self, "estimators_"):
            return np.stack([one.sample_y(X, n_samples, rng, noise=noise) for one in self.estimators_], axis=1)
        values = self._values(self.model_.samples(n_samples, rng), X)
        if noise:
            deviations = self._values(self.model_.predictive.noise_deviations, X)
            values = values + deviations * rng.standard_normal(values.shape)
        return values

    def _augmented(self, X: Any, training: Source) -> tuple[Float, Float]:
        """Return the mean and standard deviation of each row of X by RVM*, from the training rows."""
        model: Model = self.model_
        if in_memory(X):
            source = as_source(self._rows(X, model.columns.categories), columns=model.columns)
        else:
            source = as_source(X)
            check_features(model, source)
        return augmented_rows(model, source, training, self.client, self.memory_limit, grown=self._grown)

    def _augments(self, augment: Any) -> list[Any]:
        """Split ``augment`` into one pair or triple for each target."""
        if augment is None:
            return [None] * len(self.estimators_)
        if not isinstance(augment, tuple | list) or len(augment) not in (2, 3):
            raise UsageError(
                "augment must be (X, y) or (X, y, sample_weight) of the fit, with a column of y per target"
            )
        X, y, *weights = augment
        return [(X, column(y, target), *weights) for target in range(len(self.estimators_))]

    def _training_again(self, augment: Any) -> Source:
        """Return ``augment`` as a source of the training rows, in the given order."""
        model: Model = self.model_
        require_augmentable(model)
        if isinstance(augment, tuple | list):
            if len(augment) not in (2, 3):
                raise UsageError(
                    f"augment has {len(augment)} parts: it must be (X, y) or (X, y, sample_weight) of the fit, or DATA"
                )
            return self._training(*augment)
        training = as_source(augment)
        check_features(model, training)
        return training

    def _training(self, X: Any, y: Any, *weights: Any) -> Source:
        """Return the training rows as a source, in the given order."""
        model: Model = self.model_
        if in_memory(X):
            X, y = self._rows(X, model.columns.categories, y)
            return as_source(X, y, *weights, columns=model.columns)
        training = as_source(X, y, *weights)
        check_features(model, training)
        return training
