"""Predictions for rows of known groups, with the effects of these groups, and for rows of both
kinds."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from partirvm.core.class_groups import ClassGroups
from partirvm.local.known_effects import KnownEffects
from partirvm.local.known_groups import KnownGroups
from partirvm.model.base import OfRows
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model, MomentsOfFit
from partirvm.types import Float, Int


@dataclass(frozen=True, eq=False)
class KnownRows(Model):
    """A model for certain rows of known groups: its functions take these rows only.

    Attributes:
        effects: effects of the known groups
        places: positions of the rows' groups among them (n,), −1 for other groups, which get no
            effect
    """

    effects: KnownEffects = field(kw_only=True)
    places: Int = field(kw_only=True)

    def moments_of_fit(self, X: Float, *, variance: bool = True) -> MomentsOfFit:
        alone = super().moments_of_fit(X, variance=variance)
        spread = alone.variance
        points = self.design.features(X)
        scale = float(self.design.scaling.t_scale[0])
        # the variances of local residuals come from errors after the effects
        if spread is not None and self.residuals is None:
            spread = spread + scale**2 * self.effects.variances_at(points, self.places)
        mean = alone.mean + scale * self.effects.means_at(points, self.places)
        return alone._replace(mean=mean, variance=spread)

    def added(self, X: Float, rows: slice) -> Float | None:
        return self.effects.moves_at(self.design.features(X), self.places[rows])

    def effect_slopes(self, X: Float, weights: Float | None = None) -> Float | float:
        points = self.design.features(X)
        slopes = self.effects.slopes_at(self.places)
        if weights is not None:
            slopes = self.effects.variance_slopes_at(points, self.places, weights)
        gradient = np.zeros((len(X), self.design.scaling.n_inputs))
        gradient[:, : slopes.shape[1]] = slopes
        return self.design.scaling.raw_gradient(X, gradient)

    def _predictive(self) -> Model:
        model = super()._predictive()
        if not isinstance(model, KnownRows) or model is self:
            return model
        return replace(model, effects=self.effects.scaled(self.calibrated_width))

    def of_panel(self, rows: slice) -> Model:
        return replace(self, places=self.places[rows])


@dataclass(frozen=True, eq=False, repr=False)
class KnownClassRows(ClassModel):
    """A classification model for certain rows of known groups: its functions take these rows only.

    Attributes:
        offsets: effects of the rows' groups on the logits (n, C)
        offset_variances: variances of these effects (n, 1)
    """

    offsets: Float = field(default_factory=lambda: np.zeros((0, 1)))
    offset_variances: Float = field(default_factory=lambda: np.zeros((0, 1)))

    def _of_group(self, logits: Float) -> Float:
        assert self.known is not None
        return self.known.slope * logits + self.offsets

    def _group_variances(self, n: int) -> Float:
        return self.offset_variances


def known_rows(model: Any, groups: Int) -> Any:
    """Return the model for rows of known groups with these codes (n,), whose functions take exactly
    these rows; the model itself if it was fitted without groups.

    Rows of other groups get no effect.
    """
    return model if model.known is None else OF_ROWS[type(model.known)](model, groups)


def _of_numbers(model: Model, groups: Int) -> Model:
    """Return the regression model for rows of known groups."""
    assert model.known is not None
    of_groups = model.of_known_groups()
    if model.known.effects is None:
        return of_groups
    values = {part.name: getattr(of_groups, part.name) for part in fields(of_groups)}
    places = model.known.places_of(groups)
    return KnownRows(**values, effects=model.known.effects, places=places)


def _of_classes(model: ClassModel, groups: Int) -> KnownClassRows:
    """Return the classification model for rows of known groups."""
    assert model.known is not None
    offsets, variances = model.known.effects_of(groups)
    values = {part.name: getattr(model, part.name) for part in fields(model)}
    return KnownClassRows(**values, offsets=offsets, offset_variances=variances)


OF_ROWS: dict[type, Callable[[Any, Int], Any]] = {
    KnownGroups: _of_numbers,
    ClassGroups: _of_classes,
}
"""Functions that return the model for rows of known groups, by the type of what it says of them."""


def by_groups(function: Callable[[Any], OfRows], model: Any, groups: Int) -> OfRows:
    """Return a function of the raw inputs of rows with these groups (n,): the values of a function
    of a model, and of the model for their rows for those of known groups. Each row is evaluated
    once.

    Args:
        function: returns a function of raw inputs, given a model
        model: the model, or the models of several groups of targets (``GroupedModel``)
        groups: codes of the rows' groups (n,)
    """
    if hasattr(type(model), "of_groups"):
        return function(model.of_groups(groups))
    if model.known is None:
        return function(model)
    return partial(_by_groups, function, model, groups)


def _by_groups(
    function: Callable[[Any], OfRows], model: Any, groups: Int, X: Float
) -> tuple[Float, Float]:
    """Return the values and the nearness of rows.

    Args:
        function: returns a function of raw inputs, given a model
        model: the model, with known groups
        groups: codes of the rows' groups (n,)
        X: raw inputs of the rows (n, d)
    """
    is_known = model.known.has(groups)
    if not is_known.any():
        return function(model)(X)
    if is_known.all():
        return function(known_rows(model, groups))(X)
    of_known, near_of_known = function(known_rows(model, groups[is_known]))(X[is_known])
    of_new, near_of_new = function(model)(X[~is_known])
    values = np.empty((len(X), of_known.shape[1]))
    nearness = np.empty(len(X))
    values[is_known] = of_known
    values[~is_known] = of_new
    nearness[is_known] = near_of_known
    nearness[~is_known] = near_of_new
    return values, nearness
