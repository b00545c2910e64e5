"""Classes by least squares on indicators: shared α and β, left-out rows, the ramp, fits."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from fits import statistics_of
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.datasets import load_digits

from partirvm import RVMClassifier
from partirvm.core import GramBlock, HyperState, LeftOutClasses, Ramp
from partirvm.core.updates import step
from partirvm.likelihoods import likelihood_for
from partirvm.model import load_model, save_model

MIDDLES = np.array([[-2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, -2.0], [0.0, 0.0]])
CLASSES = np.array([0, 1, 0, 1, 2])
K = 3
M = 5
N = 40


@pytest.fixture(scope="module")
def rows():
    """Return three classes that hardly overlap; two of them have two parts."""
    rng = default_rng(3)
    part = rng.integers(0, 5, 300)
    return MIDDLES[part] + 0.6 * rng.normal(size=(300, 2)), CLASSES[part]


@pytest.fixture
def dense(rng):
    """Return columns, codes, indicators, row weights, α, and the state of a fit at β = 3."""
    Phi = rng.normal(size=(N, M))
    codes = rng.integers(K, size=N)
    w = rng.choice([0.5, 1.0, 2.0], N)
    alpha = rng.uniform(0.5, 2.0, M)
    T = np.eye(K)[codes]
    state = HyperState(statistics_of(Phi, T, w), alpha, 3.0, target_variance=0.2, n_classes=K)
    return Phi, codes, T, w, alpha, state


def test_the_evidence_is_that_of_independent_targets(dense):
    """The means equal those for each indicator separately."""
    Phi, _, T, w, alpha, state = dense
    mean, Sigma = naive.posterior(Phi, T, alpha, 3.0, w)
    assert_allclose(state.posterior.mean, mean, rtol=1e-9)
    assert_allclose(state.posterior.variance, np.diagonal(Sigma), rtol=1e-9)
    expected = sum(naive.log_evidence(Phi, T[:, k], alpha, 3.0, w) for k in range(K))
    assert_allclose(state.log_evidence, expected, rtol=1e-9)


def test_an_update_uses_means_over_the_indicators(dense):
    """α_i = K γ_i / Σ_k μ_ik² and β = K (N − Σγ) / Σ_k w(t_k − Φμ_k)² (Thayananthan et al.
    2006)."""
    Phi, _, T, w, alpha, state = dense
    mean, _ = naive.posterior(Phi, T, alpha, 3.0, w)
    gamma = naive.determinedness(Phi, T, alpha, 3.0, w)
    after, _ = step(state)
    assert_array_equal(after.labels, np.arange(M))
    assert_allclose(after.alpha, K * gamma / (mean**2).sum(axis=1), rtol=1e-8)
    squares = (w @ (T - Phi @ mean) ** 2).sum()
    assert_allclose(after.beta, K * (N - gamma.sum()) / squares, rtol=1e-8)


def test_the_gain_of_a_column_is_the_rise_in_evidence(dense, rng):
    """The column has its best α."""
    Phi, _, T, w, alpha, state = dense
    new = T[:, :1] + 0.2 * rng.normal(size=(N, 1))
    (gain,) = state.gains(GramBlock.of(Phi, new, T, w, diagonal=True))
    both = np.hstack([Phi, new])
    own = [naive.sparsity_quality(new[:, 0], Phi, T[:, k], alpha, 3.0, w) for k in range(K)]
    s = own[0][0]
    square = np.mean([q**2 for _, q in own])
    best = np.append(alpha, s**2 / (square - s))
    before, after = (
        sum(naive.log_evidence(columns, T[:, k], a, 3.0, w) for k in range(K))
        for columns, a in ((Phi, alpha), (both, best))
    )
    assert gain > 1.0
    assert_allclose(gain, after - before, rtol=1e-6)


def test_left_out_rows_are_predicted_without_them(dense):
    """Half of a row of weight 2 is left out; centres are predicted without their columns, too."""
    Phi, codes, T, w, alpha, state = dense
    w[:2] = 1.0, 2.0
    posterior = replace(state, statistics=statistics_of(Phi, T, w)).posterior

    def left_out(centres):
        numbers = codes.astype(float)
        return LeftOutClasses.of(
            Phi.copy(), numbers, posterior.mean, posterior.root(), 3.0, w, centres
        )

    for centres in ((), [(0, np.array([1])), (1, np.array([2, 3]))]):
        found = left_out(centres)
        for row in (0, 1):
            weights = w.copy()
            weights[row] -= 1.0
            columns = np.setdiff1d(np.arange(M), dict(centres).get(row, []))
            mean, _ = naive.posterior(Phi[:, columns], T, alpha[columns], 3.0, weights)
            assert_allclose(found.f[row], Phi[row, columns] @ mean, rtol=1e-7)
    w[3] = 0.0
    assert len(left_out(()).codes) == N - 1


def test_the_least_determined_vectors_are_deleted(dense):
    """Half of the kernel columns are deleted, those with the smallest γ; the bias and α are
    unchanged."""
    Phi, _, T, w, alpha, state = dense
    labels = np.arange(M) - 1
    fit = replace(state, statistics=replace(state.statistics, labels=labels))
    gamma = naive.determinedness(Phi, T[:, 0], alpha, 3.0, w)
    kept = np.sort([0, *(1 + np.argsort(gamma[1:])[2:])])
    after = fit.reduced(0.5)
    assert_array_equal(after.labels, labels[kept])
    assert_array_equal(after.alpha, alpha[kept])
    expected, _ = naive.posterior(Phi[:, kept], T[:, 0], alpha[kept], 3.0, w)
    assert_allclose(after.posterior.mean[:, 0], expected, rtol=1e-8)


def test_the_ramp_minimises_the_smoothed_log_loss(rng):
    """It recovers true probabilities p ∝ log(1 + exp(f/τ))^ρ."""
    f = rng.dirichlet([0.5, 0.5, 0.5], 4000)
    truth = np.log1p(np.exp(f / 0.2)) ** 2
    truth /= truth.sum(axis=1, keepdims=True)
    codes = (truth.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).astype(float)
    left_out = LeftOutClasses(f, codes, np.ones(4000))
    ramp = left_out.ramp(Ramp())

    def loss(width, power):
        raised = np.log1p(np.exp(f / width)) ** power
        log_p = np.log(raised / raised.sum(axis=1, keepdims=True))
        exact = np.eye(3)[codes.astype(int)]
        smooth = exact + (1 / 3 - exact) * 3 / (4000 + 6)
        return -(smooth * log_p).sum() / 4000

    best = loss(ramp.width, ramp.power)
    for factor in (0.8, 1.25):
        assert loss(factor * ramp.width, ramp.power) >= best - 1e-7
        assert loss(ramp.width, factor * ramp.power) >= best - 1e-7
    p = np.exp(log_softmax(ramp.logits(f), axis=1))
    assert np.abs(p - truth).mean() < 0.02
    assert_allclose(ramp.loss, -np.log(p[np.arange(4000), codes.astype(int)]).mean(), rtol=1e-9)
    assert ramp.wrong == pytest.approx((p.argmax(axis=1) != codes).mean())


def test_predictors_of_any_size_have_logits():
    """log log(1 + eᶻ) is log z for large z, and z for very negative z."""
    f = np.array([[1e6, -1e6, 0.0]])
    assert_allclose(
        Ramp(0.5, 2.0).logits(f), 2 * np.array([[np.log(2e6), -2e6, np.log(np.log(2))]]), rtol=1e-12
    )


def test_the_ramp_for_separable_classes_is_finite(rng):
    """This is because targets are smoothed."""
    codes = np.arange(60) % 3
    left_out = LeftOutClasses(
        np.eye(3)[codes] + 0.05 * rng.normal(size=(60, 3)), codes.astype(float), np.ones(60)
    )
    ramp = left_out.ramp(Ramp())
    assert 0 < ramp.loss < 0.1
    assert ramp.wrong == 0.0
    assert left_out.ramp(replace(ramp, power=1.0)).loss == pytest.approx(ramp.loss, abs=1e-3)


@pytest.mark.parametrize("strategy", ["basic", "working-set", "split-merge"])
def test_every_strategy_predicts_the_classes(rows, strategy, tmp_path):
    """The error is near that of the nearest class centre, and a saved model predicts the same
    bits."""
    X, y = rows
    fit = RVMClassifier(gamma=0.5, strategy=strategy, partition_size=60, random_state=0).fit(
        X[:200], y[:200]
    )
    nearest = CLASSES[np.linalg.norm(X[200:, None] - MIDDLES, axis=2).argmin(axis=1)]
    p = fit.predict_proba(X[200:])
    assert (p.argmax(axis=1) == y[200:]).mean() > np.mean(nearest == y[200:]) - 0.05
    assert fit.alpha_.shape == fit.relevance_vectors_.shape[:1]
    assert_allclose(np.exp(log_softmax(fit.decision_function(X[200:]), axis=1)), p, rtol=1e-12)
    lower, upper = fit.predict_interval(X[200:], 0.9)
    middle = fit.decision_function(X[200:])
    assert ((lower <= middle) & (middle <= upper)).all()
    save_model(fit.model_, tmp_path / "model")
    assert_array_equal(load_model(tmp_path / "model").predict_proba(X), fit.predict_proba(X))


def between(rng, n=500):
    """Return rows of three classes, one of which lies between the two others."""
    X = rng.normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + 0.2 * rng.normal(size=n), [-0.4, 0.4])


def test_a_class_between_two_others_corrects_their_probabilities(rng, tmp_path):
    """The correction lowers the log loss on new rows; groups have none."""
    X, y = between(rng)
    new, codes = between(rng, 2000)
    fit = RVMClassifier(gamma=0.02, likelihood="pooled", random_state=0).fit(X, y)
    plain = replace(fit.model_, ramp=replace(fit.model_.ramp, correction=None))
    losses = [
        -np.log(model.predict_proba(new)[np.arange(2000), codes]).mean()
        for model in (plain, fit.model_)
    ]
    assert losses[1] < 0.9 * losses[0]
    assert fit.model_.ramp.loss == pytest.approx(losses[1], abs=0.05)
    groups = np.arange(500) // 5
    grouped = RVMClassifier(gamma=0.02, random_state=0).fit(X, y, groups=groups)
    assert grouped.model_.ramp.correction is None


def test_pooled_probabilities_of_two_classes_are_near_logistic_ones(rows):
    X, y = rows
    one = RVMClassifier(gamma=0.5, likelihood="pooled", random_state=0).fit(X, y > 0)
    other = RVMClassifier(gamma=0.5, random_state=0).fit(X, y > 0)
    assert (one.model_.ramp is None, other.model_.ramp is None) == (False, True)
    assert one.decision_function(X).shape == (len(X),)
    assert np.abs(one.predict_proba(X) - other.predict_proba(X)).mean() < 0.05


def test_two_classes_with_many_rows_are_pooled():
    """This is the default above 50,000 rows."""
    assert likelihood_for(2, "auto", 50_000).name == "bernoulli"
    assert likelihood_for(2, "auto", 50_001).name == "pooled"
    assert likelihood_for(2, "multinomial", 50_001).name == "bernoulli"


@pytest.mark.slow
def test_two_classes_that_hardly_overlap_are_pooled():
    """Even and odd digits are pooled, unless a fifth of the labels is wrong or the boundary is
    smooth."""
    rng = default_rng(1)
    (pixels, digit) = load_digits(return_X_y=True)
    X = rng.normal(size=(300, 2))
    even = digit[:300] % 2 == 0
    pixels = pixels[:300, pixels[:300].std(axis=0) > 0]
    smooth = X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.5
    wrong = rng.random(300) < 0.2
    for rows, y, pooled in (
        (X, smooth, False),
        (pixels, even, True),
        (pixels, even ^ wrong, False),
    ):
        assert (RVMClassifier(random_state=0).fit(rows, y).model_.ramp is not None) == pooled
    assert (
        RVMClassifier(likelihood="multinomial", random_state=0).fit(pixels, even).model_.ramp
        is None
    )
