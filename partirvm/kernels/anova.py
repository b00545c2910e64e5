"""ANOVA kernels, whose functions are sums of effects of single features and of their interactions.

With a kernel k_j of each feature and its share a_j ≥ 0,

    k(x, z) = S(t_1, …, t_d) / S(a_1, …, a_d),    t_j = a_j k_j(x_j, z_j),

where S is the sum of the products of all non-empty subsets of its arguments, Π_j (1 + t_j) − 1.
With an ``order`` q, only subsets of up to q features count: S = e_1 + … + e_q for the elementary
symmetric polynomials e_s (Duvenaud, Nickisch & Rasmussen 2011, "Additive Gaussian processes"). A
radial kernel of many features measures their joint distance: a sum of functions of one feature each
varies in every one of them, so that no two rows are near each other. This kernel has such sums
among its functions, at the cost of a product.

Both sums are built by adding one feature at a time: S ← S + t (1 + S), and e_s ← e_s + t e_(s−1).
All terms are positive, so that no digits are lost; blocks use the product where S(a) is at least
``LEAST_TOTAL``. The Newton–Girard formulas for the same polynomials are alternating sums of power
sums, which cancel.

A block is computed in pieces that stay in the cache. If a feature has few distinct values among the
rows, as most columns of tables have, its factors are computed once for each of them, and rows of
this table are copied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import lapack

from partirvm.errors import UsageError
from partirvm.kernels.base import (
    KERNELS,
    NEGLIGIBLE,
    Family,
    PreparedKernel,
    as_numbers,
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
    FeatureKernel,
    GaussianFeature,
    LevelFeature,
    RadialFeature,
    SidedFeature,
)
from partirvm.kernels.nonradial import Laplacian
from partirvm.kernels.radial import Gaussian, RadialKernel
from partirvm.options.constraints import Check, near
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

LEAST_TOTAL = 1.0
"""Minimum S at x = z for which S is computed as Π (1 + t) − 1, in a third of the operations: the
error is a few units of the last digit of the kernel's peak."""

MOST_DISTINCT = 256
"""Maximum number of distinct values of a feature for which its factors are tabulated: a table for
``SIZE`` columns then takes 256 KiB."""

LEAST_REPEATS = 2
"""Minimum number of rows per distinct value for a table."""


class Interactions:
    """The sum S of products of terms, to which one feature after another is added.

    Args:
        order: maximum number of features in a product, or None
        shape: shape of the terms of a feature
        is_product: True if 1 + t is added in place of the terms t, without an order
    """

    def __init__(
        self, order: int | None, shape: tuple[int, ...], *, is_product: bool = False
    ) -> None:
        self.unlimited = order is None
        self.is_product = is_product
        self.sums = np.empty((order or 1, *shape))
        self.work = self.sums if is_product else np.empty(shape)
        self.clear()

    def clear(self) -> None:
        """Remove all features."""
        self.sums.fill(float(self.is_product))

    def add(self, terms: Float) -> None:
        """Add the terms of a feature."""
        first = self.sums[0]
        if self.is_product:
            first *= terms
            return
        if self.unlimited:
            np.add(first, 1.0, out=self.work)
            self.work *= terms
            first += self.work
            return
        for s in range(len(self.sums) - 1, 0, -1):
            np.multiply(self.sums[s - 1], terms, out=self.work)
            self.sums[s] += self.work
        first += terms

    @property
    def total(self) -> Float:
        """The sum S."""
        if self.is_product:
            self.sums[0] -= 1.0
        return self.sums[0] if len(self.sums) == 1 else np.asarray(self.sums.sum(axis=0))


def total_of(terms: Float, order: int | None) -> Float:
    """Return S for the terms (d, …) of all features."""
    interactions = Interactions(order, terms.shape[1:])
    for of_feature in terms:
        interactions.add(of_feature)
    return interactions.total


