"""The benchmark of fits to few rows, on a set of its own."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import small_samples


@pytest.mark.slow
def test_figures_are_those_of_the_new_rows(tmp_path, rng):
    """One line for each kernel and one for all; coverage of each fit within the least and the largest."""
    X = rng.uniform(-3, 3, size=(400, 1))
    np.savez(tmp_path / "wave.npz", X=X, y=np.sin(X[:, 0]) + 0.2 * rng.normal(size=400))
    small_samples.main(
        ["--data", str(tmp_path), "--sets", "wave", "--rows", "50", "--seeds", "2", "--output", str(tmp_path / "out")]
    )
    written = (tmp_path / "out/small_samples.md").read_text().splitlines()
    table = [line.split("|")[1:-1] for line in written if "|" in line]
    assert [cell.strip() for cell in table[0]] == list(small_samples.COLUMNS)
    found = [dict(zip(small_samples.COLUMNS, (cell.strip() for cell in line), strict=True)) for line in table[2:]]
    assert [line["kernel"] for line in found] == ["gaussian", "matern52", ""]
    for line in found:
        assert float(line["least %"]) <= float(line["coverage %"]) <= float(line["largest %"])
        assert 0.2 < float(line["RMSE"]) < 0.6, "the noise is 0.27 of the deviation"


def test_a_line_is_the_mean_of_its_fits():
    """Fits that cover 85 and 95 %, whose noise is right and twice too large: half of them sound, half within 1.5."""
    names = ("vectors", "RMSE", "off", "std off", "NLPD", "CRPS", "seconds")
    fits = [
        {**dict.fromkeys(names, value), "coverage %": coverage, "noise": noise, "curve": (0.5,)}
        for value, coverage, noise in [(1.0, 85.0, 1.0), (3.0, 95.0, 2.0)]
    ]
    found = small_samples.line(fits, set="any")
    assert (found["sound"], found["within 1.5"]) == (0.5, 0.5)
    assert [found[name] for name in names] == pytest.approx([2.0] * len(names))
    assert (found["least %"], found["coverage %"], found["largest %"]) == (85.0, 90.0, 95.0)
