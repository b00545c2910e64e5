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
from partirvm.core.row_order import resemblance
from partirvm.core.sampling import Purpose, draw_key, uniform
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.fit.comparison import root_mean_square
from partirvm.fit.left_out_refits import LEVEL, FittedRows, RefitScores
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

MOST_VECTORS = 1000
"""Maximum number of vectors: the refits take several matrices of ``LEFT_OUT`` rows and this number
of columns."""

MOST_SHARE = 0.75
"""Maximum share of the rows that are vectors: with more, the refits take more memory than the fit.
"""

MOST_COLUMNS = 200
"""Maximum number of features: with more, all pairs of columns would take seconds."""

LEAST_GROUPS = 10
"""Minimum effective number of groups."""

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
        rows = "rows seem to be ordered by groups, such as batches, days or machines"
        groups = f"groups of {self.rows:,.0f} successive rows"
        option = "groups=... in fit (`ingest --groups COLUMN`) to the group of each row"
        if self.columns:
            names = listed(self.columns, show=quoted)
            size = f"about {self.rows:,.0f} rows"
            rows = f"{self.groups:,} groups of {size} have equal values of {names}"
            groups = "whole groups"
            option = _option(self.columns)
        return (
            f"{rows}: if {groups} are left out, errors are {self.ratio:.1f} × those of left-out "
            f"rows, and 95 % intervals cover {100 * self.covered:.0f} % of the rows. Intervals are "
            "right for new rows of these groups, but too narrow for new groups: if you predict new "
            f"groups, set {option}"
        )


@dataclass(frozen=True)
class SharedErrors:
    """Rows whose errors resemble each other, whatever the features.

    Attributes:
        columns: names of the columns that are equal in such rows; none if they are successive rows
            of the table
        correlation: fraction of the variance of errors that the rows share
        ratio: errors ÷ errors without this part, if the correlation is two standard errors lower
    """

    columns: tuple[str, ...]
    correlation: float
    ratio: float

    def facts(self) -> dict[str, Any]:
        """Return the history's facts, with a remark."""
        return {**asdict(self), "columns": list(self.columns), "remark": self.remark()}

    def remark(self) -> str:
        """Return a sentence that says what the rows have in common, and names the option."""
        rows = "successive rows"
        cause = (
            "rows seem to be ordered by something that the features do not say, such as a batch, "
            "a day or a machine"
        )
        advice = "if you know these groups, set groups=... in fit (`ingest --groups COLUMN`)"
        if self.columns:
            rows = f"rows with equal values of {listed(self.columns, show=quoted)}"
            cause = "they seem to be of one group, such as a batch, a patient or a machine"
            advice = f"set {_option(self.columns)}"
        return (
            f"errors of {rows} resemble each other (correlation {self.correlation:.2f}): {cause}. "
            "Intervals are right for single rows of new groups, but the mean of several rows of a "
            f"group is less certain than if their errors were independent, and errors for known "
            f"groups could be {self.ratio:.1f} × smaller: {advice}"
        )


def _option(columns: tuple[str, ...]) -> str:
    """Return how groups are declared by the columns that describe them."""
    value = repr(columns if len(columns) > 1 else columns[0])
    option = f"groups=Groups({value}) in fit (`ingest --groups {','.join(columns)}`)"
    if len(columns) > 1:
        return option
    return f"{option}, or groups=... to the values of the column if it is to remain a feature"


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
        if effective_number(places) < LEAST_GROUPS:
            continue
        determined = [
            other
            for other, (values, other_count) in codes.items()
            if other_count <= count and _is_function(values, places, count)
        ]
        others = [other for other in determined if other != column]
        is_described = any(codes[other][1] >= LEAST_VALUES for other in others)
        if is_described or (count >= LEAST_CODES and count * CODE_ROWS <= n):
            columns = tuple(sorted(determined))
            by_columns.setdefault(columns, Repetition(columns, places, count))
    return sorted(by_columns.values(), key=lambda item: (-len(item.columns), -item.n_groups))


