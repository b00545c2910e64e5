"""Predictions for rows of known groups, with the effects of these groups."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from partirvm.local.known_groups import KnownGroups
from partirvm.model.fitted import Model
from partirvm.types import Float, Int


@dataclass(frozen=True, eq=False)
class KnownRows(Model):
    """A model for certain rows of known groups: its functions take these rows only.

    Attributes:
        groups: the known groups
        places: positions of the rows' groups among them (n,), −1 for other groups, which get no
            effect
    """

    groups: KnownGroups = field(kw_only=True)
    places: Int = field(kw_only=True)

    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Any, Float]:
        mean, spread, near = super().moments(X, variance=variance)
        # the variances of local residuals come from errors after the effects
        if spread is not None and self.residuals is None:
            spread = spread + self.groups.at(self.groups.offset_variances, self.places)
        return mean + self.groups.at(self.groups.offsets, self.places), spread, near

    def added(self, rows: slice) -> Float | float:
        if self.groups.slopes is None:
            return 0.0
        return self.groups.at(self.groups.slopes, self.places[rows])

    def _predictive(self) -> Model:
        model = super()._predictive()
        if not isinstance(model, KnownRows) or model is self:
            return model
        variances = self.calibrated_width**2 * self.groups.offset_variances
        return replace(model, groups=replace(self.groups, offset_variances=variances))

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
    values = {part.name: getattr(of_groups, part.name) for part in fields(of_groups)}
    return KnownRows(**values, groups=model.known, places=model.known.places_of(groups))
