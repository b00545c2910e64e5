"""Predictive bands of a Bayesian linear model, as on Denœux's slides 18 and 19.

    python -m benchmarks.denoeux [--output FOLDER]

The data are sin(2πx) + noise at n = 1, 2, 4 and 25 points x, uniform on [0, 1]; the model has nine
Gaussian basis functions and a bias, with given α and σ². The slides specify neither α and σ² nor
the widths: here α = 2, σ = 0.2 and the functions are 0.1 wide. The formulas for the mean and
variance of a new target are

    Σ = (A + ΦᵀΦ/σ²)⁻¹,    μ = ΣΦᵀt/σ²,    σ²(x) = σ² + φ(x)ᵀΣφ(x).

The table compares these formulas with ``RVMRegressor(kernel="none", basis=…)`` with fixed
precisions. A fit needs two rows, so the results for one row come from the formulas alone. ``least``
is the smallest standard deviation over x: it falls to σ as n grows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import command_line, write
from partirvm import AlphaPrior, RVMRegressor
from partirvm.errors import PartirvmWarning

Float = NDArray[np.float64]

COUNTS = (1, 2, 4, 25)
ALPHA = 2.0
SIGMA = 0.2
WIDTH = 0.1
CENTRES = np.linspace(0.0, 1.0, 9)
GRID = np.linspace(0.0, 1.0, 201)

COLUMNS = {
    "n": "d",
    "least": ".3f",
    "widest": ".3f",
    "mean_difference": ".1e",
    "std_difference": ".1e",
}


def functions(X: Float) -> Float:
    """Return the bias and the nine basis functions (n, 10) at inputs X (n, 1)."""
    return np.hstack([np.ones((len(X), 1)), np.exp(-0.5 * ((X - CENTRES) / WIDTH) ** 2)])


def rows(n: int) -> tuple[Float, Float]:
    """Return the first n rows: inputs (n, 1) and targets (n,)."""
    rng = np.random.default_rng(4)
    x = rng.uniform(size=max(COUNTS))
    noise = rng.normal(size=max(COUNTS))
    return x[:n, None], (np.sin(2 * np.pi * x) + SIGMA * noise)[:n]


def by_formula(X: Float, t: Float) -> tuple[Float, Float]:
    """Return mean and standard deviation (201,) on the grid."""
    Phi = functions(X)
    new = functions(GRID[:, None])
    Sigma = np.linalg.inv(ALPHA * np.eye(Phi.shape[1]) + Phi.T @ Phi / SIGMA**2)
    mean = Sigma @ Phi.T @ t / SIGMA**2
    return new @ mean, np.sqrt(SIGMA**2 + np.einsum("nm,mk,nk->n", new, Sigma, new))


def by_library(X: Float, t: Float) -> tuple[Float, Float]:
    """Return mean and standard deviation (201,) of the library's model with the same precisions."""
    # without intercept and standardisation the target is left alone; the bias is one of the
    # functions
    asked: dict[str, Any] = {
        "kernel": "none",
        "basis": functions,
        "standardize": False,
        "fit_intercept": False,
    }
    asked |= {"noise": SIGMA**2}
    names = [str(name) for name in RVMRegressor(**asked).fit(X, t).basis_names_ if name != "bias"]
    fixed = AlphaPrior(fixed=dict.fromkeys(names, ALPHA))
    model = RVMRegressor(alpha_prior=fixed, **asked).fit(X, t)
    mean, std = model.predict(GRID[:, None], return_std=True)
    return mean, std


def measure(n: int) -> dict[str, Any]:
    """Return the row of the table for n rows."""
    X, t = rows(n)
    mean, std = by_formula(X, t)
    row: dict[str, Any] = {"n": n, "least": float(std.min()), "widest": float(std.max())}
    if n > 1:
        ours, width = by_library(X, t)
        row["mean_difference"] = float(np.abs(ours - mean).max())
        row["std_difference"] = float(np.abs(width - std).max())
    return row


def main(arguments: list[str] | None = None) -> None:
    """Write the table."""
    parser = command_line(__doc__, data=False)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", PartirvmWarning)
    write(options.output, "denoeux", [measure(n) for n in COUNTS], COLUMNS)


if __name__ == "__main__":
    main()