def slopes_of(terms: Float, order: int | None) -> Float:
    """Return ∂S/∂t_j for the terms t (d, …) of all features.

    It is the product of 1 + t over the other features or, with an order, the sum of their products
    of fewer than ``order`` terms, which is combined from the features before j and after j. The
    product is a quotient unless terms are negative, as those of another radial kernel may be.
    """
    if order is None and terms.min(initial=0.0) >= 0.0:
        slopes = 1.0 + terms
        np.divide(slopes.prod(axis=0), slopes, out=slopes)
        return slopes
    size = 1 if order is None else order
    before = np.zeros((size, *terms.shape[1:]))
    before[0] = 1.0
    after = before.copy()
    sums_before = []
    for of_feature in terms:
        sums_before.append(before.cumsum(axis=0)[::-1])
        before = _with(before, of_feature, order)
    slopes = np.empty(terms.shape)
    for j in range(len(terms) - 1, -1, -1):
        slopes[j] = (sums_before[j] * after).sum(axis=0)
        after = _with(after, terms[j], order)
    return slopes


def _with(sums: Float, terms: Float, order: int | None) -> Float:
    """Return Π (1 + t), or e_0 … e_(order−1), (size, …), with the terms of another feature."""
    if order is None:
        return sums * (1.0 + terms)
    extended = sums.copy()
    extended[1:] += sums[:-1] * terms
    return extended


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

    def __init__(self, kernel: "Anova", n_features: int) -> None:
        shares = kernel.shares_of(n_features)
        self.kernel = kernel
        self.n_features = n_features
        self.places = np.flatnonzero(shares)
        self.shares = shares[self.places]
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

    def __init__(self, kernel: "Anova", centres: Float, origin: Float | None) -> None:
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

    def __init__(self, kernel: "Anova", points: Float, most_kept: int = KEPT) -> None:
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
        return sums * self.features.shares

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


