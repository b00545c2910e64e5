"""The rows of largest error: those of a sort, in sums of any order, and equal errors by row number."""

from __future__ import annotations

import json

import numpy as np

from partirvm.core.sampling import LargestErrors


def test_few_rows_and_the_way_through_json():
    found = LargestErrors.of(np.array([1.0, 2.0]), np.array([7, 8]), np.array([[0.5, 3.0], [0.25, 4.0]]))
    assert found.to_json() == [[8, 0.25, 4.0], [7, 0.5, 3.0]]
    again = LargestErrors.from_json(json.loads(json.dumps(found.to_json())))
    np.testing.assert_array_equal(again.rows, [8, 7])
    np.testing.assert_array_equal(again.values, found.values)
    assert LargestErrors.from_json([]).to_json() == []
    assert not len(LargestErrors.of(np.zeros(0), np.zeros(0, dtype=int), np.zeros((0, 1))).rows)
