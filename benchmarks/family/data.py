"""The small data sets of Tipping (2001), of a KTH report on RVMs, and of kernlab.

sinc        sin|x|/|x| at 100 equidistant points of [−10, 10] (Tipping 2001, section 4.1), with or without noise
cos         cos x + noise of sd 0.1, x uniform on [0, 10]; 30 rows
friedman_2, friedman_3      from scikit-learn, with noise of sd 0.1; 300 rows
linear      classes x₁ + x₂ > 0 of points uniform on [−5, 5]²; 100 rows
waveform    waves 1 and 2 of Breiman et al. (1984) with 21 features (``benchmarks.learning.waveform``); 400 rows
cancer      Wisconsin breast cancer (diagnostic), 569 × 30, from scikit-learn
banana, titanic, german     the training rows of the first public split: 400, 150, 700; NAME.npz files in a folder
boston, airfoil, mcycle     NAME.npz files in a folder; see ``benchmarks/datasets.py``

The sizes and noise of cos, Friedman 2 and 3, and linear are from the public code of four KTH
students (``run_dataset.py``). This code contains all experiments of the report; it is not certain
that the printed results come from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

UNIFORM_NOISE = 0.2
"""Half the width of the uniform noise of sinc; the sd is 0.2/√3 = 0.1155."""

GAUSSIAN_NOISE = 0.2
"""Standard deviation of the Gaussian noise of sinc."""


def sinc(points: int = 100) -> tuple[Float, Float]:
    """Return equidistant x (points, 1) in [−10, 10], and sin|x|/|x| at these points, (points,)."""
    x = np.linspace(-10.0, 10.0, points)
    return x[:, None], np.sinc(x / np.pi)


def uniform_noise(rows: int, seed: int) -> Float:
    """Draw noise that is uniform on ±0.2, (rows,)."""
    return np.random.default_rng(seed).uniform(-UNIFORM_NOISE, UNIFORM_NOISE, rows)


def gaussian_noise(rows: int, seed: int) -> Float:
    """Draw Gaussian noise of sd 0.2, (rows,)."""
    return GAUSSIAN_NOISE * np.random.default_rng(seed).standard_normal(rows)


def cos(rows: int = 30, seed: int = 0) -> tuple[Float, Float]:
    """Generate inputs (rows, 1) and noisy targets (rows,) of the cosine."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, size=(rows, 1))
    return X, np.cos(X[:, 0]) + 0.1 * rng.standard_normal(rows)


def linear(rows: int = 100, seed: int = 0) -> tuple[Float, Float]:
    """Generate points (rows, 2), and classes 0 and 1 (rows,) that a line through the origin
    separates."""
    X = np.random.default_rng(seed).uniform(-5, 5, size=(rows, 2))
    return X, (X.sum(axis=1) > 0).astype(np.float64)


def friedman(number: int, rows: int = 300, seed: int = 0) -> tuple[Float, Float]:
    """Generate inputs (rows, 4) and noisy targets (rows,) of Friedman 2 or 3."""
    from sklearn import datasets

    made = getattr(datasets, f"make_friedman{number}")(rows, noise=0.1, random_state=seed)
    return np.asarray(made[0]), np.asarray(made[1])


def cancer() -> tuple[Float, Float]:
    """Return inputs (569, 30) and classes 0 and 1."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return X, y.astype(np.float64)


def waveform(rows: int = 400, seed: int = 0) -> tuple[Float, Float]:
    """Generate waves 1 and 2 with the 21 features of signal: inputs (rows, 21) and classes
    (rows,)."""
    from benchmarks.learning.waveform import draw

    X, y = draw(rows, seed)
    return X[:, :21], y.astype(np.float64)


def read(folder: str | Path, name: str, *, training: bool = False) -> tuple[Float, Float]:
    """Read X (N, d) and y (N,) from NAME.npz, with ``training`` only the training rows of its first
    split.

    Raises SystemExit if the file does not exist.
    """
    path = Path(folder, f"{name}.npz")
    if not path.exists():
        raise SystemExit(f"{path} does not exist: see benchmarks/family/data.py for the sources")
    with np.load(path) as file:
        rows = file["train_idx"][0] if training else slice(None)
        return file["X"][rows], file["y"][rows]


@dataclass(frozen=True)
class ReportSet:
    """A data set of the report: the function that makes the set (None: read from a file), and
    whether the target is a class.
    """

    name: str
    make: Callable[..., tuple[Any, Any]] | None = None
    classes: bool = False

    def rows(self, folder: str | Path) -> tuple[Float, Float]:
        """Return X (N, d) and y (N,)."""
        return read(folder, self.name, training=self.classes) if self.make is None else self.make()


REPORT_SETS = (
    ReportSet("cos", cos),
    ReportSet("sinc", lambda: (sinc()[0], sinc()[1] + gaussian_noise(100, 0))),
    ReportSet("friedman_2", lambda: friedman(2)),
    ReportSet("friedman_3", lambda: friedman(3)),
    ReportSet("boston"),
    ReportSet("airfoil"),
    ReportSet("linear", linear, classes=True),
    ReportSet("titanic", classes=True),
    ReportSet("banana", classes=True),
    ReportSet("waveform", waveform, classes=True),
    ReportSet("cancer", cancer, classes=True),
    ReportSet("german", classes=True),
)
"""The data sets of Tables 1 and 2 of the report that are available."""
