"""RVM_TMB, KRVM_TMB, PFCVM_TMB and the main path on the same splits, as in Tables 1–6.

Rows are split 70/30 at random; banana and the waveforms have 400 training rows. Errors are the mean
squared error of a regression in the target's units, and the share of wrong labels of classes. A
feature counts as used if its γ is above 0.01 of standardised features; the main path learns a
kernel by default, and its features are those of its model.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure
from benchmarks.datasets import read
from benchmarks.learning.waveform import draw
from benchmarks.tmb.stored import Row, fits
from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import PartirvmWarning
from partirvm.literature.tmb import TMBClassifier, TMBRegressor

Float = NDArray[np.float64]

REGRESSIONS = ("boston", "auto")
CLASSES = ("pima_ripley", "banana", "waveform")
METHODS = ("rvm", "krvm", "pfcvm", "main path")

CHOSEN = 0.01
"""γ above which a standardised feature counts as used."""

COLUMNS = {
    "data": "", "method": "", "splits": "d", "error": ".4f", "se": ".4f", "vectors": ".1f", "features": ".1f",
    "seconds": ".2f",
}  # fmt: skip


def split(folder: str, name: str, seed: int) -> tuple[Float, Any, Float, Any]:
    """Return training inputs and targets, and those of the test."""
    if name == "waveform":
        return *draw(400, seed), *draw(2000, 10_000 + seed)
    X, y = read(folder, name)
    order = np.random.default_rng(seed).permutation(len(y))
    size = 400 if name == "banana" else int(0.7 * len(y))
    return X[order[:size]], y[order[:size]], X[order[size:]], y[order[size:]]


def estimator(name: str, method: str) -> Any:
    """Return the estimator of a method for a set."""
    if method == "main path":
        return (RVMRegressor if name in REGRESSIONS else RVMClassifier)(random_state=0)
    return (TMBRegressor if name in REGRESSIONS else TMBClassifier)(method)


def fit(folder: str, name: str, method: str, seed: int) -> Row:
    """Fit one split; return error, vectors, features and processor seconds."""
    X, y, X_test, y_test = split(folder, name, seed)
    model = estimator(name, method)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)
        model.fit(X, y)
        seconds = time.process_time() - began
        predicted = model.predict(X_test)
    wrong = (predicted - y_test) ** 2 if name in REGRESSIONS else predicted != y_test
    if method == "main path":
        relevance = model.feature_relevance_
        features = None if relevance is None else int((relevance > 1e-3).sum())
    else:
        features = int((model.gamma_ > CHOSEN).sum())
    return {
        "error": float(np.mean(wrong)),
        "vectors": model.n_relevance_vectors_,
        "features": features,
        "seconds": seconds,
    }


def row(name: str, method: str, splits: list[Row]) -> Row:
    """Return the table row of a set and a method: means, and the standard error of the error."""
    errors = np.array([one["error"] for one in splits])
    features = [one["features"] for one in splits if one["features"] is not None]
    return {
        "data": name,
        "method": method,
        "splits": len(splits),
        "error": float(errors.mean()),
        "se": float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else None,
        "vectors": float(np.mean([one["vectors"] for one in splits])),
        "features": float(np.mean(features)) if features else None,
        "seconds": float(np.mean([one["seconds"] for one in splits])),
    }


def run(options: Any) -> None:
    """Fit the splits, and write the table."""
    names = (*REGRESSIONS, *CLASSES)
    cases = [
        (name, method, seed)
        for seed in range(options.splits)
        for name in names
        for method in METHODS
    ]
    rows = fits(
        Path(options.output, "tmb-sets-fits.json"),
        cases,
        lambda name, method, seed: fit(options.data, name, method, seed),
        options.minutes,
    )
    table = []
    for name in names:
        for method in METHODS:
            splits = [one for one in rows if one["case"][:2] == [name, method]]
            if splits:
                table.append(row(name, method, splits))
    measure.write(options.output, "tmb_sets", table, COLUMNS)