def effective_number(codes: Int) -> float:
    """Return the number of groups of equal size that say as much as the groups of rows with these
    codes (n,): n² ÷ Σ n_g² (Kish 1965). It is small where most rows have one value, such as 0."""
    counts = np.bincount(codes).astype(np.float64)
    return float(counts.sum() ** 2 / np.sum(counts**2))


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

    def result(
        self, described: Sequence[tuple[Int, Sequence[str]]]
    ) -> FoundGroups | SharedErrors | None:
        """Return the groups at which intervals mislead most or, without any, rows that share
        errors. ``described`` are codes (n,) of groups, with the names of their columns."""
        groups = [self.misled_by(*codes_and_columns) for codes_and_columns in described]
        misled = max(filter(None, groups), key=lambda item: item.ratio, default=None)
        misled = misled or self.misled_by_order()
        if misled:
            return misled
        shared = [self.shared_by(*codes_and_columns) for codes_and_columns in described]
        largest = max(filter(None, shared), key=lambda item: item.correlation, default=None)
        return largest or self.shared_by_order()

    @cached_property
    def all_alone(self) -> RefitScores:
        """All rows, left out at random."""
        return self.rows.left_out(np.arange(len(self.order)))

    @cached_property
    def all_errors_alone(self) -> Float:
        """The standardised errors of all rows, as ``_errors_alone`` returns them (n,)."""
        if self.rows.model.residuals is None:
            return self.all_alone.standardised
        return self.rows.of_vectors.left_out(np.arange(len(self.order))).standardised

    def _errors_alone(self, places: Int) -> Float:
        """Return the standardised errors of the rows at these increasing positions, left out at
        random, without local residuals (m,)."""
        if len(places) == len(self.order):
            return self.all_errors_alone
        sample = self.rows.of_vectors.take(places)
        return sample.left_out(np.arange(len(places))).standardised

    def misled_by(self, codes: Int, columns: Sequence[str]) -> FoundGroups | None:
        """Return the groups with these codes (n,) if intervals mislead at them.

        ``columns`` are the names of the columns that are equal in all rows of a group.
        """
        return self._misled(drawn_rows(codes, self.rows.centres), codes, columns)

    def misled_by_order(self) -> FoundGroups | None:
        """Return blocks of successive rows if intervals mislead at them."""
        n = len(self.order)
        size = min(BLOCK_ROWS, n // LEAST_CODES)
        if size < GROUP_ROWS:
            return None
        return self._misled(successive_rows(self.order), self.order // size, ())

    def shared_by(self, codes: Int, columns: Sequence[str]) -> SharedErrors | None:
        """Return rows with equal codes (n,) if their errors resemble each other.

        ``columns`` are the names of the columns that are equal in all rows of a group.
        """
        places = drawn_rows(codes, self.rows.centres)
        return self._shared(places[np.argsort(codes[places], kind="stable")], columns)

    def shared_by_order(self) -> SharedErrors | None:
        """Return successive rows if their errors resemble each other."""
        places = successive_rows(self.order)
        return self._shared(places[np.argsort(self.order[places])], ())

    def _shared(self, places: Int, columns: Sequence[str]) -> SharedErrors | None:
        """Return rows at these positions if the errors of neighbours among them resemble each
        other, and their common part clearly makes them ``LARGER`` by this ratio."""
        rows = np.sort(places)
        order = np.searchsorted(rows, places)
        errors = self._errors_alone(rows)
        pairs = resemblance(self.rows.points[places], errors[order])
        least = 1.0 - LARGER**-2
        if pairs is None:
            return None
        surely = min(pairs.correlation - SURE * pairs.standard_error, MOST_SHARED)
        if surely <= least:
            return None
        correlation = min(pairs.correlation, MOST_SHARED)
        return SharedErrors(tuple(columns), correlation, float((1.0 - surely) ** -0.5))

    def _misled(self, places: Int, codes: Int, columns: Sequence[str]) -> FoundGroups | None:
        """Return groups if the intervals of the fit mislead at them.

        Args:
            places: increasing positions of the rows that are left out (m,)
            codes: the groups of all rows (n,)
            columns: names of the columns that are equal in all rows of a group
        """
        sample, alone = self._sample(places)
        groups = codes[places]
        least = LARGER * root_mean_square(alone.errors)
        has_residuals = sample.model.residuals is not None
        # local residuals hardly change errors of new groups, so that errors without them come first
        if has_residuals and root_mean_square(sample.of_vectors.left_out(groups).errors) <= least:
            return None
        together = sample.left_out(groups)
        end = max(float(np.quantile(alone.scores, LEVEL)), 1.0)
        inside = (together.scores <= end).astype(np.float64)
        covered = float(inside.mean())
        highest = covered + SURE * standard_error(inside, groups[together.rows])
        error = root_mean_square(together.errors)
        if highest >= MISLEADING or error <= least:
            return None
        n_groups = len(np.unique(groups))
        ratio = error / root_mean_square(alone.errors)
        return FoundGroups(tuple(columns), n_groups, len(groups) / n_groups, ratio, covered)

    def _sample(self, places: Int) -> tuple[FittedRows, RefitScores]:
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


def successive_rows(order: Int) -> Int:
    """Return the increasing positions of at most ``LEFT_OUT`` rows in runs of ``RUN_ROWS``, given
    their places in the table (n,)."""
    if len(order) <= LEFT_OUT:
        return np.arange(len(order))
    runs = order // RUN_ROWS
    chosen = np.linspace(0, runs.max(), LEFT_OUT // RUN_ROWS).astype(np.int64)
    return np.flatnonzero(np.isin(runs, chosen))


def find_groups(
    model: Model, beta: float, source: Source, executor: Executor
) -> FoundGroups | SharedErrors | None:
    """Return groups of rows at which the intervals of a fit of one target mislead, or whose errors
    resemble each other; None if there are none.

    Args:
        model: the model of the fit
        beta: noise precision of the posterior
        source: the training rows
        executor: reads the rows
    """
    if model.n_vectors > min(MOST_VECTORS, int(MOST_SHARE * source.n_rows)):
        return None
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
        return search.result(
            [
                (item.codes, [columns.features[j] for j in item.columns])
                for item in repetitions(tile.X, numeric)[:TRIED]
            ]
        )
