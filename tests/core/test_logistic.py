"""The logistic statistic of a pass against dense formulas and finite differences, and its algebra."""

from __future__ import annotations

from dataclasses import fields

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm.core.link import LINKS, LogisticBlock, guesses, targets

seeds = st.integers(0, 2**32 - 1)
likelihoods = st.sampled_from(list(LINKS))


@st.composite
def problems(draw):
    """A likelihood, a design, codes, weights W and weights of rows, of which some may be zero."""
    likelihood, rng = draw(likelihoods), np.random.default_rng(draw(seeds))
    N, M, K = draw(st.integers(1, 30)), draw(st.integers(1, 5)), draw(st.integers(2, 5))
    K = 2 if likelihood == "bernoulli" else K
    Phi, codes = rng.normal(size=(N, M)), rng.integers(K, size=N).astype(float)
    mean = draw(st.sampled_from([0.0, 1.0, 10.0])) * rng.normal(size=(M, (1 if likelihood == "bernoulli" else K)))
    w = draw(st.sampled_from([None, rng.choice([0.0, 0.5, 2.0], N)]))
    return likelihood, Phi, codes, mean, w


def same(block, other, rtol=1e-9, atol=1e-9):
    """All fields agree."""
    for field in fields(LogisticBlock):
        np.testing.assert_allclose(getattr(block, field.name), getattr(other, field.name), rtol=rtol, atol=atol)


@given(problems())
def test_the_statistic_is_the_dense_formula(problem):
    """Log likelihood, gradient, and for each output its own block of minus the Hessian."""
    likelihood, Phi, codes, mean, w = problem
    block = LogisticBlock.of(likelihood, Phi, codes, mean, w)
    value, gradient, curvature = naive.logistic(likelihood, Phi, codes, mean, w)
    np.testing.assert_allclose(block.log_likelihood, value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(block.gradient, gradient, rtol=1e-9, atol=1e-9)
    for k in range(mean.shape[1]):
        np.testing.assert_allclose(block.curvature[k], curvature[:, k, :, k], rtol=1e-9, atol=1e-9)
    assert block.log_likelihood.shape == (mean.shape[1] if likelihood == "ovr" else 1,)
    f, w = Phi @ mean, naive.ones(Phi, w)
    guess = f[:, 0] > 0 if likelihood == "bernoulli" else f.argmax(axis=1)
    assert (block.wrong, block.n) == (((guess != codes) & (w > 0)).sum(), (w > 0).sum())


@given(problems())
def test_gradient_and_curvature_are_the_derivatives(problem):
    """Central differences of the log likelihood, and of the gradient."""
    likelihood, Phi, codes, mean, w = problem
    block, h = LogisticBlock.of(likelihood, Phi, codes, mean, w), 1e-5
    for i, k in np.ndindex(mean.shape):
        moved = np.zeros(mean.shape)
        moved[i, k] = h
        up, down = (LogisticBlock.of(likelihood, Phi, codes, mean + sign * moved, w) for sign in (1, -1))
        slope = (up.log_likelihood - down.log_likelihood).sum() / (2 * h)
        np.testing.assert_allclose(block.gradient[i, k], slope, rtol=1e-5, atol=1e-5)
        bend = -(up.gradient - down.gradient)[:, k] / (2 * h)
        np.testing.assert_allclose(block.curvature[k][:, i], bend, rtol=1e-5, atol=1e-5)


@given(problems(), st.data())
def test_parts_add_up_to_the_whole_for_any_split(problem, data):
    """By + and by accumulate, empty parts among them."""
    likelihood, Phi, codes, mean, w = problem
    cuts = sorted(data.draw(st.lists(st.integers(0, len(Phi)), max_size=4)))
    parts = [
        LogisticBlock.of(likelihood, Phi[rows], codes[rows], mean, None if w is None else w[rows])
        for rows in np.split(np.arange(len(Phi)), cuts)
    ]
    whole = LogisticBlock.of(likelihood, Phi, codes, mean, w)
    same(sum(parts[1:], parts[0]), whole)
    total = parts[0]
    for part in parts[1:]:
        total = total.accumulate(part)
    same(total, whole)


@given(problems())
def test_a_row_of_weight_zero_is_absent(problem):
    """Whatever its columns hold that is finite."""
    likelihood, Phi, codes, mean, _ = problem
    w = np.where(np.arange(len(Phi)) % 2, 0.0, 1.5)
    block = LogisticBlock.of(likelihood, Phi, codes, mean, w)
    same(block, LogisticBlock.of(likelihood, Phi[w > 0], codes[w > 0], mean, w[w > 0]))


@given(problems())
def test_whole_weights_are_repeated_rows(problem):
    """But for the counts of rows, which count a row once."""
    likelihood, Phi, codes, mean, _ = problem
    times = np.arange(len(Phi)) % 3
    block = LogisticBlock.of(likelihood, Phi, codes, mean, times.astype(float))
    other = LogisticBlock.of(likelihood, np.repeat(Phi, times, axis=0), np.repeat(codes, times), mean)
    for name in ("log_likelihood", "gradient", "curvature"):
        np.testing.assert_allclose(getattr(block, name), getattr(other, name), rtol=1e-9, atol=1e-9)
    assert block.n == (times > 0).sum()


@given(problems(), st.data())
def test_columns_taken_are_those_of_their_own_statistic(problem, data):
    """Where the others have no weight."""
    likelihood, Phi, codes, mean, w = problem
    columns = np.array(sorted(data.draw(st.sets(st.integers(0, len(mean) - 1)))), dtype=np.int64)
    alone = np.zeros(mean.shape)
    alone[columns] = mean[columns]
    block = LogisticBlock.of(likelihood, Phi, codes, alone, w).take(columns)
    same(block, LogisticBlock.of(likelihood, Phi[:, columns], codes, mean[columns], w))


@pytest.mark.parametrize("likelihood", LINKS)
@pytest.mark.parametrize("size", [1e3, 1e8, 1e300])
def test_predictors_of_any_size_stay_finite(likelihood, size):
    """log p is −size or 0 and never nan, though p itself has vanished."""
    C = 1 if likelihood == "bernoulli" else 3
    Phi, mean = np.array([[1.0], [-1.0]]), size * np.arange(1.0, C + 1)[None, :]
    with np.errstate(all="raise", under="ignore"):
        block = LogisticBlock.of(likelihood, Phi, np.array([0.0, 0.0]), mean)
    assert np.isfinite(block.log_likelihood).all()
    assert block.log_likelihood.sum() <= -size / 2
    assert np.isfinite(block.gradient).all()
    assert np.isfinite(block.curvature).all()


def test_targets_and_guesses():
    """Code 1 of two is the positive class, a tie of several goes to the first."""
    np.testing.assert_array_equal(targets(np.array([0.0, 1.0]), 1), [[0], [1]])
    np.testing.assert_array_equal(targets(np.array([2.0, 0.0]), 3), [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(guesses(np.array([[-1.0], [0.0], [1.0]])), [0, 0, 1])
    np.testing.assert_array_equal(guesses(np.array([[0.0, 0.0, -1.0], [0.0, 1.0, 2.0]])), [0, 2])
