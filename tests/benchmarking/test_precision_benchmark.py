"""The benchmark of passes in float32."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks import precision
from partirvm.data import as_source
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.types import Scaling

ROUNDING = {"double": 1e-14, "values": 6e-8, "single": 1e-6}
"""Bounds of relative errors of ΦᵀΦ: half a unit of the last place of float32, and some units for sums of products."""


@pytest.mark.parametrize("form", precision.FORMS)
def test_the_statistics_of_each_form(form):
    """ΦᵀΦ, Φᵀt and tᵀt of rows in two panels, against the formulas in float64."""
    rng = np.random.default_rng(0)
    X, y, one = rng.normal(size=(3_000, 2)), rng.normal(size=3_000), np.ones(1)
    scaling = Scaling(np.zeros(2), np.ones(2), np.zeros(1), one)
    design = Design(Gaussian((0.5,)), scaling, X[:20], np.arange(20), bias=True)
    found, _ = precision.one_pass(as_source(X, y), design, form)
    Phi = np.exp(-0.5 * ((X[:, None, :] - X[None, :20, :]) ** 2).sum(axis=2))
    Phi = np.column_stack([np.ones(3_000), Phi])
    gram = Phi.T @ Phi
    lengths = np.sqrt(gram.diagonal())
    error = np.abs((found.gram - gram) / lengths / lengths[:, None]).max()
    assert error < ROUNDING[form]
    assert form == "double" or error > ROUNDING["double"]
    np.testing.assert_allclose(found.projection[:, 0], Phi.T @ y, atol=ROUNDING[form] * 20 * lengths.max())
    np.testing.assert_allclose(found.sum_squares, [y @ y], rtol=ROUNDING[form])


@pytest.mark.slow
def test_a_run_from_the_command_line(tmp_path):
    """With tiny noise, float32 products change the evidence by more than 1e-3 nats per row, float32 values by less."""
    precision.main(["--data", str(tmp_path), "--case", "sinc", "--repeats", "1", "--output", str(tmp_path)])
    lines = [line for line in (tmp_path / "precision_passes.md").read_text().splitlines() if "sinc" in line]
    assert [line.split("|")[2].strip() for line in lines] == list(precision.FORMS)
    errors = [abs(float(line.split("|")[11])) for line in lines]
    assert errors[0] == 0
    assert errors[1] < 1e-3 < errors[2]
    assert "sinc" in (tmp_path / "precision_fits.md").read_text()