@dataclass(frozen=True, repr=False)
class Anova(Family, name="anova", form=PreparedAnova):
    """Kernel of sums of effects: ``k(x, z) = (Π_j (1 + a_j k_j(x_j, z_j)) − 1)/(Π_j (1 + a_j) −
    1)``.

    Its functions are sums of effects of single features and of their interactions. The share a_j
    sets how much of feature j's effect interacts: with small shares, the function is a sum of
    functions of one feature each; with large shares, it is a joint function of all features. gamma
    is the inverse squared width of each k_j; "scale" is 1 divided by the feature's variance. See
    Duvenaud, Nickisch & Rasmussen (2011), "Additive Gaussian processes".

    Parameters
    ----------
    gamma, multiples, metric : optional
        As for ``Gaussian``.
    shares : float or sequence of float, default=()
        Shares a_j ≥ 0: one number for all features or one per feature; a feature with share 0 has
        no effect. Without any, each share is 1/d, and learning a width per feature also learns the
        shares.
    base : str, default="gaussian"
        The kernel of each feature: "gaussian", "matern52", "matern32", "laplacian", or the name of
        another radial kernel.
    order : int or None, default=None
        Maximum number of features that interact; 1 gives a sum of functions of one feature each.
    categorical : sequence of int, default=()
        Positions of features that hold codes of categories, whose kernel is ``exp(−gamma_j [x_j ≠
        z_j])``. Categorical columns of a dataset are added by the fit.

    Raises
    ------
    UsageError
        If a parameter has an impossible value, or if all shares are 0.

    Examples
    --------
    >>> from partirvm import Anova
    >>> kernel = Anova(gamma=2.0, shares=(0.5, 0.5), order=1)
    >>> float(kernel.values(np.zeros((1, 2)), np.array([[0.0, 9.0]]))[0, 0])
    0.5
    """

    shares: Any = ()
    base: str = "gaussian"
    order: int | None = None
    categorical: Any = ()
    numbers: ClassVar[dict[str, Check]] = {"order": Check("whole", least=1, optional=True)}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shares", _checked_shares(self.shares))
        object.__setattr__(self, "categorical", _checked_positions(self.categorical))
        known = [name for name, kind in KERNELS.items() if _is_base(kind)]
        if self.base not in known:
            raise UsageError(
                f"base of the anova kernel is {self.base!r}: it must be one of "
                f"{', '.join(known)}{near(self.base, known)}"
            )

    def factor(self, n_features: int, j: int) -> FeatureKernel:
        """Return the kernel of feature j. Raises ``UsageError`` if gamma has another number of
        features."""
        gamma = float(self.widths(n_features)[j])
        if j in self.categorical:
            return LevelFeature(gamma)
        if self.base == Gaussian.name:
            return GaussianFeature(gamma)
        kernel: Any = KERNELS[self.base]
        if self.base in SIDED:
            return SidedFeature(gamma, *SIDED[self.base])
        return RadialFeature(kernel(1.0), gamma)

    def shares_of(self, n_features: int) -> Float:
        """Return the share of each feature, (n_features,). Raises ``UsageError`` if their number
        does not match."""
        if len(self.shares) not in (0, 1, n_features):
            raise UsageError(
                f"shares has {len(self.shares)} values but the data have {n_features} features"
            )
        if max(self.categorical, default=0) >= n_features:
            raise UsageError(
                f"the categorical features of the anova kernel are {list(self.categorical)}, but "
                f"the data have {n_features} features, counted from 0"
            )
        shares = self.shares or (1.0 / n_features,)
        shares = np.broadcast_to(np.asarray(shares, dtype=float), (n_features,))
        with np.errstate(over="ignore"):
            total = total_of(shares[:, None], self.order)
        if not np.isfinite(total).all():
            raise UsageError(
                f"the product of {n_features} shares of the anova kernel exceeds the largest "
                "number: the shares must be smaller"
            )
        return shares

    def portions(self, n_features: int) -> Float:
        """Return a_j ∂S/∂t_j / S at x = z, (n_features,): the change of k per change of k_j.

        k(x, x) − k(x, z) is about Σ_j portion_j (1 − k_j) for rows near each other. For one
        feature, the portion is 1.
        """
        shares = self.shares_of(n_features)
        slopes = slopes_of(shares[:, None], self.order)[:, 0]
        return np.asarray(shares * slopes / total_of(shares[:, None], self.order))

    def of_shares(self, gradient: Float) -> Float:
        """Return the gradient with respect to the logarithms of ``shares`` from the gradients of
        all features (d,)."""
        if len(self.shares) > 1:
            return gradient
        return np.full(len(self.shares), gradient.sum())

    def learnable(self) -> dict[str, float]:
        parameters = super().learnable()
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares).tolist()
        single = len(logs) == 1
        return parameters | {
            "shares" if single else f"shares[{j}]": log for j, log in enumerate(logs)
        }

    def with_logs(self, logs: Float) -> Self:
        count = len(self.gamma)
        if len(logs) != count + len(self.shares):
            raise UsageError(
                f"{len(logs)} logarithms for {count + len(self.shares)} parameters of a kernel"
            )
        numbers = np.exp(logs).tolist()
        return replace(self, gamma=tuple(numbers[:count]), shares=tuple(numbers[count:]))

    def relevances(self, n_features: int) -> Float | None:
        """Return each feature's gamma times its portion: the gamma of a kernel of all features that
        has the same curvature at x = z."""
        return self.widths(n_features) * self.portions(n_features)

    def axes_of_distance(self, n_features: int) -> Float | None:
        """Return axes (r, n_features) of coordinates whose squared distance is k(x, x) − k(x, z)
        for rows near each other."""
        relevances = self.widths(n_features) * self.portions(n_features)
        axes = np.diag(relevances if self.base == Laplacian.name else np.sqrt(relevances))
        return axes[[j for j in range(n_features) if j not in self.categorical]]

    def level_widths(self, n_features: int) -> Float:
        portions = self.portions(n_features)
        is_coded = np.isin(np.arange(n_features), self.categorical)
        return np.where(is_coded, -portions * np.expm1(-self.widths(n_features)), 0.0)

    def per_feature(self, n_features: int) -> Self:
        shares = tuple(self.shares_of(n_features).tolist())
        return replace(super().per_feature(n_features), shares=shares)

    def on(self, places: Int, widths: Float, shares: Float) -> Self:
        """Return the kernel of some features alone.

        Args:
            places: positions of the features, (r,)
            widths: their gammas, (r,)
            shares: (r,)
        """
        coded = [place for place, j in enumerate(places.tolist()) if j in self.categorical]
        return replace(
            self,
            gamma=tuple(widths.tolist()),
            shares=tuple(shares.tolist()),
            categorical=tuple(coded),
        )

    def without_weak(self, least: float, value: float) -> Self:
        """Return the kernel without the features whose relevance is below the fraction ``least`` of
        the largest; their shares become ``value``."""
        n_features = max(len(self.gamma), len(self.shares))
        relevances = self.widths(n_features) * self.portions(n_features)
        shares = self.shares_of(n_features)
        is_weak = (relevances > 0.0) & (relevances < least * relevances.max())
        return replace(self, shares=tuple(np.where(is_weak, value, shares).tolist()))

    def operations(self, x: Any, Z: Float) -> Any:
        d = Z.shape[1]
        shares = self.shares_of(d)
        columns = np.flatnonzero(shares).tolist()
        terms = [float(shares[j]) * self._factor_operations(x, Z, j) for j in columns]
        sums = [terms[0]]
        for term in terms[1:]:
            if self.order is None:
                sums = [sums[0] + (sums[0] + 1.0) * term]
                continue
            longer = [product * term for product in sums[: self.order - 1]]
            sums[0] = sums[0] + term
            for s, products in enumerate(longer, start=1):
                sums[s:] = [sums[s] + products] if s < len(sums) else [products]
        total = float(total_of(shares[:, None], self.order)[0])
        return sum(sums[1:], start=sums[0]) / total

    def _factor_operations(self, x: Any, Z: Float, j: int) -> Any:
        """Return k_j (n, M) as operations."""
        gamma = float(self.widths(Z.shape[1])[j])
        column = x.take([j])
        if not gamma:
            return column * np.zeros(len(Z)) + 1.0
        name = "categorical" if j in self.categorical else self.base
        kind: Any = KERNELS[name]
        return kind(gamma).exported(column, Z[:, [j]])


