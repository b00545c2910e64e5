"""All kernels, from one list: values, gradients, blocks, views, distant inputs, specs."""

import json
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import CASES, IMPOSSIBLE, NAMED, D, slopes
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.errors import UsageError
from partirvm.kernels import (
    KERNELS,
    NAMES,
    FunctionKernel,
    Gaussian,
    Kernel,
    NoKernel,
    OnColumns,
    Several,
    Sum,
    kernel_from_spec,
)


def those(cases):
    """Parametrise ``case`` with these cases."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


kernels = those(CASES)
close = partial(assert_allclose, rtol=1e-11, atol=1e-13)


def block(kernel, X, Z, origin=None):
    """Return k(x, z) for all points (n, d) and centres (m, d), stored column by column."""
    out = np.full((len(Z), len(X)), np.nan).T
    kernel.prepare(Z, origin)(X, out)
    return out


def drawn(rng, n, d=D):
    """Draw points, some of which share coordinates, as codes do."""
    X = rng.normal(size=(n, d))
    shared = rng.random(X.shape) < 0.4
    return np.where(shared, np.round(X), X)


def test_every_kernel_has_cases():
    assert {case.kernel.spec()["name"] for case in NAMED} == set(IMPOSSIBLE) - {Several.name}
    assert set(IMPOSSIBLE) == set(KERNELS) - {NoKernel.name}
    assert all(KERNELS[name].name == name for name in KERNELS)
    assert set(NAMES) <= set(KERNELS)
    assert all(isinstance(case.kernel, Kernel) for case in CASES)


@kernels
def test_a_block_contains_the_value_of_every_pair(rng, case):
    """It is symmetric, ``diagonal`` is k(x, x), and Mercer kernels are positive semi-definite."""
    X = np.asfortranarray(drawn(rng, 40))
    Z = drawn(rng, 37)
    X.flags.writeable = False
    found = block(case.kernel, X, Z)
    close(found, case.twin(X, Z))
    for i, j in [(0, 0), (39, 36), (12, 16)]:
        close(found[i, j], block(case.kernel, X[[i]], Z[[j]])[0, 0])
    X = drawn(rng, 30)
    X[0] = 0.0
    K = block(case.kernel, X, X)
    close(K, K.T)
    close(np.diagonal(K), case.kernel.diagonal(X))
    close(case.kernel.diagonal(X), np.diagonal(case.twin(X, X)))
    least = np.linalg.eigvalsh(K).min()
    assert least > -1e-9 * np.abs(K).max() if case.mercer else least < -1e-3
    assert not case.kernel.local or case.unit or (case.kernel.diagonal(X) > 0).all()


@kernels
@pytest.mark.parametrize("order", ["F", "C"])
def test_gradients_in_log_parameters_equal_finite_differences(rng, case, order):
    """Some points are centres."""
    X, Z = drawn(rng, 40), drawn(rng, 37)
    X[:9] = Z[:9]
    kernel = case.kernel
    weights = rng.normal(size=(40, 37)) + 0.5
    values = np.asarray(block(kernel, X, Z), order=order)
    given = np.asarray(weights, order=order)
    before = values.copy()
    found = kernel.prepare(Z).gradient(X, values, given)
    assert_array_equal(values, before)
    assert_array_equal(given, weights)
    assert found.shape == kernel.logs.shape == (len(kernel.parameters),)
    expected = slopes(lambda each: np.vdot(weights, block(each, X, Z)), kernel, 1e-4)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@those([case for case in CASES if not isinstance(case.kernel, FunctionKernel)])
def test_gradients_in_the_inputs_equal_finite_differences(rng, case):
    """Points are not centres, where Laplacian kernels have a kink; the derivative by a category is
    0."""
    X = rng.normal(size=(40, D))
    Z = rng.normal(size=(37, D))
    weights = rng.normal(size=(40, 37))
    found = case.kernel.prepare(Z).input_gradient(X, block(case.kernel, X, Z), weights)
    expected = np.zeros_like(X)
    step = 1e-4

    def total(move):
        return (weights * block(case.kernel, X + move, Z)).sum(axis=1)

    for j, move in enumerate(step * np.eye(D)):
        near, far = (total(size * move) - total(-size * move) for size in (1, 2))
        expected[:, j] = (8 * near - far) / (12 * step)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@kernels
def test_log_parameters_rescaling_and_relevances_are_consistent(case):
    """``with_logs`` is the inverse of ``logs``; zeros remain zero; a factor changes only gamma."""
    kernel = case.kernel
    again = kernel.with_logs(kernel.logs)
    assert type(again) is type(kernel)
    assert again.parameters == kernel.parameters
    assert len(set(kernel.parameters)) == len(kernel.parameters)
    assert_allclose(again.logs, kernel.logs, rtol=1e-14, atol=1e-14)
    moved = kernel.with_logs(kernel.logs + 0.3)
    assert_allclose(moved.logs, kernel.logs + 0.3, rtol=1e-14, atol=1e-14)
    if kernel.parameters:
        with pytest.raises(ValueError, match=r"logarithms for|reshape"):
            kernel.with_logs(np.zeros(len(kernel.parameters) + 1))
    narrow = kernel.rescaled(4.0)
    there = np.isfinite(kernel.logs)
    of_gamma = np.array(["gamma" in name for name in kernel.parameters], dtype=bool)
    assert_allclose(
        narrow.logs[there], (kernel.logs + np.log(4) * of_gamma)[there], rtol=1e-12, atol=1e-14
    )
    assert narrow.parameters == kernel.parameters
    found = kernel.relevances(D)
    assert (found is None) == (case.relevances is None)
    if found is not None:
        assert_allclose(found, case.relevances, rtol=1e-14)


@kernels
def test_a_block_can_be_written_into_columns_of_a_wider_array(rng, case):
    """The neighbouring columns are unchanged."""
    X = drawn(rng, 20)
    Z = drawn(rng, 21)
    for order in ("C", "F"):
        wide = np.full((20, 25), 7.0, order=order)
        case.kernel.prepare(Z)(X, wide[:, 2:23])
        assert_array_equal(wide[:, 2:23], block(case.kernel, X, Z))
        assert (wide[:, [0, 1, 23, 24]] == 7.0).all()


@those([case for case in CASES if case.distant])
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_inputs_far_from_the_origin_lose_no_digits(rng, case, offset):
    """The coordinates are up to 1e9 and differ by about 1."""
    X = offset + rng.normal(size=(30, D))
    Z = offset + rng.normal(size=(6, D))
    far = block(case.kernel, X, Z)
    assert_allclose(far, case.twin(X - offset, Z - offset), rtol=1e-10)
    weights = rng.normal(size=far.shape)
    near = case.kernel.prepare(Z - offset).gradient(X - offset, far, weights)
    assert_allclose(case.kernel.prepare(Z).gradient(X, far, weights), near, rtol=1e-9, atol=1e-12)


@those([case for case in CASES if case.unit])
@given(st.integers(0, 2**32 - 1), st.floats(-3, 3))
def test_values_are_between_zero_and_one(case, seed, power):
    """The coordinates have any size, and some points are copies of centres."""
    rng = default_rng(seed)
    Z = rng.normal(size=(6, D)) * 10.0**power
    X = np.vstack([Z, Z + 1e-9, rng.normal(size=(6, D)) * 10.0**power])
    K = block(case.kernel, X, Z)
    assert ((K >= 0) & (K <= 1 + 1e-15)).all()
    assert_allclose(K, case.twin(X, Z), rtol=1e-8, atol=1e-10)


@kernels
@pytest.mark.parametrize(("n", "m"), [(1, 0), (1, 1), (3, 70)])
def test_blocks_may_have_any_shape(rng, case, n, m):
    """Without centres there is no gradient."""
    X = drawn(rng, n)
    Z = drawn(rng, m)
    found = block(case.kernel, X, Z)
    assert_allclose(found, case.twin(X, Z) if m else np.zeros((n, 0)), rtol=1e-9, atol=1e-12)
    assert m or not case.kernel.prepare(Z).gradient(X, found, found).any()


@those(NAMED)
def test_a_kernel_survives_its_spec_and_pickle(case):
    """spec and kernel_from_spec are inverses, also through text; the key is the spec."""
    kernel = case.kernel
    assert kernel_from_spec(json.loads(json.dumps(kernel.spec()))) == kernel
    assert kernel.spec()["name"] == kernel.name
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert hash(kernel) == hash(kernel_from_spec(kernel.spec()))
    assert Gaussian(np.array([1, 2], dtype=np.float32)) == Gaussian((1.0, 2.0))


@pytest.mark.parametrize(
    ("name", "fields"), [(name, fields) for name in IMPOSSIBLE for fields in IMPOSSIBLE[name]]
)
def test_impossible_parameters_are_refused(name, fields):
    """The error names the field and its requirement."""
    with pytest.raises(UsageError, match=r"must|lacks|has|unknown|not a kernel"):
        kernel_from_spec({"name": name, **fields})


def test_features_missing_from_the_data_are_refused():
    with pytest.raises(UsageError, match="2 values but the data have 3 features"):
        Gaussian((1.0, 2.0)).prepare(np.zeros((1, 3)))
    kernel = OnColumns(Gaussian(1.0), (0, 3))
    with pytest.raises(
        UsageError, match=r"columns \[0, 3\], but the data have 3 features, counted"
    ):
        kernel.prepare(np.zeros((1, 3)))
    with pytest.raises(UsageError, match="3 features"):
        kernel.relevances(3)


BROKEN = {
    "no_such_module:f": r"no_such_module:f cannot be imported .*PYTHONPATH",
    "kernel_cases:nothing": r"'kernel_cases' has no attribute 'nothing'",
    "kernel_cases:D": r"it is a int, which is not callable",
    "kernel_cases:narrow": r"returned the shape \(128, 3\) for points .*\(16, 3\): it must return \(128, 16\)",
    "kernel_cases:unknown": r"returned 2,048 values, of which 2,048 are NaN or infinite",
    "numpy:dot": r"kernel numpy:dot failed for points .*ValueError",
}


@pytest.mark.parametrize("path", BROKEN)
def test_functions_that_are_not_a_kernel_are_refused_by_name(path):
    kernel = FunctionKernel(path)
    with pytest.raises(UsageError, match=BROKEN[path]):
        block(kernel, np.ones((2, 3)), np.ones((1, 3)))


def test_a_callable_has_no_spec():
    """Neither has a kernel that contains it."""
    kernel = FunctionKernel(lambda X, Z: X @ Z.T)
    for each in (kernel, Sum((Gaussian(1.0), kernel)), OnColumns(kernel, (0,))):
        with pytest.raises(UsageError, match=r"<lambda>.* name it as 'module:function'"):
            each.spec()
    with pytest.raises(UsageError, match="a callable, or"):
        FunctionKernel(3)


@kernels
def test_one_gamma_per_feature_gives_the_same_values(case, rng):
    """A second conversion changes nothing."""
    X = drawn(rng, 9)
    Z = drawn(rng, 5)
    each = case.kernel.per_feature(D)
    assert_allclose(block(each, X, Z), block(case.kernel, X, Z), rtol=1e-12, atol=1e-14)
    assert each.per_feature(D) == each
    assert (len(each.logs) > len(case.kernel.logs)) == any(
        name.rpartition(".")[2] in ("gamma", "shares") for name in case.kernel.parameters
    )


def test_a_second_kernel_of_one_name_is_refused():
    """Defining a class again, as a notebook does, replaces it."""

    def define(place):
        namespace = {"__module__": __name__, "__qualname__": place}
        return type(Kernel)("Again", (Kernel,), namespace, name="defined-twice")

    define("Again")
    latest = define("Again")
    assert KERNELS["defined-twice"] is latest
    with pytest.raises(UsageError, match="two kernels are named 'defined-twice'"):
        define("Other")
    del KERNELS["defined-twice"]
