"""Kernels in jobs: what a spec holds, a resume with it, callables refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from partirvm import RVMRegressor, ingest, jobs, open_job, submit
from partirvm.errors import UsageError
from partirvm.kernels import FunctionKernel, Gaussian, Laplacian, OnColumns, Product, Sum
from partirvm.options import Request

ASKED = Request(strategy="working-set", partition_size=40, max_rounds=2, seed=1)
SUM = Sum((Product((Gaussian(0.5), OnColumns(Laplacian(0.2), (1,)))), Gaussian(5.0)), (1.0, 0.3))
FUNCTION = "sklearn.metrics.pairwise:laplacian_kernel"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows as DATA on disk."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(500, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=500)
    place = tmp_path_factory.mktemp("data") / "rows.zarr"
    ingest((X, y), place, tile_rows=200)
    return str(place)


@pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")
@pytest.mark.parametrize(
    "kernel",
    [SUM, pytest.param("matern52", marks=pytest.mark.slow), FUNCTION],
    ids=["sum", "name", "function"],
)
def test_a_job_holds_its_kernel(data, tmp_path, kernel):
    """As JSON in its spec; a resume goes on with it, to the bits of a fit without a break."""
    asked = replace(ASKED, kernel=kernel, gamma="scale" if kernel == "matern52" else "auto")
    whole = jobs.fit(data, str(tmp_path / "whole"), replace(asked, max_rounds=4))
    jobs.fit(data, str(tmp_path / "job"), asked)
    spec = json.loads(Path(tmp_path, "job", "spec.json").read_text())["parameters"]["kernel"]
    assert spec == (kernel if isinstance(kernel, str) else kernel.spec())
    resumed = open_job(tmp_path / "job").resume(max_rounds=4, allow_code=True)
    resumed.wait()
    assert whole.model is not None
    np.testing.assert_array_equal(resumed.model(allow_code=True).mean, whole.model.mean)
    if kernel is SUM:
        assert resumed.model().design.kernel == SUM


def test_a_callable_is_no_kernel_of_a_job(data, tmp_path):
    """Alone or as a part; nothing is left behind."""
    function = FunctionKernel(lambda X, Z: X @ Z.T)
    for kernel in (function.function, function, Sum((Gaussian(1.0), OnColumns(function, (0,))))):
        for begin in (jobs.fit, jobs.submit):
            with pytest.raises(UsageError, match=r"<lambda>.* name it as 'module:function'"):
                begin(data, str(tmp_path / "job"), replace(ASKED, kernel=kernel))
    assert not (tmp_path / "job").exists()
    with pytest.raises(UsageError, match="'module:function'"):
        submit(RVMRegressor(kernel=lambda X, Z: X @ Z.T), data, tmp_path / "job")
