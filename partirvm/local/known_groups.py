"""How a model predicts rows of groups that it has seen, such as further rows of a known station."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from partirvm.core.groups import places_among
from partirvm.core.left_out import Calibration
from partirvm.local.known_effects import KnownEffects
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
        residuals: local residuals, or None
        effects: effects of the groups, which are added to predictions, or None
    """

    codes: Int
    noise_variance: float
    calibration: Calibration
    residuals: LocalResiduals | None = None
    effects: KnownEffects | None = None

    def pruned(self, columns: Int, change: Float) -> Self:
        """Return the groups of a model after a change of its weights (``KnownEffects.pruned``)."""
        if self.effects is None:
            return self
        return replace(self, effects=self.effects.pruned(columns, change))

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
        return places_among(self.codes, groups)
