"""Blocks of the factors constant + share · k_j of an ANOVA kernel between rows and centres.

An exponential takes as long as some thirty terms of a matrix product. Kernels whose values are sums
of products of a number of the row and a number of the centre are matrix products: the exponentials
are those of single rows and of single centres. Matérn and Laplacian kernels are such sums
(``feature_factors.SidedFeature``). A Gaussian kernel has no finite sum, but with u = C + s + δ,
where C and c = C + s are nodes of a coarse and of a fine grid,

    exp(−(u − v)²) = [exp(−(C − v)²) exp(2 s v)] · exp(−(u − C)(u + C)) · exp(2 δ v).

The bracket is a table for the few nodes that are near rows, the next exponential is that of a row,
and the last one is Σ_i (2 δ V)ⁱ (v/V)ⁱ/i! for V = ``GAUSSIAN_REACH`` ≥ |v|: its first ``TERMS``
terms are a product, with a relative error of at most 2e-14.

All products have one shape, and coordinates are measured from an origin that does not depend on the
block: the bits of a value depend only on its row and its centre. Arrays of values are (q, r, g) for
q features, r rows, a multiple of ``PIECE_ROWS``, and g centres, a multiple of ``SIZE``.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from math import factorial
from typing import Any, NamedTuple

import numpy as np

from partirvm.kernels.feature_factors import (
    REACH,
    FeatureKernel,
    GaussianFeature,
    SidedFeature,
)
from partirvm.types import Bool, Float, Int

SIZE = 64
"""Number of columns of a product."""

PIECE_ROWS = 16
"""Number of rows of a product: a single row takes as long."""

STEP = 1 / 16
"""Distance between nodes of a Gaussian factor, in coordinates c = √gamma (x − z)."""

FINE = 8
"""Number of nodes for each coarse node: exponentials are computed for the coarse nodes and for the
differences from these."""

GAUSSIAN_REACH = 8.0
"""Maximum absolute coordinate of a row and a centre in products of a Gaussian factor.
Pairs beyond it are computed directly."""

TERMS = 13
"""Number of terms of exp(2 δ v), where |2 δ v| ≤ ½: the next one is at most 2⁻¹³/13! = 2e-14."""

INVERSE_FACTORIALS = np.array([1.0 / factorial(i) for i in range(TERMS)])
"""1/i! of each term."""

LAST = round(GAUSSIAN_REACH / STEP)
"""The number of the last node of the grid."""


class FactorRows:
    """Rows with coordinates c (q, n) in q features.

    Attributes:
        coordinates: (q, n).
        far: True for rows beyond the reach of products, (q, n); None if there are none.
    """

    far: Bool | None = None

    def __init__(self, coordinates: Float) -> None:
        self.coordinates = coordinates


@dataclass(eq=False)
class FactorColumns:
    """Columns constant + share · k of q features, computed directly.

    Args:
        factors: the kernels of q features, of one class.
        centres: coordinates of m centres, (q, m); m is a multiple of ``SIZE``.
        shares: the factors of k, (q,).
        constant: the term without k.

    Attributes:
        far: True for centres beyond the reach of products, (q, m); None if there are none.
    """

    factors: Sequence[FeatureKernel]
    centres: Float
    shares: Float
    constant: float
    far: Bool | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Compute what all blocks need of the centres."""

    def of(self, features: slice) -> Any:
        """Return the columns of some of the features."""
        columns = copy(self)
        columns.factors = self.factors[features]
        columns.centres = self.centres[features]
        columns.shares = self.shares[features]
        columns.far = None if self.far is None else self.far[features]
        return columns

    def rows(self, coordinates: Float) -> FactorRows:
        """Return what blocks need of rows with coordinates (q, n)."""
        return FactorRows(coordinates)

    def block(self, rows: Any, centres: slice) -> "FactorBlock":
        """Return the block of rows, which ``rows`` returned, and some of the centres."""
        return FactorBlock(self, rows, centres)

    def exact(self, feature: int, coordinates: Float, centres: Float) -> Float:
        """Return the values (n, m) of a feature, computed directly.

        Args:
            feature: its position among the q features.
            coordinates: of the rows, (n,).
            centres: coordinates of the centres, (m,).
        """
        values = np.subtract.outer(coordinates, centres)
        self.factors[feature].value(values)
        values *= self.shares[feature]
        if self.constant:
            values += self.constant
        return np.asarray(values)


