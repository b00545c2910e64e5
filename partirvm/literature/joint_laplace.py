"""Laplace's approximation of α, σ² and the kernel's parameters together, and predictions with their uncertainty.

A model's intervals count the uncertainty of the weights, of α and of σ² (``core.predictive``), not that of the
kernel's parameters γ. The TMB paper (§4.1, §5.5 and Figure 2) maximises the evidence L over θ = (log α, log β, log γ)
together, takes θ as normal around the maximum, with covariance C, and propagates it by the delta method:

    Var f(x) = φᵀΣφ + gᵀCg,        g = ∂(φ(x; γ)ᵀμ(θ))/∂θ.

The slopes of L, with r = t − Φμ and the row weights W, are

    ∂L/∂log α_i = ½ (γ_i − α_iμ_i²),   ∂L/∂log β = ½ (N − Σγ_i − β rᵀWr),   ∂L/∂Φ = βW(rμᵀ − ΦΣ).

C is the inverse of the information of (log α, log β) (``core.predictive.information``), bordered by the negative second
derivatives of L in log γ, differences of slopes, plus the normal prior of ``REACH`` on each element. Directions in
which it is not positive are as uncertain as the prior. The design matrix is in memory, and each evaluation takes N·M²
products: for thousands of rows.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from partirvm.core.posterior import Posterior, posterior
from partirvm.core.predictive import REACH, information, products, quantile
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.tied import slopes
from partirvm.data.convert import checked_rows
from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.kernels.design import Design
from partirvm.model import Model
from partirvm.process import one_blas_thread
from partirvm.types import AS_IT_IS, Bool, Float

STEP = 1e-3
"""Step of log γ in differences; their relative error is about its square."""

ITERATIONS = 200
"""Maximum number of steps of the joint maximisation."""

NEAR = 2 * REACH
"""Bound of the change of each element of θ in the joint maximisation."""


@dataclass(frozen=True)
class JointLaplace:
    """Predictions of a regression model whose α, σ² and kernel parameters are uncertain together.

    ``theta`` (M + 1 + K,) is the joint maximum (log α, log β, log γ) of the scaled problem, ``model`` the model there;
    ``covariance`` is C; ``log_evidence`` in nats, scaled. ``moved`` are designs and means at log γ_k ± ``STEP``.
    """

    model: Model
    theta: Float
    covariance: Float
    log_evidence: float
    moved: tuple[tuple[Design, Float], ...]

    @one_blas_thread()
    def predict(self, X: Any, *, noise: bool = True, parameters: bool = True) -> tuple[Float, Float]:
        """Return mean and standard deviation (n,) at raw inputs X (n, d), in the target's unit.

        The standard deviation is that of a new target, or of the mean; without ``parameters`` only weights vary.
        """
        model = self.model if noise else replace(self.model, noise_variance=0.0)
        points = checked_rows(X, model.columns)
        mean, variance, _ = model.moments(points)
        assert variance is not None
        if parameters:
            slopes = model.design.scaling.t_scale[0] * self._slopes(points)
            variance += np.einsum("nk,kl,nl->n", slopes, self.covariance, slopes)
        return mean, np.sqrt(variance)

    def interval(self, X: Any, level: float = 0.95, *, noise: bool = True, parameters: bool = True) -> Float:
        """Return lower and upper ends (n, 2) of the central normal interval, of new targets or of the mean."""
        mean, std = self.predict(X, noise=noise, parameters=parameters)
        half = quantile(level) * std
        return np.column_stack([mean - half, mean + half])

    def _slopes(self, points: Float) -> Float:
        """Return g of each row (n, M + 1 + K)."""
        model = self.model
        spread = products(model.design.block(points), model.root @ model.root.T)  # ΦΣ
        own = -spread * (model.alpha * model.mean)
        found = [own, -own.sum(axis=1, keepdims=True)]
        for (below, low), (above, high) in zip(self.moved[::2], self.moved[1::2], strict=True):
            change = products(above.block(points), high) - products(below.block(points), low)
            found.append((change / (2 * STEP))[:, None])
        return np.concatenate(found, axis=1)


class _JointRows:
    """The rows of the fit with the functions of θ; everything in units of the scaled target."""

    def __init__(self, model: Model, source: Source) -> None:
        rows, own = source.gather(np.arange(source.n_rows)), model.design
        self.design, self.M, self.X = own, len(model.mean), rows.X
        self.t = own.scaling.targets(rows.t)[:, 0]
        self.w = np.ones(len(rows.X)) if rows.weights is None else rows.weights
        factors = own.row_weights(rows.X)
        if factors is not None:
            self.w = self.w * factors

    def at(self, theta: Float) -> Design:
        """Return the design with the kernel parameters of θ."""
        return replace(self.design, kernel=self.design.kernel.with_logs(theta[self.M + 1 :]))

    def evaluate(self, theta: Float) -> tuple[Posterior, Float]:
        """Return the posterior at θ, and the slopes of the evidence (M + 1 + K,)."""
        M, design = self.M, self.at(theta)
        Phi = design.block(self.X)
        alpha, beta = np.exp(theta[:M]), float(np.exp(theta[M]))
        block = GramBlock.of(Phi[:, :0], Phi, self.t[:, None], self.w)
        found = posterior(GramStatistics.of(np.arange(M), block), alpha, beta)
        gamma = found.determinedness
        of_alpha = 0.5 * (gamma - alpha * found.mean**2)
        of_beta = 0.5 * (block.n - gamma.sum() - beta * found.residual)
        D = slopes(Phi, self.t[:, None], found.means, found.covariances[0], beta, self.w)
        return found, np.concatenate([of_alpha, [of_beta], design.gradient(self.X, Phi, D)])

    def maximum(self, theta: Float, free: Bool) -> Float:
        """Return θ at the largest evidence near ``theta``; only ``free`` elements change."""
        theta = theta.copy()

        def objective(some: Float) -> tuple[float, Float]:
            theta[free] = some
            found, slopes = self.evaluate(theta)
            return -found.log_evidence, -slopes[free]

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
    if model.n_targets > 1 or not model.n_vectors or model.design.scaling.target != AS_IT_IS:
        raise UsageError("joint_laplace needs a model of one target, not warped, with at least one relevance vector")
    if not len(model.design.kernel.logs):
        raise UsageError(f"joint_laplace needs a kernel with parameters, but {model.design.kernel!r} has none")
    rows, M, square = _JointRows(model, source), len(model.mean), float(model.design.scaling.t_scale[0] ** 2)
    theta = np.concatenate([np.log(model.alpha), [np.log(square / model.evidence_noise)], model.design.kernel.logs])
    free = np.ones(len(theta), bool)
    free[list(model.known_alpha)] = False
    free[M] = not model.known_noise
    theta = rows.maximum(theta, free)
    found, _ = rows.evaluate(theta)
    moved, second = list[tuple[Design, Float]](), []
    for step in STEP * np.eye(len(theta))[M + 1 :]:
        (low, below), (high, above) = rows.evaluate(theta - step), rows.evaluate(theta + step)
        moved += [(rows.at(theta - step), low.mean), (rows.at(theta + step), high.mean)]
        second.append((below - above) / (2 * STEP))
    border, corner = np.hsplit(np.array(second), [M + 1])
    inside = information(np.exp(theta[:M]), found.root(), int((rows.w > 0).sum()))
    inner = np.block([[inside, border.T], [border, 0.5 * (corner + corner.T)]])
    covariance = np.zeros_like(inner)
    values, vectors = np.linalg.eigh(inner[np.ix_(free, free)])  # no direction is more uncertain than the prior
    covariance[np.ix_(free, free)] = (vectors / (np.maximum(values, 0.0) + 1 / REACH**2)) @ vectors.T
    own: dict[str, Any] = {"design": rows.at(theta), "mean": found.mean, "root": found.root()}
    at = replace(model.sparse(), **own, alpha=np.exp(theta[:M]), noise_variance=square * float(np.exp(-theta[M])))
    return JointLaplace(at, theta, covariance, found.log_evidence, tuple(moved))
