"""The benchmark of learned kernels runs, goes on where it was left, and its arithmetic is right."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.learning import forms
from benchmarks.learning.__main__ import main
from benchmarks.learning.data import DATASETS
from benchmarks.learning.forms import METHODS


def test_the_table_of_forms(tmp_path, monkeypatch, capsys):
    """Two splits of a small Sinc; where cross-validation has no choice it is "scale"; a second run fits nothing."""
    monkeypatch.setattr(forms, "POWERS", (0,))
    monkeypatch.setattr(forms, "WIDTHS", ("2^1",))
    monkeypatch.setattr(forms, "FOLDS", 2)
    monkeypatch.setitem(DATASETS, "sinc", replace(DATASETS["sinc"], train=30, test=40))
    asked = ["--data", "", "--sets", "sinc", "--repeats", "2", "--output", str(tmp_path)]
    main(asked)
    place = tmp_path / "learning" / "forms"
    methods = (*METHODS, "2^1", "cv")
    fits = {m: [json.loads((place / "sinc" / m / f"{k}.json").read_text()) for k in (0, 1)] for m in methods}
    assert [fit["gamma"] for fit in fits["2^1"]] == [[2.0]] * 2
    assert [fit["mse"] for fit in fits["cv"]] == [fit["mse"] for fit in fits["scale"]]
    assert all(fit["evaluations"] > 10 for fit in fits["learn"])
    rmse = {m: np.mean(np.sqrt([fit["mse"] for fit in fits[m]])) for m in methods}
    best = min(rmse["scale"], rmse["2^1"])
    line = next(line for line in (place / "forms.md").read_text().splitlines() if line.startswith("| sinc | 2 |"))
    told = [float(cell.split("±")[0]) for cell in line.strip("|").split("|")[2:]]
    np.testing.assert_allclose(told[:-2], [*(rmse[m] for m in METHODS), best], rtol=1e-3)
    np.testing.assert_allclose(told[-2:], [rmse["auto"] / best, rmse["auto"] / rmse["cv"]], atol=1e-3)
    assert "(2)" in line
    monkeypatch.setattr(forms, "fit", None)
    main(asked)
    assert line in capsys.readouterr().out


def test_splits_of_classes():
    """Codes from 0 on, rows in one part only, another seed other rows."""
    split, other = (DATASETS["cancer"].split("", number) for number in (0, 1))
    assert set(split.y) == {0.0, 1.0}
    assert (len(split.y), len(split.y_test)) == (398, 171)
    assert len(np.unique(np.vstack([split.X, split.X_test]), axis=0)) == 569
    assert not np.array_equal(split.X, other.X)
