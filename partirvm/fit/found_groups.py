"""Find groups of rows that were not declared: rows that repeat in a subset of columns, such as the
coordinates of a station, and rows that follow each other in the table, such as those of a batch.

A group of rows is suspected where several columns of numbers are functions of one of them, as all
columns that describe a station or a patient are, or where one column has many different values that
each have many rows, as a code has; further, blocks of successive rows are suspected. Such groups
are reported if the intervals of the fit mislead at them: of intervals that cover 95 % of the rows
that are left out at random, clearly fewer than 90 % cover rows of left-out groups, whose errors are
clearly larger (``fit.left_out_refits``). Where the stated uncertainty grows with the errors, or
where a column with few rows per value only happens to repeat, nothing is reported.

If no feature tells the groups apart, a fit does not know their rows any better than those of new
groups, and its intervals are right. But successive rows then share a large part of their errors
(``core.row_order``), which is reported as well.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partirvm.core.groups import standard_error
from partirvm.core.held_back import sampled_rows
from partirvm.core.row_order import Resemblance, resemblance
from partirvm.core.sampling import Purpose, draw_key, uniform
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.fit.left_out_refits import LEVEL, FittedRows, LeftOutScores
from partirvm.fit.residual_rows import ResidualReader
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

BLOCK_ROWS = 40
"""Number of successive rows that are left out together."""

RUN_ROWS = 200
"""Number of successive rows, of which many rows are taken if not all are left out."""

MISLEADING = 0.9
"""Coverage of left-out groups, of intervals that cover 95 % of left-out rows, below which groups
are reported."""

LARGER = 1.3
"""Errors of left-out groups ÷ errors of left-out rows from which groups are reported."""

MOST_SHARED = 0.99
"""Maximum correlation of errors: its estimate may exceed 1."""

SURE = 2.0
"""Number of standard errors by which figures must be beyond their limits."""


@dataclass(frozen=True)
class FoundGroups:
    """Groups of rows that were not declared.

    Attributes:
        columns: names of the columns that are equal in all rows of a group; none if a group
            consists of successive rows
        groups: number of groups
        rows: mean number of rows of a group
        ratio: errors of left-out groups ÷ errors of left-out rows
        covered: fraction of the rows of left-out groups inside intervals that cover 95 % of
            left-out rows
    """

    columns: tuple[str, ...]
    groups: int
    rows: float
    ratio: float
    covered: float

    def facts(self) -> dict[str, Any]:
        """Return the history's facts, with a remark."""
        return {**asdict(self), "columns": list(self.columns), "remark": self.remark()}

    def remark(self) -> str:
        """Return a sentence that names the columns and the option."""
        judgement = (
            f"errors of left-out groups are {self.ratio:.1f} × those of left-out rows, and 95 % "
            f"intervals cover {self.covered:.0%} of their rows: intervals are right for new rows "
            "of these groups, but too narrow for new groups. If you predict new groups, set "
        )
        if not self.columns:
            return (
                f"rows seem to be ordered by groups, such as days, batches or machines: if groups "
                f"of {self.rows:,.0f} successive rows are left out, {judgement}groups=... in fit "
                "(`ingest --groups COLUMN`) to the day, batch or machine of each row"
            )
        names = listed(self.columns, show=quoted)
        value = repr(self.columns if len(self.columns) > 1 else self.columns[0])
        return (
            f"{self.groups:,} groups of about {self.rows:,.0f} rows have equal values of {names}, "
            f"and {judgement}groups=Groups({value}) in fit (`ingest --groups "
            f"{','.join(self.columns)}`)"
        )


