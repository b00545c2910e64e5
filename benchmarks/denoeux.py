"""Denœux's slides: predictive bands of a Bayesian linear model (18, 19), the algorithm with absolute
thresholds (32), and kernlab's fit of the motorcycle data (35, 36).

    python -m benchmarks.denoeux [--data DIR] [--output FOLDER]

The data are sin(2πx) + noise at n = 1, 2, 4 and 25 points x, uniform on [0, 1]; the model has nine
Gaussian basis functions and a bias, with given α and σ². The slides specify neither α and σ² nor
the widths: here α = 2, σ = 0.2 and the functions are 0.1 wide. The formulas for the mean and
variance of a new target are

    Σ = (A + ΦᵀΦ/σ²)⁻¹,    μ = ΣΦᵀt/σ²,    σ²(x) = σ² + φ(x)ᵀΣφ(x).

The table compares these formulas with ``RVMRegressor(kernel="none", basis=…)`` with fixed
precisions. A fit needs two rows, so the results for one row come from the formulas alone. ``least``
is the smallest standard deviation over x: it falls to σ as n grows.

``thresholds`` fits mcycle.npz of DIR by ``partirvm.literature``, without a bias and without
centring, as kernlab does: from kernlab's five rows and from all rows, at several thresholds ε_α and
ε_β. kernlab prints 5 vectors, variance 497.0264 and error 483.1739.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import read
from benchmarks.measure import command_line, write
from partirvm import AlphaPrior, RVMRegressor
from partirvm.errors import PartirvmWarning
from partirvm.kernels import Gaussian
from partirvm.literature.tipping import DenoeuxRegressor

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

KERNLAB_ROWS = (58, 64, 66, 94, 95)
"""``RVindex`` of slide 36, counted from 1."""

THRESHOLD_COLUMNS = {
    "candidates": "", "eps": ".0e", "steps": "d", "vectors": "d", "variance": ".4f", "error": ".4f",
    "log_evidence": ".3f", "weights": "", "rows": "",
}  # fmt: skip


def thresholds(folder: str) -> list[dict[str, Any]]:
    """Return the rows of mcycle."""
    X, y = read(folder, "mcycle")
    kernlab = X[np.array(KERNLAB_ROWS) - 1]
    rows = []
    for candidates, centres in (("kernlab's rows", kernlab), ("all rows", None)):
        for eps in (1e-3, 1e-6, 1e-9):
            model = DenoeuxRegressor(Gaussian(0.1), centres=centres, eps_alpha=eps, eps_beta=eps)
            model.fit(X, y)
            numbers = KERNLAB_ROWS if centres is not None else range(1, len(y) + 1)
            row = {
                "candidates": candidates,
                "eps": eps,
                "steps": model.n_iter_,
                "vectors": model.n_relevance_vectors_,
                "variance": model.noise_variance_,
                "error": float(np.mean((model.predict(X) - y) ** 2)),
                "log_evidence": model.log_evidence_,
                "weights": " ".join(f"{weight:.5f}" for weight in model.weights_),
                "rows": " ".join(str(numbers[place]) for place in model.candidates_),
            }
            rows.append(row)
    return rows


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
    parser = command_line(__doc__, required=False)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", PartirvmWarning)
    write(options.output, "denoeux", [measure(n) for n in COUNTS], COLUMNS)
    if options.data:
        write(options.output, "thresholds", thresholds(options.data), THRESHOLD_COLUMNS)


if __name__ == "__main__":
    main()
