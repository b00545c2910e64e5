"""Kernels of one feature: products of polynomials and exponentials beside the direct formula, bits,
and slopes."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.kernels import Anova
from partirvm.kernels.anova import slabs
from partirvm.kernels.feature_factors import (
    PIECE_ROWS,
    REACH,
    SIDED,
    SIZE,
    FactorColumns,
    FactorPairs,
    SidedFeature,
    SidedPairs,
)

FORMULAS = {
    "laplacian": lambda s: np.exp(-s),
    "matern32": lambda s: (1 + s) * np.exp(-s),
    "matern52": lambda s: (1 + s + s**2 / 3) * np.exp(-s),
}
SCALES = {"laplacian": 1.0, "matern32": np.sqrt(3.0), "matern52": np.sqrt(5.0)}
of_bases = pytest.mark.parametrize("base", sorted(SIDED))


def factor_of(base: str) -> SidedFeature:
    return SidedFeature(1.0, *SIDED[base])


@of_bases
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, REACH, 3 * REACH, 1e4])
def test_products_have_the_values_of_the_formula(base, size):
    """Coordinates of all sizes, equal ones, and ones at the border of the products."""
    u = default_rng(0).uniform(-size, size, 4 * PIECE_ROWS)
    v = np.append(u[: SIZE - 3], [REACH / SCALES[base], -REACH / SCALES[base], 0.0])
    factor = factor_of(base)
    values = np.empty((len(u), SIZE))
    factor.columns(v, 0.5, 0.0).fill(factor.rows(u), values, np.empty(values.shape))
    s = SCALES[base] * np.abs(u[:, None] - v)
    assert_allclose(values, 0.5 * FORMULAS[base](s), rtol=1e-13, atol=1e-300)
    assert (values >= 0.0).all()


@of_bases
def test_a_constant_is_added(base):
    factor = factor_of(base)
    u = default_rng(1).normal(size=PIECE_ROWS)
    u[3] = 1e3
    v = default_rng(2).normal(size=SIZE)
    v[5] = -1e3
    values = np.empty((len(u), SIZE))
    factor.columns(v, 2.0, 1.0).fill(factor.rows(u), values, np.empty(values.shape))
    s = SCALES[base] * np.abs(u[:, None] - v)
    assert_allclose(values, 1.0 + 2.0 * FORMULAS[base](s), rtol=1e-14)


@of_bases
def test_triangles_have_the_slopes_of_the_formula(base):
    """∂k/∂ log gamma is power · s dk/ds, here by central differences of the formula."""
    points = default_rng(3).normal(size=40)
    factor = factor_of(base)
    pairs = factor.pairs(points)
    assert isinstance(pairs, SidedPairs)
    slab = slice(4, 9)
    s = SCALES[base] * np.abs(points[slab, None] - points[4:])
    values = pairs.values(slab)
    assert_allclose(values, FORMULAS[base](s), rtol=1e-13)
    step = 1e-6
    wider, narrower = (FORMULAS[base](s * np.exp(factor.power * h)) for h in (step, -step))
    assert_allclose(pairs.by_width(slab, values), (wider - narrower) / (2 * step), atol=1e-9)


@of_bases
def test_distant_points_are_computed_directly(base):
    points = np.array([0.0, 2.0, 1e3])
    pairs = factor_of(base).pairs(points)
    assert type(pairs) is FactorPairs
    s = SCALES[base] * np.abs(points[:1, None] - points)
    assert_allclose(pairs.values(slice(0, 1)), FORMULAS[base](s), rtol=1e-14)
    assert type(factor_of(base).columns(points, 1.0).group(slice(0, 3))) is not FactorColumns


@of_bases
@pytest.mark.parametrize("shares", [0.01, 0.5])
def test_a_value_depends_on_its_row_and_its_centre_alone(base, shares):
    """Rows and centres in any number and order, with a few that are far from all others."""
    rng = default_rng(4)
    X = rng.normal(size=(300, 3))
    X[::40] *= 50.0
    Z = X[rng.permutation(300)[: 2 * SIZE + 7]]
    kernel = Anova((0.5, 2.0, 1.0), shares, base=base)
    origin = np.zeros(3)
    whole = kernel.values(X, Z, origin)
    rows = rng.permutation(300)[:77]
    centres = rng.permutation(len(Z))[: SIZE + 5]
    part = kernel.values(X[rows], Z[centres], origin)
    assert_array_equal(part, whole[np.ix_(rows, centres)])
    assert_array_equal(kernel.values(X[:1], Z[:1], origin), whole[:1, :1])


@pytest.mark.parametrize("n", [0, 1, 47, 90, 500])
def test_slabs_divide_all_points(n):
    points = [point for slab in slabs(n) for point in range(slab.start, slab.stop)]
    assert points == list(range(n))
