"""The correction of class probabilities by the predictors of all classes."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.special import log_softmax

from partirvm.core import Correction, LeftOutClasses, Ramp
from partirvm.core.class_correction import CorrectedRows, learned_correction
from partirvm.core.link import targets


def drawn(rng, logits):
    """Return class codes (n,) with the probabilities of logits (n, K)."""
    return (logits + rng.gumbel(size=logits.shape)).argmax(axis=1).astype(float)


def corrected_rows(rng, n=40, K=3):
    """Return random left-out rows."""
    f = rng.normal(size=(n, K))
    codes = rng.integers(0, K, n).astype(float)
    return CorrectedRows(f, rng.normal(size=(n, K)), targets(codes, K), rng.uniform(0.5, 2, n))


def test_the_gradient_is_that_of_the_penalised_loss(rng):
    rows = corrected_rows(rng)
    values = rng.normal(size=12)
    loss, gradient = rows.penalised_loss(values, 2.5)
    log_p = log_softmax(rows.logits + rows.f @ values[:9].reshape(3, 3) + values[9:], axis=1)
    fit = -(rows.weights * (rows.targets * log_p).sum(axis=1)).sum()
    assert_allclose(loss, fit + 1.25 * (values**2).sum())
    numeric = approx_fprime(values, lambda at: rows.penalised_loss(at, 2.5)[0], 1e-7)
    assert_allclose(gradient, numeric, atol=1e-4)


def test_the_best_correction_has_no_slope_left(rng):
    rows = corrected_rows(rng)
    best = rows.best(Correction.none(3), 2.0)
    values = np.append(best.slopes.ravel(), best.offsets)
    assert np.abs(rows.penalised_loss(values, 2.0)[1]).max() < 0.05


def test_what_the_other_predictors_say_is_learned(rng):
    """Rows from a known correction, which a naive formula knows as well."""
    slopes = np.array([[0.0, 3.0, 0.0], [-3.0, 0.0, 3.0], [0.0, 3.0, 0.0]])
    f = rng.normal(size=(3000, 3))
    logits = rng.normal(size=f.shape)
    truth = logits + f @ slopes + [0.5, 0.0, -0.5]
    codes = drawn(rng, truth)
    learned = learned_correction(f[:1000], logits[:1000], codes[:1000], np.ones(1000))
    new = np.arange(1000, 3000)
    places = new, codes[new].astype(int)
    corrected = log_softmax(logits + learned.correction.of(f), axis=1)
    least = -log_softmax(truth, axis=1)[places].mean()
    assert least < -corrected[places].mean() < least + 0.03
    assert learned.loss == pytest.approx(-corrected[places].mean(), abs=0.05)
    assert learned.wrong == pytest.approx(
        (corrected[new].argmax(axis=1) != codes[new]).mean(), abs=0.04
    )


@pytest.mark.parametrize(("n", "K"), [(300, 3), (300, 6), (60, 5)])
def test_probabilities_that_are_right_are_hardly_changed(rng, n, K):
    """The loss on new rows rises by less than a hundredth, and usually not at all."""
    f = rng.dirichlet(np.ones(K), n + 5000)
    logits = 4.0 * f
    codes = drawn(rng, logits)
    learned = learned_correction(f[:n], logits[:n], codes[:n], np.ones(n))
    if learned is None:
        return
    places = np.arange(n, n + 5000), codes[n:].astype(int)
    before = -log_softmax(logits, axis=1)[places].mean()
    after = -log_softmax(logits + learned.correction.of(f), axis=1)[places].mean()
    assert after < 1.01 * before


def test_a_weight_counts_as_that_many_rows(rng):
    rows = corrected_rows(rng)
    twice = replace(rows, weights=np.where(np.arange(40) < 10, 2.0, 1.0))
    copies = rows.take(np.append(np.arange(40), np.arange(10)))
    copies = replace(copies, weights=np.ones(50))
    values = rng.normal(size=12)
    of_weights = twice.penalised_loss(values, 1.0)
    of_copies = copies.penalised_loss(values, 1.0)
    assert_allclose(of_weights[0], of_copies[0])
    assert_allclose(of_weights[1], of_copies[1], atol=1e-12)


@pytest.mark.parametrize(("n", "K"), [(500, 2), (29, 3), (99, 10)])
def test_two_classes_and_few_rows_have_no_correction(rng, n, K):
    """One predictor of two decides the other; with K classes, a class has K + 1 parameters."""
    f = rng.normal(size=(n, K))
    codes = drawn(rng, 5.0 * f[:, ::-1])
    assert learned_correction(f, f, codes, np.ones(n)) is None


def test_classes_in_order_are_learned_alike(rng):
    """With many classes, only some rows are used, from all of the data."""
    K = 50
    f = rng.normal(size=(4000, K))
    codes = drawn(rng, 3.0 * np.roll(f, 1, axis=1))
    order = np.argsort(codes, kind="stable")
    learned = learned_correction(f[order], np.zeros(f.shape), codes[order], np.ones(4000))
    log_p = log_softmax(learned.correction.of(f), axis=1)
    assert -log_p[np.arange(4000), codes.astype(int)].mean() < 0.8 * np.log(K)


def test_the_terms_of_a_row_do_not_depend_on_other_rows(rng):
    correction = Correction(rng.normal(size=(7, 7)), rng.normal(size=7))
    f = rng.normal(size=(33, 7))
    terms = correction.of(f)
    assert_allclose(terms, f @ correction.slopes + correction.offsets, atol=1e-12)
    for row in range(33):
        assert_array_equal(correction.of(f[row : row + 1])[0], terms[row])


def test_left_out_rows_correct_their_ramp(rng):
    """The losses are those of folds, not of the rows from which the correction was learned."""
    f = rng.dirichlet(np.ones(3), 600)
    codes = drawn(rng, 8 * np.roll(f, 1, axis=1))
    left_out = LeftOutClasses(f, codes, np.ones(600))
    ramp = left_out.ramp(Ramp())
    corrected = left_out.corrected(ramp)
    assert (corrected.width, corrected.power) == (ramp.width, ramp.power)
    assert_allclose(corrected.logits(f), ramp.logits(f) + corrected.correction.of(f))
    learned_from = -left_out.log_probability(corrected).mean()
    assert learned_from < corrected.loss < 0.95 * ramp.loss
    assert corrected.wrong < ramp.wrong


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_the_moves_of_predictors_add_up_in_squares(rng, size):
    """Short intervals have the half width ‖J h‖, with the derivatives J of the logits; without
    slopes, the ends are those of each predictor alone."""
    ramp = Ramp(0.3, 2.0, correction=Correction(size * rng.normal(size=(4, 4)), rng.normal(size=4)))
    f = rng.uniform(0.1, 1, size=(6, 4))
    half = np.full((6, 4), 1e-5 if size else 0.2)
    low, high = ramp.band(f, half)
    if not size:
        assert_allclose(high, ramp.logits(f + half))
        assert_allclose(low, ramp.logits(f - half))
        return
    for row in range(6):
        jacobian = np.stack(
            [
                (ramp.logits(f[row : row + 1] + step) - ramp.logits(f[row : row + 1] - step))[0]
                / 2e-6
                for step in 1e-6 * np.eye(4)
            ]
        )
        expected = np.sqrt((jacobian**2).sum(axis=0)) * 1e-5
        middle = ramp.logits(f[row : row + 1])[0]
        assert_allclose(high[row] - middle, expected, rtol=1e-3)
        assert_allclose(middle - low[row], expected, rtol=1e-3)
