"""Laplace's approximation of α, σ² and the kernel's parameters together, and predictions with their uncertainty.

A model's intervals count the uncertainty of the weights, of α and of σ² (``core.predictive``), not that of the
kernel's parameters γ. The TMB paper (§4.1, §5.5 and Figure 2) maximises the evidence L over θ = (log α, log β, log γ)
together, takes θ as normal around the maximum, with covariance C, and propagates it by the delta method:

    Var f(x) = φᵀΣφ + gᵀCg,        g = ∂(φ(x; γ)ᵀμ(θ))/∂θ.

The slopes of L, with r = t − Φμ and the row weights W, are

    ∂L/∂log α_i = ½ (γ_i − α_iμ_i²),   ∂L/∂log β = ½ (N − Σγ_i − β rᵀWr),   ∂L/∂Φ = βW(rμᵀ − ΦΣ).

C is the inverse of the information of (log α, log β) (``core.predictive.information``), bordered by the negative
second derivatives of L with respect to log γ, which are differences of slopes, plus the normal prior of ``REACH`` on
each element. Directions in which this matrix is not positive are as uncertain as the prior. The design matrix of the
rows is held in memory, and each evaluation takes N·M² products: this is for data of thousands of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from partirvm.core.posterior import posterior
from partirvm.core.predictive import REACH, information, products, quadratic_forms, quantile
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.tied import slopes
from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.kernels.design import Design
from partirvm.model import Model
from partirvm.model.input_rows import checked_rows
from partirvm.process import one_blas_thread
from partirvm.types import Bool, Float

STEP = 1e-3
"""Step of log γ in differences; their relative error is about its square."""

ITERATIONS = 200
"""Maximum number of steps of the joint maximisation."""

NEAR = 2 * REACH
"""Bound of the change of each element of θ in the joint maximisation."""


@dataclass(frozen=True)
class Evaluated:
    """The posterior at θ: log evidence (nats), its slopes (M + 1 + K,), μ (M,) and a root R of Σ (M, M)."""

    log_evidence: float
    slopes: Float
    mean: Float
    root: Float


@dataclass(frozen=True)
class JointLaplace:
    """Predictions of a regression model whose α, σ² and kernel parameters are uncertain together.

    ``theta`` (M + 1 + K,) is the joint maximum (log α, log β, log γ), of the scaled problem; ``covariance`` is C;
    ``log_evidence`` in nats of the scaled target. ``moved`` are the designs and means at log γ_k ± ``STEP``.
    """

    design: Design
    theta: Float
    covariance: Float
    log_evidence: float
    mean: Float
    root: Float
    moved: tuple[tuple[Design, Float], ...]
    model: Model

    @property
    def noise_variance(self) -> float:
        """σ² in the target's unit squared; with local noise, its mean over the training rows."""
        return float(np.exp(-self.theta[len(self.mean)])) * float((self.design.scaling.t_scale**2)[0])

    @one_blas_thread()
    def predict(self, X: Any, *, noise: bool = True, parameters: bool = True) -> tuple[Float, Float]:
        """Return mean and standard deviation (n,) at raw inputs X (n, d), in the target's unit.

        The standard deviation is that of a new noisy target, without ``noise`` that of the mean. Without ``parameters``
        the weights alone are uncertain.
        """
        points = checked_rows(X, self.model.columns)
        block = self.design.block(points)
        variance = quadratic_forms(block, self.root)
        if parameters:
            slopes = self._slopes(points, block)
            variance += np.einsum("nk,kl,nl->n", slopes, self.covariance, slopes)
        scaling = self.design.scaling
        variance *= float((scaling.t_scale**2)[0])
        if noise:
            variance += self.noise_variance * self.design.noise_factor(points, products)
        mean: Float = scaling.t_shift[0] + scaling.t_scale[0] * products(block, self.mean)
        return mean, np.sqrt(variance)

    def interval(self, X: Any, level: float = 0.95, *, noise: bool = True, parameters: bool = True) -> Float:
        """Return lower and upper ends (n, 2) of the central normal interval, of new targets or of the mean."""
        mean, std = self.predict(X, noise=noise, parameters=parameters)
        half = quantile(level) * std
        return np.column_stack([mean - half, mean + half])

    def _slopes(self, points: Float, block: Float) -> Float:
        """Return g of each row (n, M + 1 + K)."""
        M = len(self.mean)
        alpha = np.exp(self.theta[:M])
        spread = products(products(block, self.root), np.ascontiguousarray(self.root.T))  # ΦΣ
        own = -spread * (alpha * self.mean)
        found = [own, -own.sum(axis=1, keepdims=True)]
        for (below, low), (above, high) in zip(self.moved[::2], self.moved[1::2], strict=True):
            change = products(above.block(points), high) - products(below.block(points), low)
            found.append((change / (2 * STEP))[:, None])
        return np.concatenate(found, axis=1)


