"""Evidence and slopes of every kernel, computed by passes, equal central differences of dense
formulas."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from kernel_cases import CASES, Case, D, slopes
from numpy.testing import assert_allclose

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.kernels import Categorical, Design, Gaussian, Laplacian, OnColumns, Product, Several
from partirvm.learning import gathered
from partirvm.learning.sample import evaluate
from partirvm.likelihoods import LIKELIHOODS
from partirvm.scaling import Scaling
from partirvm.spec import Problem, Spent

N = 90
M = 7
TILE = 32
STEP = 2e-3
MIXED = Product((OnColumns(Gaussian((0.3, 0.1)), (0, 1)), OnColumns(Categorical(0.5), (2,))))
SEVERAL = Case("several", Several((Gaussian(0.2), MIXED, OnColumns(Laplacian(1.5), (0,)))), None)
LEARNED = [SEVERAL, *(case for case in CASES if np.isfinite(case.kernel.logs).any())]
SOME = [
    case
    for case in LEARNED
    if case.name in {"gaussian, widths", "matern32", "product", "sum", "several"}
]


def rows(rng, K=0):
    """Return inputs whose last column is a category, targets or K classes, and weights with
    zeros."""
    X = np.column_stack([rng.normal(size=(N, D - 1)), rng.integers(0, 3, N)])
    y = np.tanh(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * X[:, 2] + 0.3 * rng.normal(size=N)
    if K:
        y = np.searchsorted(np.quantile(y, np.arange(1, K) / K), y).astype(float)
    return X, y, rng.choice([0.0, 0.5, 2.0], size=N, p=[0.1, 0.4, 0.5])


def problem_of(kernel, X, y, likelihood="gaussian", K=0):
    """Return the problem of these rows in raw inputs, and a design of M centres and the bias."""
    scaling = Scaling(
        np.zeros(D), np.ones(D), np.array([0.0 if K else 0.3]), np.array([1.0 if K else 1.7])
    )
    empty = Design(
        kernel, scaling, np.zeros((0, D)), np.zeros(0, np.int64), bias=False, origin=X.mean(axis=0)
    )
    target_variance = 1.0 if K else float(np.mean(scaling.targets(y[:, None]) ** 2))
    kind = {"likelihood": LIKELIHOODS[likelihood], "n_classes": K, "held_out": False}
    problem = Problem(N, empty, True, target_variance, None, 1.0, shuffled=True, **kind)
    return problem, replace(empty.with_centres(X[:M], np.arange(M)), bias=True)


def evaluated(problem, design, source, subset=None):
    """Return the point from an evaluation over a sample of a source's rows."""
    executor = LocalExecutor(2)
    with gathered(source, subset, executor, lambda *_: None, Spent(), room=1 << 20) as sample:
        point = evaluate(sample, problem, design, None, fresh=True)
    executor.close()
    return point


def assert_evidence_and_slopes(point, kernel, design, X, targets, w):
    """Assert the evidence of all targets (n, T) at the point's α and β, and its slopes by central
    differences."""
    alpha = point.tied.alphas(design.all_labels)
    betas = np.broadcast_to(point.tied.beta, targets.shape[1])

    def evidence(kernel):
        changed = Design(kernel, design.scaling, design.centres, design.labels, design.bias)
        Phi = changed.block(X)
        return sum(
            naive.log_evidence(Phi, t, alpha, beta, w)
            for t, beta in zip(targets.T, betas, strict=True)
        )

    assert_allclose(point.value, evidence(kernel), rtol=1e-8)
    expected = slopes(evidence, kernel, STEP)
    tolerance = 1e-5 * np.abs(expected).max() + 1e-7
    assert_allclose(point.slope, expected, rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("case", LEARNED, ids=lambda case: case.name)
@pytest.mark.parametrize("sampled", [False, True])
def test_slopes_for_one_target_are_differences_of_the_evidence(rng, case, sampled):
    """α and β come from the evaluation, with weights and bias, over all rows or a sample."""
    X, y, w = rows(rng)
    problem, design = problem_of(case.kernel, X, y)
    subset = np.flatnonzero(rng.random(N) < 0.6) if sampled else None
    point = evaluated(problem, design, ArraySource(X, y, w, tile_rows=TILE), subset)
    if sampled:
        X, y, w = (part[subset] for part in (X, y, w))
    t = design.scaling.targets(y[:, None])
    assert point.rows == (w > 0).sum()
    assert_evidence_and_slopes(point, case.kernel, design, X, t, w)


def test_slopes_for_several_targets_are_sums(rng):
    """Targets share α and have their own β."""
    X, y, w = rows(rng)
    t = np.column_stack([y, np.cos(2 * X[:, 0]) + rng.normal(size=N)])
    problem, design = problem_of(SEVERAL.kernel, X, y)
    scaling = Scaling(np.zeros(D), np.ones(D), np.array([0.3, 0.1]), np.array([1.7, 0.9]))
    t_scaled = scaling.targets(t)
    empty = replace(problem.empty, scaling=scaling)
    design = replace(design, scaling=scaling)
    problem = replace(problem, empty=empty, target_variances=(t_scaled**2).mean(axis=0))
    point = evaluated(problem, design, ArraySource(X, t, w, tile_rows=TILE))
    assert_evidence_and_slopes(point, SEVERAL.kernel, design, X, t_scaled, w)


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
@pytest.mark.parametrize(("likelihood", "K"), [("bernoulli", 2), ("pooled", 3)])
def test_slopes_for_classes_are_sums_over_indicators(rng, case, likelihood, K):
    """The indicators share α and β."""
    X, codes, w = rows(rng, K)
    problem, design = problem_of(case.kernel, X, codes, likelihood, K)
    point = evaluated(problem, design, ArraySource(X, codes, w, tile_rows=TILE))
    indicators = (codes[:, None] == np.arange(K)).astype(float)
    assert_evidence_and_slopes(point, case.kernel, design, X, indicators, w)
