"""The rows of largest error: those of a sort, in sums of any order, and equal errors by row number."""

from __future__ import annotations

import json

import numpy as np
import pytest

from partirvm.core.sampling import MOST_ROWS, LargestErrors


def sorted_rows(errors, rows):
    """All rows by decreasing error and then by number, as a plain sort states them."""
    return [row for _, row in sorted(zip(-errors, rows, strict=True))][:MOST_ROWS]


@pytest.mark.parametrize("values", [3, 1000])
def test_sums_of_parts_are_those_of_the_whole(values):
    """With many equal errors, and with none."""
    rng = np.random.default_rng(values)
    errors, rows = rng.integers(values, size=200).astype(float), rng.permutation(200)
    whole = LargestErrors.of(errors, rows, errors + 1)
    parts = [LargestErrors.of(errors[span], rows[span], errors[span] + 1) for span in np.split(np.arange(200), [5, 90])]
    for found in (whole, parts[0] + parts[1] + parts[2], parts[2] + (parts[1] + parts[0]), LargestErrors() + whole):
        assert found.rows.tolist() == sorted_rows(errors, rows)
        np.testing.assert_array_equal(found.values[:, 0], found.errors + 1)


def test_few_rows_and_the_way_through_json():
    found = LargestErrors.of(np.array([1.0, 2.0]), np.array([7, 8]), np.array([0.5, 0.25]), np.array([3, 4]))
    assert found.to_json() == [[8, 0.25, 4.0], [7, 0.5, 3.0]]
    again = LargestErrors.from_json(json.loads(json.dumps(found.to_json())))
    np.testing.assert_array_equal(again.rows, [8, 7])
    np.testing.assert_array_equal(again.values, found.values)
    assert LargestErrors.from_json([]).to_json() == []
    assert not len(LargestErrors.of(np.zeros(0), np.zeros(0, dtype=int), np.zeros(0)).rows)
