"""Whole numbers that look like codes are named in the plan, and counts are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.setup.remarks import looks_coded

LEVELS, ROWS = 20, 2000


def table(kind: str, seed: int = 0):
    """Codes, effects of levels on the target in random or smooth order, and a second, continuous feature."""
    random = np.random.default_rng(seed)
    codes = random.integers(LEVELS, size=ROWS)
    effects = {
        "random": random.normal(size=LEVELS),
        "smooth": np.sin(np.arange(LEVELS) / 4),
        "none": np.zeros(LEVELS),
    }[kind]
    x = random.normal(size=ROWS)
    return codes.astype(float), x, effects[codes] + x + 0.5 * random.normal(size=ROWS)


@pytest.mark.parametrize("seed", range(2))
def test_random_order_counts_and_noise(seed):
    found = {}
    for kind in ("random", "smooth", "none"):
        codes, x, y = table(kind, seed)
        found[kind] = looks_coded(codes, y), looks_coded(x, y), looks_coded(codes + 0.5, y)
    assert found == {"random": (True, False, False), "smooth": (False,) * 3, "none": (False,) * 3}


@pytest.mark.parametrize("levels", [5, 500], ids=["few levels", "few rows a level"])
def test_too_few(levels):
    codes = np.arange(ROWS) % levels
    y = np.random.default_rng(0).normal(size=levels)[codes]
    assert not looks_coded(codes.astype(float), y + 0.01 * np.random.default_rng(1).normal(size=ROWS))


def notes(model, X, y):
    return [note for note in model.fit(X, y).plan_.notes if "codes" in note]


def test_the_plan_names_them_unless_they_are_categories():
    codes, x, y = table("random")
    X = pd.DataFrame({"carrier": codes, "delay": x})
    options = {"gamma": "scale", "max_rounds": 1, "partition_size": 50, "random_state": 0}
    (note,) = notes(RVMRegressor(**options), X, y)
    assert "carrier" in note
    assert "delay" not in note
    (note,) = notes(RVMClassifier(**options), X, y > 0)
    assert "carrier" in note
    assert not notes(RVMRegressor(**options), X.astype({"carrier": "category"}), y)
