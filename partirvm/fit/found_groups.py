"""Find groups of rows in the columns of the features: rows that repeat in a subset of columns, such
as the coordinates of a station, on which left-out groups have clearly larger errors than left-out
rows.

A group of rows is suspected where several columns of numbers are functions of one of them, as all
columns that describe a station or a patient are, or where one column has many different values that
each have many rows, as a code has. Few values (hours, months, settings of an experiment) are no
groups. The errors of left-out groups are those of ``core.left_out_groups``.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from partirvm.core.groups import GroupCounts, GroupedRows, standard_error
from partirvm.core.held_back import sampled_rows
from partirvm.core.left_out import LeftOut
from partirvm.core.left_out_groups import GroupedDesign, TargetFit, left_out_groups
from partirvm.data.source import Source, Tile
from partirvm.execution import Executor
from partirvm.learning.sample import gathered
from partirvm.model import Model
from partirvm.process import one_blas_thread
from partirvm.quoting import listed, quoted
from partirvm.spec.entries import Spent
from partirvm.types import Float, Int

SEARCHED_ROWS = 20_000
"""Maximum number of rows in which repetitions are looked for."""

LEFT_OUT = 3000
"""Maximum number of rows that are left out."""

MOST_COLUMNS = 200
"""Maximum number of features: with more, all pairs of columns would take seconds."""

LEAST_GROUPS = 10
"""Minimum number of groups that are described by several columns."""

LEAST_CODES = 30
"""Minimum number of different values of a single column."""

LEAST_VALUES = 5
"""Minimum number of different values of another column that is a function of the first."""

GROUP_ROWS = 3
"""Minimum mean number of rows of a group."""

CODE_ROWS = 5
"""Minimum mean number of rows of a value of a single column."""

TRIED = 3
"""Maximum number of subsets of columns whose groups are left out."""

LARGER = 1.3
"""Errors of left-out groups ÷ errors of left-out rows from which groups are reported."""

SURE = 2.0
"""Number of standard errors by which squared errors must be larger by this ratio."""


@dataclass(frozen=True)
class FoundGroups:
    """Groups of rows that were not declared.

    Attributes:
        columns: names of the columns that are equal in all rows of a group
        groups: number of groups
        rows: mean number of rows of a group
        ratio: errors of left-out groups ÷ errors of left-out rows
    """

    columns: tuple[str, ...]
    groups: int
    rows: float
    ratio: float

    def facts(self) -> dict[str, Any]:
        """Return the history's facts, with a remark."""
        return {**asdict(self), "columns": list(self.columns), "remark": self.remark()}

    def remark(self) -> str:
        """Return a sentence that names the columns and the option."""
        names = listed(self.columns, show=quoted)
        value = repr(self.columns if len(self.columns) > 1 else self.columns[0])
        return (
            f"{self.groups:,} groups of about {self.rows:,.0f} rows have equal values of {names}, "
            f"and errors of left-out groups are {self.ratio:.1f} × those of left-out rows: "
            "intervals are right for new rows of these groups, but too narrow for new groups. If "
            f"you predict new groups, set groups=Groups({value}) in fit (`ingest --groups "
            f"{','.join(self.columns)}`)"
        )


@dataclass(frozen=True)
class Repetition:
    """Rows that repeat in some columns.

    Attributes:
        columns: positions of the columns
        codes: codes of the groups of rows (n,), 0 … G − 1
        n_groups: number of groups, G
        first: position of the column of which the others are functions
        values: its values, increasing (G,)
    """

    columns: tuple[int, ...]
    codes: Int
    n_groups: int
    first: int
    values: Float

    def codes_of(self, X: Float) -> Int:
        """Return the codes (m,) of the groups of other rows X (m, d)."""
        places = np.searchsorted(self.values, X[:, self.first])
        return np.minimum(places, self.n_groups - 1).astype(np.int64)


def repetitions(X: Float, numeric: Sequence[int]) -> list[Repetition]:
    """Return groups of rows of X (n, d) that repeat in columns; those described by most columns
    come first.

    ``numeric`` are the positions of the columns that hold numbers.
    """
    n = len(X)
    codes = dict[int, tuple[Int, int]]()
    values_of = dict[int, Float]()
    for column in numeric[:MOST_COLUMNS]:
        values, places = np.unique(X[:, column], return_inverse=True)
        if len(values) > 2 and len(values) * GROUP_ROWS <= n:
            codes[column] = places, len(values)
            values_of[column] = values
    by_columns = dict[tuple[int, ...], Repetition]()
    for column, (places, count) in codes.items():
        determined = [
            other
            for other, (values, other_count) in codes.items()
            if other_count <= count and _is_function(values, places, count)
        ]
        others = [other for other in determined if other != column]
        is_described = count >= LEAST_GROUPS and any(
            codes[other][1] >= LEAST_VALUES for other in others
        )
        if is_described or (count >= LEAST_CODES and count * CODE_ROWS <= n):
            columns = tuple(sorted(determined))
            repetition = Repetition(columns, places, count, column, values_of[column])
            by_columns.setdefault(columns, repetition)
    return sorted(by_columns.values(), key=lambda item: (-len(item.columns), -item.n_groups))