@dataclass(frozen=True)
class FoundOrder:
    """Successive rows of the table whose errors resemble each other, whatever the features.

    Attributes:
        correlation: fraction of the variance of errors that successive rows share
        ratio: errors ÷ errors without this part
    """

    correlation: float
    ratio: float

    def facts(self) -> dict[str, Any]:
        """Return the history's facts, with a remark."""
        return {**asdict(self), "columns": [], "remark": self.remark()}

    def remark(self) -> str:
        """Return a sentence that says what the order may mean, and names the option."""
        return (
            f"errors of successive rows resemble each other (correlation {self.correlation:.2f}): "
            "rows seem to be ordered by something that the features do not say, such as a batch, "
            "a day or a machine. Intervals are right for single rows of new groups, but rows of a "
            "group have similar errors, so that their mean is less certain than if they were "
            "independent. If you know the groups, set groups=... in fit (`ingest --groups "
            f"COLUMN`): errors for known groups may then be as low as 1/{self.ratio:.1f}"
        )


@dataclass(frozen=True)
class Repetition:
    """Rows that repeat in some columns.

    Attributes:
        columns: positions of the columns
        codes: codes of the groups of rows (n,), 0 … G − 1
        n_groups: number of groups, G
    """

    columns: tuple[int, ...]
    codes: Int
    n_groups: int


def repetitions(X: Float, numeric: Sequence[int]) -> list[Repetition]:
    """Return groups of rows of X (n, d) that repeat in columns; those described by most columns
    come first.

    ``numeric`` are the positions of the columns that hold numbers.
    """
    n = len(X)
    codes = dict[int, tuple[Int, int]]()
    for column in numeric[:MOST_COLUMNS]:
        values, places = np.unique(X[:, column], return_inverse=True)
        if len(values) > 2 and len(values) * GROUP_ROWS <= n:
            codes[column] = places, len(values)
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
            by_columns.setdefault(columns, Repetition(columns, places, count))
    return sorted(by_columns.values(), key=lambda item: (-len(item.columns), -item.n_groups))


def _is_function(values: Int, places: Int, count: int) -> bool:
    """Return True if ``values`` (n,) are equal in all rows with equal ``places`` (n,), of which
    there are ``count``."""
    first = np.zeros(count, dtype=np.int64)
    first[places] = values
    return bool(np.array_equal(first[places], values))


