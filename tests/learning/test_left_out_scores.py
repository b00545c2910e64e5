"""Left-out rows as a fit predicts them: errors and densities of a process, local residuals, classes;
and mixtures with trees."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sampling import arm, problem_of, sample_of
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from partirvm.data import ArraySource
from partirvm.kernels import Gaussian
from partirvm.kernels.functions import Basis
from partirvm.kernels.jumps import Jumps
from partirvm.kernels.trees import BoostedTrees
from partirvm.learning import ProcessFit, ProcessRows, left_out_scores
from partirvm.resolve.samples import Samples
from partirvm.resolve.small_fits import LearnedKernel
from partirvm.resolve.tree_basis import MIXTURES, beside_trees, mixed_losses

KNOWN = np.arange(0, 90, 2)
NEW = np.arange(1, 90, 2)
GAMMA = 0.5
FIT = ProcessFit(Gaussian(GAMMA), np.log(2.0), np.log(0.1))


def kernel(A, B):
    return 2.0 * np.exp(-GAMMA * ((A[:, None] - B) ** 2).sum(axis=2))


def known_and_new(sample, problem):
    return [ProcessRows.of(sample, problem, numbers) for numbers in (KNOWN, NEW)]


@pytest.fixture(scope="module")
def predicted():
    """Return rows, and their errors, variances and corrections by the process ``FIT``."""
    X, y = arm(90, 3)
    problem = problem_of(X, y, Gaussian(GAMMA))
    with sample_of(X, y) as sample:
        known, new = known_and_new(sample, problem)
        errors, variances = known.moments(FIT, new)
        corrections = left_out_scores.corrections(known, new, FIT)
    bias = 100.0 * problem.target_variance
    return X, y, bias, errors[:, 0], variances, corrections[:, 0]


def test_new_rows_have_the_errors_and_variances_of_a_process(predicted):
    """Rasmussen & Williams 2006, eqs. 2.23 and 2.24, with noise."""
    X, y, bias, errors, variances, _ = predicted
    covariance = kernel(X[KNOWN], X[KNOWN]) + bias + 0.1 * np.eye(len(KNOWN))
    cross = kernel(X[NEW], X[KNOWN]) + bias
    weights = np.linalg.solve(covariance, cross.T).T
    assert_allclose(errors, y[NEW] - weights @ y[KNOWN], atol=1e-6)
    assert_allclose(variances, 2.1 + bias - (weights * cross).sum(axis=1), atol=1e-6)


def test_corrections_are_a_multiple_of_the_errors_of_near_rows(predicted):
    """The left-out errors are those of a process without each row."""
    X, y, bias, _, _, corrections = predicted
    left_out = np.empty(len(KNOWN))
    for place, row in enumerate(KNOWN):
        others = np.delete(KNOWN, place)
        covariance = kernel(X[others], X[others]) + bias + 0.1 * np.eye(len(others))
        cross = kernel(X[[row]], X[others]) + bias
        left_out[place] = y[row] - (cross @ np.linalg.solve(covariance, y[others]))[0]
    apart = kernel(X[KNOWN], X[KNOWN])
    np.fill_diagonal(apart, -1.0)
    means = left_out[np.argsort(-apart, axis=1)[:, :8]].mean(axis=1)
    multiple = np.clip(means @ left_out / (means @ means), 0.0, 1.0)
    near = np.argsort(-kernel(X[NEW], X[KNOWN]), axis=1)[:, :8]
    assert_allclose(corrections, multiple * left_out[near].mean(axis=1), atol=1e-6)


def test_variances_are_adjusted_by_the_factor_with_the_highest_density(rng):
    errors = rng.normal(size=40)
    variances = rng.uniform(0.1, 3.0, 40)

    def loss(log_factor):
        return -norm.logpdf(errors, scale=np.sqrt(np.exp(log_factor) * variances)).mean()

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    losses = left_out_scores.adjusted_losses(errors**2, variances, 1)
    assert losses.mean() == pytest.approx(best.fun, abs=1e-9)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_scores_are_those_of_the_observed_targets(n_classes):
    X, y = arm(90, 3)
    codes = np.digitize(y, [0.0] if n_classes == 2 else [-0.5, 0.5]).astype(float)
    t = codes if n_classes else y
    problem = problem_of(X, t, Gaussian(GAMMA), K=n_classes)
    with sample_of(X, t) as sample:
        scores = left_out_scores.left_out_scores(sample, problem, KNOWN, NEW, residuals=False)
    predictions = scores.predictions
    if n_classes:
        assert_allclose(predictions.sum(axis=1), 1.0)
        observed = predictions[np.arange(len(NEW)), codes[NEW].astype(int)]
        assert_allclose(scores.losses, -np.log(observed), atol=1e-9)
        frequency = np.bincount(codes[NEW].astype(int)) / len(NEW)
        assert scores.losses.mean() < -(frequency * np.log(frequency)).sum()
    else:
        assert_allclose(scores.squares, (predictions[:, 0] - y[NEW]) ** 2, atol=1e-9)
        assert scores.squares.mean() < 0.5 * y.var()


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_mixtures_lie_between_both_predictions(kind):
    """By hand: a half of each, with errors of 1 and −3, and probabilities of .2 and .6."""
    half = int(np.flatnonzero(MIXTURES == 0.5)[0])
    if kind == "numbers":
        losses = mixed_losses(np.array([[2.0]]), np.array([[1.0]]), np.array([[5.0]]))
        expected = [1.0, 1.0, 9.0]
    else:
        by_kernel, by_trees = np.array([[0.8, 0.2]]), np.array([[0.4, 0.6]])
        losses = mixed_losses(np.array([[1]]), by_kernel, by_trees)
        expected = -np.log([0.2, 0.4, 0.6])
    assert_allclose(losses[[0, half, -1], 0], expected)


def test_a_kernel_keeps_its_jumps_beside_trees():
    """Jumps come first; the values of the trees follow the features of a training row."""
    X, y = arm(90, 3)
    jumps = Jumps((0,), (0.5,))
    problem = problem_of(X, y, Gaussian(GAMMA)).with_functions(Basis(((jumps, 1),)))
    trees = BoostedTrees.none("identity", 1, np.zeros(3, dtype=np.int64))
    source = ArraySource(X, y)
    samples = Samples(source, None, None, None, None, None)
    kernel = beside_trees(samples, LearnedKernel(problem, source), Basis(((trees, 1),)))
    functions = kernel.problem.empty.functions
    rows = np.column_stack([X, y])
    expected = np.column_stack([X[:, 0] > 0.5, y])
    assert_allclose(functions(X, rows), expected)
