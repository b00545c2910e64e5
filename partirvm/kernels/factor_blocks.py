"""Blocks of the factors constant + share · k_j of an ANOVA kernel between rows and centres.

An exponential takes as long as some thirty terms of a matrix product. Kernels whose values are sums
of products of a number of the row and a number of the centre are matrix products: the exponentials
are those of single rows and of single centres. Matérn and Laplacian kernels are such sums
(``feature_factors.Sided``). A Gaussian kernel has no finite sum, but near a node c of a grid, with
u = c + δ and |δ| ≤ ``STEP``/2,

    exp(−(u − v)²) = exp(−(c − v)²) · exp(−(u − c)(u + c)) · exp(2 δ v),

where the first exponential is that of a node and a centre, the second is that of a row, and the
third is Σ_i (2 δ V)ⁱ (v/V)ⁱ/i!, in which |2 δ V| ≤ ``STEP`` V = 1 for V = ``GAUSSIAN_REACH`` ≥ |v|:
``TERMS`` terms have a relative error of at most 5e-14.

All products have one shape, and coordinates are measured from an origin that does not depend on the
block: the bits of a value depend only on its row and its centre. Arrays of values are (q, r, g) for
q features, r rows, a multiple of ``PIECE_ROWS``, and g centres, a multiple of ``SIZE``.
"""

from collections.abc import Sequence
from copy import copy
from math import factorial
from typing import Any

import numpy as np

from partirvm.kernels.feature_factors import (
    REACH,
    FeatureKernel,
    GaussianFeature,
    SidedFeature,
)
from partirvm.types import Bool, Float

SIZE = 64
"""Number of columns of a product."""

PIECE_ROWS = 16
"""Number of rows of a product: a single row takes as long."""

STEP = 0.125
"""Distance between nodes of a Gaussian factor, in coordinates c = √gamma (x − z): with half of it,
tables are twice as long and products save three terms."""

GAUSSIAN_REACH = 8.0
"""Maximum absolute coordinate of a row and a centre in products of a Gaussian factor, 1 ÷ ``STEP``.
Pairs beyond it are computed directly."""

TERMS = 16
"""Number of terms of exp(2 δ v): the next one is at most 1/16! = 5e-14."""

INVERSE_FACTORIALS = np.array([1.0 / factorial(i) for i in range(TERMS)])
"""1/i! of each term."""

NODES = 2 * round(GAUSSIAN_REACH / STEP) + 1
"""Number of nodes of the grid."""


class FactorRows:
    """Rows with coordinates c (q, n) in q features.

    Attributes:
        coordinates: (q, n).
        far: True for rows beyond the reach of products, (q, n); None if there are none.
    """

    far: Bool | None = None

    def __init__(self, coordinates: Float) -> None:
        self.coordinates = coordinates


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

    far: Bool | None = None

    def __init__(
        self,
        factors: Sequence[FeatureKernel],
        centres: Float,
        shares: Float,
        constant: float,
    ) -> None:
        self.factors = factors
        self.centres = centres
        self.shares = shares
        self.constant = constant

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

    def fill(self, run: slice, out: Float, work: Float) -> None:
        """Write the values for a run of rows into the first rows of ``out``.

        Args:
            run: which rows; the first is a multiple of ``PIECE_ROWS``.
            out: (q, r, g), contiguous.
            work: the same; its contents are overwritten.
        """
        for feature, values in enumerate(out):
            coordinates = self.rows.coordinates[feature, run]
            centres = self.columns.centres[feature, self.centres]
            values[: len(coordinates)] = self.columns.exact(feature, coordinates, centres)

    def fill_far(self, run: slice, out: Float) -> None:
        """Write the values of rows and centres that are beyond the reach of products.

        Args:
            run: which rows.
            out: (q, r, g).
        """
        for feature, values in enumerate(out):
            coordinates = self.rows.coordinates[feature, run]
            centres = self.columns.centres[feature, self.centres]
            if self.rows.far is not None:
                far = np.flatnonzero(self.rows.far[feature, run])
                values[far] = self.columns.exact(feature, coordinates[far], centres)
            if self.columns.far is not None:
                far = np.flatnonzero(self.columns.far[feature, self.centres])
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


def pieces_of(left: Float) -> Float:
    """Return factors (count, …, n) of rows as (…, pieces, ``PIECE_ROWS``, count), with zeros after
    the last row."""
    count, *middle, n = left.shape
    pieces = np.zeros((*middle, n + -n % PIECE_ROWS, count))
    pieces[..., :n, :] = np.moveaxis(left, 0, -1)
    return pieces.reshape(*middle, -1, PIECE_ROWS, count)


