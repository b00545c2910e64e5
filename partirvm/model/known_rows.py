"""Predictions for rows of known groups, with the effects of these groups."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from partirvm.model.fitted import Model
from partirvm.types import Float, Int


@dataclass(frozen=True, eq=False)
class KnownRows(Model):
    """A model for certain rows of known groups: its functions take these rows only.

    Attributes:
        offsets: effects of the rows' groups, in the target's units (n,)
        offset_variances: variances of these effects (n,)
    """

    offsets: Float = field(default_factory=lambda: np.zeros(0))
    offset_variances: Float = field(default_factory=lambda: np.zeros(0))

    def moments(self, X: Float, *, variance: bool = True) -> tuple[Float, Any, Float]:
        mean, spread, near = super().moments(X, variance=variance)
        # the variances of local residuals come from errors after the effects
        if spread is not None and self.residuals is None:
            spread = spread + self.offset_variances
        return mean + self.offsets, spread, near

    def _predictive(self) -> Model:
        model = super()._predictive()
        if not isinstance(model, KnownRows) or model is self:
            return model
        return replace(model, offset_variances=self.calibrated_width**2 * self.offset_variances)

    def of_panel(self, rows: slice) -> Model:
        return replace(
            self, offsets=self.offsets[rows], offset_variances=self.offset_variances[rows]
        )


def known_rows(model: Model, groups: Int) -> Model:
    """Return the model for rows of known groups with these codes (n,), whose functions take exactly
    these rows; the model itself if it was fitted without groups.

    Rows of other groups get no effect.
    """
    if model.known is None:
        return model
    of_groups = model.of_known_groups()
    offsets, variances = model.known.effects_of(groups)
    values = {part.name: getattr(of_groups, part.name) for part in fields(of_groups)}
    return KnownRows(**values, offsets=offsets, offset_variances=variances)
