"""How a model predicts rows of groups that it has seen, such as further rows of a known station."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from partirvm.core.group_effects import GroupEffects
from partirvm.core.left_out import Calibration
from partirvm.local.residuals import LocalResiduals
from partirvm.types import Bool, Float, Int


@dataclass(frozen=True)
class KnownGroups:
    """The groups of the training rows, and the predictions of further rows of these groups, from
    rows that were left out one by one.

    Attributes:
        codes: codes of the groups, increasing (G,)
        noise_variance: noise variance of predictions, in the target's units squared
        calibration: quantiles of left-out errors
        offsets: effects of the groups, which are added to predictions, in the target's units (G,)
        offset_variances: variances of these effects, given the weights if there are slopes (G,)
        residuals: local residuals, or None
        slopes: H (G, M), by which the effects change with the weights of a model's M columns, both
            in the model's units; None for effects that do not depend on them
    """

    codes: Int
    noise_variance: float
    calibration: Calibration
    offsets: Float
    offset_variances: Float
    residuals: LocalResiduals | None = None
    slopes: Float | None = None

    @classmethod
    def of(
        cls,
        codes: Int,
        noise_variance: float,
        calibration: Calibration,
        residuals: LocalResiduals | None,
    ) -> Self:
        """Return groups without effects.

        Args:
            codes: codes of the groups, increasing (G,)
            noise_variance: noise variance of predictions, in the target's units squared
            calibration: quantiles of left-out errors
            residuals: local residuals, or None
        """
        none = np.zeros(len(codes))
        return cls(codes, noise_variance, calibration, none, none, residuals)

    def with_effects(self, effects: GroupEffects, scale: float) -> Self:
        """Return the groups with effects in the model's units, times ``scale``."""
        means, variances = effects.of_groups(self.codes)
        slopes = None if effects.slopes is None else effects.slopes_of(self.codes)
        return replace(
            self, offsets=scale * means, offset_variances=scale**2 * variances, slopes=slopes
        )

    def pruned(self, columns: Int, change: Float, scale: float) -> Self:
        """Return the groups of a model after a change of its weights.

        Args:
            columns: positions of the columns that remain (m,)
            change: change of the weights of all columns, in the model's units (M,)
            scale: the target's units ÷ the model's
        """
        if self.slopes is None:
            return self
        offsets = self.offsets + scale * (self.slopes @ change)
        return replace(self, offsets=offsets, slopes=self.slopes[:, columns])

    def of_rows(self, n_rows: int) -> Self:
        """Return these groups with the number of the data's rows in the local residuals."""
        if self.residuals is None:
            return self
        return replace(self, residuals=replace(self.residuals, n_rows=n_rows))

    def has(self, groups: Any) -> Bool:
        """Return a mask (n,), True for the codes (n,) of known groups."""
        return np.isin(groups, self.codes)

    def places_of(self, groups: Int) -> Int:
        """Return the positions (n,) of groups with codes (n,); −1 for unknown groups."""
        places = np.minimum(np.searchsorted(self.codes, groups), len(self.codes) - 1)
        return np.where(self.codes[places] == groups, places, -1)

    @staticmethod
    def at(values: Float, places: Int) -> Float:
        """Return the values (n, …) of the groups at these positions (n,), given those of all groups
        (G, …); 0 for unknown groups."""
        known = values[places]
        known[places < 0] = 0.0
        return known
