"""Kernels of one feature: products of polynomials and exponentials beside the direct formula, bits,
and slopes."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.kernels import Anova
from partirvm.kernels.anova_values import slabs
from partirvm.kernels.factor_blocks import (
    GAUSSIAN_REACH,
    SIZE,
    STEP,
    GaussianRows,
    Workspace,
    columns_of,
)
from partirvm.kernels.feature_factors import (
    REACH,
    SIDED,
    FactorPairs,
    FeatureKernel,
    GaussianFeature,
    SidedFeature,
    SidedPairs,
)

FORMULAS = {
    "laplacian": lambda s: np.exp(-s),
    "matern32": lambda s: (1 + s) * np.exp(-s),
    "matern52": lambda s: (1 + s + s**2 / 3) * np.exp(-s),
    "gaussian": lambda s: np.exp(-(s**2)),
}
SCALES = {"laplacian": 1.0, "matern32": np.sqrt(3.0), "matern52": np.sqrt(5.0), "gaussian": 1.0}
REACHES = {"laplacian": REACH, "matern32": REACH, "matern52": REACH, "gaussian": GAUSSIAN_REACH}
of_bases = pytest.mark.parametrize("base", sorted(FORMULAS))
of_sided = pytest.mark.parametrize("base", sorted(SIDED))


def factor_of(base: str) -> FeatureKernel:
    return GaussianFeature(1.0) if base == "gaussian" else SidedFeature(1.0, *SIDED[base])


def values_of(base, u, v, shares, constant=0.0):
    """Return the values (q, n, m) at rows u (q, n) and centres v (q, m) as blocks compute them."""
    columns = columns_of([factor_of(base)] * len(u), v, np.array(shares), constant)
    work = Workspace(len(u), u.shape[1], v.shape[1])
    columns.block(columns.rows(u), slice(0, v.shape[1])).fill(slice(0, u.shape[1]), work)
    return work.values[:, : u.shape[1]]


@of_bases
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 4.0, REACH, 3 * REACH, 1e4])
def test_products_have_the_values_of_the_formula(base, size):
    """Coordinates of all sizes, equal ones, and ones at the border of the products."""
    u = default_rng(0).uniform(-size, size, 83)
    border = REACHES[base] / SCALES[base]
    u[:3] = border, -border, 0.0
    v = np.append(u[: SIZE - 3], [border, -border, 0.0])
    values = values_of(base, u[None], v[None], [0.5])[0]
    s = SCALES[base] * np.abs(u[:, None] - v)
    assert_allclose(values, 0.5 * FORMULAS[base](s), rtol=1e-13, atol=1e-300)
    assert (values >= 0.0).all()


def test_gaussian_factors_are_accurate_at_the_borders_of_cells():
    """The terms of the product are most where a row is between two nodes and a centre is at the
    border."""
    nodes = np.arange(-GAUSSIAN_REACH, GAUSSIAN_REACH, 2 * STEP)
    u = np.concatenate([nodes + offset * STEP for offset in (-0.5, 0.5, 0.4999999)])
    u = u[np.abs(u) <= GAUSSIAN_REACH]
    v = np.linspace(-GAUSSIAN_REACH, GAUSSIAN_REACH, 2 * SIZE)
    values = values_of("gaussian", u[None], v[None], [1.0])[0]
    assert_allclose(values, np.exp(-((u[:, None] - v) ** 2)), rtol=1e-13)


def test_nodes_are_those_near_rows():
    """Each node is listed once, for each feature by itself."""
    u = np.array([[0.0, 0.3 * STEP, 5.2 * STEP], [0.0, -0.7 * STEP, 0.0]])
    rows = GaussianRows(u)
    assert rows.nodes.numbers.tolist() == [0, 5, -1, 0]
    assert rows.nodes.features.tolist() == [0, 0, 1, 1]
    assert rows.nodes.places.tolist() == [[0, 0, 1], [3, 2, 3]]


@of_bases
def test_coordinates_that_are_no_numbers_have_no_value(base):
    u = np.array([0.0, np.nan])
    values = values_of(base, u[None], np.zeros((1, SIZE)), [1.0])[0]
    assert_allclose(values[0], 1.0, rtol=1e-14)
    assert np.isnan(values[1]).all()


@of_bases
def test_a_constant_is_added(base):
    """In several features at once, with a row and a centre that are far from all others."""
    u = default_rng(1).normal(size=(3, 17))
    u[1, 3] = 1e3
    v = default_rng(2).normal(size=(3, 2 * SIZE))
    v[2, 5] = -1e3
    shares = np.array([2.0, 0.5, 1.0])
    values = values_of(base, u, v, shares, 1.0)
    s = SCALES[base] * np.abs(u[:, :, None] - v[:, None])
    assert_allclose(values, 1.0 + shares[:, None, None] * FORMULAS[base](s), rtol=1e-14)


@of_sided
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


@of_sided
def test_distant_points_are_computed_directly(base):
    points = np.array([0.0, 2.0, 1e3])
    pairs = factor_of(base).pairs(points)
    assert type(pairs) is FactorPairs
    s = SCALES[base] * np.abs(points[:1, None] - points)
    assert_allclose(pairs.values(slice(0, 1)), FORMULAS[base](s), rtol=1e-14)


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
    rows = rng.permutation(300)[:170]
    centres = rng.permutation(len(Z))[: SIZE + 5]
    for count in (len(rows), 77, 17):
        part = kernel.values(X[rows[:count]], Z[centres], origin)
        assert_array_equal(part, whole[np.ix_(rows[:count], centres)])
    assert_array_equal(kernel.values(X[:1], Z[:1], origin), whole[:1, :1])


@pytest.mark.parametrize("n", [0, 1, 47, 90, 500])
def test_slabs_divide_all_points(n):
    points = [point for slab in slabs(n) for point in range(slab.start, slab.stop)]
    assert points == list(range(n))