@dataclass(frozen=True)
class GroupSearch:
    """Judges groups of rows of a fit.

    Attributes:
        rows: the rows (n)
        order: their places in the order of the table, 0 … n − 1 (n,)
    """

    rows: FittedRows
    order: Int

    @cached_property
    def all_alone(self) -> LeftOutScores:
        """All rows, left out at random."""
        return self.rows.left_out(np.arange(len(self.order)))

    def of_columns(self, codes: Int, columns: Sequence[str]) -> FoundGroups | None:
        """Return the groups with these codes (n,) if intervals mislead at them.

        ``columns`` are the names of the columns that are equal in all rows of a group.
        """
        places = drawn_rows(codes, self.rows.centres)
        sample, alone = self._sample(places)
        return _misled(alone, sample.left_out(codes[places]), codes[places], columns)

    def of_order(self) -> FoundGroups | FoundOrder | None:
        """Return blocks of successive rows if intervals mislead at them, or that errors of
        successive rows resemble each other."""
        n = len(self.order)
        size = min(BLOCK_ROWS, n // LEAST_CODES)
        if size < GROUP_ROWS:
            return None
        runs = self.order // RUN_ROWS
        chosen = np.linspace(0, runs.max(), LEFT_OUT // RUN_ROWS).astype(np.int64)
        places = np.arange(n) if n <= LEFT_OUT else np.flatnonzero(np.isin(runs, chosen))
        sample, alone = self._sample(places)
        blocks = self.order[places] // size
        groups = _misled(alone, sample.left_out(blocks), blocks, ())
        by_order = np.argsort(self.order[places])
        shared = resemblance(sample.points[by_order], alone.standardised[by_order])
        return groups or _sharing(shared)

    def _sample(self, places: Int) -> tuple[FittedRows, LeftOutScores]:
        """Return the rows at these increasing positions, and their scores if they are left out at
        random."""
        if len(places) == len(self.order):
            return self.rows, self.all_alone
        sample = self.rows.take(places)
        return sample, sample.left_out(np.arange(len(places)))


def drawn_rows(codes: Int, centres: Int, most: int = LEFT_OUT) -> Int:
    """Return the positions of at most ``most`` rows: of all groups, or of random groups if they
    are many, with the vectors of these groups.

    Args:
        codes: codes of the groups of the rows (n,)
        centres: positions of the vectors among the rows, −1 for others
        most: maximum number of rows
    """
    n = len(codes)
    if n <= most:
        return np.arange(n)
    values, groups, counts = np.unique(codes, return_inverse=True, return_counts=True)
    draws = uniform(np.arange(n), draw_key(0, Purpose.LEFT_OUT_ROWS))
    draws[centres[centres >= 0]] -= 1.0
    by_group = np.lexsort((draws, groups))
    ranks = np.empty(n, dtype=np.int64)
    ranks[by_group] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    sizes = np.minimum(counts, max(most // len(values), BLOCK_ROWS))
    order = np.argsort(uniform(values, draw_key(0, Purpose.LEFT_OUT_ROWS)), kind="stable")
    is_drawn = np.empty(len(values), dtype=np.bool_)
    is_drawn[order] = np.cumsum(sizes[order]) <= most
    return np.flatnonzero(is_drawn[groups] & (ranks < sizes[groups]))


def _misled(
    alone: LeftOutScores, together: LeftOutScores, groups: Int, columns: Sequence[str]
) -> FoundGroups | None:
    """Return groups if the intervals of rows mislead at them.

    Args:
        alone: rows that were left out at random (n)
        together: the same rows, left out with their group
        groups: the groups (n,)
        columns: names of the columns that are equal in all rows of a group
    """
    most = max(float(np.quantile(alone.scores, LEVEL)), 1.0)
    inside = (together.scores <= most).astype(np.float64)
    covered = float(inside.mean())
    squares = together.errors**2
    of_rows = float(np.mean(alone.errors**2))
    larger = squares - LARGER**2 * of_rows
    is_clear = covered + SURE * standard_error(inside, groups) < MISLEADING
    if not is_clear or larger.mean() <= 0.0:
        return None
    ratio = float(np.sqrt(squares.mean() / of_rows))
    n_groups = len(np.unique(groups))
    return FoundGroups(tuple(columns), n_groups, len(groups) / n_groups, ratio, covered)


def _sharing(shared: Resemblance | None) -> FoundOrder | None:
    """Return that errors of successive rows resemble each other, if their common part clearly
    makes them ``LARGER`` by this ratio."""
    least = 1.0 - LARGER**-2
    if shared is None or shared.correlation - SURE * shared.standard_error <= least:
        return None
    correlation = min(shared.correlation, MOST_SHARED)
    return FoundOrder(correlation, float((1.0 - correlation) ** -0.5))


def find_groups(
    model: Model, beta: float, source: Source, executor: Executor
) -> FoundGroups | FoundOrder | None:
    """Return groups of rows at which the intervals of a fit of one target mislead, or whose errors
    resemble each other; None if there are none.

    Args:
        model: the model of the fit
        beta: noise precision of the posterior
        source: the training rows
        executor: reads the rows
    """
    columns = source.columns
    categorical = set(columns.categories)
    numeric = [j for j, name in enumerate(columns.features) if name not in categorical]
    reader = ResidualReader(source, executor, lambda *progress: None, Spent())
    rows = sampled_rows(source.n_rows, None, SEARCHED_ROWS, shuffled=source.shuffled)
    numbers = np.arange(source.n_rows) if rows is None else np.union1d(rows, model.design.rows)
    tile = reader.tile(numbers)
    present = np.flatnonzero(np.ones(len(numbers)) * tile.root_weights > 0)
    tile = tile.take(present, 0)
    order = np.argsort(np.argsort(reader.original_rows(numbers[present])))
    with one_blas_thread():
        search = GroupSearch(FittedRows(model, beta, tile, numbers[present]), order)
        found = [
            search.of_columns(repetition.codes, [columns.features[j] for j in repetition.columns])
            for repetition in repetitions(tile.X, numeric)[:TRIED]
        ]
        groups = max(filter(None, found), key=lambda groups: groups.ratio, default=None)
        return groups or search.of_order()