def _is_base(kind: Any) -> bool:
    """Return True if a kernel of one feature may be of this class."""
    return kind is Laplacian or issubclass(kind, RadialKernel)


def _checked_shares(given: Any) -> tuple[float, ...]:
    """Return shares as numbers; a tuple of floats is returned unchanged, as scikit-learn's clone
    requires."""
    if isinstance(given, tuple | list) and not given:
        return ()
    shares = np.atleast_1d(as_numbers(None if isinstance(given, str) else given))
    largest = float(shares.max()) if shares.ndim == 1 and shares.size else 0.0
    if not (NEGLIGIBLE < largest <= 1e6 and (shares >= 0.0).all()):
        raise UsageError(
            f"shares of the anova kernel is {given!r}: it must be a positive number, or one number "
            "from 0 to 1e6 per feature, not all 0"
        )
    same = type(given) is tuple and all(type(share) is float for share in given)
    return given if same else tuple(shares.tolist())


def _checked_positions(given: Any) -> tuple[int, ...]:
    """Return the positions of features; a tuple of integers is returned unchanged."""
    positions = tuple(given) if isinstance(given, tuple | list | np.ndarray) else None
    is_valid = positions is not None and all(
        isinstance(j, int | np.integer) and not isinstance(j, bool) and j >= 0 for j in positions
    )
    if positions is None or not is_valid or len(set(positions)) < len(positions):
        raise UsageError(
            f"categorical of the anova kernel is {given!r}: it must be a tuple of distinct feature "
            "positions, from 0"
        )
    if type(given) is tuple and all(type(j) is int for j in positions):
        return given
    return tuple(int(j) for j in positions)
