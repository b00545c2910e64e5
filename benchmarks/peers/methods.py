"""The compared methods: fit, prediction, and the α and β from which the evidence is computed.

partirvm                ``RVMRegressor`` with defaults except the width: a working set for more than 200 rows
partirvm fixed-point    every row a candidate (``strategy="basic"``), MacKay's fixed point
partirvm fast           every row a candidate, fast marginal likelihood maximisation (``solver="fast"``)
partirvm auto           every row a candidate, ``solver="auto"``
fastrvm                 ``fastrvm.RVR`` (PyPI 0.1.5, C++): fast marginal likelihood maximisation, every row a candidate
sklearn-rvm             ``sklearn_rvm.EMRVR`` (PyPI 0.1.1, NumPy): MacKay's fixed point, every row a candidate
ard                     scikit-learn's ``ARDRegression`` on the kernel matrix and a column of ones
gp                      ``GaussianProcessRegressor``, the width fixed, amplitude and noise by evidence
nystroem                ``Nystroem`` with up to 1,000 components and ``BayesianRidge``

All methods except gp have a bias; all methods use the same standardised rows and the same gamma.
sklearn-rvm need not be fully installed: ``pip install --target FOLDER --no-deps sklearn_rvm`` with
FOLDER in PYTHONPATH is enough. It runs unchanged on scikit-learn 1.9. The evidence of gp and
nystroem refers to a different prior or basis and is not listed. R's kernlab is not included.
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
    """The result of a method: a function that returns mean and sd (n,) of new noisy targets at
    inputs (n, d), vectors, and evidence in nats (None if not comparable).
    """

    predict: Callable[[Float], tuple[Float, Float]]
    vectors: int
    evidence: Callable[[], float] | None = None


def kernel(X: Float, Z: Float, gamma: float) -> Float:
    """Return the kernel matrix exp(−gamma ‖x − z‖²), (n, m)."""
    from sklearn.metrics.pairwise import rbf_kernel

    return np.asarray(rbf_kernel(X, Z, gamma=gamma))


def with_ones(design: Float) -> Float:
    """Return the design with a first column of ones."""
    return np.hstack([np.ones((len(design), 1)), design])


def partirvm(X: Float, y: Float, gamma: float, **options: Any) -> Fitted:
    """Fit ``RVMRegressor``; the rows are already standardised."""
    from partirvm import RVMRegressor

    model = RVMRegressor(gamma=gamma, standardize=False, random_state=0, **options).fit(X, y)

    def evidence() -> float:
        design = kernel(X, model.relevance_vectors_, gamma)
        whole = with_ones(design) if model.model_.design.bias else design
        return log_evidence(whole, y, model.model_.alpha, 1 / model.model_.evidence_noise)

    return Fitted(partial(model.predict, return_std=True), model.n_relevance_vectors_, evidence)


def fastrvm(X: Float, y: Float, gamma: float) -> Fitted:
    """Fit fastrvm's RVR. It does not report the α of the bias, which is set to its optimum given
    the other α.

    Internally its columns have unit length. Its ``alpha_`` are divided by the squared lengths of
    the columns, although they should be multiplied. Therefore ``alpha_`` match its weights and
    covariance only after multiplication by the fourth power of the length.
    """
    from fastrvm import RVR

    model = RVR(kernel="rbf", gamma=gamma, fit_intercept=True).fit(X, y)

    def evidence() -> float:
        design = kernel(X, model.relevance_vectors_, gamma)
        alpha = model.alpha_.ravel() * np.sum(design**2, axis=0) ** 2
        bias = best_alpha(design, y, alpha, model.beta_, np.ones(len(y)))
        if np.isfinite(bias):
            design = with_ones(design)
            alpha = np.concatenate([[bias], alpha])
        return log_evidence(design, y, alpha, model.beta_)

    return Fitted(partial(model.predict, return_std=True), int(model.n_relevance_), evidence)


def sklearn_rvm(X: Float, y: Float, gamma: float) -> Fitted:
    """Fit sklearn_rvm's EMRVR. Its α refer to columns divided by a constant; ``predict`` of n rows
    allocates an n × n matrix.
    """
    from sklearn_rvm import EMRVR

    model = EMRVR(kernel="rbf", gamma=gamma, bias_used=True)
    model.fit(X, y)

    def predict(Z: Float) -> tuple[Float, Float]:
        parts = [
            model.predict(part, return_std=True) for part in np.array_split(Z, -(-len(Z) // 500))
        ]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([sd for _, sd in parts])

    def evidence() -> float:
        design = kernel(X, model.relevance_vectors_, gamma) / model._scale
        return log_evidence(
            with_ones(design) if model.bias_used else design, y, model.alpha_, model.beta_
        )

    return Fitted(predict, len(model.relevance_), evidence)


def ard(X: Float, y: Float, gamma: float) -> Fitted:
    """Fit scikit-learn's ARDRegression. Its ``lambda_`` are the α of an RVM, and its ``alpha_`` is
    β."""
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
    """Fit a Gaussian process; all rows count as vectors."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    width = RBF((0.5 / gamma) ** 0.5, "fixed")
    prior = ConstantKernel(1.0, (1e-3, 1e5)) * width + WhiteKernel(0.1, (1e-8, 1e1))
    model = GaussianProcessRegressor(prior, random_state=0).fit(X, y)
    return Fitted(partial(model.predict, return_std=True), len(y))


def nystroem(X: Float, y: Float, gamma: float) -> Fitted:
    """Fit a linear model on Nystroem features; the components count as vectors."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline

    components = min(COMPONENTS, len(y))
    model = make_pipeline(
        Nystroem(gamma=gamma, n_components=components, random_state=0), BayesianRidge()
    ).fit(X, y)
    return Fitted(partial(model.predict, return_std=True), components)


@dataclass(frozen=True)
class Method:
    """A method: a function that fits X (N, d), y (N,) with a gamma, and the module that it
    needs."""

    fit: Callable[[Float, Float, float], Fitted]
    needs: str

    def missing(self) -> bool:
        """Return True if the module is not installed."""
        return importlib.util.find_spec(self.needs) is None


METHODS = {
    "partirvm": Method(partirvm, "partirvm"),
    "partirvm fixed-point": Method(
        partial(partirvm, strategy="basic", solver="fixed-point"), "partirvm"
    ),
    "partirvm fast": Method(partial(partirvm, strategy="basic", solver="fast"), "partirvm"),
    "partirvm auto": Method(partial(partirvm, strategy="basic", solver="auto"), "partirvm"),
    "fastrvm": Method(fastrvm, "fastrvm"),
    "sklearn-rvm": Method(sklearn_rvm, "sklearn_rvm"),
    "ard": Method(ard, "sklearn"),
    "gp": Method(gp, "sklearn"),
    "nystroem": Method(nystroem, "sklearn"),
}
