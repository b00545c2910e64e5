"""The rounds of a working set end when twice the work would gain too little: by the formula, and in whole runs."""

from __future__ import annotations

from itertools import pairwise
from math import log2

import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.strategies import working_set

PARTITION = 40


@pytest.fixture
def no_work_is_free(monkeypatch):
    """Small fits end by their effort, too."""
    monkeypatch.setattr(working_set, "LEAST_WORK", 1.0)


def rough(n=1500):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(4 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def rounds_of(model, X, y):
    """The rounds before the last fit, and the reason of the end."""
    model.fit(X, y)
    return [line for line in model.history_ if line["kind"] == "round"], model.history_[-1]


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
@pytest.mark.usefixtures("no_work_is_free")
def test_a_run_ends_after_the_second_slow_round_in_a_row(classes):
    """The criterion, from the evidence and the columns of the history alone: true at the end, and never before it."""
    X, y = rough()
    make, y = (RVMClassifier, y > 0) if classes else (RVMRegressor, y)
    options = {"gamma": 2.0, "partition_size": PARTITION, "random_state": 0, "effort": "quick"}
    rounds, _ = rounds_of(make(**options), X, y)
    work, highest, kept, slow = 1.0, -np.inf, 0, []
    for line in rounds:
        columns, new = line["candidates"], line["candidates"] - kept
        before, work = work, work + len(X) * (2 * (columns - new) * new + new**2) + 16 * columns**3
        gain = (line["log_evidence"] - highest) / len(X)
        unit = -highest / len(X) if classes else 1.0
        slow.append(gain < 0.2 * unit * log2(work / before))
        highest, kept = max(highest, line["log_evidence"]), line["vectors"]
    pairs = [a and b for a, b in pairwise(slow)]
    assert pairs[-1]
    assert not any(pairs[:-1])
