"""Predictions for rows of known groups, with the effects of these groups."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from partirvm.local.known_effects import KnownEffects
from partirvm.model.fitted import Model
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

    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Any, Float]:
        mean, spread, near = super().moments(X, variance=variance)
        points = self.design.features(X)
        scale = float(self.design.scaling.t_scale[0])
        # the variances of local residuals come from errors after the effects
        if spread is not None and self.residuals is None:
            spread = spread + scale**2 * self.effects.variances_at(points, self.places)
        return mean + scale * self.effects.means_at(points, self.places), spread, near

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


def known_rows(model: Model, groups: Int) -> Model:
    """Return the model for rows of known groups with these codes (n,), whose functions take exactly
    these rows; the model itself if it was fitted without groups.

    Rows of other groups get no effect.
    """
    if model.known is None:
        return model
    of_groups = model.of_known_groups()
    if model.known.effects is None:
        return of_groups
    values = {part.name: getattr(of_groups, part.name) for part in fields(of_groups)}
    places = model.known.places_of(groups)
    return KnownRows(**values, effects=model.known.effects, places=places)
