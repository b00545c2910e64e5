"""Values and derivatives of ANOVA kernels (``kernels.anova``): blocks of rows and centres, and
triangles of equal points.

A block is computed in pieces that stay in the cache. If a feature has few distinct values among the
rows, as most columns of tables have, its factors are computed once for each of them, and rows of
this table are copied.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from partirvm.kernels.base import (
    PreparedKernel,
    origin_of,
    runs,
)
from partirvm.kernels.factor_blocks import (
    PIECE_ROWS,
    SIZE,
    TERMS,
    FactorBlock,
    FactorColumns,
    FactorRows,
    Workspace,
    columns_of,
)
from partirvm.kernels.feature_factors import (
    SIDED,
)
from partirvm.kernels.interactions import LEAST_TOTAL, Interactions, slopes_of, total_of
from partirvm.kernels.radial import Gaussian
from partirvm.types import Float, Int

PAIRS = 12_288
"""Number of pairs of points of a triangle that are computed together: arrays of 96 KiB stay in the
cache, and calls of a function take little time compared with its work."""

MOST_POINTS = 48
"""Maximum number of points of a slab: half of the pairs between them are computed twice."""

KEPT = 1 << 22
"""Maximum number of values k_j that a triangle keeps: 32 MiB."""

MOST_FACTORS = 1 << 19
"""Maximum number of factors of rows in products: 4 MiB; more rows are several blocks."""

FEW_ROWS = 128
"""Maximum number of rows for which features are computed together."""

FEW_VALUES = 1 << 17
"""Number of values that are computed together for few rows: 1 MiB."""

VALUES = 1 << 15
"""Number of values that are computed together: with fewer, calls of functions take longer than
memory beyond the nearest cache."""

ROWS = 256
"""Number of rows of a piece of a gradient: ``ROWS`` × ``SIZE`` numbers stay in the cache."""

MOST_DISTINCT = 256
"""Maximum number of distinct values of a feature for which its factors are tabulated: a table for
``SIZE`` columns then takes 256 KiB."""

LEAST_REPEATS = 2
"""Minimum number of rows per distinct value for a table."""


class FeaturePart(NamedTuple):
    """Rows in consecutive features whose factors are computed together.

    Attributes:
        columns: the columns of q features
        rows: the rows, or the distinct values of a single feature
        places: (n,), the position of each row among the distinct values; None without these
    """

    columns: FactorColumns
    rows: FactorRows
    places: Int | None

    def block(self, centres: slice) -> "FactorBlock | TableBlock":
        """Return the block of the rows and of some centres."""
        block = self.columns.block(self.rows, centres)
        return block if self.places is None else TableBlock(block, self.places)


class TableBlock:
    """Values of a feature at rows with few distinct values, which are computed once.

    Args:
        block: the block of the distinct values
        places: (n,), the position of each row among them
    """

    def __init__(self, block: FactorBlock, places: Int) -> None:
        self.places = places
        self.n_features = 1
        self.n_centres = block.n_centres
        n = block.rows.coordinates.shape[1]
        work = Workspace(1, n, self.n_centres)
        block.fill(slice(0, n), work)
        self.table = work.values[0]

    def fill(self, run: slice, work: Workspace) -> None:
        """Write the values for a run of rows into ``work.values``."""
        places = self.places[run]
        np.take(self.table, places, axis=0, out=work.values[0, : len(places)], mode="clip")


class PieceMemory:
    """Memory for pieces of a block, which is reused for all pieces of one shape.

    Args:
        order: maximum number of features in a product, or None
        is_product: as for ``Interactions``
    """

    def __init__(self, order: int | None, *, is_product: bool) -> None:
        self.order = order
        self.is_product = is_product
        self.sums = dict[tuple[int, int], Interactions]()
        self.spaces = dict[tuple[int, int, int], Workspace]()
        self.results = dict[tuple[int, int], Float]()

    def interactions(self, n: int, g: int) -> Interactions:
        """Return an empty sum for n rows and g centres."""
        shape = n, g
        if shape not in self.sums:
            self.sums[shape] = Interactions(self.order, shape, is_product=self.is_product)
        self.sums[shape].clear()
        return self.sums[shape]

    def values(self, n: int, g: int) -> Float:
        """Return memory for the kernel's values, whose rows do not begin at powers of two: such
        rows of a transposed copy displace each other from the cache."""
        shape = n, g
        if shape not in self.results:
            self.results[shape] = np.empty((n, g + 8))[:, :g]
        return self.results[shape]

    def workspace(self, q: int, n: int, g: int) -> Workspace:
        """Return memory for q features, n rows and g centres."""
        shape = q, n, g
        if shape not in self.spaces:
            self.spaces[shape] = Workspace(*shape)
        return self.spaces[shape]


def distinct(coordinates: Float) -> tuple[Float, Int | None]:
    """Return the distinct coordinates (u,) and the position of each row among them (n,), if there
    are few; the coordinates (n,) and None otherwise."""
    most = min(len(coordinates) // LEAST_REPEATS, MOST_DISTINCT)
    if most < 1 or len(np.unique(coordinates[: 2 * most])) > most:
        return coordinates, None
    values, places = np.unique(coordinates, return_inverse=True)
    return (values, places) if len(values) <= most else (coordinates, None)


class ActiveFeatures:
    """The features of an ANOVA kernel that have a share, and what its derivatives have in common.

    ``places`` (p,) are their positions, ``factors`` and ``shares`` (p,) theirs, and ``total`` is S
    at x = z.
    """

    def __init__(self, kernel: Any, n_features: int) -> None:
        shares = kernel.shares_of(n_features)
        self.kernel = kernel
        self.n_features = n_features
        self.places = np.flatnonzero(shares)
        self.shares: Float = shares[self.places]
        self.factors = [kernel.factor(n_features, j) for j in self.places.tolist()]
        self.roots = np.array([factor.root for factor in self.factors])
        self.is_number = ~np.isin(self.places, kernel.categorical)
        self.total = float(total_of(self.shares[:, None], kernel.order)[0])

    @property
    def has_quotients(self) -> bool:
        """True if ∂S/∂t_j is (1 + S)/(1 + t_j): without an order, and with positive terms."""
        return self.kernel.order is None and self.kernel.base in (Gaussian.name, *SIDED)

    def coordinates(self, points: Float, origin: Float) -> Float:
        """Return the coordinates (p, n) of points (n, d), measured from ``origin`` (d,)."""
        coordinates = np.ascontiguousarray(points[:, self.places].T)
        coordinates -= np.where(self.is_number, origin[self.places], 0.0)[:, None]
        coordinates *= self.roots[:, None]
        return coordinates

    def values(self, differences: Float) -> Float:
        """Return the values k_j (p, …) for differences of coordinates (p, …)."""
        values = differences.copy()
        for factor, of_feature in zip(self.factors, values, strict=True):
            factor.value(of_feature)
        return values

    def terms(self, values: Float) -> Float:
        """Return the terms a_j k_j (p, …)."""
        return self.shares.reshape(-1, *[1] * (values.ndim - 1)) * values

    def sums(self, steps: Iterable[Float], values: Float, weights: Float) -> Float:
        """Return the sums of weights times ∂S/∂ log gamma_j and ∂S/∂ log a_j, (2, p).

        Args:
            steps: ∂k_j/∂ log gamma_j (…) of each feature
            values: k_j, (p, …)
            weights: (…)
        """
        terms = self.terms(values)
        slopes = slopes_of(terms, self.kernel.order)
        slopes *= weights
        sums = np.empty((2, len(self.places)))
        for place, of_feature in enumerate(steps):
            sums[0, place] = self.shares[place] * np.vdot(slopes[place], of_feature)
            sums[1, place] = np.vdot(slopes[place], terms[place])
        return sums

    def gradient(self, sums: Float, of_values: float) -> Float:
        """Return the weighted sums of ∂k/∂ log parameter for k = S/S(a).

        These are ∂S/∂ log gamma_j / S(a) and (∂S/∂ log a_j − k ∂S(a)/∂ log a_j) / S(a).

        Args:
            sums: as ``sums`` returns them, (2, p)
            of_values: the sum of weights times k
        """
        peaks = self.shares * slopes_of(self.shares[:, None], self.kernel.order)[:, 0]
        of_features = np.zeros((2, self.n_features))
        of_features[:, self.places] = sums
        of_features[1, self.places] -= of_values * peaks
        of_features /= self.total
        return np.concatenate(
            [self.kernel.shared(of_features[0]), self.kernel.of_shares(of_features[1])]
        )


class PreparedAnova(PreparedKernel):
    """An ANOVA kernel prepared for m centres, whose coordinates are ``centres`` (p, m)."""

    def __init__(self, kernel: Any, centres: Float, origin: Float | None) -> None:
        self.features = ActiveFeatures(kernel, centres.shape[1])
        self.order = kernel.order
        self.origin = origin_of(centres, origin)
        self.centres = self.features.coordinates(centres, self.origin)
        self.is_product = self.order is None and self.features.total >= LEAST_TOTAL
        self.stretches = self._stretches()
        self.height = max(MOST_FACTORS // (TERMS * len(self.centres)) // ROWS, 1) * ROWS

    def _stretches(self) -> list[tuple[slice, FactorColumns]]:
        """Return the columns of consecutive active features whose kernels have one class."""
        p, m = self.centres.shape
        whole = np.zeros((p, m + -m % SIZE))
        whole[:, :m] = self.centres
        factors = self.features.factors
        borders = [j for j in range(1, p) if type(factors[j]) is not type(factors[j - 1])]
        stretches = []
        for start, stop in pairwise([0, *borders, p]):
            places = slice(start, stop)
            columns = columns_of(
                factors[places], whole[places], self.features.shares[places], self.constant
            )
            stretches.append((places, columns))
        return stretches

    @property
    def constant(self) -> float:
        """The term of each factor without k."""
        return float(self.is_product)

    def __call__(self, points: Float, out: Float) -> None:
        for rows in runs(len(points), self.height):
            coordinates = self.features.coordinates(points[rows], self.origin)
            p, n = coordinates.shape
            if n > FEW_ROWS:
                self._fill(self._parts(coordinates), SIZE, out[rows])
            else:
                most = max(FEW_VALUES // (SIZE * (n + -n % PIECE_ROWS)), 1)
                parts = self._parts_of_few(coordinates, most)
                self._fill(parts, max(most // p, 1) * SIZE, out[rows])

    def _parts(self, coordinates: Float) -> list[FeaturePart]:
        """Return the rows with coordinates (p, n) in each feature, with a table if there are few
        distinct values."""
        parts = []
        for places, columns in self.stretches:
            for j, of_feature in enumerate(coordinates[places]):
                single = columns.of(slice(j, j + 1))
                values, positions = distinct(of_feature)
                parts.append(FeaturePart(single, single.rows(values[None]), positions))
        return parts

    def _parts_of_few(self, coordinates: Float, most: int) -> list[FeaturePart]:
        """Return few rows with coordinates (p, n), up to ``most`` features together: calls of
        functions would take longer than their work on a single feature."""
        parts = []
        for places, columns in self.stretches:
            for batch in runs(places.stop - places.start, most):
                several = columns.of(batch)
                parts.append(FeaturePart(several, several.rows(coordinates[places][batch]), None))
        return parts

    def gradient(self, points: Float, values: Float, weights: Float) -> Float:
        features = self.features
        sums = np.zeros((2, len(features.places)))
        for rows, group, differences in self._pieces(points):
            of_pairs = features.values(differences)
            steps = [
                factor.by_width(*of_feature)
                for factor, *of_feature in zip(features.factors, differences, of_pairs, strict=True)
            ]
            sums += features.sums(steps, of_pairs, weights[rows, group])
        return features.gradient(sums, float(np.einsum("nm,nm->", weights, values)))

    def input_gradient(self, points: Float, values: Float, weights: Float) -> Float:
        """Return the weighted sum of ∂k/∂x_j = ∂S/∂t_j a_j ∂k_j/∂x_j / S(a)."""
        features = self.features
        gradients = np.zeros(points.shape)
        for rows, group, differences in self._pieces(points):
            of_pairs = features.values(differences)
            slopes = slopes_of(features.terms(of_pairs), self.order)
            slopes *= weights[rows, group]
            for place, factor in enumerate(features.factors):
                factor.slope(differences[place], of_pairs[place])
                sums = np.einsum("nm,nm->n", slopes[place], differences[place])
                scale = features.shares[place] * factor.root / features.total
                gradients[rows, features.places[place]] += scale * sums
        return gradients

    def _fill(self, parts: list[FeaturePart], size: int, out: Float) -> None:
        """Write the values for n rows and m centres into ``out`` (n, m).

        Args:
            parts: the rows in the active features, in the order of these
            size: maximum number of centres that are computed together, a multiple of ``SIZE``
            out: (n, m)
        """
        n, m = out.shape
        memory = PieceMemory(self.order, is_product=self.is_product)
        height = max(VALUES // (size * PIECE_ROWS), 1) * PIECE_ROWS
        for centres in runs(m + -m % SIZE, size):
            blocks = [part.block(centres) for part in parts]
            for run in runs(n, height):
                piece = out[run, centres]
                piece[...] = self._piece(blocks, run, memory)[:, : piece.shape[1]]

    def _piece(
        self, blocks: list[FactorBlock | TableBlock], run: slice, memory: PieceMemory
    ) -> Float:
        """Return the values (n, g) for a run of n rows.

        Args:
            blocks: the factors of the active features, in the order of these
            run: which rows
            memory: for the values
        """
        n = run.stop - run.start
        interactions = memory.interactions(n, blocks[0].n_centres)
        for block in blocks:
            work = memory.workspace(block.n_features, n, block.n_centres)
            block.fill(run, work)
            for of_feature in work.values:
                interactions.add(of_feature[:n])
        values = memory.values(n, blocks[0].n_centres)
        np.divide(interactions.total, self.features.total, out=values)
        return np.minimum(values, 1.0, out=values)

    def terms(self, place: int, coordinates: Float, group: slice) -> Float:
        """Return a_j k_j (n, g) of an active feature.

        Args:
            place: position of the feature among the active ones
            coordinates: (n,), of rows
            group: positions of g centres
        """
        terms = np.subtract.outer(coordinates, self.centres[place, group])
        self.features.factors[place].value(terms)
        terms *= self.features.shares[place]
        return np.asarray(terms)

    def _pieces(self, points: Float) -> Iterator[tuple[slice, slice, Float]]:
        """Yield rows, centres, and the differences (p, n, m) of their coordinates."""
        coordinates = self.features.coordinates(points, self.origin)
        for rows, group in product(runs(len(points), ROWS), runs(self.centres.shape[1], SIZE)):
            yield rows, group, coordinates[:, rows, None] - self.centres[:, None, group]


class AnovaTriangle:
    """Values of an ANOVA kernel between n points (n, d): ``values`` holds the columns of the lower
    triangle one after the other.

    They are computed in slabs, a few points and all later ones, and a feature at a time, so that
    all arrays stay in the cache. The values k_j of features are kept for the gradient if they are
    at most ``most_kept`` numbers.
    """

    def __init__(self, kernel: Any, points: Float, most_kept: int = KEPT) -> None:
        n, d = points.shape
        self.features = ActiveFeatures(kernel, d)
        coordinates = self.features.coordinates(points, points.mean(axis=0))
        self.pairs = [
            factor.pairs(of_feature)
            for factor, of_feature in zip(self.features.factors, coordinates, strict=True)
        ]
        self.slabs = slabs(n)
        keeps = len(self.pairs) * n * n // 2 <= most_kept
        self.kept = list[list[Float]]()
        whole = np.zeros((n, n))
        for slab in self.slabs:
            interactions = Interactions(kernel.order, (slab.stop - slab.start, n - slab.start))
            of_features = self._values(slab)
            for share, values in zip(self.features.shares.tolist(), of_features, strict=True):
                interactions.add(share * values)
            if keeps:
                self.kept.append(of_features)
            whole[slab, slab.start :] = interactions.total
        whole /= self.features.total
        self.values: Float = lapack.dtrttp(whole.T, uplo="L")[0]

    def gradient(self, weights: Float) -> Float:
        """Return Σ weights ∂k/∂ log parameter for weights in the layout of ``values``."""
        n = len(self.slabs) and self.slabs[-1].stop
        whole = lapack.dtpttr(n, weights, uplo="L")[0].T
        products = lapack.dtpttr(n, self.values, uplo="L")[0].T * self.features.total
        products += 1.0
        sums = np.zeros((2, len(self.pairs)))
        for number, slab in enumerate(self.slabs):
            later = slice(slab.start, None)
            of_features = self.kept[number] if self.kept else self._values(slab)
            if self.features.has_quotients:
                sums += self._sums(slab, of_features, whole[slab, later] * products[slab, later])
            else:
                steps = [
                    pairs.by_width(slab, values)
                    for pairs, values in zip(self.pairs, of_features, strict=True)
                ]
                sums += self.features.sums(steps, np.stack(of_features), whole[slab, later])
        return self.features.gradient(sums, float(weights @ self.values))

    def _sums(self, slab: slice, of_features: list[Float], weighted: Float) -> Float:
        """Return the sums of weights times ∂S/∂ log gamma_j and ∂S/∂ log a_j, (2, p), where
        ∂S/∂t_j = (1 + S)/(1 + t_j).

        Args:
            slab: positions of k points
            of_features: k_j (k, m) of each feature, for the m points from the first of the slab
            weighted: weights times 1 + S, (k, m)
        """
        sums = np.empty((2, len(of_features)))
        slopes = np.empty(weighted.shape)
        shares = self.features.shares.tolist()
        for place, (pairs, values) in enumerate(zip(self.pairs, of_features, strict=True)):
            np.multiply(values, shares[place], out=slopes)
            slopes += 1.0
            np.divide(weighted, slopes, out=slopes)
            steps = pairs.by_width(slab, values)
            sums[:, place] = np.vdot(slopes, steps), np.vdot(slopes, values)
        return np.asarray(sums * self.features.shares)

    def _values(self, slab: slice) -> list[Float]:
        """Return the values k_j (k, m) of each feature for the points of a slab and all later
        ones."""
        return [pairs.values(slab) for pairs in self.pairs]


def slabs(n: int) -> list[slice]:
    """Divide n points into slabs, each of which has about ``PAIRS`` pairs with all points from its
    first on."""
    divided = list[slice]()
    start = 0
    while start < n:
        count = min(max(PAIRS // (n - start), 1), MOST_POINTS)
        divided.append(slice(start, min(start + count, n)))
        start += count
    return divided
