"""Columns on demand: statistics of K candidate columns without their Gram matrix.

A fit by actions (``core.fast``) reads the rows of G = ΦᵀWΦ that belong to columns which have joined, and of the others
the diagonal alone. Where Φ of all rows is at hand, as where every row is a candidate and Φ is no larger than G, a row
of G costs NK multiplications; where M columns join, that is MNK instead of the ½NK² of all.

Rows come several at once, since a product of matrices does more in the time than one with a vector: with the column
that joins those that are likely to come next, ``SHARE`` of the rows there are. So even where most columns join all
their rows cost little more than G does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from partirvm.core.statistics import GramBlock, GramStatistics

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SHARE = 0.125
"""Rows of G that come beside the one wanted, as a share of those that are there."""

ROOM = 64
"""Rows of G for which there is room at first."""


@dataclass(frozen=True)
class DesignRows:
    """Rows of a design and of its target, √w_n times each: ``blocks`` (n, K) and ``targets`` (n, T), in order of rows.

    Nothing is summed but ``n``, rows of non-zero weight, and ``log_weight``, Σ log w_n over them: a sum is one below
    the other.
    """

    blocks: tuple[Float, ...]
    targets: tuple[Float, ...]
    n: int
    log_weight: float

    @classmethod
    def of(cls, block: Float, target: Float, weights: Float | None = None) -> DesignRows:
        """Of a design block (n, K), whose memory may be taken for another one, with ``target`` (n, T)."""
        if weights is None:
            return cls((block.copy(order="K"),), (target,), len(block), 0.0)
        root, present = np.sqrt(weights)[:, None], weights > 0
        log_weight = float(np.log(weights[present]).sum())
        return cls((block * root,), (target * root,), int(present.sum()), log_weight)

    def joined(self) -> DesignRows:
        """The same as one block."""
        if len(self.blocks) == 1:
            return self
        return replace(self, blocks=(np.concatenate(self.blocks),), targets=(np.concatenate(self.targets),))

    def gram(self) -> GramBlock:
        """What all columns add to none: the whole of ΦᵀWΦ."""
        parts = zip(self.blocks, self.targets, strict=True)
        whole = reduce(GramBlock.accumulate, (GramBlock.of(Phi[:, :0], Phi, target) for Phi, target in parts))
        return replace(whole, n=self.n, log_weight=self.log_weight)

    def __add__(self, other: DesignRows) -> DesignRows:
        return DesignRows(
            self.blocks + other.blocks,
            self.targets + other.targets,
            self.n + other.n,
            self.log_weight + other.log_weight,
        )


@dataclass(frozen=True)
class Pool:
    """Candidates of a fit by actions: columns ``labels`` (K,) of a ``basis``, by the ``rows`` of their design."""

    basis: str
    labels: Int
    rows: DesignRows


class OnDemand:
    """Mutable: as ``GramStatistics`` of a target with offset zero, but rows of ``gram`` come as they are asked for.

    ``labels`` (K,), ``diagonal`` (K,) of G, ``projection`` (K, 1), ``energy`` (1,) and ``offset`` (K, 1).
    """

    def __init__(self, pool: Pool) -> None:
        rows, labels = pool.rows.joined(), pool.labels
        self._Phi, target = rows.blocks[0], rows.targets[0]
        self._rows: Float = np.empty((min(ROOM, len(labels)), len(labels)))
        self._place: Int = np.full(len(labels), -1)
        self._count = 0
        self.basis, self.labels = pool.basis, labels
        self.n, self.log_weight = rows.n, rows.log_weight
        self.diagonal: Float = np.einsum("nk,nk->k", self._Phi, self._Phi)
        self.projection: Float = self._Phi.T @ target
        self.energy: Float = np.einsum("nt,nt->t", target, target)
        self.offset: Float = np.zeros_like(self.projection)

    @property
    def n_columns(self) -> int:
        """K, the number of candidates."""
        return len(self.labels)

    @property
    def n_rows(self) -> int:
        """Rows of G that are there."""
        return self._count

    def row(self, column: int, likely: tuple[Int, Float] | None = None) -> Float:
        """The row of G of a column (K,), and beside it those of ``likely`` columns that promise most."""
        if self._place[column] < 0:
            self._measure(np.array([column]) if likely is None else self._wanted(column, *likely))
        found: Float = self._rows[self._place[column]]
        return found

    def take(self, columns: Int) -> GramStatistics:
        """Statistics of the columns at these positions, in this order, whose rows of G are there."""
        gram = self._rows[np.ix_(self._place[columns], columns)]
        symmetric = gram + gram.T
        symmetric *= 0.5
        return GramStatistics(
            basis=self.basis,
            labels=self.labels[columns],
            gram=symmetric,
            projection=self.projection[columns],
            energy=self.energy,
            offset=self.offset[columns],
            n=self.n,
            log_weight=self.log_weight,
        )

    def _wanted(self, column: int, likely: Int, promise: Float) -> Int:
        """The column, and of the likely ones without a row those that come with it."""
        others = (self._place[likely] < 0) & (likely != column)
        likely, promise = likely[others], promise[others]
        best = np.argsort(-promise, kind="stable")[: int(SHARE * self._count)]
        return np.append(column, likely[best])

    def _measure(self, columns: Int) -> None:
        """Rows of G of these columns, which are not there yet."""
        end = self._count + len(columns)
        if end > len(self._rows):
            grown = np.empty((min(max(2 * len(self._rows), end), self.n_columns), self.n_columns))
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : end] = self._Phi[:, columns].T @ self._Phi
        self._place[columns] = np.arange(self._count, end)
        self._count = end
