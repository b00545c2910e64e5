"""RVM* as the KTH report prints it (2019, §2.2, eq. 16; Rasmussen & Quiñonero-Candela 2005).

Each new row x* adds the basis function k(x, x*) to the model. With φ* its values at the N training
rows, Φ the design of these rows and φ₀ that of x*,

    s = φ*ᵀC⁻¹φ*, C = σ² + ΦA⁻¹Φᵀ,    q = σ⁻²φ*ᵀ(t − Φμ),    e = k(x*, x*) − σ⁻²φ₀ᵀΣΦᵀφ*
    mean + e·q / (α† + s),    variance + e² / (α† + s).

The report calls α† the precision of t, 1/var(t), whatever the kernel. ``predict(augment=…)`` of the
main path has k(x*, x*)²/var(t), with which the prior variance of the extra function at x* is
var(t); the two agree for kernels with k(x, x) = 1. All training rows are needed.
"""

from typing import Any

import numpy as np

from partirvm.literature.dense import DenseRegressor
from partirvm.types import Float


def rvm_star(model: DenseRegressor, X: Float, y: Float, X_new: Any) -> tuple[Float, Float]:
    """Return the mean and the standard deviation of new targets by RVM* (eq. 16), (n,) each.

    Parameters
    ----------
    model : DenseRegressor
        Fitted regressor of this package.
    X : ndarray (N, d)
        Its training rows.
    y : ndarray (N,)
        Their targets.
    X_new : array-like (n, d)
        New rows.
    """
    mean, std = model.predict(X_new, return_std=True)
    new = np.asarray(X_new, dtype=np.float64)
    design = model._new_design(X)
    extra = model.kernel.values(X, new)
    cross = design.T @ extra / model.noise_variance_
    spread = model.covariance_ @ cross
    s = np.sum(extra**2, axis=0) / model.noise_variance_ - np.sum(cross * spread, axis=0)
    q = extra.T @ (y - design @ model.weights_) / model.noise_variance_
    e = model.kernel.diagonal(new) - np.sum(model._new_design(new).T * spread, axis=0)
    precision = 1.0 / np.var(y) + np.maximum(s, 0.0)
    return mean + e * q / precision, np.sqrt(std**2 + e**2 / precision)
