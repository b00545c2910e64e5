"""Kernels are judged on left-out rows: predictions, when a kernel is lost, learning from more
rows."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sampling import problem_of, sample_of
from test_process_search import learned

from partirvm.kernels import Gaussian
from partirvm.learning import ProcessFit, ProcessRows, SearchEffort
from partirvm.learning.escalation import escalated, forest_starts
from partirvm.learning.left_out_judge import LeftOutJudge, judge_of


def product(n, d=6, seed=1):
    """Return inputs, and sin(2 x_0) x_1 + cos(x_2 x_3), part of which looks like noise in 400
    rows."""
    rng = default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, d))
    f = np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] * X[:, 3])
    y = f + 0.1 * rng.normal(size=n)
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def test_left_out_rows_are_predicted_by_the_exact_process():
    """The mean is k(x, X)(K + σ²I)⁻¹t (Rasmussen & Williams 2006, eq. 2.23), with a bias in k."""
    X, y = product(500)
    problem = problem_of(X, y, Gaussian(0.3))
    with sample_of(X, y) as sample:
        judge = judge_of(sample, problem, default_rng(0).permutation(500))
        losses = judge.losses(ProcessFit(Gaussian(0.3), np.log(2.0), np.log(0.05)))
    known = np.sort(judge.known)
    new = np.sort(judge.new)
    assert len(new) == 125
    assert not set(known) & set(new)

    def kernel(A, B):
        return 2.0 * np.exp(-0.3 * ((A[:, None] - B) ** 2).sum(axis=2))

    bias = 100.0 * problem.target_variance
    K = kernel(X[known], X[known]) + bias + 0.05 * np.eye(len(known))
    mean = (kernel(X[new], X[known]) + bias) @ np.linalg.solve(K, y[known])
    assert_allclose(losses, (y[new] - mean) ** 2, rtol=1e-6, atol=1e-9)


def test_errors_of_left_out_rows_count_by_their_weights():
    """A row of weight w has w times the loss, for the kernel and for its rivals."""
    X, y = product(500)
    order = default_rng(0).permutation(500)
    w = np.where(np.isin(np.arange(500), order[-125:]), np.tile([0.5, 4.0], 250), 1.0)
    fit = ProcessFit(Gaussian(0.3), np.log(2.0), np.log(0.05))

    def losses(weights):
        with sample_of(X, y, weights) as sample:
            judge = judge_of(sample, problem_of(X, y, Gaussian(0.3)), order)
            return judge.losses(fit), judge.rivals["nearest rows"], np.sort(judge.new)

    weighted, weighted_rival, new = losses(w)
    plain, plain_rival, _ = losses(None)
    assert set(w[new]) == {0.5, 4.0}
    assert_allclose(weighted, w[new] * plain, rtol=1e-9)
    assert_allclose(weighted_rival, w[new] * plain_rival, rtol=1e-9)


def judge_with(rivals):
    """Return a judge whose rivals have these squared errors."""
    judge = LeftOutJudge(SimpleNamespace(effort=SearchEffort()), None, np.arange(3), np.arange(4))
    judge.__dict__["rivals"] = {name: np.array(loss) for name, loss in rivals.items()}
    return judge


def test_a_kernel_is_lost_if_a_rival_is_clearly_better():
    """The rival must reduce the error by 5 % and by more than one standard error of the mean
    difference."""
    judge = judge_with(
        {"boosted trees": [1.0, 1.0, 1.0, 1.0], "nearest rows": [4.0, 4.0, 4.0, 4.0]}
    )
    same = judge.verdict(np.full(4, 1.05**2 - 1e-9))
    worse = judge.verdict(np.full(4, 1.05**2 + 1e-9))
    assert (same.lost, worse.lost) == (False, True)
    assert (worse.rival, worse.rival_error, worse.rows) == ("boosted trees", 1.0, 4)
    assert worse.error == pytest.approx(1.05)
    # differences −1, 3, −1, 3: mean 1, standard error 2/√4 = 1; the mean must exceed the error
    assert not judge.verdict(np.array([0.0, 4.0, 0.0, 4.0])).lost
    assert judge.verdict(np.array([0.1, 4.0, 0.1, 4.0])).lost


def test_kernels_are_not_judged_with_few_rows():
    X, y = product(300)
    with sample_of(X, y) as sample:
        assert judge_of(sample, problem_of(X, y), np.arange(300)) is None


@pytest.mark.usefixtures("default_fits")
def test_a_lost_search_continues_with_more_rows():
    """Rows used for judging are not used for learning; the final error is below half of the
    rival's."""
    X, y = product(1600)
    lines = []
    with sample_of(X, y, lines=lines) as sample:
        problem = problem_of(X, y).with_kernel(Gaussian(1 / 6).per_feature(6))
        order = default_rng(0).permutation(1600)
        judge = judge_of(sample, problem, order)
        wide = ProcessFit(Gaussian((0.01,) * 6), 0.0, np.log(0.5))
        found = escalated(judge, order, [wide], 400, families=False)
    assert found.first.lost
    assert not found.last.lost
    assert found.improved
    assert found.rows[0] == 800
    assert found.last.error < 0.5 * found.last.rival_error
    gamma = np.array(found.best.fit.kernel.gamma)
    assert gamma[4:].max() < 0.1 * gamma[:4].max()


