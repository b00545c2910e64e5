"""The design made of kernels: bias, scaling, columns taken and joined, its identity."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from partirvm.kernels import Gaussian
from partirvm.kernels.design import NONE, Design
from partirvm.types import BIAS, Scaling

D = 3


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
    np.testing.assert_allclose(made.take(np.array([2]), leading=NONE).block(X), whole[:, [3]], rtol=1e-12)
    parts = made.take(np.array([0, 1]), leading=NONE), made.take(np.array([2, 3, 4]), leading=np.array([BIAS]))
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
        made.take(np.arange(5), leading=NONE),
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
