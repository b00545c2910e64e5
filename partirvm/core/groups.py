"""Groups of rows that are left out together, such as all rows of a station, a patient or a day.

A row that is left out alone has siblings among the training rows, which share whatever the features
do not say of their group. Its error is that of a new row of a *known* group. A prediction for a new
group is as uncertain as the errors of groups that are left out as a whole.

The n errors of G groups are worth fewer than n independent ones. With the intraclass correlation ρ
and the mean size m of a group, weighted by size, their mean has the variance of n/(1 + (m − 1)ρ)
independent errors (Kish 1965, "Survey sampling", §5.4). This number replaces n wherever the number
of errors limits what they say: in standard errors, and in the levels of quantiles, whose highest
ones come from Student's t (``core.left_out``).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from partirvm.core.sampling import Purpose, draw_key, uniform
from partirvm.types import LEFT_OUT_ROWS, Bool, Float, Int

MOST_OF_GROUP = 4096
"""Maximum number of rows of a group that are left out of a fit together. A larger group is
represented by a random sample of this size, whose rows get a larger weight when they are left
out."""

MOST_GROUPS = 4000
"""Maximum number of groups that are left out of a fit: each takes a product with all columns."""


def places_among(codes: Int, groups: Int) -> Int:
    """Return the positions (n,) of groups (n,) among increasing codes (G,); −1 for others."""
    places = np.minimum(np.searchsorted(codes, groups), len(codes) - 1)
    return np.where(codes[places] == groups, places, -1)


@dataclass(frozen=True)
class GroupCounts:
    """Numbers of rows of groups.

    Attributes:
        codes: codes of the groups, increasing (G,)
        counts: numbers of rows (G,)
    """

    codes: Int
    counts: Int

    @classmethod
    def of(cls, groups: Int) -> Self:
        """Return the counts of the groups of rows (n,)."""
        return cls(*np.unique(groups, return_counts=True))

    def __add__(self, other: Self) -> Self:
        codes, places = np.unique(np.concatenate([self.codes, other.codes]), return_inverse=True)
        counts = np.zeros(len(codes), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        return type(self)(codes, counts)

    def drawn(self, most: int = LEFT_OUT_ROWS) -> "DrawnGroups":
        """Return the groups that are left out of a fit: all, or random ones with at most ``most``
        rows in total."""
        sampled = np.minimum(self.counts, MOST_OF_GROUP)
        order = np.arange(len(self.codes))
        if sampled.sum() > most or len(order) > MOST_GROUPS:
            draws = uniform(self.codes, draw_key(0, Purpose.LEFT_OUT_ROWS))
            order = np.argsort(draws, kind="stable")
            n_groups = int(np.searchsorted(np.cumsum(sampled[order]), most, side="right"))
            order = np.sort(order[: min(max(n_groups, 2), MOST_GROUPS)])
        return DrawnGroups(self.codes[order], self.counts[order], self.codes)


@dataclass(frozen=True)
class DrawnGroups:
    """Groups that are left out of a fit.

    Attributes:
        codes: codes of the groups, increasing (g,)
        counts: numbers of their rows (g,)
        known: codes of all groups of the data, increasing (G,)
    """

    codes: Int
    counts: Int
    known: Int

    def has(self, groups: Int, rows: Int) -> Bool:
        """Return a mask (n,), True for rows that are left out, given their groups and numbers."""
        places = places_among(self.codes, groups)
        share = MOST_OF_GROUP / self.counts[places]
        draws = uniform(rows, draw_key(1, Purpose.LEFT_OUT_ROWS))
        return np.asarray((places >= 0) & (draws < share))

    def of_rows(self, rows: Int, groups: Int) -> "GroupedRows":
        """Return left-out rows with these numbers (n,) and groups (n,)."""
        codes, places, sampled = np.unique(groups, return_inverse=True, return_counts=True)
        counts = self.counts[np.searchsorted(self.codes, codes)]
        return GroupedRows(rows, groups, (counts / sampled)[places], self.known)


@dataclass(frozen=True)
class GroupedRows:
    """Rows that are left out of a fit by groups.

    Attributes:
        rows: numbers of the rows, increasing (n,)
        codes: codes of their groups (n,)
        shares: number of rows of the row's group, divided by the number of these among ``rows``
            (n,)
        known: codes of all groups of the data, increasing (G,)
    """

    rows: Int
    codes: Int
    shares: Float
    known: Int

    def take(self, places: Int) -> Self:
        """Return the rows at these positions, which must be all rows of their groups."""
        return type(self)(self.rows[places], self.codes[places], self.shares[places], self.known)

    def of_fit(self, rows: Int | None, most: int) -> Self:
        """Return the rows of random groups, with at most ``most`` rows in total but at least two
        groups, that are among the rows of a fit.

        Args:
            rows: numbers of the rows of the fit, increasing, or None for all
            most: maximum number of rows
        """
        is_used = np.ones(len(self.rows), dtype=bool) if rows is None else np.isin(self.rows, rows)
        codes, counts = np.unique(self.codes[is_used], return_counts=True)
        order = np.argsort(uniform(codes, draw_key(5, Purpose.LEFT_OUT_ROWS)), kind="stable")
        n_groups = int(np.searchsorted(np.cumsum(counts[order]), most, side="right"))
        drawn = codes[order[: max(n_groups, 2)]]
        return self.take(np.flatnonzero(is_used & np.isin(self.codes, drawn)))

    def batches(self, most: int) -> list[Int]:
        """Return the positions of rows in batches of whole groups: of at most ``most`` rows, or of
        one group."""
        members = self.members()
        starts = np.cumsum([0, *map(len, members)]) // most
        return [
            np.sort(np.concatenate([members[k] for k in np.flatnonzero(starts[:-1] == start)]))
            for start in np.unique(starts[:-1])
        ]

    def members(self) -> list[Int]:
        """Return the positions of the rows of each group, in the order of their codes."""
        order = np.argsort(self.codes, kind="stable")
        _, first = np.unique(self.codes[order], return_index=True)
        return np.split(order, first[1:])


def group_sums(values: Float, groups: Int) -> tuple[Float, Float]:
    """Return the sums (G,) of values (n,) and the numbers of rows (G,) in each group."""
    _, places = np.unique(groups, return_inverse=True)
    sums: Float = np.bincount(places, values).astype(np.float64)
    return sums, np.bincount(places).astype(np.float64)


def standard_error(values: Float, groups: Int | None = None) -> float:
    """Return the standard error of the mean of values (n,), which may be correlated within
    groups (n,)."""
    if groups is None:
        return float(values.std() / np.sqrt(len(values)))
    sums, _ = group_sums(values - values.mean(), groups)
    return float(np.sqrt(np.sum(sums**2)) / len(values))


def independent_count(values: Float, groups: Int | None) -> int:
    """Return the number of independent values that have the information of values (n,), which may
    be correlated within groups (n,): n divided by Kish's design effect, at least the number of
    groups."""
    n = len(values)
    if groups is None:
        return n
    sums, counts = group_sums(values - values.mean(), groups)
    n_groups = len(sums)
    if n_groups == n or n_groups < 2:
        return n_groups
    between = float(np.sum(sums**2 / counts)) / (n_groups - 1)
    total = float(np.sum((values - values.mean()) ** 2))
    within = (total - float(np.sum(sums**2 / counts))) / (n - n_groups)
    size = (n - float(np.sum(counts**2)) / n) / (n_groups - 1)  # of the analysis of variance
    denominator = between + (size - 1.0) * within
    correlation = np.clip((between - within) / denominator if denominator > 0 else 0.0, 0.0, 1.0)
    effect = 1.0 + (float(np.sum(counts**2)) / n - 1.0) * float(correlation)
    return int(np.clip(n / effect, min(n_groups, n), n))
