"""Methods to choose a kernel's width, compared on the same splits: errors, vectors, seconds.

auto, learn, learn-per-feature      the default fit with that ``gamma``
scale, 2^-3 … 2^3                   the default fit with gamma "scale", or with this multiple of "scale"
cv                                  cross-validation of default fits over 2^-3 … 2^3, then a fit with the best width;
                                    10 folds for up to ``MANY`` training rows, 5 for more; squared error (regression) or
                                    log loss (classification)

"Best width" is the width of 2^-3 … 2^3 with the lowest mean error on the *test* rows: a lower bound for any method that
chooses one width per set. Cross-validation takes most of the time. It may be run on fewer splits, and is compared only
on these splits. Seconds are CPU seconds of choosing or learning and of the fit together, and depend little on other
load. Each fit is stored in a separate file.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Split
from benchmarks.learning.data import DATASETS, Dataset
from benchmarks.measure import say, table
from partirvm import RVMClassifier, RVMRegressor

POWERS = range(-3, 4)
"""The binary logarithms of gamma/scale in the grid. The scale is 1/d, because inputs are standardised."""

WIDTHS = tuple(f"2^{power}" for power in POWERS if power)

METHODS = ("scale", "learn", "learn-per-feature", "auto")

FOLDS, FEWER_FOLDS, MANY = 10, 5, 800

Fit = dict[str, Any]


def score(split: Split, gamma: Any, seed: int, classes: bool) -> tuple[Fit, Any]:
    """Run a default fit with this gamma; return errors on the test rows, further results, and the model."""
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
    """Return the mean squared error or log loss over the held-out rows of all folds.

    The rows are already in random order.
    """
    folds = FOLDS if len(split.y) <= MANY else FEWER_FOLDS
    fold = np.arange(len(split.y)) % folds
    if classes:  # every fold contains all classes in equal fractions
        fold[np.argsort(split.y, kind="stable")] = np.arange(len(split.y)) % folds
    total = 0.0
    for number in range(folds):
        out = fold == number
        part = Split(split.name, split.X[~out], split.y[~out], split.X[out], split.y[out])
        total += score(part, gamma, seed, classes)[0]["log_loss" if classes else "mse"] * out.sum()
    return total / len(split.y)


def chosen_width(split: Split, seed: int, classes: bool) -> float:
    """Return the width with the minimum cross-validated error."""
    widths = [2.0**power / split.X.shape[1] for power in POWERS]
    return widths[int(np.argmin([cross_validate(split, gamma, seed, classes) for gamma in widths]))]


def fit(dataset: Dataset, folder: str, number: int, method: str) -> Fit:
    """Run one method on one split."""
    split = dataset.split(folder, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of unconverged fits and duplicate rows concern all methods
        began = time.process_time()
        gamma: Any = method
        if method == "cv":
            gamma = chosen_width(split, number, dataset.classes)
        elif method in WIDTHS:
            gamma = 2.0 ** int(method.removeprefix("2^")) / split.X.shape[1]
        found, model = score(split, gamma, number, dataset.classes)
        found["seconds"] = time.process_time() - began
    learned = [entry for entry in model.history_ if entry["kind"] == "kernel"]
    found["evaluations"] = sum(entry["iterations"] for entry in learned)
    found["gamma"] = np.atleast_1d(model.gamma_).tolist()
    found["text"] = [entry["text"] for entry in learned]
    return found


def run(names: list[str], methods: Iterable[str], folder: str, output: Path, repeats: int | None) -> None:
    """Run the requested fits that are not stored yet: the first split of every set, then the second, and so on."""
    for number in range(repeats or max(DATASETS[name].repeats for name in names)):
        for name in names:
            for method in methods if number < (repeats or DATASETS[name].repeats) else ():
                path = output / name / method / f"{number}.json"
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    found = fit(DATASETS[name], folder, number, method)
                    path.write_text(json.dumps(found))
                    error = found["log_loss"] if "log_loss" in found else found["mse"] ** 0.5
                    say(f"{name}, split {number}, {method}: {error:.4g}, {found['seconds']:.1f} s")


@dataclass(frozen=True)
class Results:
    """The stored results of a set: for each method an array of each quantity, over splits that all methods except cv
    have done.

    ``compared`` contains the positions of the splits that cv has also done.
    """

    name: str
    values: dict[str, dict[str, NDArray[np.float64]]]
    compared: list[int]

    def mean(self, method: str, key: str) -> float:
        """Return the mean over the splits. For cv, and for auto in ``auto÷cv``, only splits of cv count."""
        return float(self.values[method][key].mean())

    def best_width(self, key: str) -> float:
        """Return the lowest mean of any single width."""
        return min(self.mean(method, key) for method in ("scale", *WIDTHS))

    def ratio(self, key: str) -> str:
        """Return the ratio of the means of auto and cv, with the standard error of the mean difference."""
        if not self.compared:
            return ""
        auto, other = self.values["auto"][key][self.compared], self.values["cv"][key]
        gap, count = (auto - other) / other.mean(), len(other)
        spread = f" ± {gap.std(ddof=1) / count**0.5:.3f}" if count > 1 else ""
        return f"{1 + gap.mean():.3f}{spread} ({count})"


QUANTITIES = ("rmse", "nlpd", "log_loss", "error", "vectors", "seconds")


def kept(output: Path, name: str) -> Results | None:
    """Read the stored results of a set; None if no split is complete."""
    methods = (*METHODS, *WIDTHS)
    numbers = set.intersection(*({path.name for path in (output / name / m).glob("*.json")} for m in methods))
    if not numbers:
        return None
    there = sorted(numbers)
    tried = [number for number in there if (output / name / "cv" / number).exists()]

    def read(method: str, chosen: list[str]) -> dict[str, NDArray[np.float64]]:
        fits = [json.loads((output / name / method / number).read_text()) for number in chosen]
        fits = [one | ({"rmse": one["mse"] ** 0.5} if "mse" in one else {}) for one in fits]
        return {key: np.array([one[key] for one in fits]) for key in QUANTITIES if fits and key in fits[0]}

    values = {method: read(method, there) for method in methods} | {"cv": read("cv", tried)}
    return Results(name, values, [there.index(number) for number in tried])


def errors(results: list[Results], key: str) -> str:
    """Return a Markdown table of an error: means over splits, and ratios."""
    rows = []
    for one in results:
        row: dict[str, Any] = {"data": one.name, "splits": len(one.values["auto"][key])}
        row |= {method: f"{one.mean(method, key):.4g}" for method in METHODS}
        row["best width"] = f"{one.best_width(key):.4g}"
        if key != "nlpd":
            row["auto ÷ best"] = f"{one.mean('auto', key) / one.best_width(key):.3f}"
            row["auto ÷ cv (splits)"] = one.ratio(key)
        rows.append(row)
    return table(rows, dict.fromkeys(rows[0], ""))


def costs(results: list[Results]) -> str:
    """Return a Markdown table of vectors and seconds."""
    rows = []
    for one in results:
        row: dict[str, Any] = {"data": one.name}
        row |= {f"vectors, {method}": f"{one.mean(method, 'vectors'):.0f}" for method in METHODS}
        row |= {f"s, {method}": f"{one.mean(method, 'seconds'):.2f}" for method in METHODS}
        if one.compared:
            row["vectors, cv"] = f"{one.mean('cv', 'vectors'):.0f}"
            row["s, cv"] = f"{one.mean('cv', 'seconds'):.1f}"
            auto = one.values["auto"]["seconds"][one.compared].mean()
            row["s, cv ÷ auto"] = f"{one.mean('cv', 'seconds') / auto:.1f}"
        rows.append(row)
    return table(rows, dict.fromkeys(max(rows, key=len), ""))


ERRORS = {"RMSE": "rmse", "NLPD, target's sd 1": "nlpd", "Log loss": "log_loss", "Error": "error"}


def main(names: list[str], folder: str, output: Path, repeats: int | None) -> None:
    """Run the missing fits, and write the tables of all results into OUTPUT/forms.md."""
    output = output / "forms"
    output.mkdir(parents=True, exist_ok=True)
    run(names, (*METHODS, *WIDTHS, "cv"), folder, output, repeats)
    results = [one for one in (kept(output, name) for name in names) if one is not None]
    parts = []
    for title, key in ERRORS.items():
        chosen = [one for one in results if key in one.values["auto"]]
        if chosen:
            parts.append(f"## {title}\n\n{errors(chosen, key)}")
    text = "\n\n".join([*parts, f"## Vectors and seconds\n\n{costs(results)}"])
    (output / "forms.md").write_text(text + "\n")
    print(text)
