"""The sets, their sizes and the one Gaussian width that all kernel methods have on a set.

Inputs and target are standardised by the moments of the training rows before any method sees them, so that the gamma
of one kernel is that of all. It is not tuned for a method: for sinc and Boston it is that of ``benchmarks/ben_shimon``
(cross-validated there), for kin40k 0.1, for airfoil and protein 1/d. Friedman#1's 0.03 is wide, so that solvers end far
apart: adding one column after the other at −286 nats of 1,000 rows, the fixed point of all at −213; both are better off
at 0.05. Generated test targets have noise like the training ones: NLPD and coverage are about such.

Training rows are the first N of a random order of the training part, so that small sets are parts of larger ones.
boston, airfoil, kin40k, protein are files NAME.npz, see ``benchmarks/datasets.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ben_shimon.data import FRIEDMAN_NOISE, SINC_NOISE, Float, friedman, sinc
from benchmarks.datasets import Split, load

SEED = 0

TEST_ROWS = 4000
"""Most test rows, and those of a generated set."""


@dataclass(frozen=True)
class Dataset:
    """A set: its width, and how its rows are made, where it is no file."""

    name: str
    gamma: float
    generate: Callable[[int, Any], tuple[Float, Float]] | None = None
    noise: float = 0.0

    def split(self, folder: str | Path, rows: int) -> Split:
        """Standardised training and test rows; as many as there are where these are fewer than ``rows``."""
        return standardised(self._raw(folder, rows))

    def _raw(self, folder: str | Path, rows: int) -> Split:
        if self.generate is None:
            whole = load(folder, self.name)
            order = np.random.default_rng(SEED).permutation(len(whole.y))[:rows]
            X_test, y_test = whole.X_test[:TEST_ROWS], whole.y_test[:TEST_ROWS]
            return Split(self.name, whole.X[order], whole.y[order], X_test, y_test)
        parts = []
        for count, seed in ((rows, SEED), (TEST_ROWS, SEED + 1)):
            rng = np.random.default_rng(seed)
            X, smooth = self.generate(count, rng)
            parts += [X, smooth + self.noise * rng.standard_normal(count)]
        return Split(self.name, *parts)

    def sizes(self, folder: str | Path, wanted: list[int]) -> list[int]:
        """Of the sizes wanted those that there are, and all rows where more are wanted than there are."""
        if self.generate is not None:
            return sorted(set(wanted))
        there = len(load(folder, self.name).y)
        return sorted({min(size, there) for size in wanted})

    def present(self, folder: str | Path) -> bool:
        """Whether it can be had from this folder."""
        return self.generate is not None or Path(folder, f"{self.name}.npz").exists()


def standardised(split: Split) -> Split:
    """Inputs and target shifted and scaled by the training moments (ddof 0; a constant feature keeps scale 1)."""
    shift, scale = split.X.mean(axis=0), split.X.std(axis=0)
    scale[scale == 0] = 1.0
    mean, deviation = split.y.mean(), split.deviation
    return replace(
        split,
        X=(split.X - shift) / scale,
        X_test=(split.X_test - shift) / scale,
        y=(split.y - mean) / deviation,
        y_test=(split.y_test - mean) / deviation,
    )


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
