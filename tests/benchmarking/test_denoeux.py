"""The panels of Denœux's slides: the library's fixed precisions give the formulas' bands."""

from __future__ import annotations

import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.denoeux import COUNTS, SIGMA, main, measure


def test_bands_are_those_of_the_formulas():
    """Mean and standard deviation to rounding; the least standard deviation falls towards that of the noise."""
    rows = [measure(n) for n in COUNTS]
    assert all(max(row["mean_difference"], row["std_difference"]) < 1e-10 for row in rows[1:])
    least = [row["least"] for row in rows]
    assert least == sorted(least, reverse=True)
    assert SIGMA < least[-1] < 1.1 * SIGMA


def test_table_and_picture_are_written(tmp_path):
    """Both files are there."""
    main(["--output", str(tmp_path)])
    assert {file.name for file in tmp_path.iterdir()} == {"denoeux.json", "denoeux.md", "denoeux.png"}
