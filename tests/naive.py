"""The mathematics of an RVM in short dense formulas, for comparison. Speed does not matter here.

Notation of Tipping (2001): Φ (N, M) the design, t (N,) or (N, T) targets, α (M,) prior precisions,
β = σ⁻² the noise precision, w (N,) precision weights of the rows (a row's noise variance is 1/(βw);
a weight of zero is an absent row). "C" is the covariance of the targets, β⁻¹W⁻¹ + ΦA⁻¹Φᵀ (eq. 15);
quantities derived from it are accurate even where ΦᵀΦ is singular.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.optimize import minimize
from scipy.special import expit, logsumexp


def gaussian(X, Z, gamma):
    """Return k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²), from the difference of every pair."""
    differences = X[:, None, :] - Z[None, :, :]
    return np.exp(-(np.broadcast_to(gamma, X.shape[1:]) * differences**2).sum(axis=-1))


def rmse(one, other):
    """Return the root mean square difference."""
    return np.sqrt(np.mean((one - other) ** 2))


def present(w, *arrays):
    """Return the arrays without rows of zero weight, and the remaining weights."""
    keep = w > 0
    return *(array[keep] for array in arrays), w[keep]


def ones(Phi, w):
    """Return the weights, all 1 unless given."""
    return np.ones(len(Phi)) if w is None else w


def gram(Phi, t, w=None):
    """Return ΦᵀWΦ, ΦᵀWt and the diagonal of tᵀWt."""
    W = np.diag(ones(Phi, w))
    return Phi.T @ W @ Phi, Phi.T @ W @ t, np.diagonal(t.T @ W @ t)


def posterior(Phi, t, alpha, beta, w=None):
    """Return Σ = (βΦᵀWΦ + A)⁻¹ and μ = βΣΦᵀWt (eqs. 6, 12 and 13)."""
    W = np.diag(ones(Phi, w))
    Sigma = np.linalg.inv(beta * Phi.T @ W @ Phi + np.diag(alpha))
    return beta * Sigma @ Phi.T @ W @ t, Sigma


def covariance(Phi, alpha, beta, w=None):
    """Return C = β⁻¹W⁻¹ + ΦA⁻¹Φᵀ (eq. 15); all weights are positive."""
    return np.diag(1 / (beta * ones(Phi, w))) + (Phi / alpha) @ Phi.T


def log_evidence(Phi, t, alpha, beta, w=None):
    """Return log N(t | 0, C) over the rows of non-zero weight (eq. 15)."""
    Phi, t, w = present(ones(Phi, w), Phi, t)
    L = cholesky(covariance(Phi, alpha, beta, w), lower=True)
    white = np.linalg.solve(L, t)
    return -0.5 * (len(t) * np.log(2 * np.pi) + 2 * np.log(np.diagonal(L)).sum() + white @ white)


def predict(rows, Phi, t, alpha, beta, w=None):
    """Return mean φᵀμ and noisy variance 1/β + φᵀΣφ at design rows (eqs. 21 and 22)."""
    mu, Sigma = posterior(Phi, t, alpha, beta, w)
    return rows @ mu, 1 / beta + np.einsum("nm,mk,nk->n", rows, Sigma, rows)


def predict_by_rows(rows, Phi, t, alpha, beta, w=None):
    """Do the same as ``predict`` in N × N form: mean kᵀC⁻¹t, variance 1/β + φᵀA⁻¹φ − kᵀC⁻¹k, k =
    ΦA⁻¹φ."""
    Phi, t, w = present(ones(Phi, w), Phi, t)
    factor = cho_factor(covariance(Phi, alpha, beta, w))
    k = (Phi / alpha) @ rows.T
    return k.T @ cho_solve(factor, t), 1 / beta + (rows**2 / alpha).sum(axis=1) - np.sum(
        k * cho_solve(factor, k), 0
    )


def predict_augmented(rows, heights, extra, Phi, t, alpha, beta, precision, w=None):
    """``predict`` each row by a separate RVM with one extra column: ``extra`` (N, G) at the
    training rows, ``heights`` (G,) at the row, prior precision ``precision`` (G,) (Rasmussen &
    Quiñonero-Candela 2005)."""
    predictions = []
    for row, height, phi, a in zip(rows, heights, extra.T, precision, strict=True):
        point = np.append(row, height)[None]
        design = np.column_stack([Phi, phi])
        predictions.append(predict(point, design, t, np.append(alpha, a), beta, w))
    return np.concatenate(predictions, axis=1)


def determinedness(Phi, t, alpha, beta, w=None):
    """Return γ = 1 − αΣ_ii (eq. 17)."""
    return 1 - alpha * np.diagonal(posterior(Phi, t, alpha, beta, w)[1])


def log_prior(x, shape, rate):
    """Return shape·log x − rate·x, the log of a Gamma density of log x, minus its maximum if it has
    one."""
    peak = shape * (np.log(shape / rate) - 1) if shape and rate else 0.0
    return shape * np.log(x) - rate * x - peak


def updates(Phi, t, alpha, beta, prior=(0.0, 0.0, 0.0, 0.0), w=None):
    """Return α = γ/μ² and β = (N − Σγ)/‖t − Φμ‖²_W (eqs. 16 to 18), with priors (a, b) and (c, d)
    (app. A)."""
    w = ones(Phi, w)
    (a, b, c, d) = prior
    mu, Sigma = posterior(Phi, t, alpha, beta, w)
    N = (w > 0).sum()
    squares = w @ (t - Phi @ mu) ** 2
    gamma = 1 - alpha * np.diagonal(Sigma)
    return (gamma + 2 * a) / (mu**2 + 2 * b), (N - gamma.sum() + 2 * c) / (squares + 2 * d)


def sparsity_quality(phi, Phi, t, alpha, beta, w=None):
    """Return s = φᵀC⁻¹φ and q = φᵀC⁻¹t of a column outside Φ (Tipping & Faul 2003, eqs. 19, 22)."""
    Phi, phi, t, w = present(ones(Phi, w), Phi, phi, t)
    factor = cho_factor(covariance(Phi, alpha, beta, w))
    return phi @ cho_solve(factor, phi), phi @ cho_solve(factor, t)


def best_gain(s, q):
    """Return the maximum of ``contribution`` over a grid of α, or 0 if that is larger."""
    alpha = s * np.geomspace(1e-12, 1e12, 20_001)
    return max(0.0, float(np.max(0.5 * (np.log(alpha) - np.log(alpha + s) + q**2 / (alpha + s)))))


def tree_sum(values):
    """Return the sum in the fixed tree: a node is left + right, or left if there is no right
    one."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + values[
            len(values) // 2 * 2 :
        ]
    return values[0]


