"""The picture of ``plot_diagnostics`` for a regression whose noise grows with the input."""

from __future__ import annotations

import numpy as np

from partirvm import RVMRegressor


def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n rows and targets."""
    X = rng.uniform(-3, 3, size=(n, 1))
    return X, np.sin(2 * X[:, 0]) + (0.1 + 0.15 * np.abs(X[:, 0])) * rng.standard_normal(n)


rng = np.random.default_rng(0)
model = RVMRegressor(gamma=1.0, random_state=0).fit(*drawn(rng, 500))
model.plot_diagnostics(*drawn(rng, 2000))
