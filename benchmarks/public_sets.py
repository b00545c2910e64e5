"""Default fits and fits with boosted trees on all public sets of a folder, beside boosting.

``python -m benchmarks.public_sets --data DIR --lines FILE --table FILE``. Each set is fitted to random
rows, at most 2,000 and 80 %, and judged on at most 4,000 others; sets with more than 60,000 rows are
first reduced to 40,000 random ones. Numbers are judged by the root mean square error (RMSE) in
standard deviations of the training targets, and by the negative log density (NLPD), the continuous
ranked probability score (CRPS, Gneiting & Raftery 2007) and the coverage of 95 % intervals; classes
by the log loss, the accuracy and the expected calibration error. The methods are the default fit,
``basis="auto"``, scikit-learn's HistGradientBoosting and, if they are installed, LightGBM and
CatBoost, with their defaults and one thread. Each result is a line of a file, whose means over splits
the table shows: RMSE or log loss, and in brackets NLPD or the calibration error, and CPU seconds.
"""

import argparse
import importlib
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from partirvm import RVMClassifier, RVMRegressor

Float = np.ndarray[Any, np.dtype[np.float64]]

CLASSES = (
    "banana",
    "cancer",
    "digits",
    "german",
    "iris",
    "magic",
    "pendigits",
    "phoneme",
    "pima_ripley",
    "ripley_synth",
    "satimage",
    "skin_nonskin",
    "spambase",
    "splice",
    "titanic",
    "wine",
)
"""Names of the sets of classes."""

OF_SKLEARN = {
    "cancer": "load_breast_cancer",
    "digits": "load_digits",
    "iris": "load_iris",
    "wine": "load_wine",
}
"""Functions of ``sklearn.datasets`` that load sets."""

OURS = ("default", "auto")
"""Names of this package's methods."""

PEERS = ("HGB", "LightGBM", "CatBoost")
"""Names of the other methods."""

LARGE = 60_000
"""Number of rows from which a set is reduced."""

REDUCED = 40_000
"""Number of rows of a reduced set."""

NEW_ROWS = 4000
"""Maximum number of rows that judge."""

SEED = 11


def load(folder: Path, name: str) -> tuple[Float, Any]:
    """Return the inputs (n, d) and targets (n,) of a set."""
    if name in OF_SKLEARN:
        datasets = importlib.import_module("sklearn.datasets")
        X, y = getattr(datasets, OF_SKLEARN[name])(return_X_y=True)
        return X, y
    with np.load(folder / f"{name}.npz", allow_pickle=True) as file:
        y = file["y"]
        X = file["X"].reshape(len(y), -1)
    if len(y) > LARGE:
        rows = np.random.default_rng(5).permutation(len(y))[:REDUCED]
        return X[rows], y[rows]
    return X, y


def boosting(method: str, *, classifies: bool) -> Any:
    """Return an estimator of another library."""
    kind = "Classifier" if classifies else "Regressor"
    if method == "HGB":
        module = importlib.import_module("sklearn.ensemble")
        return getattr(module, f"HistGradientBoosting{kind}")(random_state=0)
    if method == "LightGBM":
        module = importlib.import_module("lightgbm")
        return getattr(module, f"LGBM{kind}")(random_state=0, n_jobs=1, verbose=-1)
    module = importlib.import_module("catboost")
    options = {"random_seed": 0, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    return getattr(module, f"CatBoost{kind}")(**options)


def methods(*, classifies: bool) -> dict[str, Callable[[], Any]]:
    """Return constructors of all estimators, by name."""
    ours = RVMClassifier if classifies else RVMRegressor
    known: dict[str, Callable[[], Any]] = {
        "default": lambda: ours(random_state=0),
        "auto": lambda: ours(random_state=0, basis="auto"),
    }
    return known | {name: partial(boosting, name, classifies=classifies) for name in PEERS}


def figures_of_numbers(model: Any, X: Float, y: Float, scale: float) -> dict[str, float]:
    """Return the figures of a regression.

    Args:
        model: the fitted estimator
        X: new inputs (n, d)
        y: their targets (n,)
        scale: standard deviation of the training targets
    """
    if not isinstance(model, RVMRegressor):
        return {"rmse": float(np.sqrt(np.mean((y - model.predict(X)) ** 2))) / scale}
    mean, std = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X, 0.95)
    z = (y - mean) / std
    density = norm.pdf(z)
    crps = std * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))) / scale,
        "nlpd": float(np.mean(np.log(std / scale) - norm.logpdf(z))),
        "crps": float(crps.mean()) / scale,
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
    }


