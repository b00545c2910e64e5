"""Statistics of K candidate columns whose Gram matrix rows are computed on demand.

A fit by actions (``core.fast``) needs the rows of G = ΦᵀWΦ for the columns that have joined the model. For all other
columns the fit needs only the diagonal of G. If Φ of all rows is in memory (every row is a candidate, and Φ is no
larger than G), a row of G costs NK multiplications. If M columns join, the total is MNK instead of ½NK² for all of G.

Several rows are computed at once, since a matrix-matrix product is more efficient than matrix-vector products. With the
row of the joining column, rows of the columns that are likely to join next are computed: ``SHARE`` × the number of rows
computed so far. So even if most columns join, the rows cost little more than all of G.
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
"""Additional rows of G per computation, as a fraction of the rows computed so far."""

ROOM = 64
"""Rows of G allocated initially."""


@dataclass(frozen=True)
class DesignRows:
    """Rows of a design and a target, multiplied by √w_n: ``blocks`` (n, K) and ``targets`` (n, T), in row order.

    The sum of two objects concatenates the blocks. It adds ``n``, the number of rows with non-zero weight, and
    ``log_weight``, the sum of log w_n over these rows.
    """

    blocks: tuple[Float, ...]
    targets: tuple[Float, ...]
    n: int
    log_weight: float

    @classmethod
    def of(cls, block: Float, target: Float, weights: Float | None = None) -> DesignRows:
        """Return the rows of a design block (n, K) with ``target`` (n, T). The memory of ``block`` may be reused."""
        if weights is None:
            return cls((block.copy(order="K"),), (target,), len(block), 0.0)
        root, present = np.sqrt(weights)[:, None], weights > 0
        log_weight = float(np.log(weights[present]).sum())
        return cls((block * root,), (target * root,), int(present.sum()), log_weight)

    def joined(self) -> DesignRows:
        """Return the rows concatenated in a single block."""
        if len(self.blocks) == 1:
            return self
        return replace(self, blocks=(np.concatenate(self.blocks),), targets=(np.concatenate(self.targets),))

    def gram(self) -> GramBlock:
        """Return the statistics of all columns as new columns, with the full ΦᵀWΦ."""
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
    """Candidates of a fit by actions: columns ``labels`` (K,) of a ``basis``, and the ``rows`` of the design."""

    basis: str
    labels: Int
    rows: DesignRows


class OnDemand:
    """Statistics like ``GramStatistics`` with offset zero, but rows of ``gram`` are computed on request. Mutable.

    ``labels`` (K,), ``diagonal`` (K,) of G, ``projection`` (K, 1), ``sum_squares`` (1,) and ``offset`` (K, 1).
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
        self.sum_squares: Float = np.einsum("nt,nt->t", target, target)
        self.offset: Float = np.zeros_like(self.projection)

    @property
    def n_columns(self) -> int:
        """K, the number of candidates."""
        return len(self.labels)

    @property
    def n_rows(self) -> int:
        """Number of rows of G computed so far."""
        return self._count

    def row(self, column: int, likely: tuple[Int, Float] | None = None) -> Float:
        """Return the row of G of a column (K,). A new row is computed together with rows of ``likely`` columns."""
        if self._place[column] < 0:
            self._measure(np.array([column]) if likely is None else self._wanted(column, *likely))
        found: Float = self._rows[self._place[column]]
        return found

    def take(self, columns: Int) -> GramStatistics:
        """Return statistics of the columns at these positions, in order; their rows of G must have been computed."""
        gram = self._rows[np.ix_(self._place[columns], columns)]
        symmetric = gram + gram.T
        symmetric *= 0.5
        return GramStatistics(
            basis=self.basis,
            labels=self.labels[columns],
            gram=symmetric,
            projection=self.projection[columns],
            sum_squares=self.sum_squares,
            offset=self.offset[columns],
            n=self.n,
            log_weight=self.log_weight,
        )

    def _wanted(self, column: int, likely: Int, promise: Float) -> Int:
        """Return the columns to compute: ``column``, and the most promising ``likely`` columns that have no row yet."""
        others = (self._place[likely] < 0) & (likely != column)
        likely, promise = likely[others], promise[others]
        best = np.argsort(-promise, kind="stable")[: int(SHARE * self._count)]
        return np.append(column, likely[best])

    def _measure(self, columns: Int) -> None:
        """Compute the rows of G of these columns, which are still missing."""
        end = self._count + len(columns)
        if end > len(self._rows):
            grown = np.empty((min(max(2 * len(self._rows), end), self.n_columns), self.n_columns))
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : end] = self._Phi[:, columns].T @ self._Phi
        self._place[columns] = np.arange(self._count, end)
        self._count = end
