"""The data sets, their sizes, and the Gaussian width that all kernel methods use on each set.

Inputs and target are standardised by the moments of the training rows before any method uses them,
so that gamma has the same meaning for all methods. Gamma is not tuned for any method. It is the
cross-validated value of ``benchmarks/ben_shimon`` for sinc and Boston, 0.1 for kin40k, and 1/d for
airfoil and protein. For Friedman#1, the kernel with 0.03 is wide, so solvers end in different
optima. With 1,000 rows, adding one column after another ends at −286 nats, and the fixed point of
all columns at −213 nats. Both results are better at 0.05. Generated test targets have noise like
the training targets, for NLPD and coverage.

The training rows are the first N rows of the shuffled training part, so small sets are subsets of
larger ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ben_shimon.data import FRIEDMAN_NOISE, SINC_NOISE, Float, friedman, sinc
from benchmarks.datasets import Split, load
from benchmarks.regressors import standardised

SEED = 0

TEST_ROWS = 4000
"""Maximum number of test rows, and the number of test rows of a generated set."""


@dataclass(frozen=True)
class Dataset:
    """A data set: its width, and the generator of a generated set."""

    name: str
    gamma: float
    generate: Callable[[int, Any], tuple[Float, Float]] | None = None
    noise: float = 0.0

    def split(self, folder: str | Path, rows: int) -> Split:
        """Return standardised training and test rows; all rows if there are fewer than ``rows``."""
        return in_units(self._raw(folder, rows))

    def _raw(self, folder: str | Path, rows: int) -> Split:
        if self.generate is None:
            whole = load(folder, self.name)
            order = np.random.default_rng(SEED).permutation(len(whole.y))[:rows]
            X_test = whole.X_test[:TEST_ROWS]
            y_test = whole.y_test[:TEST_ROWS]
            return Split(self.name, whole.X[order], whole.y[order], X_test, y_test)
        parts = []
        for count, seed in ((rows, SEED), (TEST_ROWS, SEED + 1)):
            rng = np.random.default_rng(seed)
            X, smooth = self.generate(count, rng)
            parts += [X, smooth + self.noise * rng.standard_normal(count)]
        return Split(self.name, *parts)

    def sizes(self, folder: str | Path, wanted: list[int]) -> list[int]:
        """Return the requested sizes that are available, and the number of all rows if a larger
        size is requested."""
        if self.generate is not None:
            return sorted(set(wanted))
        there = len(load(folder, self.name).y)
        return sorted({min(size, there) for size in wanted})

    def present(self, folder: str | Path) -> bool:
        """Return True if the set is available in this folder."""
        return self.generate is not None or Path(folder, f"{self.name}.npz").exists()


def in_units(split: Split) -> Split:
    """Standardise inputs and target by the training moments."""
    X, y, of = standardised(split.X, split.y)
    return Split(split.name, X, y, of.scaled(split.X_test), (split.y_test - of.mean) / of.unit)


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("sinc", 4.0, sinc, SINC_NOISE),
        Dataset("friedman_1", 0.03, friedman, FRIEDMAN_NOISE),
        Dataset("boston", 0.0272),
        Dataset("airfoil", 0.2),
        Dataset("kin40k", 0.1),
        Dataset("protein", 1 / 9),
    )
}
