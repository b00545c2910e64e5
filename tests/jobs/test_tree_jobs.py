"""Jobs with boosted trees beside the fit: DATA, the choice of trees, predictions."""

import numpy as np
import pytest
from numpy.random import default_rng

from partirvm import ingest, jobs, open_job
from partirvm.options import Request

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

REQUEST = Request(
    gamma=0.5, partition_size=20, max_rounds=1, noise="constant", residual="none", tree_rounds=4
)


def steps(n=420):
    """Return rows of three features, and targets with jumps in two of them."""
    rng = default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, 3.0 * (X[:, 0] > 0.2) + 2.0 * (X[:, 1] > -0.3) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("has_jumps", [True, False])
def test_auto_takes_trees_where_left_out_rows_gain(tmp_path, has_jumps):
    """A smooth function of few features gains nothing from coarse steps."""
    X, y = steps()
    y = y if has_jumps else np.sin(X[:, 0]) + X[:, 1]
    data = ingest((X, y), tmp_path / "d.zarr", tile_rows=128).url
    jobs.fit(data, str(tmp_path / "job"), Request(**{**vars(REQUEST), "basis": "auto"}))
    job = open_job(tmp_path / "job")
    model = job.model()
    assert (model.trees is not None) == has_jumps
    entry = job.state().history[-1]["trees"]
    assert bool(entry["reason"]) != has_jumps
    assert (entry["share"] > 0) == has_jumps
    mean = model.values(X)[0][:, 0]
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.7 * y.std()
