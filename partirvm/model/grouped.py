"""Models of several targets that were fitted in groups, because targets are missing in different
rows or are constant, or one by one, because the effects of groups of rows differ between targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from partirvm.errors import UsageError
from partirvm.model.base import OfRows
from partirvm.model.fitted import Model
from partirvm.model.known_rows import by_groups
from partirvm.types import Columns, DeclaredState, Each, Float, Int


@dataclass(frozen=True, repr=False)
class GroupedModel(DeclaredState):
    """Regression models of groups of targets, whose predictions are put together.

    Parameters
    ----------
    models : tuple of Model
        The model of each group.
    places : tuple of tuple of int
        The positions of each group's targets among all T targets.
    columns : Columns
        Names of the features and of all targets.
    groups : ndarray of shape (n,) or None
        Groups of the rows of which this is the model: its functions then take these rows only.
    """

    models: tuple[Model, ...]
    places: tuple[tuple[int, ...], ...]
    columns: Columns
    groups: Int | None = None

    far_values = Model.far_values
    parted = Model.parted

    def __repr__(self) -> str:
        return f"<GroupedModel of {len(self.models)} fits, {self.n_targets} targets>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"targets with gaps, or with groups of rows, have a model for each group of targets, "
            f"and none has {name!r} for all of them: take it from an estimator in estimators_"
        )

    @property
    def n_targets(self) -> int:
        """The number T of targets."""
        return sum(map(len, self.places))

    @property
    def design(self) -> Any:
        """The design of the first group: all groups have the same basis functions."""
        return self.models[0].design

    @property
    def noise_variance(self) -> Float:
        """The noise variance of each target, (T,)."""
        return self.joined([model.noise_variance for model in self.models])

    @property
    def intercept(self) -> Float:
        """The mean of each target without kernels and basis functions, (T,)."""
        return self.joined([model.intercept for model in self.models])

    @property
    def log_evidence(self) -> float:
        """The sum of the log evidences of the groups, in nats."""
        return float(sum(model.log_evidence for model in self.models))

    def joined(self, values: Sequence[Each]) -> Float:
        """Return numbers of all targets (T,), given those of each group."""
        return np.concatenate([np.atleast_1d(value) for value in values])[self._order]

    @property
    def _order(self) -> Int:
        """The place of each target (T,) among the targets of all groups, one after the other."""
        return np.argsort(np.concatenate(self.places))

    def of_groups(self, groups: Int) -> Self:
        """Return the model for rows of these groups (n,), each known to some targets or new."""
        return replace(self, groups=groups)

    def _functions(self, function: Callable[[Model], OfRows]) -> list[OfRows]:
        """Return the function of raw inputs that ``function`` returns for each group's model."""
        if self.groups is None:
            return [function(model) for model in self.models]
        return [by_groups(function, model, self.groups) for model in self.models]

    def predictions(self, *, std: bool, gradient: bool) -> OfRows:
        """Return the function of raw inputs that returns the values of ``predict`` side by side, as
        ``Model.predictions`` does."""
        return partial(self._predictions, std, gradient)

    def _predictions(self, std: bool, gradient: bool, X: Float) -> tuple[Float, Float]:
        functions = self._functions(lambda model: model.predictions(std=std, gradient=gradient))
        values, nearness = self._values(functions, X)
        n_moments = 1 + std
        d = len(self.columns.features) if gradient else 0
        moments = []
        slopes = []
        for block, places in zip(values, self.places, strict=True):
            size = n_moments * len(places)
            moments.append(block[:, :size].reshape(len(X), n_moments, -1, 1))
            slopes.append(block[:, size:].reshape(len(X), n_moments, len(places), d))
        return np.hstack([self._joined(moments), self._joined(slopes)]), nearness

    def _values(self, functions: Sequence[OfRows], X: Float) -> tuple[list[Float], Float]:
        """Return the values of a function of each group at raw inputs X (n, d), and the least
        nearness (n,)."""
        results = [function(X) for function in functions]
        nearness = np.min([near for _, near in results], axis=0)
        return [values for values, _ in results], nearness

    def _joined(self, blocks: Sequence[Float]) -> Float:
        """Return blocks (n, kinds, T_g, k) of the groups' targets side by side, (n, kinds·T·k)."""
        joined = np.concatenate(blocks, axis=2)[:, :, self._order]
        return joined.reshape(len(joined), -1)

    def interval(self, level: float, kind: str = "prediction", **options: bool) -> OfRows:
        """Return the central intervals at this level as a function of X (n, d) that returns all
        lower and then all upper ends, (n, 2T), and nearness (n,), as ``Model.interval`` does."""
        return partial(
            self._ends, self._functions(lambda model: model.interval(level, kind, **options))
        )

    def _ends(self, intervals: Sequence[OfRows], X: Float) -> tuple[Float, Float]:
        values, nearness = self._values(intervals, X)
        return self._joined([ends.reshape(len(X), 2, -1, 1) for ends in values]), nearness

    def require_one_target(self, what: str) -> None:
        """Raise ``UsageError``, as ``Model`` does for several targets."""
        raise UsageError(
            f"{what} need a single-target model: take one from estimators_, or fit one per target, "
            "as with MultiOutputRegressor"
        )
