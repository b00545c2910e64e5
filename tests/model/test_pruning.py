"""Pruning: its cost in evidence and error equals a computation over all rows."""

import naive
import numpy as np
import pytest
from by_default import some
from numpy.testing import assert_allclose, assert_array_equal
from test_class_models import classifier

from partirvm import RVMClassifier, RVMRegressor, Warp, load_model, save_model
from partirvm.core import least_loss
from partirvm.core.pruning import conditioned
from partirvm.errors import UsageError


@pytest.fixture
def rows(rng):
    """Return 400 rows of two features and two targets, and weights."""
    X = rng.uniform(-3, 3, size=(400, 2))
    y = np.column_stack([5 * np.sin(X[:, 0]) * X[:, 1] + 2, np.cos(X[:, 1])])
    y += 0.3 * rng.normal(size=X.shape)
    return X, y, rng.choice([0.5, 2.0], size=len(X))


def from_rows(model, X, y, w):
    """Return log evidence in mapped units, weighted squared errors (T,), μ (M, T) and Σ (T, M,
    M)."""
    scaling = model.design.scaling
    Phi = model.design.block(X)
    t = scaling.targets(y)
    scale = scaling.t_scale
    of_rows = model.design.row_weights(X)
    w = w if of_rows is None else w * of_rows
    betas = np.broadcast_to(scale**2 / model.evidence_noise, len(scale))
    given = [(Phi, t[:, k], model.alpha, beta, w) for k, beta in enumerate(betas)]
    evidence = sum(naive.log_evidence(*each) for each in given) - len(X) * np.log(scale).sum()
    found = [naive.posterior(*each) for each in given]
    mu = np.column_stack([each[0] for each in found])
    Sigma = np.stack([each[1] for each in found])
    return (
        evidence,
        scale**2 * (w @ (t - Phi @ model.mean.reshape(len(mu), -1)) ** 2) / len(X),
        mu,
        Sigma,
    )


WARP = Warp(target="asinh")
CASES = {
    "one target, weights": ({"noise": "constant"}, 1, True),
    "local noise, bias and features": ({"noise": "local", "basis": "linear"}, 1, False),
    "several targets": ({}, 2, False),
    "several kernels, a warped target": (
        {"kernel": ["gaussian", "laplacian"], "warp": WARP},
        1,
        False,
    ),
}


@pytest.mark.parametrize("case", some(CASES, {"one target, weights", "several targets"}))
def test_evidence_error_and_weights_equal_those_from_all_rows(rows, case, tmp_path):
    """Pruning twice equals pruning once; files and exports contain the result."""
    options, T, weighted = CASES[case]
    X = rows[0]
    y = rows[1][:, :T]
    w = rows[2] if weighted else np.ones(len(rows[0]))
    fitted = RVMRegressor(gamma=0.5, residual="none", random_state=0, **options).fit(
        X, y, w if weighted else None
    )
    whole = fitted.model_
    before = from_rows(fitted.model_, X, y, w)
    count = whole.n_vectors // 2
    small = fitted.prune(count)
    model = small.model_
    pruned = small.model_.pruned
    assert (small.n_relevance_vectors_, len(small.weights_), pruned.vectors) == (
        count,
        count,
        whole.n_vectors - count,
    )
    assert fitted.model_ is whole
    evidence, errors, mu, Sigma = from_rows(model, X, y, w)
    assert pruned.log_evidence == pytest.approx(before[0] - evidence, rel=1e-8, abs=1e-5)
    assert_allclose(
        pruned.squared_error, (errors - before[1]).reshape(np.shape(pruned.squared_error)), 1e-7
    )
    assert_allclose(before[1] + np.square(pruned.rmse), errors, rtol=1e-9)
    assert_allclose(model.noise_variance, whole.noise_variance + pruned.squared_error, rtol=1e-12)
    assert_allclose(model.mean.reshape(mu.shape), mu, rtol=0, atol=1e-6 * np.abs(mu).max())
    roots = model.root.reshape(T, *Sigma.shape[1:])
    assert_allclose(
        roots @ roots.transpose(0, 2, 1), Sigma, rtol=0, atol=1e-6 * np.abs(Sigma).max()
    )
    assert not np.tril(roots, -1).any()
    twice = fitted.prune(count + 2).prune(count).model_
    assert_allclose(twice.mean, model.mean, rtol=1e-6, atol=1e-9)
    save_model(small, tmp_path / "small")
    assert_array_equal(load_model(tmp_path / "small").predict(X), small.predict(X))
    assert load_model(tmp_path / "small").model_.pruned.log_evidence == pruned.log_evidence
    small.to_numpy(tmp_path / "small.npz")
    small.to_c(tmp_path / "small.h")


