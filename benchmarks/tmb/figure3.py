"""Figure 3: the boundary f = 0 of two features, and the zero contours of the 95 % limits of f.

The paper has Pressure and Insulin of the Diabetes set. Ripley's 532 rows of the Pima Indians (npreg,
glu, bp, skin, bmi, ped, age) have no Insulin: glucose stands for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, sheets
from benchmarks.datasets import read
from partirvm.literature.tmb import TMBClassifier

FEATURES = (1, 2)
"""Columns of glucose and blood pressure."""

COLUMNS = {
    "system": "", "vectors": "d", "test error": ".3f", "grid above": ".3f", "grid undecided": ".3f",
    "undecided, weights alone": ".3f",
}  # fmt: skip


def run(options: Any) -> None:
    """Fit, and write the table and the picture."""
    X, y = read(options.data, "pima_ripley")
    X = X[:, FEATURES]
    order = np.random.default_rng(0).permutation(len(y))
    train = order[: int(0.7 * len(y))]
    test = order[int(0.7 * len(y)) :]
    model = TMBClassifier("rvm").fit(X[train], y[train])
    low, high = X.min(axis=0), X.max(axis=0)
    across, up = np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120))
    grid = np.column_stack([across.ravel(), up.ravel()])
    limits = model.decision_interval(grid)
    alone = model.decision_interval(grid, hyperparameters=False)
    row = {
        "system": "rvm",
        "vectors": model.n_relevance_vectors_,
        "test error": 1 - model.score(X[test], y[test]),
        "grid above": float((limits[:, 0] > 0).mean()),
        "grid undecided": float((limits[:, 0] * limits[:, 1] < 0).mean()),
        "undecided, weights alone": float((alone[:, 0] * alone[:, 1] < 0).mean()),
    }
    measure.write(options.output, "tmb_figure3", [row], COLUMNS)
    figure, (axis,) = sheets.sheet(1, "Pima Indians: boundary, and its 95 % limits", panel=(6, 4.5))
    for label, color in zip(model.classes_, ("#3b6ea8", "#c8553d"), strict=True):
        rows = train[y[train] == label]
        axis.plot(*X[rows].T, ".", color=color, ms=4)
    levels = (model.decision_function(grid), *limits.T)
    for values, style in zip(levels, ("solid", "dashed", "dashed"), strict=True):
        axis.contour(
            across, up, values.reshape(across.shape), [0.0], colors=sheets.INK, linestyles=style
        )
    axis.plot(*model.relevance_vectors_.T, "o", ms=9, mfc="none", mec=sheets.INK)
    axis.set(xlabel="glucose", ylabel="blood pressure")
    sheets.save(figure, Path(options.output, "tmb_figure3.png"))
