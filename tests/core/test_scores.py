"""Regression and classification scores equal those of SciPy, scikit-learn and their definitions."""

from functools import reduce
from operator import add

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from partirvm.core import STATED_LEVELS, ClassScores, Scores
from partirvm.core.diagnostics import NORMAL_ENDS
from partirvm.core.scores import LEVELS, auc, ranking


def drawn(seed, n, k, *, ties=False, scale=2.0):
    """Draw codes, probabilities and, for two classes, linear predictors, which are rounded to
    create ties."""
    rng = default_rng(seed)
    codes = rng.integers(k, size=n)
    f = rng.normal(scale=scale, size=(n, 1 if k == 2 else k))
    f += 1.5 * (codes == 1)[:, None] if k == 2 else np.eye(k)[codes]
    if ties:
        f = np.round(f)
    p = np.hstack([expit(-f), expit(f)]) if k == 2 else softmax(f, axis=1)
    return codes, p, f[:, 0] if k == 2 else None


rows = st.tuples(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.integers(2, 6),
    st.booleans(),
    st.sampled_from([1, 40]),
)


@given(rows)
def test_class_scores_equal_scikit_learn(how):
    seed, n, k, ties, scale = how
    codes, p, f = drawn(seed, n, k, ties=ties, scale=scale)
    scores = ClassScores.of(codes.astype(np.float64), p, f)
    found = scores.figures()
    assert (scores.n, scores.loss) == (n, found["log_loss"])
    assert found["log_loss"] == pytest.approx(
        log_loss(codes, p, labels=range(k)), rel=1e-9, abs=1e-12
    )
    assert found["accuracy"] == pytest.approx(accuracy_score(codes, p.argmax(axis=1)))
    assert found["ece"] == pytest.approx(naive.calibration_error(codes, p), abs=1e-12)
    if k > 2:
        expected = np.mean(((p - np.eye(k)[codes]) ** 2).sum(axis=1))
        assert found["brier"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert "roc_auc" not in found
        return
    assert found["brier"] == pytest.approx(
        brier_score_loss(codes, p[:, 1], pos_label=1), rel=1e-9, abs=1e-12
    )
    if 0 < codes.sum() < n:
        assert found["roc_auc"] == pytest.approx(
            roc_auc_score(codes, f.astype(np.float16)), rel=1e-12
        )
    else:
        assert found["roc_auc"] is None


def test_calibration_bins_are_closed_above():
    """Confidence 0.6 = 9/15 falls into the lower bin (Guo et al. 2017)."""
    p = np.array([[0.4, 0.6], [0.35, 0.65]])
    assert ClassScores.of(np.array([1, 0]), p).figures()["ece"] == pytest.approx((0.4 + 0.65) / 2)


def test_a_certain_wrong_prediction_costs_36_nats():
    found = ClassScores.of(np.array([0]), np.array([[0.0, 1.0]]), np.array([800.0])).figures()
    assert found["log_loss"] == pytest.approx(-np.log(np.finfo(float).eps))
    assert (found["accuracy"], found["brier"], found["ece"]) == (0.0, 1.0, 1.0)


def same(one, other):
    for name in ("n", "wrong"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("nll", "squares", "excess"):
        assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12)
    assert (one.ranking is None) == (other.ranking is None)
    if one.ranking is not None:
        assert_array_equal(one.ranking, other.ranking)


@given(rows, st.data())
def test_scores_do_not_depend_on_the_summation_tree(how, data):
    seed, n, k, ties, scale = how
    codes, p, f = drawn(seed, n, k, ties=ties, scale=scale)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    spans = [slice(*ends) for ends in zip([0, *cuts], [*cuts, n], strict=True)]
    parts = [ClassScores.of(codes[span], p[span], None if f is None else f[span]) for span in spans]
    whole = ClassScores.of(codes, p, f)
    same(reduce(add, parts), whole)
    same(reduce(add, data.draw(st.permutations(parts))), whole)
    same(naive.tree_sum(parts), whole)


def test_half_precision_hardly_changes_the_ranking(rng):
    positive = rng.random(20_000) < 0.3
    scores = rng.normal(size=20_000) + positive
    assert auc(ranking(scores, positive)) == pytest.approx(
        roc_auc_score(positive, scores), abs=1e-5
    )


def test_rankings_keep_the_order_of_scores():
    """Zeros and tiny numbers are tied, as are numbers beyond half precision."""
    scores = np.array([-1e300, -2.0, -1.0, -1e-300, -0.0, 0.0, 1e-3, 1.0, 1e10, 1e300])
    found = ranking(scores, np.ones(10, bool))[1]
    assert_array_equal(found[found > 0], [1, 1, 1, 3, 1, 1, 2])


@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(0, 50))
def test_regression_scores_equal_those_of_scipys_normal(seed, n, cut):
    """These are RMSE, NLPD, CRPS by its integral, interval score and coverage."""
    rng = default_rng(seed)
    t = 5 + rng.normal(size=n)
    mean = 5 + rng.normal(size=n)
    variance = rng.uniform(0.1, 3.0, size=n)
    cut = min(cut, n)
    scores = Scores.of(t[:cut], mean[:cut], variance[:cut]) + Scores.of(
        t[cut:], mean[cut:], variance[cut:]
    )
    predictive = norm(mean, np.sqrt(variance))
    low, high = predictive.interval(0.95)
    assert scores.n == n
    assert_allclose(scores.loss, np.sqrt(np.mean((t - mean) ** 2)), rtol=1e-12)
    found = scores.figures()
    assert_allclose(found["nlpd"], -predictive.logpdf(t).mean(), rtol=1e-12)
    for level in LEVELS:
        ends = predictive.interval(level)
        assert found[f"coverage_{100 * level:.0f}"] == pytest.approx(
            np.mean((ends[0] <= t) & (t <= ends[1]))
        )
    outside = np.maximum(low - t, 0) + np.maximum(t - high, 0)
    assert_allclose(found["interval_score_95"], np.mean(high - low + 2 / 0.05 * outside), rtol=1e-9)
    grid = np.linspace(-10, 20, 6001)
    step = (norm.cdf(grid, mean[:, None], np.sqrt(variance)[:, None]) - (grid >= t[:, None])) ** 2
    assert_allclose(
        found["crps"], np.mean(step.sum(axis=1)) * (grid[1] - grid[0]), atol=3e-3
    )  # half a step


def test_intervals_may_use_other_multiples(rng):
    """Wider intervals cover more and are penalised for their width; the density does not change."""
    t = rng.normal(size=200)
    zero = np.zeros(200)
    one = np.ones(200)
    normal = Scores.of(t, zero, one)
    wide = Scores.of(t, zero, one, None, 2 * NORMAL_ENDS)
    found = wide.figures()
    covered = [found[f"coverage_{100 * level:.0f}"] for level in LEVELS]
    half = dict(zip(STATED_LEVELS, NORMAL_ENDS[1], strict=True))
    assert covered == [np.mean(np.abs(t) <= 2 * half[level]) for level in LEVELS]
    assert found["nlpd"] == normal.figures()["nlpd"]
    outside = np.maximum(np.abs(t) - 2 * half[0.95], 0)
    assert_allclose(found["interval_score_95"], np.mean(4 * half[0.95] + 2 / 0.05 * outside))