def test_each_deletion_has_the_least_loss(rng):
    """The loss is measured in log N(t | 0, C), summed over outputs that share Σ."""
    Phi = rng.normal(size=(40, 9))
    t = rng.normal(size=(40, 2))
    alpha = rng.uniform(0.1, 9.0, 9)
    beta = 2.0
    mu, Sigma = naive.posterior(Phi, t, alpha, beta)
    root = np.linalg.cholesky(Sigma[::-1, ::-1])[::-1, ::-1][None]

    def evidence(columns):
        return sum(naive.log_evidence(Phi[:, columns], each, alpha[columns], beta) for each in t.T)

    order = least_loss(alpha, mu, root, 2, 7)
    left = np.arange(9)
    for column in order:
        losses = [
            evidence(left) - evidence(np.delete(left, place)) for place in range(2, len(left))
        ]
        assert column == left[2 + np.argmin(losses)]
        left = np.setdiff1d(left, [column])
        mean, _, loss, growth = conditioned(alpha, mu, root, left)
        assert loss == pytest.approx(evidence(np.arange(9)) - evidence(left), rel=1e-10)
        squares = [
            ((t - Phi[:, own] @ each) ** 2).sum(axis=0)
            for own, each in ((left, mean), (slice(None), mu))
        ]
        assert_allclose(growth, beta * (squares[0] - squares[1]), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("likelihood", ["bernoulli", "multinomial", "pooled"])
def test_pruned_classes_have_the_conditional_distribution(likelihood):
    """The weights are distributed as if the pruned ones were 0."""
    model = classifier(likelihood, ("a", "b") if likelihood == "bernoulli" else ("a", "b", "c"))
    small = model.prune(2)
    left = np.flatnonzero(np.isin(model.design.all_labels, small.design.all_labels))
    gone = np.setdiff1d(np.arange(len(model.mean)), left)
    for k, root in enumerate(model.root):
        Sigma = root @ root.T
        own = small.root[k]
        gain = Sigma[np.ix_(left, gone)] @ np.linalg.inv(Sigma[np.ix_(gone, gone)])
        assert_allclose(
            own @ own.T, (Sigma[np.ix_(left, left)] - gain @ Sigma[gone][:, left]), rtol=1e-5
        )
        outputs = slice(None) if len(model.root) == 1 else k
        expected = model.mean[left][:, outputs] - gain @ model.mean[gone][:, outputs]
        assert_allclose(small.mean[:, outputs], expected, rtol=1e-6)
    assert (small.n_vectors, small.pruned.vectors, small.pruned.squared_error) == (2, 3, 0.0)


@pytest.mark.slow
def test_pruning_refuses_local_residuals_and_negative_numbers(rows):
    X, y, _ = rows
    local = RVMRegressor(residual="local", random_state=0).fit(X, y[:, 0])
    with pytest.raises(UsageError, match=r"prune model_\.sparse\(\)"):
        local.prune(5)
    assert local.model_.sparse().prune(5).n_vectors == 5
    model = RVMClassifier(gamma=0.5, random_state=0).fit(X, y[:, 0] > 2)
    with pytest.raises(UsageError, match="max_vectors"):
        model.prune(-1)
    assert model.prune(1000).model_ is model.model_
    assert model.prune(0).predict_proba(X).std(axis=0).max() == 0.0
