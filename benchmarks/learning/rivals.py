"""Regression on tens of thousands of rows, compared with other scalable kernel methods and boosting.

    python -m benchmarks.learning.rivals --data DIR [--sets kin40k protein] [--methods NAME ...] [--output FOLDER]

The benchmark uses the first public test mask. Inputs and target are standardised by training moments. Every method runs
in a separate process with two threads. RMSE and NLPD (if a method has it) are in units of the sd of the training
target.

partirvm    ``RVMRegressor(time_limit=270)``, no option tuned by hand; ``tol=1e-5``
svgp        GPyTorch: stochastic variational GP, 500 inducing points, a width per feature, batches of 1,024, 15 epochs
sgpr        GPyTorch: collapsed bound with 512 inducing points (Titsias 2009), a width per feature, 40 steps of Adam
nystroem    ``Nystroem`` with 1,000 components, γ = 1/d, and ``BayesianRidge``
boosting    ``HistGradientBoostingRegressor``, its defaults
svr         ``SVR(C=10)`` with γ = 1/d on 8,000 random rows, the maximum for its time limit

GPyTorch 1.15 and PyTorch 2.13 (CPU) were used. Methods whose package is missing are skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import load
from benchmarks.measure import say, within, write

Float = NDArray[np.float64]
Moments = tuple[Float, Float | None]
"""Mean and variance of the test rows, (n,) each; the variance is None if a method has no variance."""

SECONDS = 540.0
"""Time limit of a method in seconds."""

COLUMNS = {
    "data": "",
    "method": "",
    "rmse": ".4f",
    "nlpd": ".3f",
    "coverage": ".3f",
    "basis": ",d",
    "seconds": ".0f",
    "peak_mib": ".0f",
}


def partirvm(X: Float, y: Float, X_test: Float) -> tuple[Moments, int]:
    """Fit ``RVMRegressor`` with a time limit."""
    from partirvm import RVMRegressor

    model = RVMRegressor(tol=1e-5, time_limit=270.0, random_state=0).fit(X, y)
    mean, deviation = model.predict(X_test, return_std=True)
    return (mean, deviation**2), model.n_relevance_vectors_


def nystroem(X: Float, y: Float, X_test: Float) -> tuple[Moments, int]:
    """Fit random features of the kernel matrix, and a linear model with evidence."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline

    features = Nystroem(gamma=1 / X.shape[1], n_components=1000, random_state=0)
    mean, deviation = make_pipeline(features, BayesianRidge()).fit(X, y).predict(X_test, return_std=True)
    return (mean, deviation**2), 1000


def boosting(X: Float, y: Float, X_test: Float) -> tuple[Moments, int | None]:
    """Fit a gradient boosting of trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return (HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(X_test), None), None


def svr(X: Float, y: Float, X_test: Float) -> tuple[Moments, int]:
    """Fit a support vector regression to a sample of the rows."""
    from sklearn.svm import SVR

    rows = np.random.default_rng(0).permutation(len(X))[:8000]
    model = SVR(C=10.0, gamma=1 / X.shape[1]).fit(X[rows], y[rows])
    return (model.predict(X_test), None), len(model.support_)


def svgp(X: Float, y: Float, X_test: Float) -> tuple[Moments, int]:
    """Fit a variational posterior of inducing values by batches (Hensman et al. 2013)."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    points, target = torch.as_tensor(X), torch.as_tensor(y)
    inducing = points[torch.randperm(len(points))[:500]].clone()

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model, likelihood = Model().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(y))
    search = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    for _ in range(15):
        for rows in torch.randperm(len(points)).split(1024):
            search.zero_grad()
            (-bound(model(points[rows]), target[rows])).backward()
            search.step()
    return _predicted(model, likelihood, X_test), 500


def sgpr(X: Float, y: Float, X_test: Float) -> tuple[Moments, int]:
    """Fit a Gaussian process by the collapsed bound with inducing points (Titsias 2009)."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    points, target = torch.as_tensor(X), torch.as_tensor(y)
    inducing = points[torch.randperm(len(points))[:512]].clone()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(points, target, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            self.covar_module = gpytorch.kernels.InducingPointKernel(base, inducing, likelihood)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().double()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    search = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(40):
        search.zero_grad()
        (-bound(model(points), target)).backward()
        search.step()
    return _predicted(model, likelihood, X_test), 512


def _predicted(model: Any, likelihood: Any, X_test: Float) -> Moments:
    import gpytorch
    import torch

    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        found = [likelihood(model(rows)) for rows in torch.as_tensor(X_test).split(1024)]
    return np.concatenate([f.mean.numpy() for f in found]), np.concatenate([f.variance.numpy() for f in found])


METHODS: dict[str, tuple[str, Callable[[Float, Float, Float], tuple[Moments, int | None]]]] = {
    "partirvm": ("partirvm", partirvm),
    "svgp": ("gpytorch", svgp),
    "sgpr": ("gpytorch", sgpr),
    "nystroem": ("sklearn", nystroem),
    "boosting": ("sklearn", boosting),
    "svr": ("sklearn", svr),
}
"""The package that each method needs, and the function that fits and predicts."""


def measured(folder: str, name: str, method: str) -> dict[str, Any]:
    """Return one line of the table, without memory."""
    split = load(folder, name)
    shift, scale = split.X.mean(axis=0), split.X.std(axis=0)
    X, X_test = (split.X - shift) / scale, (split.X_test - shift) / scale
    y, y_test = (split.y - split.y.mean()) / split.deviation, (split.y_test - split.y.mean()) / split.deviation
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (mean, variance), basis = METHODS[method][1](X, y, X_test)
    seconds = time.perf_counter() - began
    line = {"data": name, "method": method, "basis": basis, "seconds": seconds}
    line["rmse"] = float(np.sqrt(np.mean((y_test - mean) ** 2)))
    if variance is not None:
        square = (y_test - mean) ** 2 / variance
        line["nlpd"] = float(np.mean(0.5 * (square + np.log(2 * math.pi * variance))))
        line["coverage"] = float(np.mean(square < 1.959964**2))
    return line


def main(arguments: list[str] | None = None) -> None:
    """Run each method on each set, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    parser.add_argument("--sets", nargs="+", default=["kin40k", "protein"], metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.sets:
        for method in options.methods:
            if importlib.util.find_spec(METHODS[method][0]) is None:
                say(f"{method} is skipped: {METHODS[method][0]} is not installed")
                continue
            try:
                rows.append(within(SECONDS, measured, options.data, name, method))
            except (TimeoutError, ChildProcessError) as error:
                say(f"{name}, {method}: {error}")
                continue
            say(f"{name}, {method}: {rows[-1]}")
            write(Path(options.output) / "learning", "rivals", rows, COLUMNS)


if __name__ == "__main__":
    main()
