"""Kernels and bases that are Python functions on a cluster: workers import them by name, callables are refused."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm import RVMRegressor, submit
from partirvm.errors import UsageError
from partirvm.jobs import fit
from partirvm.options import Request

OPTIONS = {"strategy": "working-set", "partition_size": 40, "max_rounds": 2}


@pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")
def test_a_function_is_imported_by_the_workers(data, one_worker, tmp_path):
    """A fit on workers has the bits of one in this process."""
    asked = Request(
        kernel="sklearn.metrics.pairwise:laplacian_kernel", basis=["linear", "numpy:tanh"], seed=1, **OPTIONS
    )
    there = fit(data.url, str(tmp_path / "there"), asked, client=one_worker).model
    here = fit(data.url, str(tmp_path / "here"), asked).model
    assert there is not None
    assert here is not None
    assert there.design.kernel.spec() == {"name": "function", "function": asked.kernel}
    assert there.design.functions.spec()["parts"][1]["function"] == "numpy:tanh"
    assert there.design.n_leading > 1
    np.testing.assert_array_equal(there.mean, here.mean)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [(lambda X, Z: X @ Z.T, "name it as 'module:function'"), ("no_such:f", "'no_such' cannot be imported")],
    ids=["callable", "unknown"],
)
def test_what_workers_cannot_have_is_refused(data, one_worker, tmp_path, kernel, message):
    """By an estimator with a client, and by a job."""
    with pytest.raises(UsageError, match=message):
        RVMRegressor(kernel=kernel, client=one_worker, **OPTIONS).fit(np.ones((9, 2)), np.arange(9.0))
    with pytest.raises(UsageError, match=message):
        fit(data.url, str(tmp_path / "job"), Request(kernel=kernel, **OPTIONS), client=one_worker)
    assert not (tmp_path / "job").exists()
    if callable(kernel):
        with pytest.raises(UsageError, match=message):
            submit(RVMRegressor(kernel=kernel, **OPTIONS), data.url, tmp_path / "job", client=one_worker)
        with pytest.raises(UsageError, match=message):
            RVMRegressor(basis=lambda X: X**2, client=one_worker).fit(np.ones((9, 2)), np.arange(9.0))
