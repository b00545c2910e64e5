"""How a model predicts rows of groups that it has seen, such as further rows of a known station."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from partirvm.core.left_out import Calibration
from partirvm.local.residuals import LocalResiduals
from partirvm.types import Bool, Int


@dataclass(frozen=True)
class KnownGroups:
    """The groups of the training rows, and the uncertainty of further rows of these groups, from
    rows that were left out one by one.

    Attributes:
        codes: codes of the groups, increasing (G,)
        noise_variance: noise variance of predictions, in the target's units squared
        calibration: quantiles of left-out errors
        residuals: local residuals, or None
    """

    codes: Int
    noise_variance: float
    calibration: Calibration
    residuals: LocalResiduals | None = None

    def of_rows(self, n_rows: int) -> Self:
        """Return these groups with the number of the data's rows in the local residuals."""
        if self.residuals is None:
            return self
        return replace(self, residuals=replace(self.residuals, n_rows=n_rows))

    def has(self, groups: Any) -> Bool:
        """Return a mask (n,), True for the codes (n,) of known groups."""
        return np.isin(groups, self.codes)
