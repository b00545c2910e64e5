"""The formulas of Tipping (2001), written densely: one matrix of all rows, no factors."""

import numpy as np
from scipy.special import log_softmax


def log_marginal(design, target, alpha, beta):
    """Return log N(t | 0, β⁻¹ + ΦA⁻¹Φᵀ) (eq. 15)."""
    covariance = np.eye(len(target)) / beta + design @ np.diag(1 / alpha) @ design.T
    _, log_determinant = np.linalg.slogdet(covariance)
    square = target @ np.linalg.solve(covariance, target)
    return -0.5 * (len(target) * np.log(2 * np.pi) + log_determinant + square)


def log_gamma(precision, shape, rate):
    """Return the Gamma log density of the logarithm of a precision, without its constant at the
    mode: a log x − bx − (a log(a/b) − a)."""
    density = shape * np.log(precision) - rate * precision
    if shape and rate:
        density = density - shape * (np.log(shape / rate) - 1)
    return density


def objective(theta, design, target, alpha_prior=(0, 0), noise_prior=(0, 0)):
    """Return the log marginal likelihood and the log priors at (log α, log β)."""
    alpha = np.exp(theta[:-1])
    beta = np.exp(theta[-1])
    value = log_marginal(design, target, alpha, beta)
    return value + log_gamma(alpha, *alpha_prior).sum() + log_gamma(beta, *noise_prior)


def differences(function, point, step=1e-5):
    """Return central differences of a function at a point."""
    slopes = []
    for unit in np.eye(len(point)):
        rise = function(point + step * unit) - function(point - step * unit)
        slopes.append(rise / (2 * step))
    return np.array(slopes)


def log_joint(weights, design, codes, alpha):
    """Return log p(t | w) − ½ Σ α w² of the softmax, or of the logistic function if w has one
    column (eq. 28, 23)."""
    outputs = design @ weights
    if outputs.shape[1] == 1:
        outputs = np.hstack([np.zeros_like(outputs), outputs])
    likelihood = log_softmax(outputs, axis=1)[np.arange(len(codes)), codes].sum()
    return likelihood - 0.5 * np.sum(alpha * weights**2)


def problem(seed, rows=30, columns=4):
    """Return a regression problem whose columns are all relevant."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(rows, columns))
    weights = rng.uniform(1, 3, columns) * rng.choice([-1, 1], columns)
    return design, design @ weights + 0.5 * rng.normal(size=rows)