class Workspace:
    """Memory for the values of q features at n rows and g centres.

    Args:
        q: the number of features.
        n: the number of rows; r is the next multiple of ``PIECE_ROWS``.
        g: the number of centres, a multiple of ``SIZE``.

    Attributes:
        values: the values, (q, r, g).
        other: an array of the same shape for intermediate results.
        pieces: ``values`` as matrix products, (q, groups, pieces, ``PIECE_ROWS``, ``SIZE``).
        other_pieces: ``other`` in the same form.
    """

    def __init__(self, q: int, n: int, g: int) -> None:
        r = n + -n % PIECE_ROWS
        both = np.empty((2, q, r, g))
        pieces = both.reshape(2, q, r // PIECE_ROWS, PIECE_ROWS, g // SIZE, SIZE)
        self.values, self.other = both
        self.pieces, self.other_pieces = pieces.transpose(0, 1, 4, 2, 3, 5)


class FactorBlock:
    """Values of columns at n rows and g centres, a run of rows at a time.

    Args:
        columns: the columns.
        rows: the rows.
        centres: which centres, a multiple of ``SIZE``.
    """

    def __init__(self, columns: Any, rows: Any, centres: slice) -> None:
        self.columns = columns
        self.rows = rows
        self.centres = centres
        self.n_features = len(columns.factors)
        self.n_centres = centres.stop - centres.start

    def fill(self, run: slice, work: Workspace) -> None:
        """Write the values for a run of rows into ``work.values``.

        Args:
            run: which rows; the first is a multiple of ``PIECE_ROWS``.
            work: memory for the run's number of rows.
        """
        for feature, values in enumerate(work.values):
            coordinates = self.rows.coordinates[feature, run]
            centres = self.columns.centres[feature, self.centres]
            values[: len(coordinates)] = self.columns.exact(feature, coordinates, centres)

    def fill_far(self, run: slice, out: Float) -> None:
        """Write the values of rows and centres that are beyond the reach of products.

        Args:
            run: which rows.
            out: (q, r, g).
        """
        far_rows = self.rows.far
        far_centres = self.columns.far
        if far_rows is None and far_centres is None:
            return
        for feature, values in enumerate(out):
            coordinates = self.rows.coordinates[feature, run]
            centres = self.columns.centres[feature, self.centres]
            if far_rows is not None:
                far = np.flatnonzero(far_rows[feature, run])
                values[far] = self.columns.exact(feature, coordinates[far], centres)
            if far_centres is not None:
                far = np.flatnonzero(far_centres[feature, self.centres])
                values[: len(coordinates), far] = self.columns.exact(
                    feature, coordinates, centres[far]
                )


def columns_of(
    factors: Sequence[FeatureKernel], centres: Float, shares: Float, constant: float = 0.0
) -> FactorColumns:
    """Return columns constant + share · k of q features.

    Args:
        factors: the kernels of the features, of one class.
        centres: coordinates of m centres, (q, m); m is a multiple of ``SIZE``.
        shares: the factors of k, (q,).
        constant: the term without k.
    """
    form = COLUMNS.get(type(factors[0]), FactorColumns)
    return form(factors, centres, shares, constant)


def padded(coordinates: Float) -> Float:
    """Return coordinates (q, n) with zeros up to a multiple of ``PIECE_ROWS`` rows."""
    q, n = coordinates.shape
    rows = np.zeros((q, n + -n % PIECE_ROWS))
    rows[:, :n] = coordinates
    return rows


def rows_of(left: Float) -> Float:
    """Return factors (…, count, q, n) of rows as matrices (…, q, 1, pieces, ``PIECE_ROWS``,
    count)."""
    *several, count, q, n = left.shape
    pieces = left.reshape(*several, count, q, 1, n // PIECE_ROWS, PIECE_ROWS)
    return np.moveaxis(pieces, -5, -1)


def groups_of(right: Float) -> Float:
    """Return factors (…, count, q, g) of centres as matrices (…, q, groups, 1, count, ``SIZE``)."""
    *several, count, q, g = right.shape
    groups = right.reshape(*several, count, q, g // SIZE, 1, SIZE)
    return np.moveaxis(groups, -5, -2)


def within(coordinates: Float, reach: float) -> tuple[Float, Bool | None]:
    """Return coordinates with 0 in place of those beyond the reach or NaN, and where these are;
    None if there are none."""
    far = ~(np.abs(coordinates) <= reach)
    if not far.any():
        return coordinates, None
    return np.where(far, 0.0, coordinates), far


def powers_of(x: Float, first: Float, count: int) -> Float:
    """Return first · xⁱ for i < count, (count, …)."""
    powers = np.empty((count, *x.shape))
    powers[0] = first
    for i in range(1, count):
        np.multiply(powers[i - 1], x, out=powers[i])
    return powers


def pieces_in(run: slice) -> slice:
    """Return the pieces of a run of rows."""
    return slice(run.start // PIECE_ROWS, -(-run.stop // PIECE_ROWS))


class SidedRows(FactorRows):
    """Rows in the products of ``SidedFeature``.

    Attributes:
        left: factors of the rows for either sign, (2, q, 1, pieces, ``PIECE_ROWS``,
            count + 1).
    """

    def __init__(self, coordinates: Float, factor: SidedFeature) -> None:
        super().__init__(coordinates)
        u, self.far = within(factor.scale * padded(coordinates), REACH)
        left = np.ones((2, factor.function.count + 1, *u.shape))
        for sign, factors in zip((1.0, -1.0), left, strict=True):
            factors[:-1] = factor.function.left(sign * u)
        self.left = rows_of(left)


class SidedColumns(FactorColumns):
    """Columns of constant + share · p(s) e⁻ˢ, from two products.

    Attributes:
        right: factors of the centres for either sign, (2, count + 1, q, m).
    """

    factors: Sequence[SidedFeature]

    def __post_init__(self) -> None:
        scale = self.factors[0].scale
        function = self.factors[0].function
        v, self.far = within(scale * self.centres, REACH)
        self.right = np.full((2, function.count + 1, *v.shape), self.constant)
        for sign, right in zip((1.0, -1.0), self.right, strict=True):
            right[:-1] = function.right(sign * v) * self.shares[:, None]

    def of(self, features: slice) -> Any:
        columns = super().of(features)
        columns.right = self.right[:, :, features]
        return columns

    def rows(self, coordinates: Float) -> SidedRows:
        return SidedRows(coordinates, self.factors[0])

    def block(self, rows: Any, centres: slice) -> FactorBlock:
        return SidedBlock(self, rows, centres)


class SidedBlock(FactorBlock):
    """Values of ``SidedColumns``."""

    def __init__(self, columns: SidedColumns, rows: SidedRows, centres: slice) -> None:
        super().__init__(columns, rows, centres)
        self.right = groups_of(columns.right[..., centres])
        self.pick = columns.factors[0].function.pick

    def fill(self, run: slice, work: Workspace) -> None:
        left = self.rows.left[..., pieces_in(run), :, :]
        np.matmul(left[0], self.right[0], out=work.pieces)
        np.matmul(left[1], self.right[1], out=work.other_pieces)
        self.pick(work.values, work.other, out=work.values)
        self.fill_far(run, work.values)


class GridNodes(NamedTuple):
    """Numbers of a grid in q features.

    Attributes:
        numbers: (K,), in increasing order within each feature.
        features: the position of each number's feature, (K,).
        places: the position of each of the numbers that were passed.
    """

    numbers: Int
    features: Int
    places: Int

    @classmethod
    def of(cls, numbers: Int, features: Int) -> "GridNodes":
        """Return the distinct pairs of a number, at most ``LAST`` in absolute value, and a
        feature."""
        width = 2 * LAST + 1
        grid = numbers + (LAST + width * features)
        is_near = np.zeros(width * (int(features.max(initial=0)) + 1), dtype=np.bool_)
        is_near[grid] = True
        found = np.flatnonzero(is_near)
        order = np.empty(len(is_near), dtype=np.int64)
        order[found] = np.arange(len(found))
        of_features, distinct = np.divmod(found, width)
        return cls(distinct - LAST, of_features, order[grid])


class GaussianRows(FactorRows):
    """Rows near nodes of a grid.

    Attributes:
        left: factors of the rows, (q, 1, pieces, ``PIECE_ROWS``, ``TERMS``).
        nodes: the nodes that are near rows; its places are (q, n).
        coarse: the numbers of their coarse nodes.
        fine: the differences from these.
    """

    def __init__(self, coordinates: Float) -> None:
        super().__init__(coordinates)
        u, self.far = within(padded(coordinates), GAUSSIAN_REACH)
        numbers = np.rint(u / STEP)
        coarse = np.rint(numbers / FINE)
        delta = u - numbers * STEP
        middle = coarse * (FINE * STEP)
        first = np.exp((middle - u) * (middle + u))
        self.left = rows_of(powers_of(delta * (2.0 * GAUSSIAN_REACH), first, TERMS))
        n = coordinates.shape[1]
        self.nodes = GridNodes.of(numbers[:, :n].astype(np.int64), np.arange(len(u))[:, None])
        of_nodes = np.rint(self.nodes.numbers / FINE).astype(np.int64)
        self.coarse = GridNodes.of(of_nodes, self.nodes.features)
        self.fine = GridNodes.of(self.nodes.numbers - FINE * of_nodes, self.nodes.features)

    def table(self, v: Float) -> Float:
        """Return exp(−(C − v)²) exp(2 (c − C) v) of each node c, with its coarse node C, (K, g).

        Args:
            v: coordinates of centres, (q, g).
        """
        of_coarse = (self.coarse.numbers * (FINE * STEP))[:, None] - v[self.coarse.features]
        of_coarse *= of_coarse
        np.negative(of_coarse, out=of_coarse)
        np.exp(of_coarse, out=of_coarse)
        of_fine = (self.fine.numbers * (2.0 * STEP))[:, None] * v[self.fine.features]
        np.exp(of_fine, out=of_fine)
        table = of_coarse[self.coarse.places]
        table *= of_fine[self.fine.places]
        return table


class GaussianColumns(FactorColumns):
    """Columns of constant + share · exp(−c²), from a table and a product.

    Attributes:
        within: the centres' coordinates, 0 beyond the reach, (q, m).
    """

    def __post_init__(self) -> None:
        self.within, self.far = within(self.centres, GAUSSIAN_REACH)

    def of(self, features: slice) -> Any:
        columns = super().of(features)
        columns.within = self.within[features]
        return columns

    def rows(self, coordinates: Float) -> GaussianRows:
        return GaussianRows(coordinates)

    def block(self, rows: Any, centres: slice) -> FactorBlock:
        return GaussianBlock(self, rows, centres)


class GaussianBlock(FactorBlock):
    """Values of ``GaussianColumns``.

    Attributes:
        right: factors of the centres, (q, groups, 1, ``TERMS``, ``SIZE``).
        table: values of the nodes, (K, g).
    """

    def __init__(self, columns: GaussianColumns, rows: GaussianRows, centres: slice) -> None:
        super().__init__(columns, rows, centres)
        v = columns.within[:, centres]
        right = powers_of(v / GAUSSIAN_REACH, columns.shares[:, None], TERMS)
        right *= INVERSE_FACTORIALS[:, None, None]
        self.right = groups_of(right)
        self.table = rows.table(v)

    def fill(self, run: slice, work: Workspace) -> None:
        np.matmul(self.rows.left[:, :, pieces_in(run)], self.right, out=work.pieces)
        places = self.rows.nodes.places[:, run]
        values = work.values[:, : places.shape[1]]
        other = work.other[:, : places.shape[1]]
        np.take(self.table, places, axis=0, out=other, mode="clip")
        values *= other
        if self.columns.constant:
            values += self.columns.constant
        self.fill_far(run, work.values)


COLUMNS: dict[type[FeatureKernel], type[FactorColumns]] = {
    SidedFeature: SidedColumns,
    GaussianFeature: GaussianColumns,
}
"""Columns of factors that are products, by the class of the kernel."""
