"""Ways to a kernel's width, side by side on the same splits: errors, vectors, evaluations, seconds.

cv                   one width, by k-fold cross-validation of default fits over gamma = 2^p·scale, then a fit with it:
                     10 folds of up to ``MANY`` training rows, 5 of more; the squared error, of classes the log loss
scale, learn, …      the default fit with that ``gamma``

Seconds are the processor's, of choosing or learning and of the fit together: a busy machine does not change them much.
Each fit stays in a file of its own.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import Split
from benchmarks.learning.data import DATASETS, Dataset
from benchmarks.measure import say, table
from partirvm import RVMClassifier, RVMRegressor

METHODS = ("cv", "scale", "learn", "learn-per-feature", "auto")

POWERS = range(-3, 4)
"""Binary logarithms of gamma/scale that cross-validation tries; scale is 1/d, as inputs are standardised."""

FOLDS, FEWER_FOLDS, MANY = 10, 5, 800

Fit = dict[str, Any]


def score(split: Split, gamma: Any, seed: int, classes: bool) -> tuple[Fit, Any]:
    """Errors on the test rows and what else is quoted, of a default fit with this gamma; the model."""
    model = (RVMClassifier if classes else RVMRegressor)(gamma=gamma, random_state=seed).fit(split.X, split.y)
    found: Fit = {"vectors": int(model.n_relevance_vectors_)}
    if classes:
        p = model.predict_proba(split.X_test)
        right = p[np.arange(len(p)), np.searchsorted(model.classes_, split.y_test)]
        found["error"] = float(np.mean(model.classes_[p.argmax(axis=1)] != split.y_test))
        found["log_loss"] = float(-np.log(np.maximum(right, 1e-15)).mean())
        return found, model
    mean, sd = model.predict(split.X_test, return_std=True)
    squares = (split.y_test - mean) ** 2
    nlpd = 0.5 * np.log(2 * np.pi * sd**2) + 0.5 * squares / sd**2 - np.log(split.deviation)
    return found | {"mse": float(squares.mean()), "nlpd": float(nlpd.mean())}, model


def cross_validate(split: Split, gamma: float, seed: int, classes: bool) -> float:
    """Mean squared error, or log loss, over the folds' held-out rows. Rows are in random order already."""
    folds = FOLDS if len(split.y) <= MANY else FEWER_FOLDS
    fold = np.arange(len(split.y)) % folds
    if classes:  # each fold has its share of every class
        fold[np.argsort(split.y, kind="stable")] = np.arange(len(split.y)) % folds
    total = 0.0
    for number in range(folds):
        out = fold == number
        part = Split(split.name, split.X[~out], split.y[~out], split.X[out], split.y[out])
        total += score(part, gamma, seed, classes)[0]["log_loss" if classes else "mse"] * out.sum()
    return total / len(split.y)


def chosen_width(split: Split, seed: int, classes: bool) -> float:
    """The width of least cross-validated error."""
    widths = [2.0**power / split.X.shape[1] for power in POWERS]
    return widths[int(np.argmin([cross_validate(split, gamma, seed, classes) for gamma in widths]))]


