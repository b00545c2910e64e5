"""The rows of largest error have the numbers of the table that was ingested, whatever the shuffle."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from partirvm import ingest, jobs
from partirvm.data import ZarrSource
from partirvm.errors import MissingDataError
from partirvm.jobs.run import table_rows
from partirvm.options import Request


def table(n, seed):
    """Inputs and targets that are all different."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("held_out", [False, True])
def test_numbers_of_a_regression(held_out, tmp_path):
    """The stored target is the target of that row of the table (to the digits of a line of history)."""
    tables = {"train": table(300, 0), "held-out": table(100, 1)}
    for name, rows in tables.items():
        ingest(rows, str(tmp_path / name), shuffle=3)
    validation = str(tmp_path / "held-out") if held_out else None
    jobs.fit(str(tmp_path / "train"), str(tmp_path / "job"), Request(gamma=0.5, max_rounds=2), validation=validation)
    (found,) = jobs.open_job(str(tmp_path / "job")).state().history[-1]["diagnostics"]
    rows, t, mean, std = np.array(found["largest"]).T
    np.testing.assert_allclose(t, tables["held-out" if held_out else "train"][1][rows.astype(int)], rtol=1e-4)
    assert (np.diff(np.abs(t - mean)) <= 0).all()
    assert (std > 0).all()


def test_numbers_that_cannot_be_read_are_left_out(tmp_path):
    """The file of the row numbers has been deleted."""
    data, found = ingest(table(100, 0), str(tmp_path / "train"), shuffle=3), [{"largest": [[3, 1.0]]}]
    assert table_rows(found, data, None) == [{"largest": [[data.original_rows(0)[3], 1.0]]}]
    shutil.rmtree(next((tmp_path / "train").glob("rows-*/row/c")))
    with pytest.raises(MissingDataError):
        ZarrSource(str(tmp_path / "train")).original_rows(0)
    assert table_rows(found, ZarrSource(str(tmp_path / "train")), None) == [{"largest": []}]
