"""Diagnostics: counts by their formulas, sums over tiles, the sample of rows, and JSON."""

import json

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from partirvm.core import (
    STATED_LEVELS,
    Calibration,
    ClassDiagnostics,
    LeftOut,
    NumberDiagnostics,
    quantile,
)
from partirvm.core.diagnostics import MOST_CLASSES, NO_ENDS, PIT_BINS, SAMPLE, from_json, to_json

COUNTS = ("stated", "rows", "hits", "confusion")
SPANS = (slice(0, 300), slice(300, 301), slice(301, 1000))


def quantiles(n):
    """Return the middle value of each of n equally probable parts of a standard normal."""
    return norm.ppf((np.arange(n) + 0.5) / n)


def probabilities(n, K, seed=0):
    """Draw class probabilities (n, K) of any size, and codes."""
    rng = default_rng(seed)
    p = rng.dirichlet(np.full(K, 0.4), n)
    return rng.integers(0, K, n), p


def test_calibrated_predictions_have_uniform_ranks_and_nominal_coverage():
    """The values are the mid-quantiles of their distributions."""
    n = 2000
    mean = np.linspace(-5, 50, n)
    std = np.linspace(0.1, 3, n)
    found = NumberDiagnostics.of(mean + std * quantiles(n), mean, std, np.arange(n))
    assert_array_equal(found.pit, n // PIT_BINS)
    assert_allclose(found.covered, n * np.array(STATED_LEVELS), atol=1)
    # given ends replace the normal ones; without ends there are no intervals
    t = np.array([0.5, -1.5, 2.5])
    half = np.arange(len(STATED_LEVELS), dtype=float)
    ends = np.stack([-half, half])
    found = NumberDiagnostics.of(t, np.zeros(3), np.ones(3), np.arange(3), ends)
    assert found.covered.tolist() == [0, 1, 2, *[3] * 9]
    assert not len(NumberDiagnostics.of(t, np.zeros(3), np.ones(3), np.arange(3), NO_ENDS).covered)


def test_sums_over_tiles_equal_sums_over_all_rows():
    """The order of the tiles does not matter."""
    rng = default_rng(1)
    rows = np.arange(1000)
    t = rng.normal(size=1000)
    mean = rng.normal(size=1000)
    std = rng.uniform(1, 2, 1000)
    whole = NumberDiagnostics.of(t, mean, std, rows)
    a, b, c = (
        NumberDiagnostics.of(*(each[span] for each in (t, mean, std, rows))) for span in SPANS
    )
    for found in ((a + b) + c, a + (b + c), c + (a + b)):
        assert found.n == 1000
        for name in ("covered", "pit"):
            assert_array_equal(getattr(found, name), getattr(whole, name))
        assert_array_equal(found.sample.values, whole.sample.values)
    assert whole.sample.values.shape == (SAMPLE, 3)
    assert set(map(tuple, whole.sample.values)) <= set(zip(t, mean, std, strict=True))


@pytest.mark.parametrize("K", [2, 3, 20])
def test_class_sums_over_tiles_equal_sums_over_all_rows(K):
    codes, p = probabilities(1000, K)
    whole = ClassDiagnostics.of(codes, p)
    a, b, c = (ClassDiagnostics.of(codes[span], p[span], span.start) for span in SPANS)
    for found in ((a + b) + c, a + (b + c)):
        assert found.n == whole.n
        for name in COUNTS:
            assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12)
        assert_array_equal(found.largest.rows, whole.largest.rows)
        assert_array_equal(found.largest.values, whole.largest.values)


def test_class_counts_follow_their_formulas():
    """The formulas are evaluated by loops over rows and classes."""
    codes, p = probabilities(200, 3)
    found = ClassDiagnostics.of(codes, p)
    rows, hits, stated = (np.zeros((3, 10)) for _ in range(3))
    confusion = np.zeros((3, 3))
    for code, each in zip(codes, p, strict=True):
        for k in range(3):
            place = k, min(int(each[k] * 10), 9)
            rows[place] += 1
            hits[place] += code == k
            stated[place] += each[k]
        confusion[code, each.argmax()] += 1
    assert_array_equal(found.rows, rows)
    assert_array_equal(found.hits, hits)
    assert_allclose(found.stated, stated)
    assert_array_equal(found.confusion, confusion)


