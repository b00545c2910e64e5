"""The benchmark of augmented predictions runs, and its table says what the formulas do."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks import augmentation
from benchmarks.datasets import Split


def test_deviations_of_sinc_by_distance(tmp_path, capsys):
    """Twenty units out √(σ² + var y), and σ without; the picture is drawn."""
    pytest.importorskip("matplotlib")
    augmentation.main(["--output", str(tmp_path), "--picture", str(tmp_path / "sinc.png")])
    rows = json.loads((tmp_path / "augmentation_distances.json").read_text())["rows"]
    _, y = augmentation.sinc()
    assert rows[-1]["distance"] == 20
    assert rows[-1]["std*"] == pytest.approx(np.sqrt(rows[-1]["std"] ** 2 + y.var()), rel=1e-6)
    assert [row["std*"] for row in rows] == sorted(row["std*"] for row in rows)
    assert "| 20 |" in capsys.readouterr().out
    assert (tmp_path / "sinc.png").stat().st_size > 10_000


def test_far_rows_lie_beyond_the_others():
    """Along the direction in which the rows are spread most once all features have one scale."""
    rng = np.random.default_rng(0)
    along = rng.normal(size=60)
    X = np.column_stack([along, 100 * along + rng.normal(size=60)])
    far = augmentation.split_far(Split("line", X[:50], along[:50], X[50:], along[50:]))
    assert (len(far.y), len(far.y_test)) == (50, 10)
    outer, inner = sorted([far.y_test, far.y], key=len)
    assert outer.min() > inner.max() - 0.1 or outer.max() < inner.min() + 0.1
