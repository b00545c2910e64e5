"""Regressors of this library and others with a common interface: fit, prediction with a deviation,
and figures.

    pip install gpytorch gpboost xrfm catboost

These packages are not dependencies of this project: each function imports its library when called,
and ``Method.missing`` says what to leave out. Inputs and targets of the other methods are
standardised by the training rows. All methods use all the cores that the process may use.

A method without a density gets the same normal distribution around each mean, with the variance of
the errors on left-out training rows.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.scores import Scores

Float = NDArray[np.float64]

TENTHS = 10
"""Number of groups of new rows by predicted deviation."""

SHAPE = 1.5
"""Smoothness ν of the Matérn kernels of Gaussian processes."""

WIDTH_ROWS, RANGE_ROWS = 2_000, 10_000
"""Vecchia-inducing-points approximation: rows that teach the widths, and the other parameters."""

STEPS, BATCH = 1000, 1024
"""Sparse Gaussian process: steps of the optimisers, and rows per step."""

BANDWIDTHS, MOST_LEAF_ROWS = (3.0, 10.0), 10_000
"""Recursive feature machine: bandwidths to compare; it splits more rows by a tree."""

NEIGHBOURS = (1, 2, 3, 5, 8, 13, 21, 34, 55)
"""Numbers of nearest neighbours to compare."""

HELD_OUT, MOST_HELD_OUT = 0.2, 20_000
"""Share and largest number of the training rows that are left out to compare parameters or to find
a variance."""


@dataclass(frozen=True)
class Fitted:
    """The result of a fit.

    ``predict`` returns the mean and the standard deviation of new noisy targets (n,) at inputs (n,
    d), and ``interval`` the ends of their 95 % interval, if not mean ± 1.96 standard deviations.
    """

    predict: Callable[[Float], tuple[Float, Float | None]]
    facts: dict[str, Any] = field(default_factory=dict)
    interval: Callable[[Float], tuple[Float, Float]] | None = None


@dataclass(frozen=True)
class Method:
    """A function that fits rows X (N, d), y (N,), and the package that it needs."""

    fit: Callable[[Float, Float], Fitted]
    needs: str = "partirvm"

    def missing(self) -> bool:
        """Return True if the package is not installed."""
        return importlib.util.find_spec(self.needs) is None


def run(method: Method, X: Float, y: Float, rows: int, seed: int, most: int) -> dict[str, Any]:
    """Fit ``rows`` random rows and predict at most ``most`` others.

    ``wall s`` and ``CPU s`` are seconds of the fit alone; errors and deviations are in units of the
    target's sd.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    train = order[:rows]
    test = order[rows : rows + most]
    importlib.import_module(method.needs)
    wall = time.perf_counter()
    cpu = time.process_time()
    fitted = method.fit(X[train], y[train])
    found = {
        "wall s": time.perf_counter() - wall,
        "CPU s": time.process_time() - cpu,
        **fitted.facts,
    }
    return found | figures(fitted, X[test], y[test], float(y.std()))


def figures(fitted: Fitted, X: Float, y: Float, unit: float) -> dict[str, float]:
    """Return scores of predictions of new rows, and the rows per second of means with
    deviations."""
    began = time.perf_counter()
    mean, std = fitted.predict(X)
    found = {"rows/s": len(y) / (time.perf_counter() - began)}
    if std is None:
        return found | {"RMSE": float(np.sqrt(np.mean((y - mean) ** 2))) / unit}
    lower, upper = (
        (mean - 1.959964 * std, mean + 1.959964 * std)
        if fitted.interval is None
        else fitted.interval(X)
    )
    inside = (lower <= y) & (y <= upper)
    tenths = [
        100 * float(inside[some].mean())
        for some in np.array_split(np.argsort(std, kind="stable"), TENTHS)
    ]
    scores = Scores.of(y / unit, mean / unit, (std / unit) ** 2)
    found |= {
        "RMSE": scores.loss,
        "NLPD": scores.figures()["nlpd"],
        "CRPS": scores.figures()["crps"],
    }
    found |= {"coverage %": 100 * float(inside.mean())}
    found |= {"least tenth %": min(tenths), "largest tenth %": max(tenths)}
    return found | {"smallest std": float(std.min()) / unit, "largest std": float(std.max()) / unit}


def rvm(**options: Any) -> Method:
    """Return ``RVMRegressor`` with these options."""
    return Method(partial(_rvm, options))