def figures_of_classes(model: Any, X: Float, y: Any) -> dict[str, float]:
    """Return the figures of a classification at new inputs X (n, d) with classes (n,)."""
    probabilities = np.asarray(model.predict_proba(X))
    codes = np.searchsorted(model.classes_, y)
    of_class = probabilities[np.arange(len(codes)), codes]
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == codes
    bins = np.minimum((10 * confidence).astype(int), 9)
    gaps = [abs(np.sum((confidence - is_right)[bins == number])) for number in range(10)]
    return {
        "log_loss": float(-np.log(np.maximum(of_class, 1e-15)).mean()),
        "accuracy": float(is_right.mean()),
        "ece": float(sum(gaps)) / len(codes),
    }


def judged(folder: Path, name: str, split: int, n_rows: int, method: str) -> dict[str, Any]:
    """Fit a method to a split of a set, and return its figures and CPU seconds.

    Args:
        folder: folder of the sets
        name: name of the set
        split: number of the split
        n_rows: maximum number of training rows
        method: name of the method
    """
    X, y = load(folder, name)
    order = np.random.default_rng([SEED, split]).permutation(len(y))
    n_rows = min(n_rows, int(0.8 * len(y)))
    known = order[:n_rows]
    new = order[n_rows : n_rows + NEW_ROWS]
    classifies = name in CLASSES
    began = time.process_time()
    model = methods(classifies=classifies)[method]().fit(X[known], y[known])
    seconds = time.process_time() - began
    if classifies:
        figures = figures_of_classes(model, X[new], y[new])
    else:
        figures = figures_of_numbers(model, X[new], y[new], float(y[known].std()))
    case = {"set": name, "split": split, "rows": n_rows, "method": method}
    return {**case, "seconds": seconds, **figures}


def names_of_sets(folder: Path) -> list[str]:
    """Return the names of all sets: those of a folder, and those of scikit-learn."""
    return sorted({path.stem for path in folder.glob("*.npz")} | OF_SKLEARN.keys())


def error_of(line: dict[str, Any]) -> float:
    """Return the figure by which methods are ranked."""
    return float(line["log_loss"] if "log_loss" in line else line["rmse"])


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table of means over splits, and the ranks."""
    by_case: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        by_case[line["set"], line["method"]].append(line)
    names = [name for name in (*OURS, *PEERS) if any(method == name for _, method in by_case)]
    yield f"| set | splits | {' | '.join(names)} |"
    yield "|---" * (len(names) + 2) + "|"
    for name in sorted({name for name, _ in by_case}):
        cells = [cell(by_case[name, method]) for method in names]
        splits = len({line["split"] for line in lines if line["set"] == name})
        yield f"| {name} | {splits} | {' | '.join(cells)} |"
    yield ""
    yield from ranks(lines)


def cell(lines: list[dict[str, Any]]) -> str:
    """Return the means of a method's figures on the splits of a set."""
    if not lines:
        return ""
    second = "ece" if "ece" in lines[0] else "nlpd"
    text = f"{np.mean([error_of(line) for line in lines]):.3f}"
    if second in lines[0] and lines[0]["method"] in OURS:
        text += f" ({np.mean([line[second] for line in lines]):.2f})"
    return f"{text}, {np.mean([line['seconds'] for line in lines]):.1f} s"


def ranks(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the mean ranks of this package's methods, each beside the three others alone."""
    by_split: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for line in lines:
        by_split[line["set"], line["split"]][line["method"]] = error_of(line)
    for method in OURS:
        for words, is_kind in (("RMSE", False), ("log loss", True)):
            places = [
                1 + sum(errors[peer] < errors[method] for peer in PEERS)
                for (name, _), errors in by_split.items()
                if (name in CLASSES) == is_kind and {method, *PEERS} <= errors.keys()
            ]
            if places:
                first = places.count(1)
                yield (
                    f"- `{method}` in {words}: mean rank {np.mean(places):.2f} of four, first on "
                    f"{first} of {len(places)} splits of sets"
                )


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--sets", nargs="*", help="names of sets; by default all")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=[*OURS, *PEERS])
    parser.add_argument("--lines", type=Path, required=True, help="file to which lines are added")
    parser.add_argument("--table", type=Path, help="file for the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    if options.lines.exists():
        lines = [json.loads(text) for text in options.lines.read_text().splitlines()]
    done = {(line["set"], line["split"], line["method"]) for line in lines}
    sets = names_of_sets(options.data) if options.sets is None else options.sets
    for split in options.splits:
        for name in sets:
            for method in options.methods:
                if (name, split, method) in done:
                    continue
                lines.append(judged(options.data, name, split, options.rows, method))
                text = json.dumps(lines[-1])
                print(text, flush=True)
                with options.lines.open("a") as file:
                    file.write(f"{text}\n")
    text = "\n".join(table(lines))
    print(text)
    if options.table is not None:
        options.table.write_text(f"# Public sets (`benchmarks.public_sets`)\n\n{__doc__}\n{text}\n")


if __name__ == "__main__":
    main()