def fit(dataset: Dataset, folder: str, number: int, method: str) -> Fit:
    """One method on one split."""
    split = dataset.split(folder, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unconverged fits at unfit widths, duplicate rows: the same for all
        began = time.process_time()
        gamma = chosen_width(split, number, dataset.classes) if method == "cv" else method
        found, model = score(split, gamma, number, dataset.classes)
        found["seconds"] = time.process_time() - began
    learned = [entry for entry in model.history_ if entry["kind"] == "kernel"]
    found["evaluations"] = sum(entry["iterations"] for entry in learned)
    found["gamma"] = gamma if method == "cv" else np.atleast_1d(model.gamma_).tolist()
    found["text"] = [entry["text"] for entry in learned]
    return found


def run(names: list[str], methods: list[str], folder: str, output: Path, repeats: int | None) -> None:
    """The fits that are asked for and not there yet: the first split of every set, then the second, and so on."""
    most = repeats or max(DATASETS[name].repeats for name in names)
    for number in range(most):
        for name in names:
            if number >= (repeats or DATASETS[name].repeats):
                continue
            for method in methods:
                path = output / name / method / f"{number}.json"
                if path.exists():
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                found = fit(DATASETS[name], folder, number, method)
                path.write_text(json.dumps(found))
                say(f"{name}, split {number}, {_brief(found, method)}")


def _brief(found: Fit, method: str) -> str:
    error = found["log_loss"] if "log_loss" in found else found["mse"] ** 0.5
    return f"{method} {error:.4g} ({found['vectors']}, {found['seconds']:.1f} s)"


def kept(output: Path, names: list[str]) -> dict[tuple[str, str], list[Fit]]:
    """The fits that are there by set and method: of those splits that every method of ``METHODS`` has done."""
    found = {}
    for name in names:
        places = [output / name / method for method in METHODS]
        numbers = set.intersection(*({path.name for path in place.glob("*.json")} for place in places))
        for method, place in zip(METHODS, places, strict=True):
            if numbers:
                found[name, method] = [json.loads((place / number).read_text()) for number in sorted(numbers)]
    return found


def _mean(fits: list[Fit], key: str) -> float:
    return float(np.mean([one[key] for one in fits]))


def tables(fits: dict[tuple[str, str], list[Fit]]) -> list[tuple[str, str]]:
    """A heading and a Markdown table each: errors as ratios to cross-validation's, vectors, seconds."""
    names = list(dict.fromkeys(name for name, _ in fits))
    sections = []
    for title, keys in {
        "Numbers: RMSE": ("mse",), "Numbers: mean NLPD, less log sd": ("nlpd",),
        "Classes: log loss": ("log_loss",), "Classes: error %": ("error",),
    }.items():  # fmt: skip
        chosen = [name for name in names if keys[0] in fits[name, METHODS[0]][0]]
        if chosen:
            sections.append((title, table([_errors(fits, name, keys[0]) for name in chosen], _columns())))
    for title, key in {"Vectors": "vectors", "Seconds of the processor": "seconds"}.items():
        rows = [{"data": name} | {m: f"{_mean(fits[name, m], key):.3g}" for m in METHODS} for name in names]
        if key == "seconds":
            rows = [row | {"cv ÷ auto": f"{float(row['cv']) / float(row['auto']):.1f}"} for row in rows]
        sections.append((title, table(rows, dict.fromkeys(rows[0], ""))))
    return sections


def _columns() -> dict[str, str]:
    return dict.fromkeys(("data", "splits", *METHODS, "auto ÷ cv"), "")


def _errors(fits: dict[tuple[str, str], list[Fit]], name: str, key: str) -> dict[str, Any]:
    """Means over splits; the ratio of auto to cv, with the standard error of the mean difference, is of the means."""
    row: dict[str, Any] = {"data": name, "splits": len(fits[name, "cv"])}
    values = {method: np.array([one[key] for one in fits[name, method]]) for method in METHODS}
    if key == "mse":
        values = {method: np.sqrt(value) for method, value in values.items()}
    factor = 100 if key == "error" else 1
    row |= {method: f"{factor * value.mean():.4g}" for method, value in values.items()}
    gap = values["auto"] - values["cv"]
    if key == "nlpd":
        return row | {"auto ÷ cv": f"{gap.mean():+.3f}"}
    spread = f" ± {gap.std(ddof=1) / len(gap) ** 0.5 / values['cv'].mean():.3f}" if len(gap) > 1 else ""
    return row | {"auto ÷ cv": f"{values['auto'].mean() / values['cv'].mean():.3f}{spread}"}


def report(output: Path, names: list[str]) -> None:
    """Write the tables of what is there into OUTPUT/forms.md, and print them."""
    fits = kept(output, names)
    text = "\n\n".join(f"## {title}\n\n{lines}" for title, lines in tables(fits)) if fits else "no split is whole yet"
    (output / "forms.md").write_text(text + "\n")
    print(text)


def main(names: list[str], folder: str, output: Path, repeats: int | None, methods: list[str] | None = None) -> None:
    """Run what is missing and write the tables."""
    output = output / "forms"
    output.mkdir(parents=True, exist_ok=True)
    run(names, list(methods or METHODS), folder, output, repeats)
    report(output, names)