def calibration_error(codes, probabilities, bins=15):
    """Return Σ_b |B_b|/n · |accuracy_b − confidence_b| over 15 bins, closed above (Guo et al. 2017,
    eq. 3)."""
    edges = np.linspace(0, 1, bins + 1)
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == codes
    found = 0.0
    for low, high in pairwise(edges):
        held = (confidence > low) & (confidence <= high)
        if held.any():
            found += held.mean() * abs(right[held].mean() - confidence[held].mean())
    return found


def log_probability(likelihood, f, codes):
    """Return log p (N, 1) of each row's code at predictors f (N, C) (Tipping 2001, eqs. 23 and
    28)."""
    if likelihood == "multinomial":
        return (f[np.arange(len(f)), codes.astype(int)] - logsumexp(f, axis=1))[:, None]
    return codes[:, None] * f - np.logaddexp(0, f)


def logistic(likelihood, Phi, codes, mean, w=None):
    """Return log likelihood, gradient (M, C), and full negative Hessian (M, C, M, C) at weights (M,
    C)."""
    f = Phi @ mean
    w = ones(Phi, w)
    if likelihood == "multinomial":
        y = np.exp(f - logsumexp(f, axis=1, keepdims=True))
        B = np.einsum("nk,kl->nkl", y, np.eye(f.shape[1])) - np.einsum("nk,nl->nkl", y, y)
    else:
        y = expit(f)
        B = (y * (1 - y))[:, :, None]
    t = codes[:, None] == (np.ones(1) if f.shape[1] == 1 else np.arange(f.shape[1]))
    value = w @ log_probability(likelihood, f, codes)
    return value, Phi.T @ (w[:, None] * (t - y)), np.einsum("n,ni,nkl,nj->ikjl", w, Phi, B, Phi)


def penalised(likelihood, Phi, codes, alpha, mean, w=None):
    """Return log p(t | W) − ½ Σ α w², α (M, C)."""
    return logistic(likelihood, Phi, codes, mean, w)[0].sum() - 0.5 * (alpha * mean**2).sum()


