"""Kernel learning with many features: fewer rows and centres, stated by the plan."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.learning import folds, search


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@pytest.mark.parametrize(("kind", "classes"), [(RVMRegressor, 0), (RVMClassifier, 3)])
def test_all_learning_stays_within_a_bound(monkeypatch, kind, classes):
    """Three quarters of the work of one evaluation are too much: fewer rows, centres and evaluations, folds included.

    At most 14 searches (first, revival, growth, directions, and two in each of five folds), and the single widths.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20))
    y = 0.3 * X[:, 0] + rng.normal(size=200)
    share, spent = 16, []
    monkeypatch.setattr(search, "WORK", 200 * 20 * (50 if classes else 80) / share)
    real = search.evaluate

    def counted(sample, problem, design, *start):
        spent.append(sample.rows.n_rows * len(design.labels))
        return real(sample, problem, design, *start)

    monkeypatch.setattr(search, "evaluate", counted)
    monkeypatch.setattr(folds, "evaluate", counted)
    found = kind(random_state=0, max_rounds=1).fit(X, np.digitize(y, [-0.5, 0.5][: classes - 1]) if classes else y)
    assert any("because of 20 features" in note for note in found.plan_.notes)
    single = 5 * 14
    assert len(spent) <= 14 * 150 / share**0.5 + single
    assert sum(spent) * 20 <= (14 * 150 / share**0.5 + single) * search.WORK