def _is_function(values: Int, places: Int, count: int) -> bool:
    """Return True if ``values`` (n,) are equal in all rows with equal ``places`` (n,), of which
    there are ``count``."""
    first = np.zeros(count, dtype=np.int64)
    first[places] = values
    return bool(np.array_equal(first[places], values))


def find_groups(
    model: Model, beta: float, source: Source, executor: Executor
) -> FoundGroups | None:
    """Return groups of rows on which a fit of one target has clearly larger errors when whole
    groups are left out; None if there are none.

    Args:
        model: the model of the fit
        beta: noise precision of the posterior
        source: the training rows
        executor: reads the rows
    """
    columns = source.columns
    categorical = set(columns.categories)
    numeric = [j for j, name in enumerate(columns.features) if name not in categorical]
    rows = sampled_rows(source.n_rows, None, SEARCHED_ROWS, shuffled=source.shuffled)
    numbers = np.arange(source.n_rows) if rows is None else rows
    with gathered(source, rows, executor, lambda *progress: None, Spent()) as sample:
        tile = sample.rows.gather(numbers)
    groupings = list[FoundGroups]()
    with one_blas_thread():
        for repetition in repetitions(tile.X, numeric)[:TRIED]:
            ratio = _ratio(model, beta, tile, numbers, repetition)
            if ratio > LARGER:
                names = tuple(columns.features[j] for j in repetition.columns)
                size = len(tile.X) / repetition.n_groups
                groupings.append(FoundGroups(names, repetition.n_groups, size, ratio))
    return max(groupings, key=lambda grouping: grouping.ratio, default=None)


def _ratio(model: Model, beta: float, tile: Tile, numbers: Int, repetition: Repetition) -> float:
    """Return the errors of left-out groups ÷ those of left-out rows, 1 if they are not clearly
    larger.

    Args:
        model: the model of the fit
        beta: noise precision of the posterior
        tile: rows of the source
        numbers: numbers of these rows (n,)
        repetition: groups of the rows
    """
    drawn = GroupCounts.of(repetition.codes).drawn(LEFT_OUT)
    places = np.flatnonzero(drawn.has(repetition.codes, numbers))
    grouped = drawn.of_rows(numbers[places], repetition.codes[places])
    target = model.design.scaling.targets(tile.t[places])[:, 0]
    weights = tile.root_weights[places] ** 2
    tempered = model.design.row_weights(tile.X[places])
    if tempered is not None:
        weights = weights * tempered
    rows = _grouped_rows(model, tile.X[places], grouped, weights, repetition)
    fit = TargetFit(target, model.mean, model.root, model.alpha, beta)
    of_groups = left_out_groups(rows, fit)
    of_rows = LeftOut.of(
        rows.block, target, model.mean, model.root, beta, weights, rows=numbers[places]
    )
    squares = of_groups.expected()[0] ** 2
    by_row = of_rows.errors[:, 0] ** 2 / of_rows.targets[:, 1]
    excess = squares - LARGER**2 * by_row
    if excess.mean() <= SURE * standard_error(excess, of_groups.groups):
        return 1.0
    return float(np.sqrt(squares.mean() / by_row.mean()))


def _grouped_rows(
    model: Model, X: Float, groups: GroupedRows, weights: Float, repetition: Repetition
) -> GroupedDesign:
    """Return the design of rows with their groups and the groups of the centres.

    Args:
        model: the model of the fit
        X: inputs (n, d)
        groups: groups of the rows
        weights: weights of the rows (n,)
        repetition: groups of all rows, to which the centres belong, too
    """
    design = model.design
    peaks = np.concatenate([np.full(design.n_leading, np.inf), design.peaks()])
    owned = design.n_leading + np.arange(model.n_vectors)
    owners = np.full(design.n_columns, -1)
    owners[owned] = repetition.codes_of(design.centres)
    units = np.ones(len(X))
    return GroupedDesign(design.block(X), groups, owners, owned, peaks, weights, units)
