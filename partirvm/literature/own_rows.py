"""The scheme of Ben-Shimon & Shmilovici (2006, §2), taken literally: the posterior of each basic
RVM has only the rows of its own candidates.

In the main path, every fit uses all rows or a random sample. The paper can also be read as if a
partition supplied candidates *and* data. Then only σ² refers to the full training set: the paper
computes its residual over all rows, for very large sets over a sample of them, or less often.

``split-merge`` (§2.1)
    Each of ⌈N/P⌉ partitions is fitted; the vectors are merged in pairs and fitted again, until one
    model remains. An odd one waits, as does a pair with fewer than P/2 vectors.
``incremental`` (§2.2)
    The vectors so far and the rows of the next partition are fitted together.
``working-set`` (§2.3)
    The vectors so far and the P unused rows with the largest error are fitted together.

An intermediate fit ends with fewer than P/2 columns; the last one converges.

A few rows, chosen for their large errors, are not a sample of the data: on Friedman's first
dataset, errors are several times those of fits that use all rows, which have the errors printed in
the paper (``benchmarks/ben_shimon``).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from partirvm.core.updates import HyperState
from partirvm.literature.dense import (
    DenseRegressor,
    Ending,
    log_settled,
    maximise,
    started,
    statistics_of,
    update,
)
from partirvm.options.constraints import Check
from partirvm.types import Float, Int

STRATEGIES = ("split-merge", "incremental", "working-set")
"""Names of the strategies."""


@dataclass(repr=False, eq=False)
class OwnRowsRegressor(DenseRegressor):
    """Relevance vector regression by partitions, each fitted to its own rows (Ben-Shimon &
    Shmilovici 2006, §2, read literally).

    Parameters
    ----------
    kernel : Kernel, default=None
        Kernel of ``partirvm.kernels``; None: Gaussian(1.0).
    fit_intercept : bool, default=True
        True offers a bias in each fit ("possible" in the paper).
    strategy : {"split-merge", "incremental", "working-set"}, default="working-set"
        §2.1, §2.2 or §2.3.
    partition_size : int, default=50
        P.
    noise_rows : int, default=None
        Number of random rows whose residual determines σ²; None: the full training set, 0: the rows
        of each fit.
    noise_every : int, default=1
        σ² is computed again every this many updates.
    max_rounds : int, default=None
        Maximum number of fits of ``incremental`` and ``working-set``; None: until all rows were
        used.
    tol : float, default=1e-3
        Largest change of log α and log β at convergence.
    max_iter : int, default=1000
        Maximum number of updates of a fit.
    random_state : int, default=0
        Seed of the partitions and of the rows of σ².

    Examples
    --------
    >>> import numpy as np
    >>> from partirvm.literature.own_rows import OwnRowsRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (100, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(100)
    >>> model = OwnRowsRegressor(strategy="incremental").fit(X, y)
    >>> model.n_relevance_vectors_ < 25
    True
    """

    strategy: str = "working-set"
    partition_size: int = 50
    noise_rows: int | None = None
    noise_every: int = 1
    max_rounds: int | None = None
    tol: float = 1e-3
    max_iter: int = 1000
    random_state: int = 0

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
        """
        Check("word", STRATEGIES)("strategy", self.strategy)
        X, y = self._training(X, y)
        order = np.random.default_rng(self.random_state).permutation(len(y))
        self._noise_sample = np.sort(order[: self.noise_rows])
        partitions = np.split(order, range(self.partition_size, len(y), self.partition_size))
        last = self._merged if self.strategy == "split-merge" else self._added
        return self._store(self._basic(X, y, last(X, y, partitions)), X)

    def _merged(self, X: Float, y: Float, partitions: list[Int]) -> Int:
        """Return the candidates of the last fit of split-merge (§2.1)."""
        while len(partitions) > 1:
            vectors = [self._vectors(X, y, rows) for rows in partitions]
            pairs = range(0, len(vectors), 2)
            partitions = [np.concatenate(vectors[k : k + 2]) for k in pairs]
        return partitions[0]

    def _added(self, X: Float, y: Float, partitions: list[Int]) -> Int:
        """Return the candidates of the last fit of incremental and working set (§2.2, §2.3)."""
        candidates = partitions[0]
        unused = np.concatenate([candidates[:0], *partitions[1:]])
        for _ in partitions[1 : self.max_rounds]:
            vectors = self._vectors(X, y, candidates)
            if self.strategy == "working-set":
                errors = np.abs(y[unused] - self.predict(X[unused]))
                unused = unused[np.argsort(-errors, kind="stable")]
            candidates = np.concatenate([vectors, unused[: self.partition_size]])
            unused = unused[self.partition_size :]
        return candidates

    def _vectors(self, X: Float, y: Float, rows: Int) -> Int:
        """Store an intermediate fit, and return the row numbers of its vectors; its first row
        without any."""
        self._store(self._basic(X, y, rows, self.partition_size / 2), X)
        return self.candidates_ if len(self.candidates_) else rows[:1]

    def _basic(self, X: Float, y: Float, rows: Int, fewest: float = 0.0) -> Ending:
        """Fit a basic RVM.

        Args:
            X: all rows (N, d)
            y: all targets (N,)
            rows: row numbers of its candidates and data
            fewest: the fit ends with fewer columns
        """
        rows = np.sort(rows)
        candidates = self._columns(X, rows)
        labels = candidates.all_labels
        sample = self._noise_sample
        noise = statistics_of(labels, candidates.block(X[sample]), y[sample])

        def step(state: HyperState) -> tuple[Float, float]:
            alpha, beta = update(state)
            if state.iteration % self.noise_every:
                return alpha, float(state.beta)
            if noise.n:
                columns = np.searchsorted(labels, state.labels)
                residual, _ = noise.take(columns).residual(state.posterior.mean)
                freedom = len(y) - state.posterior.determinedness.sum()
                # as if the residual were that of all rows
                beta = freedom / (residual * len(y) / noise.n)
            return alpha, float(beta)

        return maximise(
            started(statistics_of(labels, candidates.block(X[rows]), y[rows])),
            step,
            log_settled(self.tol),
            max_iter=self.max_iter,
            fewest=fewest,
        )
