"""Columns for the groups of training rows: column g is 1 at the rows of group g, and 0 elsewhere.

Their weights are the effects of the groups, with the prior N(0, τ²) (a random intercept, Laird &
Ware 1982, "Random-effects models for longitudinal data"). Beside them, the kernel explains what the
features say of a group, and not what only this group shows. A row of a new group has no column, so
that its effect is part of the noise.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.types import DeclaredState, Float, Int

MOST_GROUPS = 512
"""Maximum number of groups with columns: the columns of all groups are part of every fit."""

NO_GROUP = -1.0
"""Place of a row whose group has no column."""


@dataclass(frozen=True, eq=False, repr=False)
class GroupColumns(DeclaredState):
    """The columns of G groups.

    Attributes:
        codes: codes of the groups, increasing (G,)
    """

    codes: Int

    @property
    def size(self) -> int:
        """The number G of columns."""
        return len(self.codes)

    @cached_property
    def key(self) -> str:
        """Hash of the groups."""
        return hashlib.blake2b(self.codes.tobytes(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"<{self.size} groups {self.key}>"

    def __getstate__(self) -> dict[str, Any]:
        return {"codes": self.codes}

    def places_of(self, groups: Int) -> Float:
        """Return the numbers (n,) of the columns of rows of these groups (n,)."""
        places = np.minimum(np.searchsorted(self.codes, groups), self.size - 1)
        return np.where(self.codes[places] == groups, places, NO_GROUP).astype(np.float64)

    def __call__(self, places: Float) -> Float:
        """Return the columns (n, G) at rows with these ``places`` (n,)."""
        return (places[:, None] == np.arange(self.size)).astype(np.float64)
