"""All kernels, fed from one list: values, blocks, views, far inputs, specs. And the design made of them."""

from __future__ import annotations

import json

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm.errors import UsageError
from partirvm.kernels import KERNELS, Gaussian, kernel_from_spec
from partirvm.kernels.design import Design
from partirvm.types import Scaling

D = 3

CASES = {
    "gaussian": [
        ({"gamma": [0.5]}, lambda X, Z: naive.gaussian(X, Z, 0.5)),
        ({"gamma": [1e-3]}, lambda X, Z: naive.gaussian(X, Z, 1e-3)),
        ({"gamma": [0.1, 0.0, 2.0]}, lambda X, Z: naive.gaussian(X, Z, np.array([0.1, 0.0, 2.0]))),
    ]
}
"""For every kernel: parameters of a spec for three features, and the naive twin that has them."""

IMPOSSIBLE = {
    "gaussian": [[], [0.0], [-1.0], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0], [np.nan], [np.inf]],
}
"""For every kernel: values of gamma that cannot be."""

kernels = pytest.mark.parametrize(
    ("kernel", "twin"),
    [
        pytest.param(kernel_from_spec({"name": name, **parameters}), twin, id=f"{name} {parameters}")
        for name, cases in CASES.items()
        for parameters, twin in cases
    ],
)


def block(kernel, X, Z):
    """All values k(x, z) of points (n, d) and centres (m, d)."""
    out = np.full((len(X), len(Z)), np.nan)
    kernel.prepare(Z)(X, out)
    return out


def test_every_kernel_has_cases():
    """A kernel that joins the registry joins these tests."""
    assert set(CASES) == set(IMPOSSIBLE) == set(KERNELS)
    assert all(KERNELS[name].name == name for name in KERNELS)


@kernels
def test_a_block_has_the_value_of_every_pair(rng, kernel, twin):
    """k(x, z) of each pair, by the naive twin, one pair at a time and all at once."""
    X, Z = rng.normal(size=(40, D)), rng.normal(size=(7, D))
    found = block(kernel, X, Z)
    np.testing.assert_allclose(found, twin(X, Z), rtol=1e-12, atol=1e-15)
    for i, j in [(0, 0), (39, 6), (12, 3)]:
        np.testing.assert_allclose(found[i, j], block(kernel, X[i : i + 1], Z[j : j + 1])[0, 0], rtol=1e-13)


@kernels
def test_a_block_is_symmetric_and_its_diagonal_is_k_of_x_and_x(rng, kernel, twin):
    """k(x, z) = k(z, x); ``diagonal`` is k(x, x); the matrix of all pairs has no negative eigenvalue."""
    X = rng.normal(size=(30, D))
    K = block(kernel, X, X)
    np.testing.assert_allclose(K, K.T, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(K), kernel.diagonal(X), rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(twin(X, X)), rtol=1e-14)
    assert np.linalg.eigvalsh(K).min() > -1e-10


@kernels
def test_a_block_may_be_a_run_of_columns_of_a_wider_array(rng, kernel, twin):
    """``out`` with strides: the neighbours stay as they were, the bits are those of a block of its own."""
    X, Z = rng.normal(size=(20, D)), rng.normal(size=(5, D))
    wide = np.full((20, 9), 7.0)
    kernel.prepare(Z)(X, wide[:, 2:7])
    np.testing.assert_array_equal(wide[:, 2:7], block(kernel, X, Z))
    assert (wide[:, [0, 1, 7, 8]] == 7.0).all()


@kernels
def test_points_may_be_read_only_or_strided(rng, kernel, twin):
    """Tiles refuse to be written to; a transposed array is an array."""
    X, Z = np.asfortranarray(rng.normal(size=(20, D))), rng.normal(size=(5, D))
    X.flags.writeable = False
    np.testing.assert_allclose(block(kernel, X, Z), twin(X, Z), rtol=1e-12)


@kernels
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_inputs_far_from_the_origin_lose_no_digits(rng, kernel, twin, offset):
    """k depends on differences: coordinates of 1e9 with differences of about 1, compared with differences of pairs."""
    X, Z = offset + rng.normal(size=(30, D)), offset + rng.normal(size=(6, D))
    np.testing.assert_allclose(block(kernel, X, Z), twin(X, Z), rtol=1e-11)


