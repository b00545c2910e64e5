"""The methods: fit, prediction, and the α and β from which the evidence is computed.

partirvm                ``RVMRegressor`` with defaults except the width: a working set for more than 200 rows
partirvm fixed-point    every row a candidate (``strategy="basic"``), MacKay's fixed point
partirvm fast           the same by fast marginal likelihood maximisation; left out if ``solver`` has no such value
partirvm auto           the same with ``solver="auto"``
fastrvm                 ``fastrvm.RVR`` (PyPI 0.1.5, C++): fast marginal likelihood maximisation, every row a candidate
sklearn-rvm             ``sklearn_rvm.EMRVR`` (PyPI 0.1.1, NumPy): MacKay's fixed point, every row a candidate
ard                     scikit-learn's ``ARDRegression`` on the kernel matrix and a column of ones
gp                      ``GaussianProcessRegressor``, the width fixed, amplitude and noise by evidence
nystroem                ``Nystroem`` with up to 1,000 components and ``BayesianRidge``

All have a bias except gp; all use the same standardised rows and the same gamma. sklearn-rvm need not be installed:
``pip install --target FOLDER --no-deps sklearn_rvm`` with FOLDER in PYTHONPATH is enough; it runs unchanged on
scikit-learn 1.9. The evidence of gp and nystroem refers to another prior or basis, and is not listed. R's kernlab
is not included.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.evidence import best_alpha, log_evidence

Float = NDArray[np.float64]

COMPONENTS = 1000


@dataclass(frozen=True)
class Fitted:
    """Mean and sd of new noisy targets, (n,) each, of inputs (n, d); vectors; the evidence in nats where it has one."""

    predict: Callable[[Float], tuple[Float, Float]]
    vectors: int
    evidence: Callable[[], float] | None = None


def kernel(X: Float, Z: Float, gamma: float) -> Float:
    """exp(−gamma ‖x − z‖²), (n, m)."""
    from sklearn.metrics.pairwise import rbf_kernel

    return np.asarray(rbf_kernel(X, Z, gamma=gamma))


def with_ones(design: Float) -> Float:
    """A column of ones in front."""
    return np.hstack([np.ones((len(design), 1)), design])


def partirvm(X: Float, y: Float, gamma: float, **options: Any) -> Fitted:
    """Ours; the rows are standardised already."""
    from partirvm import RVMRegressor

    model = RVMRegressor(gamma=gamma, standardize=False, random_state=0, **options).fit(X, y)

    def evidence() -> float:
        design = kernel(X, model.relevance_vectors_, gamma)
        whole = with_ones(design) if model.model_.design.bias else design
        return log_evidence(whole, y, model.model_.alpha, 1 / model.noise_variance_)

    return Fitted(partial(model.predict, return_std=True), model.n_relevance_vectors_, evidence)


def fastrvm(X: Float, y: Float, gamma: float) -> Fitted:
    """fastrvm does not report the bias's α; it is set to the optimum given the others.

    Its columns have unit length internally, and its ``alpha_`` are divided by their squared lengths where they should
    be multiplied: only after multiplication by the fourth power of the length do they match its weights and covariance.
    """
    from fastrvm import RVR

    model = RVR(kernel="rbf", gamma=gamma, fit_intercept=True).fit(X, y)

    def evidence() -> float:
        design = kernel(X, model.relevance_vectors_, gamma)
        alpha = model.alpha_.ravel() * np.sum(design**2, axis=0) ** 2
        bias = best_alpha(design, y, alpha, model.beta_, np.ones(len(y)))
        if np.isfinite(bias):
            design, alpha = with_ones(design), np.concatenate([[bias], alpha])
        return log_evidence(design, y, alpha, model.beta_)

    return Fitted(partial(model.predict, return_std=True), int(model.n_relevance_), evidence)


def sklearn_rvm(X: Float, y: Float, gamma: float) -> Fitted:
    """Its columns are divided by a constant, to which its α refer; ``predict`` of n rows allocates an n × n matrix."""
    from sklearn_rvm import EMRVR

    model = EMRVR(kernel="rbf", gamma=gamma, bias_used=True)
    model.fit(X, y)

    def predict(Z: Float) -> tuple[Float, Float]:
        parts = [model.predict(part, return_std=True) for part in np.array_split(Z, -(-len(Z) // 500))]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([sd for _, sd in parts])

    def evidence() -> float:
        design = kernel(X, model.relevance_vectors_, gamma) / model._scale
        return log_evidence(with_ones(design) if model.bias_used else design, y, model.alpha_, model.beta_)

    return Fitted(predict, len(model.relevance_), evidence)


def ard(X: Float, y: Float, gamma: float) -> Fitted:
    """Its ``lambda_`` are an RVM's α, its ``alpha_`` is β."""
    from sklearn.linear_model import ARDRegression

    design = with_ones(kernel(X, X, gamma))
    model = ARDRegression(fit_intercept=False).fit(design, y)
    kept = model.lambda_ < model.threshold_lambda

    def predict(Z: Float) -> tuple[Float, Float]:
        mean, sd = model.predict(with_ones(kernel(Z, X, gamma)), return_std=True)
        return mean, sd

    def evidence() -> float:
        return log_evidence(design[:, kept], y, model.lambda_[kept], float(model.alpha_))

    return Fitted(predict, int(kept[1:].sum()), evidence)


def gp(X: Float, y: Float, gamma: float) -> Fitted:
    """Its vectors are all rows."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    width = RBF((0.5 / gamma) ** 0.5, "fixed")
    prior = ConstantKernel(1.0, (1e-3, 1e5)) * width + WhiteKernel(0.1, (1e-8, 1e1))
    model = GaussianProcessRegressor(prior, random_state=0).fit(X, y)
    return Fitted(partial(model.predict, return_std=True), len(y))


def nystroem(X: Float, y: Float, gamma: float) -> Fitted:
    """Its vectors are its components."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline

    components = min(COMPONENTS, len(y))
    model = make_pipeline(Nystroem(gamma=gamma, n_components=components, random_state=0), BayesianRidge()).fit(X, y)
    return Fitted(partial(model.predict, return_std=True), components)


@dataclass(frozen=True)
class Method:
    """How it is fitted to X (N, d), y (N,) at a gamma, and the module that it needs."""

    fit: Callable[[Float, Float, float], Fitted]
    needs: str

    def missing(self) -> bool:
        """Whether the module is not there."""
        return importlib.util.find_spec(self.needs) is None


METHODS = {
    "partirvm": Method(partirvm, "partirvm"),
    "partirvm fixed-point": Method(partial(partirvm, strategy="basic", solver="fixed-point"), "partirvm"),
    "partirvm fast": Method(partial(partirvm, strategy="basic", solver="fast"), "partirvm"),
    "partirvm auto": Method(partial(partirvm, strategy="basic", solver="auto"), "partirvm"),
    "fastrvm": Method(fastrvm, "fastrvm"),
    "sklearn-rvm": Method(sklearn_rvm, "sklearn_rvm"),
    "ard": Method(ard, "sklearn"),
    "gp": Method(gp, "sklearn"),
    "nystroem": Method(nystroem, "sklearn"),
}