def mode(likelihood, Phi, codes, alpha, w=None):
    """Return the W (M, C) of highest penalised likelihood, by a trust region, then Newton with the
    full Hessian."""
    shape = alpha.shape
    prior = np.diag(alpha.ravel())

    def value(x):
        return -penalised(likelihood, Phi, codes, alpha, x.reshape(shape), w)

    def slope(x):
        return alpha.ravel() * x - logistic(likelihood, Phi, codes, x.reshape(shape), w)[1].ravel()

    def bend(x):
        return prior + logistic(likelihood, Phi, codes, x.reshape(shape), w)[2].reshape(prior.shape)

    x = minimize(value, np.zeros(alpha.size), jac=slope, hess=bend, method="trust-exact").x
    for _ in range(5):
        x = x - np.linalg.solve(bend(x), slope(x))
    return x.reshape(shape)


def laplace(likelihood, Phi, codes, alpha, mean, w=None):
    """Return Σ_k (C, M, M) from each output's block of the Hessian, and Laplace's evidence with
    them, log p(t | W) − ½ Σ α w² + ½ Σ_k [log|A_k| + log|Σ_k|]."""
    curvature = logistic(likelihood, Phi, codes, mean, w)[2]
    Sigma = np.array(
        [np.linalg.inv(curvature[:, k, :, k] + np.diag(alpha[:, k])) for k in range(alpha.shape[1])]
    )
    evidence = penalised(likelihood, Phi, codes, alpha, mean, w)
    return Sigma, evidence + 0.5 * (np.log(alpha).sum() + np.linalg.slogdet(Sigma)[1].sum())


def laplace_mackay(likelihood, alpha, mean, Sigma):
    """Return α = Σ_k γ_ik / Σ_k μ_ik² (Tipping 2001, eq. 16), shared by the outputs."""
    gamma = 1 - alpha * np.array([np.diagonal(each) for each in Sigma]).T
    return np.repeat((gamma.sum(axis=1) / (mean**2).sum(axis=1))[:, None], alpha.shape[1], axis=1)


def contribution(alpha, s, q):
    """Return ℓ(α) = ½[log α − log(α + s) + q²/(α + s)], 0 at α = ∞ (Tipping & Faul 2003, eq.
    18)."""
    return (
        0.0 if np.isinf(alpha) else 0.5 * (np.log(alpha) - np.log(alpha + s) + q**2 / (alpha + s))
    )


def best_action(Phi, t, active, beta):
    """Return (gain, kind, column, α) of the best action, computed afresh with eqs. 23 to 25;
    ``active`` maps columns to α."""
    columns = list(active)
    mu, Sigma = posterior(Phi[:, columns], t, np.array(list(active.values())), beta)
    inside = beta * Phi[:, columns].T @ Phi
    S = beta * (Phi**2).sum(axis=0) - np.einsum("mk,mn,nk->k", inside, Sigma, inside)
    Q = beta * Phi.T @ (t - Phi[:, columns] @ mu)
    found = []
    for j in range(Phi.shape[1]):
        before = active.get(j, np.inf)
        s, q = (
            (S[j], Q[j]) if np.isinf(before) else np.array([S[j], Q[j]]) * before / (before - S[j])
        )
        after = s**2 / (q**2 - s) if q**2 > s else np.inf
        kind = "add" if np.isinf(before) else "delete" if np.isinf(after) else "estimate"
        found.append((contribution(after, s, q) - contribution(before, s, q), kind, j, after))
    return max(found, key=lambda action: action[0])


def tipping_faul(Phi, t, beta, *, least, between):
    """Run Tipping & Faul's algorithm from no column; return (kind, column, α, log evidence) of each
    action, and β. The action with the largest gain above ``least`` is taken; β is MacKay's after
    ``between(M)`` actions and when no action gains, until it changes the evidence by less than
    ``least``."""
    active = {}
    actions = []
    since = 0

    def parts():
        return Phi[:, list(active)], t, np.array(list(active.values())), beta

    while True:
        gain, kind, j, alpha = best_action(Phi, t, active, beta)
        if gain > least and since < between(len(active)):
            if kind == "delete":
                del active[j]
            else:
                active[j] = alpha
            actions.append((kind, j, alpha, log_evidence(*parts())))
            since += 1
            continue
        before = log_evidence(*parts())
        done = since
        since = 0
        beta = updates(*parts())[1]
        rests = abs(log_evidence(*parts()) - before) < least
        if not done and rests and best_action(Phi, t, active, beta)[0] <= least:
            return actions, beta