@kernels
@given(st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_values_stay_between_zero_and_one(kernel, twin, seed, power):
    """Rounding never gives k > 1, for coordinates of any size, copies of the centres among the points."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(6, D)) * 10.0**power
    X = np.vstack([Z, Z + 1e-9, rng.normal(size=(6, D)) * 10.0**power])
    K = block(kernel, X, Z)
    assert ((K >= 0) & (K <= 1)).all()
    np.testing.assert_allclose(K, twin(X, Z), rtol=1e-8, atol=1e-12)


@kernels
def test_a_spec_is_json_and_brings_the_kernel_back(kernel, twin):
    """spec and kernel_from_spec are inverse through a text."""
    assert kernel_from_spec(json.loads(json.dumps(kernel.spec()))) == kernel
    assert kernel.spec()["name"] == kernel.name


@pytest.mark.parametrize(("name", "gamma"), [(name, gamma) for name, values in IMPOSSIBLE.items() for gamma in values])
def test_parameters_that_cannot_be(name, gamma):
    """UsageError that names gamma and what it must be."""
    with pytest.raises(UsageError, match=r"gamma .* must be one positive number"):
        kernel_from_spec({"name": name, "gamma": gamma})


def test_a_number_of_widths_that_does_not_match():
    """One gamma, or one per feature."""
    with pytest.raises(UsageError, match="2 values but the data have 3 features"):
        Gaussian((1.0, 2.0)).prepare(np.zeros((1, 3)))


def test_an_unknown_kernel():
    """UsageError that lists those there are."""
    with pytest.raises(UsageError, match=r"'laplace'; known: gaussian"):
        kernel_from_spec({"name": "laplace"})


def test_a_zero_gamma_switches_its_feature_off(rng):
    """The kernel does not see that feature, whatever its values."""
    X, Z = rng.normal(size=(10, D)), rng.normal(size=(4, D))
    kernel = Gaussian((0.3, 0.0, 0.7))
    other = X.copy()
    other[:, 1] = 1e3 * rng.normal(size=10)
    np.testing.assert_allclose(block(kernel, other, Z), block(kernel, X, Z), rtol=1e-14)


def design(rng, *, gamma=0.4, bias=True, m=5):
    """A design with a scaling that is not trivial."""
    scaling = Scaling(rng.normal(size=D), rng.uniform(0.5, 2, D), np.zeros(1), np.ones(1))
    return Design(Gaussian((gamma,)), scaling, rng.normal(size=(m, D)), np.arange(m) * 10, bias)


def phi(design, X):
    """The design matrix by definition."""
    s = design.scaling
    kernels = naive.gaussian((X - s.x_shift) / s.x_scale, (design.centres - s.x_shift) / s.x_scale, 0.4)
    return np.hstack([np.ones((len(X), int(design.bias))), kernels])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("m", [0, 5])
def test_a_design_is_bias_then_kernels_of_scaled_inputs(rng, bias, m):
    """Φ[n, 0] = 1 and Φ[n, m] = k((x_n − shift)/scale, (z_m − shift)/scale), for raw x and z."""
    made, X = design(rng, bias=bias, m=m), rng.normal(size=(20, D))
    before = X.copy()
    np.testing.assert_allclose(made.block(X), phi(made, X), rtol=1e-12)
    np.testing.assert_array_equal(X, before)
    assert made.n_columns == m + bias


def test_take_and_join_are_columns(rng):
    """Columns of parts are parts of columns; the bias stays, or does as it is told."""
    made, X = design(rng), rng.normal(size=(20, D))
    whole = made.block(X)
    np.testing.assert_allclose(made.take(np.array([3, 1])).block(X), whole[:, [0, 4, 2]], rtol=1e-12)
    np.testing.assert_allclose(made.take(np.array([2]), bias=False).block(X), whole[:, [3]], rtol=1e-12)
    parts = made.take(np.array([0, 1]), bias=False), made.take(np.array([2, 3, 4]), bias=True)
    joined = parts[0].join(parts[1])
    assert joined.bias
    np.testing.assert_allclose(joined.block(X), whole, rtol=1e-12)
    np.testing.assert_array_equal(joined.labels, made.labels)


def test_the_basis_is_kernel_and_scaling_not_centres(rng):
    """Equal for other centres and without the bias, different for another gamma or another scaling of the inputs."""
    made = design(rng)
    scaling = made.scaling
    same = [
        made.take(np.array([1])),
        made.take(np.arange(5), bias=False),
        made.with_centres(np.ones((2, D)), np.arange(2)),
    ]
    assert {other.basis for other in same} == {made.basis}
    moved = Scaling(scaling.x_shift + 1e-12, scaling.x_scale, scaling.t_shift, scaling.t_scale)
    wider = Scaling(scaling.x_shift, 2 * scaling.x_scale, scaling.t_shift, scaling.t_scale)
    others = [
        Design(Gaussian((0.4 + 1e-15,)), scaling, made.centres, made.labels, True),
        Design(Gaussian((0.4, 0.4, 0.4)), scaling, made.centres, made.labels, True),
        Design(made.kernel, moved, made.centres, made.labels, True),
        Design(made.kernel, wider, made.centres, made.labels, True),
    ]
    assert len({made.basis, *(other.basis for other in others)}) == 5