def _rvm(options: dict[str, Any], X: Float, y: Float) -> Fitted:
    from partirvm import RVMRegressor
    from partirvm.errors import PartirvmWarning

    warnings.simplefilter("ignore", PartirvmWarning)
    model = RVMRegressor(random_state=0, **options).fit(X, y)
    kernel = model.kernel_.spec()
    noise = model.model_.design.noise
    family = kernel.get("kernel", kernel)["name"]
    form = "directions" if kernel["name"] == "directions" else "widths"
    facts = {
        "vectors": model.n_relevance_vectors_,
        "kernel": f"{family}, {form}",
        "taken": noise is not None,
    }
    facts |= {"centres": 0 if noise is None else len(noise.weights)}
    return Fitted(
        partial(model.predict, return_std=True), facts, partial(model.predict_interval, level=0.95)
    )


def gaussian_process(
    X: Float, y: Float, *, most: int | None = None, shape: float = np.inf
) -> Fitted:
    """Fit scikit-learn's exact Gaussian process with a width per feature to at most ``most`` random
    rows.

    The kernel is Matérn's of smoothness ``shape``, by default the Gaussian one.
    """
    some = np.random.default_rng(0).permutation(len(y))[:most]
    scaled, targets, of = standardised(X[some], y[some])
    model = _exact(scaled, targets, shape)
    facts = {"rows": len(some), "vectors": len(some)}
    return Fitted(lambda new: of(*model.predict(of.scaled(new), return_std=True)), facts)


def _exact(scaled: Float, targets: Float, shape: float) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    widths = Matern(np.ones(scaled.shape[1]), (1e-2, 1e3), nu=shape)
    prior = ConstantKernel(1.0, (1e-3, 1e3)) * widths + WhiteKernel(0.1, (1e-5, 10.0))
    warnings.simplefilter("ignore", ConvergenceWarning)
    return GaussianProcessRegressor(prior, random_state=0).fit(scaled, targets)


