"""The benchmark of families and directions, on data that it is given."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import metric


@pytest.mark.slow
def test_a_small_run_from_the_command_line(tmp_path):
    """A wave along a diagonal: directions are taken, and their error is far below that of widths; all methods run."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    np.savez(tmp_path / "wave.npz", X=X, y=np.sin(2 * (X[:, 0] + X[:, 1])) + 0.05 * rng.normal(size=500))
    metric.main(["--data", str(tmp_path), "--sets", "wave:300", "--splits", "1", "--output", str(tmp_path / "out")])
    lines = [line for line in (tmp_path / "out/metric.md").read_text().splitlines() if line.startswith("|")]
    names, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    found = {each[1]: dict(zip(names, each, strict=True)) for each in rows}
    assert set(found) == set(metric.METHODS)
    assert float(found["directions"]["RMSE"]) < 0.8 * float(found["widths"]["RMSE"])
    assert "directions" in found["default"]["kernel"]
    assert found["boosting"]["NLPD"] == ""
