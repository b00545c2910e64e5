"""Feature maps: warps, gaps and levels as coordinates follow their formulas."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.kernels import Design, Gaussian
from partirvm.scaling import FeatureMap, Scaling

X = np.array([[3.0, 1.0, np.nan], [-2.0, 0.0, 4.0], [10.0, 7.0, 5.0], [0.0, np.nan, 6.0]])
TABLE = np.array(
    [[[1.0, -1.0], [2.0, -2.0], [0.0, 0.0], [3.0, -3.0]]]
)  # two levels, unknown and missing ones
MAP = FeatureMap(np.array([1.0, 0, 0]), np.array([2.0, 0, 0]), np.array([2]), ((1, TABLE),))
SCALING = Scaling(
    np.array([0.5, 0, 5, 0, 0.25]), np.array([2.0, 1, 1, 1, 0.5]), np.zeros(1), np.ones(1), MAP
)


def test_features_are_warped_levels_are_looked_up_and_gaps_are_inputs():
    """An unknown level has the coordinates of a missing one, the last row of a table."""
    warp = np.arcsinh((X[:, 0] - 1) / 2)
    level = np.array([2.0, 1, 3, 3])
    second = np.array([-2.0, -1, -3, -3])
    expected = np.column_stack([warp, level, X[:, 2], second, [1.0, 0, 0, 0]])
    assert_array_equal(MAP(X), expected)
    assert MAP.sources.tolist() == [0, 1, 2, 1, 2]
    assert MAP.names(["a", "b", "c"]) == ("asinh((a − 1)/2)", "b (1)", "c", "b (2)", "c missing")


def test_a_missing_number_is_the_mean_or_the_fill_value_of_the_scaling():
    scaled = (MAP(X) - SCALING.x_shift) / SCALING.x_scale
    scaled[0, 2] = 0.0
    assert_array_equal(SCALING.inputs(X), scaled)
    plain = Scaling(
        np.zeros(3), np.ones(3), np.zeros(1), np.ones(1), blank=np.array([0.0, -1.0, 9.0])
    )
    assert plain.inputs(X)[[0, 3], [2, 1]].tolist() == [9.0, -1.0]
    assert np.isnan(X).sum() == 2  # the rows themselves are not changed


def test_a_design_maps_rows_and_centres():
    """Designs with different maps have different keys."""
    design = Design(Gaussian(0.3), SCALING, X[1:3], np.arange(2), bias=True, origin=np.zeros(5))
    points = SCALING.inputs(X)
    centres = SCALING.inputs(X[1:3])
    square = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
    assert_allclose(
        design.block(X), np.column_stack([np.ones(4), np.exp(-0.3 * square)]), rtol=1e-12
    )
    assert SCALING.key != Scaling(SCALING.x_shift, SCALING.x_scale, np.zeros(1), np.ones(1)).key