def test_a_search_that_is_not_lost_ends():
    X, y = product(1600)
    with sample_of(X, y) as sample:
        problem = problem_of(X, y)
        judge = judge_of(sample, problem, np.arange(1600))
        judge.__dict__["rivals"] = {"boosted trees": np.full(400, 1e9)}
        fit = ProcessFit(Gaussian(0.1), 0.0, np.log(0.1))
        found = escalated(judge, np.arange(1600), [fit], 400, families=True)
    assert found.rows == ()
    assert not found.improved
    assert found.best.fit is fit


def test_forests_give_starts_with_the_features_that_matter():
    X, y = product(1000, d=12)
    with sample_of(X, y) as sample:
        problem = problem_of(X, y).with_kernel(Gaussian(1 / 12).per_feature(12))
        rows = ProcessRows.of(sample, problem, np.arange(1000))
        for start in forest_starts(rows):
            assert set(np.argsort(-start)[:2]) == {0, 1}
            assert (start < start.max()).any()


def test_the_history_records_the_judgement():
    X, y = product(500)
    line = learned(X, y)
    judged = line.choice["judged"]
    assert judged["rows"] == 125
    assert judged["first_error"] >= judged["error"]
    assert judged["rival"] in {"boosted trees", "nearest rows"}


@pytest.mark.usefixtures("default_fits")
def test_a_kernel_that_gets_worse_with_more_rows_is_rejected(monkeypatch):
    """After the tied search, the process's kernel is kept if its left-out error is lower by 2 %."""
    effort = SearchEffort(few=500, lost=0.0, sure=-np.inf)
    X, y = product(1000)
    errors = iter([1.0, 0.9, 0.8, 0.95])
    monkeypatch.setattr(LeftOutJudge, "tied_error", lambda self, design, weights: next(errors))
    judged = learned(X, y, effort=effort).choice["judged"]
    assert judged["tied"] == 1.0
    assert judged["process"] in {0.8, 0.9}


def test_a_lost_kernel_is_corrected_by_the_errors_of_similar_rows():
    """The correction is a mean over 8 rows of left-out errors α_i/(K⁻¹)_ii (ibid., eq. 5.12)."""
    X, y = product(500)
    problem = problem_of(X, y, Gaussian(0.02), bias=False)
    fit = ProcessFit(Gaussian(0.02), 0.0, np.log(0.5))
    with sample_of(X, y) as sample:
        judge = judge_of(sample, problem, default_rng(0).permutation(500), residuals=True)
        judge.__dict__["rivals"] = {"boosted trees": np.zeros(125)}
        losses = judge.losses(fit)
    known = np.sort(judge.known)
    new = np.sort(judge.new)

    def kernel(A, B):
        return np.exp(-0.02 * ((A[:, None] - B) ** 2).sum(axis=2))

    inverse = np.linalg.inv(kernel(X[known], X[known]) + 0.5 * np.eye(len(known)))
    alpha = inverse @ y[known]
    residuals = alpha / inverse.diagonal()

    def mean_of_similar(similarity):
        return residuals[np.argsort(-similarity, axis=1)[:, :8]].mean(axis=1)

    among = kernel(X[known], X[known]) - 2 * np.eye(len(known))
    means = mean_of_similar(among)
    multiple = np.clip(means @ residuals / (means @ means), 0, 1)
    errors = (
        y[new]
        - kernel(X[new], X[known]) @ alpha
        - multiple * mean_of_similar(kernel(X[new], X[known]))
    )
    assert_allclose(losses, errors**2, rtol=1e-6, atol=1e-9)
