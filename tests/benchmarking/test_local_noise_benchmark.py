"""The benchmark of local noise, on data that it draws."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import local_noise


def test_housing_has_the_spread_that_it_states():
    """At the centre of the bump of the first feature, and without the fifth, the spread is .45."""
    X, y = local_noise.housing(200_000)
    mean = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3]
    here = (np.abs(X[:, 0] + 1) < 0.05) & (X[:, 4] < 0)
    assert np.std((y - mean)[here]) == pytest.approx(0.45, rel=0.05)


@pytest.mark.slow
def test_a_small_run_from_the_command_line(tmp_path):
    """Two lines, and local noise has the lower density loss on these data."""
    local_noise.main(
        ["--data", ".", "--sets", "housing", "--rows", "600", "--splits", "1", "--output", str(tmp_path / "out")]
    )
    lines = [line for line in (tmp_path / "out/local_noise.md").read_text().splitlines() if line.startswith("|")]
    names, _, constant, auto = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    found = [dict(zip(names, each, strict=True)) for each in (constant, auto)]
    assert [each["noise"] for each in found] == ["constant", "auto"]
    assert float(found[1]["NLPD"]) < float(found[0]["NLPD"]) - 0.1
