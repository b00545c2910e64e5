"""The benchmark of dense fits runs, and says whether bits are the same."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks import dense


def test_threads_beside_lapack(tmp_path):
    """One line for each number of threads, all with the same bits."""
    dense.main(["--columns", "600", "--threads", "1", "2", "--repeats", "1", "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "dense.json").read_text())["rows"]
    assert [(row["columns"], row["threads"], row["same_bits"]) for row in rows] == [(600, 1, True), (600, 2, True)]
    assert rows[0]["speedup"] == 1.0