def multiply(left: Float, right: Float, out: Float) -> None:
    """Write the products of rows and centres into the first rows of ``out``.

    Args:
        left: factors of the rows, (q, pieces, ``PIECE_ROWS``, count).
        right: factors of the centres, (count, q, g).
        out: (q, r, g), contiguous.
    """
    q, r, g = out.shape
    pieces = left.shape[1]
    groups = right.reshape(len(right), q, -1, SIZE).transpose(1, 2, 0, 3)
    places = out.reshape(q, r // PIECE_ROWS, PIECE_ROWS, g // SIZE, SIZE)
    np.matmul(left[:, None], groups[:, :, None], out=places[:, :pieces].transpose(0, 3, 1, 2, 4))


def within(coordinates: Float, reach: float) -> tuple[Float, Bool | None]:
    """Return coordinates with 0 in place of those beyond the reach, and where these are; None if
    there are none."""
    far = np.abs(coordinates) > reach
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
    """Rows in the products of ``Sided``.

    Attributes:
        left: factors of the rows for either sign, (2, q, pieces, ``PIECE_ROWS``, count + 1).
    """

    def __init__(self, coordinates: Float, factor: SidedFeature) -> None:
        super().__init__(coordinates)
        u, self.far = within(factor.scale * coordinates, REACH)
        left = np.ones((factor.function.count + 1, 2, *u.shape))
        left[:-1] = factor.function.left(np.stack([u, -u]))
        self.left = pieces_of(left)


class SidedColumns(FactorColumns):
    """Columns of constant + share · p(s) e⁻ˢ, from two products.

    Attributes:
        right: factors of the centres for either sign, (2, count + 1, q, m).
    """

    factors: Sequence[SidedFeature]

    def __init__(
        self,
        factors: Sequence[SidedFeature],
        centres: Float,
        shares: Float,
        constant: float,
    ) -> None:
        super().__init__(factors, centres, shares, constant)
        scale = factors[0].scale
        function = factors[0].function
        v, self.far = within(scale * centres, REACH)
        self.right = np.full((2, function.count + 1, *v.shape), constant)
        for sign, right in zip((1.0, -1.0), self.right, strict=True):
            right[:-1] = function.right(sign * v) * shares[:, None]

    def of(self, features: slice) -> "SidedColumns":
        columns = super().of(features)
        columns.right = self.right[:, :, features]
        return columns

    def rows(self, coordinates: Float) -> SidedRows:
        return SidedRows(coordinates, self.factors[0])

    def block(self, rows: Any, centres: slice) -> FactorBlock:
        return SidedBlock(self, rows, centres)


class SidedBlock(FactorBlock):
    """Values of ``SidedColumns``."""

    def fill(self, run: slice, out: Float, work: Float) -> None:
        left = self.rows.left[:, :, pieces_in(run)]
        right = self.columns.right[..., self.centres]
        multiply(left[0], right[0], out)
        multiply(left[1], right[1], work)
        self.columns.factors[0].function.pick(out, work, out=out)
        self.fill_far(run, out)


class GaussianRows(FactorRows):
    """Rows near nodes of a grid.

    Attributes:
        left: factors of the rows, (q, pieces, ``PIECE_ROWS``, ``TERMS``).
        nodes: coordinates of the K nodes that are near rows, (K,).
        features: the position of each node's feature, (K,).
        places: the position of each row's node, (q, n).
    """

    def __init__(self, coordinates: Float) -> None:
        super().__init__(coordinates)
        u, self.far = within(coordinates, GAUSSIAN_REACH)
        numbers = np.rint(u / STEP)
        near = numbers * STEP
        first = np.exp((near - u) * (near + u))
        self.left = pieces_of(powers_of((u - near) * (2.0 * GAUSSIAN_REACH), first, TERMS))
        last = NODES // 2
        grid = numbers.astype(np.int64) + np.arange(last, len(u) * NODES, NODES)[:, None]
        is_near = np.zeros(len(u) * NODES, dtype=np.bool_)
        is_near[grid] = True
        found = np.flatnonzero(is_near)
        self.features, of_feature = np.divmod(found, NODES)
        self.nodes = (of_feature - last) * STEP
        order = np.empty(len(is_near), dtype=np.int64)
        order[found] = np.arange(len(found))
        self.places = order[grid]


class GaussianColumns(FactorColumns):
    """Columns of constant + share · exp(−c²), from a table and a product.

    Attributes:
        within: the centres' coordinates, 0 beyond the reach, (q, m).
    """

    def __init__(
        self,
        factors: Sequence[FeatureKernel],
        centres: Float,
        shares: Float,
        constant: float,
    ) -> None:
        super().__init__(factors, centres, shares, constant)
        self.within, self.far = within(centres, GAUSSIAN_REACH)

    def of(self, features: slice) -> "GaussianColumns":
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
        right: factors of the centres, (``TERMS``, q, g).
        table: exp(−(c − v)²) of the nodes c, (K, g).
    """

    def __init__(self, columns: GaussianColumns, rows: GaussianRows, centres: slice) -> None:
        super().__init__(columns, rows, centres)
        v = columns.within[:, centres]
        self.right = powers_of(v / GAUSSIAN_REACH, columns.shares[:, None], TERMS)
        self.right *= INVERSE_FACTORIALS[:, None, None]
        self.table = rows.nodes[:, None] - v[rows.features]
        columns.factors[0].value(self.table)

    def fill(self, run: slice, out: Float, work: Float) -> None:
        places = self.rows.places[:, run]
        n = places.shape[1]
        multiply(self.rows.left[:, pieces_in(run)], self.right, out)
        np.take(self.table, places, axis=0, out=work[:, :n], mode="clip")
        values = out[:, :n]
        values *= work[:, :n]
        if self.columns.constant:
            values += self.columns.constant
        self.fill_far(run, out)


COLUMNS: dict[type[FeatureKernel], type[FactorColumns]] = {
    SidedFeature: SidedColumns,
    GaussianFeature: GaussianColumns,
}
"""Columns of factors that are products, by the class of the kernel."""
