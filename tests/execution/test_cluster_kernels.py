"""Kernels and bases that are Python functions on a cluster: workers import them by name, callables are refused."""

from __future__ import annotations

import numpy as np
import pytest

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
