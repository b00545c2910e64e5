"""The design: leading columns and kernels, labels, names, identity, specs, and refusals."""

import pickle
from dataclasses import replace
from functools import partial

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.errors import UsageError
from partirvm.kernels import NONE, Basis, Design, Gaussian, NoKernel
from partirvm.kernels.functions import labels_by_name
from partirvm.likelihoods import GAUSSIAN
from partirvm.scaling import Scaling
from partirvm.spec import Problem

D = 3
LINEAR = ("linear", D)
BASIS = Basis((LINEAR, ("numpy:tanh", D), (lambda X: X[:, :1] ** 2, 1)))


def design(rng, basis=BASIS, m=4):
    """Return a design of the bias, functions 1, 4 and 6, and a few centres, with a nontrivial
    scaling."""
    scaling = Scaling(rng.normal(size=D), rng.uniform(0.5, 2, D), np.zeros(1), np.ones(1))
    centres = rng.normal(size=(m, D))
    active = np.array([1, 4, 6])
    return Design(
        Gaussian(0.4), scaling, centres, 10 * np.arange(m), True, functions=basis, active=active
    )


def test_leading_columns_come_first(rng):
    """The columns are the bias, active φ(x), and k(x, Z), all computed from standardised inputs."""
    made = design(rng)
    X = rng.normal(size=(20, D))
    close = partial(assert_allclose, rtol=1e-12)
    Z, x = ((points - made.scaling.x_shift) / made.scaling.x_scale for points in (made.centres, X))
    functions = np.column_stack([x, np.tanh(x), x[:, 0] ** 2])[:, [1, 4, 6]]
    whole = np.hstack([np.ones((20, 1)), functions, naive.gaussian(x, Z, 0.4)])
    before = X.copy()
    close(made.block(X), whole)
    assert_array_equal(X, before)
    close(made.take(NONE).block(X), whole[:, :4])
    close(made.take(slice(None), leading=NONE).block(X), whole[:, 4:])
    assert_array_equal(made.all_labels, [-1, -3, -6, -8, 0, 10, 20, 30])
    other = made.take(np.array([2]), leading=np.array([-8, -2]))
    close(other.block(X), np.column_stack([x[:, 0], x[:, 0] ** 2, whole[:, 6]]))
    joined = made.take(np.array([0]), leading=np.array([-3])).join(other)
    assert_array_equal(joined.all_labels, [-2, -3, -8, 0, 20])
    assert made.with_centres(X, np.arange(20)).n_leading == 0


def test_a_design_without_a_kernel_has_only_leading_columns(rng):
    scaling = design(rng).scaling
    alone = Design(
        NoKernel(),
        scaling,
        np.zeros((0, D)),
        NONE,
        True,
        functions=Basis((LINEAR,)),
        active=np.arange(D),
    )
    assert alone.kernels == ()
    assert alone.block(rng.normal(size=(5, D))).shape == (5, 1 + D)
    assert not len(alone.peaks())


def test_pruned_leading_columns_are_offered_again(rng):
    """These are the bias and the functions that are not in the design."""
    made = design(rng)
    empty = made.take(slice(None), leading=NONE)
    problem = Problem(9, empty, True, 1.0, None, 1.0, True, False, GAUSSIAN)
    assert_array_equal(problem.leading, -1 - np.arange(8))
    assert set(problem.missing_leading(made)) == {-2, -4, -5, -7}
    last = made.take(NONE, leading=np.array([-8]))
    assert set(problem.missing_leading(last)) == set(range(-7, 0))
    assert not len(problem.missing_leading(made.take(NONE, leading=problem.leading)))


def test_a_basis_survives_its_spec_and_pickle():
    """A named function is the same function in another process."""
    named = Basis((("linear", 2), ("numpy:tanh", 2)))
    assert named.spec() == [["linear", 2], ["numpy:tanh", 2]]
    points = np.array([[0.5, -1.0]])
    assert_array_equal(
        pickle.loads(pickle.dumps(named))(points), [[0.5, -1.0, *np.tanh([0.5, -1.0])]]
    )
    with pytest.raises(UsageError, match=r"<lambda>.*'module:function'"):
        BASIS.spec()
    assert labels_by_name(BASIS, "abc") == {
        "bias": -1, "a": -2, "b": -3, "c": -4, "tanh[0]": -5, "tanh[1]": -6, "tanh[2]": -7, "f[0]": -8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: X[:, 0], r"returned the shape \(128,\)"),
        (lambda X: X / 0.0, "128 values, of which 128 are NaN or infinite"),
        (lambda X: X @ np.ones(5), "failed for points"),
        (lambda X: np.hstack([X, X]), "returned 2 columns, but 1 in the first call"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_functions_that_are_not_a_basis_are_refused(function, message):
    """They have other shapes, are not finite, fail, or cannot be imported."""
    with pytest.raises(UsageError, match=message):
        Basis(((function, 1),))(np.ones((2, 1)))
    with pytest.raises(UsageError, match=r"numpy:no_such cannot .*'numpy' has no attribute"):
        Basis((("numpy:no_such", 1),))(np.ones((2, 1)))


def test_the_identity_of_a_basis_is_kernel_functions_and_scaling(rng):
    """Other centres or a bias do not change it."""
    made = replace(design(rng, None, 5), active=NONE)
    scaling = made.scaling
    other = made.with_centres(np.ones((2, D)), np.arange(2))
    same = [made.take(np.array([1])), made.take(NONE, leading=NONE), other]
    assert {other.basis for other in same} == {made.basis}
    others = [
        made,
        replace(made, functions=BASIS),
        replace(made, functions=Basis((LINEAR,))),
        replace(made, kernel=Gaussian((0.4 + 1e-15,))),
        replace(made, kernel=Gaussian((0.4, 0.4, 0.4))),
        replace(made, scaling=replace(scaling, x_shift=scaling.x_shift + 1e-12)),
        replace(made, scaling=replace(scaling, x_scale=2 * scaling.x_scale)),
    ]
    assert len({other.basis for other in others}) == len(others)
