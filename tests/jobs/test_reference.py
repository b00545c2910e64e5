"""A model beside other methods: what is better and surely so, detail between near rows, outliers; and the methods."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm.jobs.reference import ReferenceErrors, by_near_rows, noise_of_near_rows


def errors(scale, n=1000, seed=0):
    return scale * np.random.default_rng(seed).normal(size=n)


def compared(own, noise=1.0, near_noise=1.0, **others):
    return ReferenceErrors.of(own, others, noise, near_noise)


def test_what_is_better_by_a_tenth_is_named():
    """Root mean square errors, the ratio in words, and no word about a method that is better by 5 %."""
    own = errors(1.0)
    found = compared(own, far=own / 1.3, close=own / 1.05, worse=2 * own)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(own**2)))
    assert found.better == ("far",)
    (remark,) = found.remarks()
    assert "far has an RMSE of" in remark
    assert "(+30%)" in remark
    assert "1,000 rows" in remark


def test_a_difference_by_chance_is_not_named():
    """One row of 40 makes the whole difference of 20 %: less than two standard errors."""
    own = np.ones(40)
    own[0] = 4.4
    other = np.ones(40)
    assert np.sqrt(np.mean(own**2) / np.mean(other**2)) > 1.15
    assert compared(own, other=other).better == ()


def test_a_few_targets_far_away_do_not_decide():
    """Heavy tails: 8 of 1,000 rows make the other method better by a half, the usual rows do not."""
    own, other = errors(1.0), errors(1.02, seed=1)
    far = slice(0, 1000, 125)
    own[far], other[far] = 15.0, 5.0
    assert np.sqrt(np.mean(own**2) / np.mean(other**2)) > 1.3
    assert compared(own, other=other).better == ()
    own[1::2] *= 1.5
    assert compared(own, other=other).better == ("other",)


def test_detail_between_near_rows_is_named():
    """The stated noise is .48, that between near rows .12; no word up to half as much again."""
    (remark,) = compared(errors(0.48), noise=0.48, near_noise=0.12).remarks()
    assert "0.48" in remark
    assert "0.12" in remark
    assert compared(errors(0.48), noise=0.48, near_noise=0.33).remarks() == []


def test_outliers_that_carry_most_of_the_error_are_named():
    """Five of a thousand rows at 100 deviations carry 98 % of the squared error; heavy tails alone do not."""
    own = errors(1.0)
    own[:5] = 100.0
    (remark,) = compared(own).remarks()
    assert "0.50% of the rows lie beyond 20 typical deviations and carry 98%" in remark
    assert compared(np.random.default_rng(1).standard_t(3, size=5000)).remarks() == []
    assert compared(np.zeros(10)).remarks() == []


def test_the_result_is_plain_json():
    """Numbers, names and remarks."""
    found = compared(errors(1.0), far=errors(0.5)).to_json()
    assert set(found) == {"rows", "rmse", "others", "better", "noise", "near_noise", "outliers", "carried", "remarks"}
    assert found["better"] == ["far"]
    assert len(found["remarks"]) == 1


def test_near_rows_predict_by_weighted_means():
    """A row at its own place has its own target; between two rows at equal distance the mean; by the formula else."""
    X, y = np.arange(12.0)[:, None], np.arange(12.0) ** 2
    assert by_near_rows(X, y, X[3:4]) == pytest.approx([9.0])
    assert by_near_rows(X[:2], y[:2], np.array([[0.5]])) == pytest.approx([0.5])
    new = 4.2
    near = np.argsort(np.abs(X[:, 0] - new))[:10]
    w = 1 / np.abs(X[near, 0] - new)
    assert by_near_rows(X, y, np.array([[new]])) == pytest.approx([w @ y[near] / w.sum()])


def test_the_noise_between_near_rows_is_that_of_the_data():
    """√(½ mean d²): noise of .3 on a flat function; equal inputs are neighbours of each other."""
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(4000, 2))
    assert noise_of_near_rows(X, 0.3 * rng.normal(size=4000)) == pytest.approx(0.3, rel=0.05)
    twice = np.repeat(rng.uniform(size=(50, 1)), 2, axis=0)
    assert noise_of_near_rows(twice, np.tile([0.0, 2.0], 50)) == pytest.approx(np.sqrt(2.0))