def vecchia_inducing_points(X: Float, y: Float) -> Fitted:
    """Predict by GPBoost's Vecchia-inducing-points full-scale approximation of all rows (Gyger et
    al. 2024).

    The kernel is Matérn's. Its widths per feature are those of an exact process of some rows, since
    GPBoost needs hours for them; noise, variance and range are estimated by the approximation of
    more rows. 200 inducing points and 30 neighbours are the library's defaults. ``rows/s`` contains
    the factorisation of the training rows.
    """
    import gpboost

    scaled, targets, of = standardised(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    few = order[:WIDTH_ROWS]
    some = order[:RANGE_ROWS]
    widths = _exact(scaled[few], targets[few], SHAPE).kernel_.k1.k2.length_scale
    asked = {"cov_function": "matern", "cov_fct_shape": SHAPE, "gp_approx": "full_scale_vecchia"}
    model = gpboost.GPModel(gp_coords=scaled[some] / widths, **asked)
    model.fit(y=targets[some])
    found = np.ravel(model.get_cov_pars(format_pandas=False))[:3]
    whole = gpboost.GPModel(gp_coords=scaled / widths, **asked)

    def predict(new: Float) -> tuple[Float, Float]:
        wanted = {"predict_var": True, "predict_response": True, "cov_pars": found}
        told = whole.predict(y=targets, gp_coords_pred=of.scaled(new) / widths, **wanted)
        return of(told["mu"], np.sqrt(told["var"]))

    return Fitted(predict, {"vectors": min(200, len(y))})


def nearest_neighbours(X: Float, y: Float) -> Fitted:
    """Fit k nearest neighbours of standardised inputs, equally or by distance weighted; 5 folds
    choose k and weights.

    Of large sets each fold predicts only some of its rows.
    """
    from sklearn.model_selection import KFold
    from sklearn.neighbors import KNeighborsRegressor, NearestNeighbors

    scaled, targets, of = standardised(X, y)
    errors: dict[tuple[int, str], list[float]] = {}
    for train, test in KFold(5, shuffle=True, random_state=0).split(scaled):
        some = test[: MOST_HELD_OUT // 5]
        near = NearestNeighbors(n_neighbors=min(max(NEIGHBOURS), len(train))).fit(scaled[train])
        distance, row = near.kneighbors(scaled[some])
        for name, weight in (
            ("uniform", np.ones_like(distance)),
            ("distance", 1 / np.maximum(distance, 1e-12)),
        ):
            means = np.cumsum(weight * targets[train][row], axis=1) / np.cumsum(weight, axis=1)
            for k in (k for k in NEIGHBOURS if k <= len(train)):
                errors.setdefault((k, name), []).append(
                    float(np.mean((means[:, k - 1] - targets[some]) ** 2))
                )
    k, name = min(errors, key=lambda each: np.mean(errors[each]))
    model = KNeighborsRegressor(k, weights=name).fit(scaled, targets)
    return _homoscedastic(model.predict, of, float(np.mean(errors[k, name])))


def boosting(X: Float, y: Float) -> Fitted:
    """Fit scikit-learn's gradient boosting with its defaults."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return _with_left_out(lambda: HistGradientBoostingRegressor(random_state=0), X, y)


def catboost(X: Float, y: Float) -> Fitted:
    """Fit CatBoost with its defaults."""
    from catboost import CatBoostRegressor

    return _with_left_out(
        lambda: CatBoostRegressor(random_seed=0, verbose=False, allow_writing_files=False), X, y
    )


def _with_left_out(make: Callable[[], Any], X: Float, y: Float) -> Fitted:
    """Fit without some rows for the variance, and again with all rows."""
    scaled, targets, of = standardised(X, y)
    held, rest = _held_out(len(y))
    errors = make().fit(scaled[rest], targets[rest]).predict(scaled[held]) - targets[held]
    return _homoscedastic(make().fit(scaled, targets).predict, of, float(np.mean(errors**2)))


def _held_out(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.random.default_rng(0).permutation(rows)
    count = min(int(HELD_OUT * rows), MOST_HELD_OUT)
    return order[:count], order[count:]


def _homoscedastic(predict: Callable[[Float], Any], of: Standardised, variance: float) -> Fitted:
    def both(new: Float) -> tuple[Float, Float]:
        mean = np.ravel(predict(of.scaled(new))).astype(np.float64)
        return of(mean, np.full(len(mean), np.sqrt(variance)))

    return Fitted(both)


@dataclass(frozen=True)
class Standardised:
    """The moments of training rows. Called with standardised means and deviations, it returns those
    of targets."""

    shift: Float
    scale: Float
    mean: float
    unit: float

    def scaled(self, X: Float) -> Float:
        """Return standardised inputs."""
        return np.ascontiguousarray((X - self.shift) / self.scale)

    def __call__(self, mean: Float, std: Float) -> tuple[Float, Float]:
        return mean * self.unit + self.mean, std * self.unit


def standardised(X: Float, y: Float) -> tuple[Float, Float, Standardised]:
    """Return standardised inputs and targets, and the moments; a constant feature keeps scale 1."""
    scale = np.nanstd(X, axis=0)
    scale[scale == 0] = 1.0
    of = Standardised(np.nanmean(X, axis=0), scale, float(y.mean()), float(y.std()))
    return of.scaled(X), (y - of.mean) / of.unit, of


def svgp(X: Float, y: Float, *, inducing: int = 500, steps: int = STEPS) -> Fitted:
    """Fit a stochastic variational Gaussian process (Hensman et al. 2013, 2015) by GPyTorch.

    The kernel is Gaussian with a width per feature. Variational parameters take natural gradient
    steps, which need fewer steps than Adam; kernel parameters and inducing points take Adam's.
    """
    import gpytorch
    import torch

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    scaled, standard, of = standardised(X, y)
    inputs = torch.from_numpy(scaled)
    targets = torch.from_numpy(standard)

    class Process(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self, places: Any) -> None:
            shape = gpytorch.variational.TrilNaturalVariationalDistribution(len(places))
            super().__init__(gpytorch.variational.VariationalStrategy(self, places, shape))
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=places.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, rows: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(rows), self.covar_module(rows)
            )

    model = Process(inputs[torch.randperm(len(inputs))[:inducing]].clone())
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

    def predict(new: Float) -> tuple[Float, Float]:
        with torch.no_grad():
            parts = [
                likelihood(model(some)) for some in torch.from_numpy(of.scaled(new)).split(BATCH)
            ]
            mean, variance = (
                torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "variance")
            )
        return of(mean.numpy(), variance.numpy() ** 0.5)

    return Fitted(predict, {"vectors": min(inducing, len(y))})


def recursive_features(X: Float, y: Float) -> Fitted:
    """Fit xRFM (Beaglehole et al. 2025) at each of ``BANDWIDTHS``; the one that is better on
    held-out rows is taken."""
    import torch
    from xrfm import xRFM

    scaled, standard, of = standardised(X, y)
    inputs = torch.from_numpy(scaled).float()
    targets = torch.from_numpy(standard).float()[:, None]
    held, rest = _held_out(len(y))
    found = []
    for bandwidth in BANDWIDTHS:
        kernel = {
            "kernel": "l2",
            "bandwidth": bandwidth,
            "exponent": 1.0,
            "diag": False,
            "bandwidth_mode": "constant",
        }
        fitting = {"reg": 1e-3, "iters": 5, "verbose": False, "early_stop_rfm": True}
        asked = {
            "device": torch.device("cpu"),
            "tuning_metric": "mse",
            "verbose": False,
            "max_leaf_size": MOST_LEAF_ROWS,
        }
        model = xRFM({"model": kernel, "fit": fitting}, **asked)
        model.fit(inputs[rest], targets[rest], inputs[held], targets[held])
        error = float(np.mean((np.ravel(model.predict(inputs[held])) - standard[held]) ** 2))
        found.append((error, model))
    variance, best = min(found, key=lambda each: each[0])
    return _homoscedastic(lambda new: best.predict(torch.from_numpy(new).float()), of, variance)
