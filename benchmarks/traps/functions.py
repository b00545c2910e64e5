"""Twenty functions on which kernel learning can end in a poor optimum, each with original and
rotated inputs.

Inputs are uniform on ±3. A rotated case sees X Q, where Q is a random orthogonal matrix; a function
of one input is stretched by 2.5 instead. ``Trap.draw`` returns inputs, the noise-free signal, and
targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Signal = Callable[[Float], Float]
Noise = Callable[[Float, np.random.Generator], Float]


def constant(sd: float) -> Noise:
    """Return normal noise of one standard deviation, in units of the target."""
    return lambda X, rng: sd * rng.normal(size=len(X))


def growing(X: Float, rng: np.random.Generator) -> Float:
    """Return normal noise whose standard deviation grows from .05 to 1 with the distance of the
    first input from 0."""
    return (0.05 + np.abs(X[:, 0]) / 3) * rng.normal(size=len(X))


def heavy(X: Float, rng: np.random.Generator) -> Float:
    """Return noise of Student's t distribution with two degrees of freedom."""
    return 0.15 * rng.standard_t(2, size=len(X))


@dataclass(frozen=True)
class Trap:
    """A case: its name, the number of features, the signal of inputs (n, d), the noise, and if
    inputs are rotated."""

    name: str
    d: int
    signal: Signal
    noise: Noise
    turned: bool = False

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Float, Float, Float]:
        """Return inputs (n, d), their signal (n,) and targets (n,). The rotation depends on the
        name alone."""
        X = rng.uniform(-3, 3, (n, self.d))
        signal = self.signal(X)
        y = signal + self.noise(X, rng)
        if self.turned:
            own = np.random.default_rng(list(self.name.encode()))
            X = 2.5 * X if self.d == 1 else X @ np.linalg.qr(own.normal(size=(self.d, self.d)))[0]
        return X, signal, y


def _additive(X: Float) -> Float:
    return (
        np.sin(2 * X[:, 0])
        + np.abs(X[:, 1])
        + 0.3 * X[:, 2] ** 2
        + np.tanh(3 * X[:, 3])
        + 0.5 * X[:, 4]
    )


def _friedman(X: Float) -> Float:
    U = (X + 3) / 6
    return (
        10 * np.sin(np.pi * U[:, 0] * U[:, 1])
        + 20 * (U[:, 2] - 0.5) ** 2
        + 10 * U[:, 3]
        + 5 * U[:, 4]
    )


def _pairs(X: Float) -> Float:
    return X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3] - X[:, 4] * X[:, 5]


BASES: tuple[tuple[str, int, Signal, Noise], ...] = (
    (
        "product of waves",
        6,
        lambda X: np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] * X[:, 3]),
        constant(0.1),
    ),
    ("ridge", 8, lambda X: np.tanh(X[:, 0] + 0.5 * X[:, 1] - X[:, 2]), constant(0.1)),
    ("wave of a ridge", 5, lambda X: np.sin(2 * (X[:, 0] + X[:, 1])), constant(0.1)),
    ("fast wave of few", 10, lambda X: np.sin(4 * X[:, 0]) + 0.5 * X[:, 1], constant(0.2)),
    ("two waves", 12, lambda X: np.sin(3 * X[:, 0]) + np.sin(2 * X[:, 1]), constant(0.1)),
    ("smooth checkerboard", 2, lambda X: np.sin(3 * X[:, 0]) * np.sin(3 * X[:, 1]), constant(0.1)),
    (
        "checkerboard",
        4,
        lambda X: np.sign(np.sin(1.5 * X[:, 0]) * np.sin(1.5 * X[:, 1])),
        constant(0.2),
    ),
    ("additive", 10, _additive, constant(0.2)),
    ("radial", 5, lambda X: 3 * np.exp(-(X**2).sum(axis=1) / 8), constant(0.1)),
    ("rings", 3, lambda X: np.cos(2 * np.sqrt((X**2).sum(axis=1))), constant(0.1)),
    ("step", 5, lambda X: (X[:, 0] > 0.5) + 0.5 * (X[:, 1] > X[:, 2]) + 0.0, constant(0.1)),
    ("Friedman", 10, _friedman, constant(1.0)),
    ("growing noise", 4, lambda X: np.sin(2 * X[:, 0]) + X[:, 1], growing),
    ("heavy tails", 4, lambda X: np.sin(1.5 * X[:, 0]) * X[:, 1], heavy),
    ("product of three", 6, lambda X: X[:, 0] * X[:, 1] * X[:, 2] / 4, constant(0.2)),
    ("wave of products", 8, lambda X: np.sin(X[:, 0] * X[:, 1]) + 0.5 * X[:, 2], constant(0.1)),
    ("chirp", 1, lambda X: np.sin(X[:, 0] * np.abs(X[:, 0]) * 2), constant(0.1)),
    ("wave among fifty", 50, lambda X: np.sin(2 * X[:, 0]) + X[:, 1] / 2, constant(0.1)),
    (
        "products among twenty",
        20,
        lambda X: X[:, 0] * X[:, 1] / 3 + np.sin(2 * X[:, 2]),
        constant(0.1),
    ),
    ("three pairs", 12, _pairs, constant(0.5)),
)

TRAPS = tuple(Trap(*base, turned=turned) for base in BASES for turned in (False, True))
