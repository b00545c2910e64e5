"""Cross-validation of the log loss on the training rows, with the same folds for all methods."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.classification.data import DATASETS, Split
from benchmarks.classification.methods import Method, Parameters, method_of
from benchmarks.classification.scores import aligned, scores

FOLDS = 5

ROWS = 1000
"""Maximum number of training rows used; more rows are reduced to a random sample."""


def few(split: Split, number: int) -> Split:
    """Return the rows for cross-validation, which all methods share."""
    rows = np.random.default_rng(number).permutation(len(split.y))[:ROWS]
    return split.part(rows, rows[:0])


def log_loss_of(method: Method, parameters: Parameters, split: Split, number: int) -> float:
    """Return the mean log loss over the held-out rows of all folds; infinite if a fit fails."""
    from sklearn.model_selection import StratifiedKFold

    total = 0.0
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=number).split(
        split.X, split.y
    ):
        part = split.part(train, test).standardised()
        try:
            fitted = method.make({**parameters, **method.quick}, number).fit(part.X, part.y)
            probabilities = fitted.predict_proba(part.X_test)
            probabilities = aligned(probabilities, fitted.classes_, split.n_classes)
            total += len(test) * scores(probabilities, part.y_test)["log_loss"]
        except (ArithmeticError, AttributeError, ValueError):
            # After a failure fastrvm has no fitted attributes, and other methods raise. Such a
            # width is not chosen.
            return math.inf
    return total / len(split.y)


def tune(folder: str, name: str, method_name: str, splits: int, seconds: float) -> dict[str, Any]:
    """Choose parameters for each split, within the time limit. The first split is always
    included."""
    method = method_of(method_name)
    dataset = DATASETS[name]
    chosen = []
    began = time.perf_counter()
    for number in range(splits):
        spent = time.perf_counter() - began
        if number and spent * (number + 1) / number > seconds:
            break
        split = few(dataset.split(folder, number), number)
        grid = method.grid(split.X.shape[1])
        with warnings.catch_warnings():
            # Warnings of unconverged fits, constant features and duplicate rows are expected for
            # all methods.
            warnings.simplefilter("ignore")
            losses = (
                [log_loss_of(method, parameters, split, number) for parameters in grid]
                if grid[1:]
                else [None]
            )
        best = losses.index(min(losses)) if grid[1:] else 0
        chosen.append({"parameters": grid[best], "log_loss": losses[best], "losses": losses})
    return {"chosen": chosen}
