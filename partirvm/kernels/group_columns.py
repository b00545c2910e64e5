"""Columns for the groups of training rows: the effect of a group is an intercept and, optionally, a
slope for each feature.

A row x of group g has 1 and x in the columns of g, and 0 in those of other groups. The weights of
all intercepts have the prior N(0, τ²), those of the d slopes N(0, υ²/d) (random effects, Laird &
Ware 1982, "Random-effects models for longitudinal data"). Beside them, the kernel explains what the
features say of a group, and not what only this group shows. A row of a new group has no columns, so
that its effect is part of the noise.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.types import DeclaredState, Float, Int

MOST_COLUMNS = 512
"""Maximum number of columns of groups: they are part of every fit."""

NO_GROUP = -1.0
"""Place of a row whose group has no columns."""


def effect_terms(points: Float, n_slopes: int) -> Float:
    """Return the terms of a group's effect at points (n, d): 1 and the first features (n, 1 +
    n_slopes)."""
    return np.column_stack([np.ones(len(points)), points[:, :n_slopes]])


@dataclass(frozen=True, eq=False, repr=False)
class GroupColumns(DeclaredState):
    """The columns of G groups: K of the first group, then K of the second, and so on.

    Attributes:
        codes: codes of the groups, in the order of their columns (G,)
        n_slopes: number of slopes of a group, that of the features d, or 0
        intercept_variance: τ²
        slope_variance: υ²/d, the variance of a single slope
    """

    codes: Int
    n_slopes: int
    intercept_variance: float
    slope_variance: float

    @property
    def width(self) -> int:
        """The number K of columns of a group."""
        return 1 + self.n_slopes

    @property
    def size(self) -> int:
        """The number GK of columns."""
        return len(self.codes) * self.width

    @property
    def variances(self) -> Float:
        """The prior variances of the weights of a group (K,)."""
        return np.array([self.intercept_variance] + [self.slope_variance] * self.n_slopes)

    @cached_property
    def key(self) -> str:
        """Hash of the groups and their variances."""
        parts = self.codes.tobytes() + self.variances.tobytes()
        return hashlib.blake2b(parts, digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"<{len(self.codes)} groups × {self.width} {self.key}>"

    def __getstate__(self) -> dict[str, Any]:
        names = ("codes", "n_slopes", "intercept_variance", "slope_variance")
        return {name: getattr(self, name) for name in names}

    def with_groups(self, codes: Int) -> "GroupColumns":
        """Return columns of further groups after these, given the codes of all groups."""
        return replace(self, codes=np.concatenate([self.codes, np.setdiff1d(codes, self.codes)]))

    @cached_property
    def _order(self) -> Int:
        """The positions of the codes in increasing order (G,)."""
        return np.argsort(self.codes)

    def places_of(self, groups: Int) -> Float:
        """Return the positions (n,) of rows' groups (n,) among the groups with columns."""
        ranks = np.searchsorted(self.codes, groups, sorter=self._order)
        places = self._order[np.minimum(ranks, len(self.codes) - 1)]
        return np.where(self.codes[places] == groups, places, NO_GROUP).astype(np.float64)

    def terms(self, points: Float) -> Float:
        """Return the values (n, K) of the columns of a row's group at points (n, d)."""
        return effect_terms(points, self.n_slopes)

    def prior_variance(self, points: Float) -> Float:
        """Return the variance (n,) of the effect of a new group at points (n, d)."""
        return np.asarray(self.terms(points) ** 2 @ self.variances)

    def covariance(self, points: Float, groups: Int) -> Float:
        """Return the prior covariance (n, n) of the effects at points (n, d) of these groups
        (n,)."""
        terms = self.terms(points)
        return np.where(groups[:, None] == groups, terms * self.variances @ terms.T, 0.0)

    def __call__(self, points: Float, places: Float) -> Float:
        """Return the columns (n, GK) at points (n, d) of groups at these ``places`` (n,)."""
        is_member = places[:, None] == np.arange(len(self.codes))
        columns = is_member[:, :, None] * self.terms(points)[:, None, :]
        return np.asarray(columns.reshape(len(points), self.size))
