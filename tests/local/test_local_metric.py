"""The metric in which rows of local residuals are near."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from partirvm.kernels import Categorical, Design, Directions, Gaussian, OnColumns, Product
from partirvm.local import Metric
from partirvm.scaling import Scaling
from partirvm.types import Columns

COLUMNS = Columns(("a", "b", "c", "e"), categories={"c": ("x", "y", "z"), "e": ("no", "yes")})
OF_LEVELS = OnColumns(Categorical((0.5, 1.2)), (2, 3))


@pytest.mark.parametrize(
    "numeric", [Gaussian((0.3, 0.8)), Directions(Gaussian((0.5, 0.1)), [[0.6, 0.8], [0.8, -0.6]])]
)
def test_squared_distances_are_minus_the_logarithm_of_the_kernel(numeric):
    """k = exp(−Σ gamma_i (a_i·(x − z))² − Σ gamma_j [c_j ≠ c'_j]), in scaled coordinates."""
    rng = default_rng(0)
    X = np.column_stack([rng.normal(size=(30, 2)), rng.integers(0, 3, 30), rng.integers(0, 2, 30)])
    kernel = Product((OnColumns(numeric, (0, 1)), OF_LEVELS))
    scaling = Scaling(X.mean(axis=0), X.std(axis=0), np.zeros(1), np.ones(1))
    design = Design(kernel, scaling, np.zeros((0, 4)), np.zeros(0, np.int64), bias=False)
    metric = Metric.of(design, COLUMNS)
    points = scaling.inputs(X)
    coordinates = metric(points)
    assert coordinates.shape == (30, metric.width)
    expected = -np.log(kernel.values(points, points))
    assert_allclose(cdist(coordinates, coordinates) ** 2, expected, rtol=1e-9, atol=1e-9)
