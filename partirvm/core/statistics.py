"""Sums over rows, in particular the Gaussian sufficient statistics of a design, computed by a pass.

The posterior, evidence and residual of any columns follow from ΦᵀΦ, Φᵀt, tᵀt without rereading
rows. A pass supplies a ``GramBlock`` of new columns to ``GramStatistics.extend``. Rows may have
weights, as in ΦᵀWΦ. Targets are (N, T).

**Residual target.** If the noise is tiny, the terms of tᵀt − 2μᵀΦᵀt + μᵀΦᵀΦμ cancel. Statistics may
therefore refer to r = t − Φm for an ``offset`` m (M, T), with Φᵀr and rᵀr computed by a pass; δ = μ
− m is small, so no terms cancel.

**Sums.** Tile statistics are added in a fixed tree, so that the bits do not depend on the order of
arrival. Node ``(level, index)`` is the sum over tiles ``[index * 2**level, (index + 1) *
2**level)``: its left child, plus the right one if it has any tiles. A task that processes an
aligned run of ``2**level`` tiles returns one node.

**Labels** of columns: a label ≥ 0 is the row number of the centre; a negative label marks a
*leading* column, such as the bias.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from partirvm.types import Float, Int

EPS = float(np.finfo(np.float64).eps)


class FieldSums:
    """Base class of dataclasses whose fields are all sums over rows, tuples of such sums, or
    None."""

    def __add__(self, other: Self) -> Self:
        return self._sum(other, operator.add)

    def __iadd__(self, other: Self) -> Self:
        """Return ``self + other``, computed in place in the arrays of ``self``, which no other
        object may use."""
        return self._sum(other, operator.iadd)

    def _sum(self, other: Self, add: Callable[[Any, Any], Any]) -> Self:
        sums: dict[str, Any] = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            added = getattr(other, item.name)
            if isinstance(value, tuple):
                sums[item.name] = tuple(map(add, value, added))
            elif value is not None:
                sums[item.name] = add(value, added)
        return replace(self, **sums)  # type: ignore[type-var]


@dataclass
class TreeSum:
    """Sum of ``n_tiles`` nodes that arrive in any order; siblings are added by ``plus`` as soon as
    both are present."""

    n_tiles: int
    plus: Callable[[Any, Any], Any] = operator.add
    _waiting: dict[tuple[int, int], Any] = field(default_factory=dict)

    def add(self, index: int, value: Any, level: int = 0) -> None:
        """Insert node ``(level, index)``, then sum siblings up the tree as long as both are
        present."""
        while 1 << level < self.n_tiles:
            if (index ^ 1) << level < self.n_tiles:
                sibling = self._waiting.pop((level, index ^ 1), None)
                if sibling is None:
                    break
                value = self.plus(sibling, value) if index & 1 else self.plus(value, sibling)
            level = level + 1
            index = index >> 1
        self._waiting[level, index] = value

    def result(self) -> Any:
        """Return the root. Raises ``RuntimeError`` while nodes are missing: an incomplete sum must
        not be used."""
        for (level, _), value in self._waiting.items():
            if 1 << level >= self.n_tiles:
                return value
        raise RuntimeError(
            f"the sum over {self.n_tiles} tiles is incomplete: {sorted(self._waiting)} are waiting"
        )


def aligned_runs(n_tiles: int, level: int) -> Iterator[tuple[int, range]]:
    """Divide ``n_tiles`` tiles into aligned runs of ``2**level``: pairs of the node index at that
    level and the tile numbers."""
    size = 1 << level
    return enumerate(range(start, min(start + size, n_tiles)) for start in range(0, n_tiles, size))


@dataclass(frozen=True)
class GramBlock(FieldSums):
    """The new rows and columns of a Gram matrix when P columns join M kept columns, over a set of
    rows.

    Attributes:
        cross: Φ_keptᵀWΦ_new (M, P)
        gram: Φ_newᵀWΦ_new (P, P), or only its diagonal (P,), from which s and q follow
        projection: Φ_newᵀWr (P, T)
        sum_squares: the diagonal of rᵀWr (T,)
        n: number of rows with non-zero weight
        log_weight: Σ log w_n over these rows
    """

    cross: Float
    gram: Float
    projection: Float
    sum_squares: Float
    n: int
    log_weight: float

    @classmethod
    def of(
        cls,
        kept: Float,
        new: Float,
        target: Float,
        weights: Float | None = None,
        diagonal: bool = False,
    ) -> Self:
        """Return the statistic of rows.

        Args:
            kept: kept columns at the rows (n, M)
            new: new columns (n, P)
            target: targets (n, T)
            weights: row weights (n,)
            diagonal: if True, compute only the diagonal of ``gram``
        """
        n = len(new)
        log_weight = 0.0
        if weights is not None:
            present = weights > 0
            n = int(present.sum())
            log_weight = float(np.log(weights[present]).sum())
            root = np.sqrt(weights)[:, None]
            kept = kept * root
            new = new * root
            target = target * root
        gram = np.einsum("np,np->p", new, new) if diagonal else new.T @ new
        squares = np.einsum("nt,nt->t", target, target)
        return cls(kept.T @ new, gram, new.T @ target, squares, n, log_weight)


@dataclass(frozen=True)
class ResidualStatistics(FieldSums):
    """Residuals r = t − Φμ: ``sum_squares`` (T,) = Σ w r², ``projection`` (M, T) = Φᵀ(w r)."""

    sum_squares: Float
    projection: Float


@dataclass(frozen=True)
class GramStatistics:
    """Sufficient statistics of M labelled columns over n rows, for r = t − Φ·offset.

    Attributes:
        labels: column labels, int64 (M,)
        gram: ΦᵀWΦ (M, M)
        projection: ΦᵀWr (M, T)
        sum_squares: the diagonal of rᵀWr (T,)
        offset: m (M, T)
        n: number of rows with non-zero weight
        log_weight: Σ log w_n over these rows
    """

    labels: Int
    gram: Float
    projection: Float
    sum_squares: Float
    offset: Float
    n: int
    log_weight: float = 0.0

    @classmethod
    def empty(cls, n_targets: int = 1) -> Self:
        """Return statistics of zero columns."""
        none = np.zeros((0, n_targets))
        return cls(np.zeros(0, np.int64), np.zeros((0, 0)), none, np.zeros(n_targets), none, 0)

    @classmethod
    def of(cls, labels: Int, block: GramBlock) -> Self:
        """Return the statistics of the new columns of a block, with these labels."""
        return cls.empty(len(block.sum_squares)).extend(labels, block)

    def of_target(self, k: int) -> Self:
        """Return the statistics of one target, with the same Gram matrix."""
        names = ("projection", "sum_squares", "offset")
        return replace(self, **{name: getattr(self, name)[..., k : k + 1] for name in names})

    def extend(self, labels: Int, block: GramBlock) -> Self:
        """Add P columns with these labels, from a block of the same kept columns and rows."""
        gram = np.block([[self.gram, block.cross], [block.cross.T, block.gram]])
        projection = np.concatenate([self.projection, block.projection])
        offset = np.concatenate([self.offset, np.zeros_like(block.projection)])
        labels = np.concatenate([self.labels, labels])
        return type(self)(
            labels, gram, projection, block.sum_squares, offset, block.n, block.log_weight
        )

    def merge(self, other: Self) -> Self:
        """Return the sum of statistics of the same columns over different rows."""
        other = other.shift(self.offset - other.offset)
        names = ("gram", "projection", "sum_squares", "n", "log_weight")
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def residual(self, delta: Float) -> tuple[float, float]:
        """Return ‖t − Φμ‖² (weighted) for μ = offset + δ, (M,) or (M, T), and its error bound,
        which is also its minimum."""
        projection = self.projection.reshape(delta.shape)
        sum_squares = self.sum_squares.sum()
        sizes = np.abs(delta)
        explained = float(np.vdot(delta, 2 * projection - self.gram @ delta))
        rounding = float(
            EPS * (sum_squares + np.vdot(sizes, 2 * np.abs(projection) + np.abs(self.gram) @ sizes))
        )
        return max(float(sum_squares) - explained, rounding), rounding

    def take(self, columns: Int) -> Self:
        """Keep the columns at these positions, in order. The target then includes the offset of
        dropped columns."""
        if len(columns) == len(self.labels) and np.array_equal(
            columns, np.arange(len(self.labels))
        ):
            return self
        statistics = self.without_offset_beside(columns)
        taken: dict[str, Any] = {
            n: getattr(statistics, n)[columns] for n in ("labels", "projection", "offset")
        }
        return replace(statistics, gram=statistics.gram[np.ix_(columns, columns)], **taken)

    def without_offset_beside(self, columns: Int) -> Self:
        """Return the statistics of the target that includes the offset of all columns except
        these."""
        others = self.offset.copy()
        others[columns] = 0.0
        return self.shift(-others) if others.any() else self

    def shift(self, change: Float) -> Self:
        """Return statistics for the offset ``offset + change`` (M, T), computed algebraically,
        which may lose digits."""
        moved = self.gram @ change
        sum_squares = self.sum_squares - np.einsum("mt,mt->t", change, 2 * self.projection - moved)
        return replace(
            self,
            projection=self.projection - moved,
            sum_squares=sum_squares,
            offset=self.offset + change,
        )