class _JointRows:
    """The rows of the fit with the functions of θ; everything in units of the scaled target."""

    def __init__(self, model: Model, source: Source) -> None:
        tiles = [source.tile(number) for number in range(source.n_tiles)]
        scaling = model.design.scaling
        self.design, self.M = model.design, len(model.mean)
        self.X = np.concatenate([tile.X for tile in tiles])
        self.t = (np.concatenate([tile.t[:, 0] for tile in tiles]) - scaling.t_shift[0]) / scaling.t_scale[0]
        given = [np.ones(len(tile.X)) if tile.weights is None else tile.weights for tile in tiles]
        own = model.design.row_weights(self.X)
        self.w = np.concatenate(given) if own is None else np.concatenate(given) * own

    def at(self, theta: Float) -> Design:
        """Return the design with the kernel parameters of θ."""
        return replace(self.design, kernel=self.design.kernel.with_logs(theta[self.M + 1 :]))

    def evaluate(self, theta: Float) -> Evaluated:
        """Return evidence, slopes and posterior at θ."""
        M, design = self.M, self.at(theta)
        Phi = design.block(self.X)
        alpha, beta = np.exp(theta[:M]), float(np.exp(theta[M]))
        block = GramBlock.of(Phi[:, :0], Phi, self.t[:, None], self.w)
        found = posterior(GramStatistics.of(np.arange(M), block), alpha, beta)
        root, gamma = found.root(), found.determinedness
        of_alpha = 0.5 * (gamma - alpha * found.mean**2)
        of_beta = 0.5 * (block.n - gamma.sum() - beta * found.residual)
        D = slopes(Phi, self.t[:, None], found.means, root @ root.T, beta, self.w)
        of_kernel = design.gradient(self.X, Phi, D)
        return Evaluated(found.log_evidence, np.concatenate([of_alpha, [of_beta], of_kernel]), found.mean, root)

    def maximum(self, theta: Float, free: Bool) -> Float:
        """Return θ at the largest evidence near ``theta``; only ``free`` elements change."""

        theta = theta.copy()

        def objective(some: Float) -> tuple[float, Float]:
            theta[free] = some
            found = self.evaluate(theta)
            return -found.log_evidence, -found.slopes[free]

        bounds = [(each - NEAR, each + NEAR) for each in theta[free]]
        options = {"maxiter": ITERATIONS, "ftol": 1e-12, "gtol": 1e-6}
        theta[free] = minimize(objective, theta[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return theta


@one_blas_thread()
def joint_laplace(model: Model, source: Source) -> JointLaplace:
    """Maximise the evidence of the model's columns over α, β and the kernel's parameters, and approximate it there.

    ``source`` has the rows of the fit, which are read once and held in memory. The columns stay as they are. Given
    noise and given α stay fixed. Raises ``UsageError`` for a model without vectors or with several targets.
    """
    if model.n_targets > 1 or not model.n_vectors:
        raise UsageError("joint_laplace needs a model of one target with at least one relevance vector")
    if not len(model.design.kernel.logs):
        raise UsageError(f"joint_laplace needs a kernel with parameters, but {model.design.kernel!r} has none")
    rows, M = _JointRows(model, source), len(model.mean)
    beta = float((model.design.scaling.t_scale**2)[0]) / float(model.evidence_noise)
    theta = np.concatenate([np.log(model.alpha), [np.log(beta)], model.design.kernel.logs])
    free = np.ones(len(theta), bool)
    free[list(model.known_alpha)] = False
    free[M] = not model.known_noise
    theta = rows.maximum(theta, free)
    at = rows.evaluate(theta)
    sides, moved = [], []
    for k in range(M + 1, len(theta)):
        for step in (-STEP, STEP):
            there = theta.copy()
            there[k] += step
            sides.append(rows.evaluate(there))
            moved.append((rows.at(there), sides[-1].mean))
    known = int((rows.w > 0).sum())
    inner = np.zeros((len(theta), len(theta)))
    inner[: M + 1, : M + 1] = information(np.exp(theta[:M]), at.root, known)
    second = np.column_stack(
        [(low.slopes - high.slopes) / (2 * STEP) for low, high in zip(sides[::2], sides[1::2], strict=True)]
    )
    inner[: M + 1, M + 1 :], inner[M + 1 :, : M + 1] = second[: M + 1], second[: M + 1].T
    inner[M + 1 :, M + 1 :] = 0.5 * (second[M + 1 :] + second[M + 1 :].T)
    covariance = np.zeros_like(inner)
    values, vectors = np.linalg.eigh(inner[np.ix_(free, free)])  # no direction is more uncertain than the prior
    covariance[np.ix_(free, free)] = (vectors / (np.maximum(values, 0.0) + 1 / REACH**2)) @ vectors.T
    return JointLaplace(rows.at(theta), theta, covariance, at.log_evidence, at.mean, at.root, tuple(moved), model)
