"""Requests for residual="local" that are refused, or that give a warning after the fit."""

from dataclasses import replace

import pytest
from numpy.random import default_rng

import partirvm.kernels as k
from partirvm import Local, Polynomial, RVMClassifier, RVMRegressor, ingest, plan
from partirvm.errors import LimitWarning, MemoryLimitError, UsageError
from partirvm.options import Request
from partirvm.planning import DataShape, Machine
from partirvm.planning.additions import require_memory_for_residuals
from partirvm.quoting import format_bytes


def table(n=120, d=2):
    rng = default_rng(0)
    X = rng.uniform(-1, 1, size=(n, d))
    return X, X[:, 0] + 0.1 * rng.normal(size=n)


def product(X, Z):
    """Return an inner product, as a user's function."""
    return X @ Z.T


@pytest.mark.parametrize(
    "kernel",
    [
        Polynomial(degree=2, gamma=1.0),
        "linear-spline",
        "linear",
        product,
        k.Sum((k.Gaussian(gamma=1.0), k.Linear())),
    ],
    ids=["polynomial", "linear-spline", "linear", "function", "sum"],
)
def test_a_kernel_without_distances_is_refused(kernel):
    with pytest.raises(
        UsageError, match=r"residual='local' needs a kernel of distances.*choose another kernel"
    ):
        RVMRegressor(kernel, residual="local").fit(*table())


def test_nearest_rows_without_distances_advise_another_kernel():
    """Such a model cannot have local residuals, whatever its options."""
    model = RVMRegressor(Polynomial(degree=2, gamma=1.0), random_state=0).fit(*table())
    with pytest.raises(UsageError, match="measures no distances: choose another kernel"):
        model.nearest_rows(table()[0])


def test_a_plan_without_distances_does_not_mention_neighbours(tmp_path):
    data = str(tmp_path / "data.zarr")
    ingest(table(1500), data)
    polynomial = RVMRegressor(Polynomial(degree=2, gamma=1.0), random_state=0)
    assert "neighbours" not in str(plan(polynomial, data))
    assert "neighbours" in str(plan(RVMRegressor("gaussian", gamma=1.0, random_state=0), data))


@pytest.mark.parametrize("residual", ["local", Local(neighbours=5)])
def test_local_residuals_with_given_noise_or_classes_are_refused(residual):
    X, y = table()
    with pytest.raises(UsageError, match="residual='local' needs an estimated noise variance"):
        RVMRegressor(gamma=1.0, noise=0.01, residual=residual).fit(X, y)
    with pytest.raises(TypeError):
        RVMClassifier(residual=residual)


def test_too_little_memory_is_refused_with_the_required_size():
    """This is ten times 8·(2·n·w + n·k·(k + w)) bytes, n = 600, k = 40, w = 200 + 1 + 3 numbers a
    row."""
    shape = DataShape(600, 200, 1, 600)
    machine = Machine(threads=1, base=0, limit=600 << 20)
    least = 10 * 8 * (2 * 600 * 204 + 4096 * 40 * (40 + 204))
    with pytest.raises(
        MemoryLimitError, match=f"residual='local' needs {format_bytes(least)}.*raise memory_limit"
    ):
        require_memory_for_residuals(Request(residual="local", neighbours=40), shape, machine)
    enough = replace(machine, limit=least)
    require_memory_for_residuals(Request(residual="local", neighbours=40), shape, enough)


def test_too_few_rows_give_a_warning():
    X, y = table(15)
    with pytest.warns(
        LimitWarning, match="residual='local' had no effect: 15 rows are fewer than 20"
    ):
        RVMRegressor(gamma=1.0, residual="local", random_state=0).fit(X, y)
