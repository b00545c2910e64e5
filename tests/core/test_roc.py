"""Counts at thresholds: the ROC and the precision-recall curve of scikit-learn, thinned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from partirvm.core.diagnostics import FIRST, POINTS, ThresholdCurve
from partirvm.core.scores import ClassScores


def curve(n, ties, seed=0):
    """Labels, scores and their curve, as the scores of a pass make it."""
    rng = np.random.default_rng(seed)
    codes = (rng.uniform(size=n) < 0.2).astype(np.int64)
    codes[:2] = 0, 1
    f = 1.5 * codes + rng.normal(size=n)
    f = np.round(f) if ties else f
    p = 1 / (1 + np.exp(-f))
    (found,) = ClassScores.of(codes, np.column_stack([1 - p, p]), f).diagnostics
    return codes, f, found.thresholds


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [5, 100, 20_000])
def test_curves_are_those_of_scikit_learn(n, ties):
    """Points lie on the full curves, and steps of both rates together are at most 2/150 or one threshold's."""
    codes, f, found = curve(n, ties)
    assert found.auc == pytest.approx(roc_auc_score(codes, f))
    assert found.average_precision == pytest.approx(average_precision_score(codes, f))
    false, true = found.rates
    all_false, all_true, _ = roc_curve(codes, f, drop_intermediate=False)
    full = set(zip(np.round(all_false, 9), np.round(all_true, 9), strict=True))
    assert set(zip(np.round(false, 9), np.round(true, 9), strict=True)) <= full
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    largest = np.diff(all_false + all_true).max()
    assert np.diff(false + true).max() <= 2 / POINTS + largest + 1e-9
    assert len(false) <= POINTS + np.log(n) / np.log(FIRST) + 3
    np.testing.assert_allclose(found.precision, found.positive[1:] / (found.positive[1:] + found.negative[1:]))


def test_one_class_and_several_classes_have_no_curve():
    p = np.array([[0.2, 0.8], [0.4, 0.6]])
    assert ClassScores.of(np.array([1, 1]), p, p[:, 1].copy()).diagnostics[0].thresholds is None
    assert ClassScores.of(np.array([1, 0]), p).diagnostics[0].thresholds is None


def test_the_way_through_json():
    _, _, found = curve(300, ties=False)
    again = ThresholdCurve.from_json(json.loads(json.dumps(found.to_json())))
    np.testing.assert_array_equal(again.negative, found.negative)
    np.testing.assert_array_equal(again.positive, found.positive)
    assert (again.auc, again.average_precision) == (found.auc, found.average_precision)