def test_the_last_of_many_classes_are_merged_into_one():
    """The probability of the merged class is the sum."""
    codes, p = probabilities(500, 20)
    united = np.column_stack([p[:, : MOST_CLASSES - 1], p[:, MOST_CLASSES - 1 :].sum(axis=1)])
    found = ClassDiagnostics.of(codes, p)
    few = ClassDiagnostics.of(np.minimum(codes, MOST_CLASSES - 1), united)
    for name in ("stated", "rows", "hits"):
        assert_allclose(getattr(found, name), getattr(few, name))
    assert found.confusion.shape == (MOST_CLASSES, MOST_CLASSES)


def test_diagnostics_survive_json():
    """Counts and row numbers are exact; the values of rows have five digits."""
    t = default_rng(2).normal(1e4, 1.0, 50)
    numbers = NumberDiagnostics.of(t, t + 1.0, np.full(50, 2.0), np.arange(50))
    again = from_json(json.loads(json.dumps(to_json(numbers))))
    assert_array_equal(again.pit, numbers.pit)
    assert_array_equal(again.covered, numbers.covered)
    assert_allclose(again.sample.values, numbers.sample.values, rtol=1e-4)
    classes = ClassDiagnostics.of(*probabilities(50, 4))
    again = from_json(json.loads(json.dumps(to_json(classes))))
    for name in COUNTS:
        assert_array_equal(getattr(again, name), getattr(classes, name))
    assert_array_equal(again.largest.rows, classes.largest.rows)
    assert_allclose(again.largest.values, classes.largest.values, rtol=1e-4)
    none = NumberDiagnostics.of(*np.zeros((3, 0)), np.zeros(0, dtype=int))
    assert from_json(json.loads(json.dumps(to_json(none)))).sample.values.shape == (0, 3)


def test_the_ten_rows_with_the_largest_error_are_kept():
    """Row numbers and values are kept; |t − mean| may be in another unit of the target."""
    rng = default_rng(3)
    t = rng.normal(size=100)
    mean = rng.normal(size=100)
    std = rng.uniform(1, 2, 100)
    rows = np.arange(50, 150)
    found = NumberDiagnostics.of(t, mean, std, rows)
    order = np.argsort(-np.abs(t - mean))[:10]
    assert_array_equal(found.largest.rows, order + 50)
    assert_array_equal(found.largest.values, np.column_stack([t, mean, std])[order])
    scaled = np.column_stack([10 + 3 * t, 10 + 3 * mean, 3 * std])[order]
    assert_allclose(found.scaled(10.0, 3.0).largest.values, scaled)


def test_the_ten_rows_with_the_largest_log_loss_are_kept():
    """True and predicted class and both probabilities are kept; row numbers continue the tile's."""
    codes, p = probabilities(100, 3)
    found = ClassDiagnostics.of(codes, p, 1000).largest
    own = p[np.arange(100), codes]
    order = np.argsort(own)[:10]
    assert_array_equal(found.rows, 1000 + order)
    expected = np.column_stack([codes, p.argmax(axis=1), own, p.max(axis=1)])[order]
    assert_array_equal(found.values, expected)


def test_left_out_rows_are_predicted_without_themselves():
    """The prediction is t − e, and scale × √(v + noise)/√w; these rows calibrate the intervals and
    hence have no coverage."""
    t = np.array([1.0, 2.0])
    e = np.array([0.5, -1.0])
    v = np.array([0.2, 0.3])
    w = np.array([1.0, 4.0])
    errors, variances = (np.column_stack([each, each]) for each in (np.sqrt(w) * e, w * v))
    none = np.full(2, -1)
    left = LeftOut(errors, variances, none, np.arange(2), np.column_stack([t, w]), np.zeros(0))
    calibration = Calibration(2, 0.1, 1.0, 0.0, ())
    found = left.diagnostics(calibration)
    scale = calibration.multiple(0.9) / quantile(0.9)
    expected = np.column_stack([t, t - e, scale * np.sqrt(v + 0.1 / w)])
    order = np.argsort(found.sample.values[:, 0])
    assert_allclose(found.sample.values[order], expected)
    assert_allclose(
        found.scaled(10.0, 2.0).sample.values[order], expected * 2.0 + [10.0, 10.0, 0.0]
    )
    assert not len(found.covered)
