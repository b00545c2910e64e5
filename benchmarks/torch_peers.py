"""Two methods by other libraries for ``benchmarks.metric``: a sparse Gaussian process and a recursive feature machine.

    pip install gpytorch xrfm

Neither is a dependency of this project; each function imports its library when it is called. Inputs and targets are
standardised by the training rows. Runs use one thread, unless said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

INDUCING, STEPS, BATCH = 500, 1000, 1024
"""Sparse Gaussian process: inducing points, steps of the optimisers, and rows per step."""

BANDWIDTHS, HELD_OUT = (3.0, 10.0), 0.2
"""Recursive feature machine: bandwidths to compare, and the share of the rows on which they are compared."""


def svgp(
    X: Float, y: Float, new: Float, truth: Float, *, steps: int = STEPS, threads: int = 1
) -> tuple[Float, Float, Float, dict[str, Any]]:
    """Fit a stochastic variational Gaussian process (Hensman et al. 2013, 2015) by GPyTorch.

    The kernel is Gaussian with a width per feature. Variational parameters take natural gradient steps, which need
    fewer steps than Adam; kernel parameters and inducing points take Adam's.
    """
    import gpytorch
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    inputs, targets, fresh, unit = _standardised(X, y, new)

    class Process(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self, inducing: Any) -> None:
            shape = gpytorch.variational.TrilNaturalVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, shape))
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=inducing.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, rows: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    model = Process(inputs[torch.randperm(len(inputs))[:INDUCING]].clone())
    model.covar_module.base_kernel.lengthscale = float(np.sqrt(X.shape[1]))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(inputs))
    natural = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(inputs), lr=0.1)
    adam = torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=0.02)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        some = torch.randperm(len(inputs))[:BATCH]
        natural.zero_grad()
        adam.zero_grad()
        (-objective(model(inputs[some]), targets[some])).backward()
        natural.step()
        adam.step()
        slower.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(fresh))
    mean = found.mean.numpy() * unit + y.mean()
    std = found.variance.numpy() ** 0.5 * unit
    return mean, std, np.abs(truth - mean) <= 1.959964 * std, {"vectors": min(INDUCING, len(y))}


def recursive_features(X: Float, y: Float, new: Float, truth: Float) -> tuple[Float, None, None, dict[str, Any]]:
    """Fit xRFM (Beaglehole et al. 2025) at each of ``BANDWIDTHS``; the mean is that of the better on held-out rows."""
    import torch
    from xrfm import xRFM

    torch.set_num_threads(1)
    inputs, targets, fresh, unit = _standardised(X, y, new)
    inputs, targets, fresh = inputs.float(), targets.float()[:, None], fresh.float()
    held = int(HELD_OUT * len(y))
    found = []
    for bandwidth in BANDWIDTHS:
        kernel = {"kernel": "l2", "bandwidth": bandwidth, "exponent": 1.0, "diag": False, "bandwidth_mode": "constant"}
        fitting = {"reg": 1e-3, "iters": 5, "verbose": False, "early_stop_rfm": True}
        model = xRFM({"model": kernel, "fit": fitting}, device=torch.device("cpu"), tuning_metric="mse", verbose=False)
        model.fit(inputs[held:], targets[held:], inputs[:held], targets[:held])
        error = float(np.mean((np.ravel(model.predict(inputs[:held])) - targets[:held, 0].numpy()) ** 2))
        found.append((error, np.ravel(model.predict(fresh))))
    mean = min(found, key=lambda each: each[0])[1]
    return mean.astype(np.float64) * unit + y.mean(), None, None, {}


def _standardised(X: Float, y: Float, new: Float) -> tuple[Any, Any, Any, float]:
    """Return tensors of the standardised inputs, targets and new inputs, and the standard deviation of the targets."""
    import torch

    shift, scale, unit = X.mean(axis=0), X.std(axis=0), float(y.std())
    scale[scale == 0] = 1.0
    made = [torch.from_numpy(np.ascontiguousarray(each)) for each in ((X - shift) / scale, (y - y.mean()) / unit)]
    torch.set_default_dtype(torch.float64)
    return made[0], made[1], torch.from_numpy((new - shift) / scale), unit
