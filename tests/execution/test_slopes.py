"""Evidence and slopes of every kernel, pass by pass over tiles, against central differences of
dense formulas."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from kernel_cases import CASES, Case, D, slopes

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.kernels import Categorical, Gaussian, Laplacian, OnColumns, Product, Several
from partirvm.kernels.design import Design
from partirvm.learning.sample import evaluate, gathered
from partirvm.likelihoods import LIKELIHOODS
from partirvm.scaling.maps import Scaling
from partirvm.spec.history import Spent
from partirvm.spec.problem import Problem

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
    """Inputs whose last column is a category, targets or K classes of them, and weights of which
    some are zero."""
    X = np.column_stack([rng.normal(size=(N, D - 1)), rng.integers(0, 3, N)])
    y = np.tanh(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * X[:, 2] + 0.3 * rng.normal(size=N)
    if K:
        y = np.searchsorted(np.quantile(y, np.arange(1, K) / K), y).astype(float)
    return X, y, rng.choice([0.0, 0.5, 2.0], size=N, p=[0.1, 0.4, 0.5])


def problem_of(kernel, X, y, likelihood="gaussian", K=0):
    """The problem of these rows in raw inputs, and a design of M centres and the bias."""
    scaling = Scaling(
        np.zeros(D), np.ones(D), np.array([0.0 if K else 0.3]), np.array([1.0 if K else 1.7])
    )
    empty = Design(
        kernel, scaling, np.zeros((0, D)), np.zeros(0, np.int64), bias=False, origin=X.mean(axis=0)
    )
    target_variance = 1.0 if K else float(np.mean(scaling.targets(y[:, None]) ** 2))
    kind = {"likelihood": LIKELIHOODS[likelihood], "n_classes": K}
    problem = Problem(
        N, empty, True, target_variance, None, 1.0, shuffled=True, held_out=False, **kind
    )
    return problem, empty.with_centres(X[:M], np.arange(M), bias=True)


def looked(problem, design, source, wanted=None):
    """The point that an evaluation comes to, over the rows of this source that are wanted."""
    executor = LocalExecutor(2)
    with gathered(source, wanted, executor, lambda *asked: None, Spent(), room=1 << 20) as sample:
        point = evaluate(sample, problem, design, None, fresh=True)
    executor.close()
    return point


def assert_slopes(found, expected):
    np.testing.assert_allclose(
        found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max() + 1e-7
    )


def block_of(design, kernel, X):
    return Design(kernel, design.scaling, design.centres, design.labels, design.bias).block(X)


@pytest.mark.parametrize("case", LEARNED, ids=lambda case: case.name)
@pytest.mark.parametrize("sampled", [False, True])
def test_slopes_of_numbers(rng, case, sampled):
    """Evidence and slopes at the α and β that the evaluation comes to, with weights and bias, over
    all rows or some."""
    X, y, w = rows(rng)
    problem, design = problem_of(case.kernel, X, y)
    wanted = np.flatnonzero(rng.random(N) < 0.6) if sampled else None
    point = looked(problem, design, ArraySource(X, y, w, tile_rows=TILE), wanted)
    alpha, some = point.tied.alphas(design.all_labels), slice(None) if wanted is None else wanted
    t = design.scaling.targets(y[some, None])[:, 0]

    def evidence(kernel):
        return naive.log_evidence(
            block_of(design, kernel, X[some]), t, alpha, point.tied.beta, w[some]
        )

    np.testing.assert_allclose(point.value, evidence(case.kernel), rtol=1e-8)
    assert point.rows == (w[some] > 0).sum()
    assert_slopes(point.slope, slopes(evidence, case.kernel, STEP))


def test_slopes_of_several_targets(rng):
    """The sum of their evidences at the α that they share and the β of each."""
    X, y, w = rows(rng)
    t = np.column_stack([y, np.cos(2 * X[:, 0]) + rng.normal(size=N)])
    problem, design = problem_of(SEVERAL.kernel, X, y)
    scaling = Scaling(np.zeros(D), np.ones(D), np.array([0.3, 0.1]), np.array([1.7, 0.9]))
    t_scaled = scaling.targets(t)
    empty = replace(problem.empty, scaling=scaling)
    design = replace(design, scaling=scaling)
    problem = replace(problem, empty=empty, target_variances=(t_scaled**2).mean(axis=0))
    point = looked(problem, design, ArraySource(X, t, w, tile_rows=TILE))
    alpha = point.tied.alphas(design.all_labels)

    def evidence(kernel):
        Phi = block_of(design, kernel, X)
        return sum(
            naive.log_evidence(Phi, t_scaled[:, k], alpha, point.tied.beta[k], w) for k in range(2)
        )

    np.testing.assert_allclose(point.value, evidence(SEVERAL.kernel), rtol=1e-8)
    assert_slopes(point.slope, slopes(evidence, SEVERAL.kernel, STEP))


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
@pytest.mark.parametrize(("likelihood", "K"), [("bernoulli", 2), ("pooled", 3)])
def test_slopes_of_class_indicators(rng, case, likelihood, K):
    """The sum of the evidences of the classes' indicators, at the α and the β that they share."""
    X, codes, w = rows(rng, K)
    problem, design = problem_of(case.kernel, X, codes, likelihood, K)
    point = looked(problem, design, ArraySource(X, codes, w, tile_rows=TILE))
    alpha = point.tied.alphas(design.all_labels)

    def evidence(kernel):
        Phi = block_of(design, kernel, X)
        return sum(
            naive.log_evidence(Phi, (codes == k).astype(float), alpha, point.tied.beta, w)
            for k in range(K)
        )

    np.testing.assert_allclose(point.value, evidence(case.kernel), rtol=1e-8)
    assert_slopes(point.slope, slopes(evidence, case.kernel, STEP))
