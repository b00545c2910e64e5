"""Functions that trees see well: sums of parts, jumps, and a sum with one interaction, known exactly.

``python -m benchmarks.forms --help``. Each line is a function and a number of rows, with the root
mean square error to the true function (divided by its standard deviation) of each method: the
default fit, ``basis="trees"`` and ``basis="auto"``, scikit-learn's HistGradientBoosting and, if they
are installed, LightGBM and CatBoost, all with their defaults. The last column is the error of the
better of the default and the trees, divided by that of the best other method. ``--table FILE``
writes the table.
"""

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from partirvm import RVMRegressor

Float = np.ndarray[Any, np.dtype[np.float64]]

NOISE = 0.1
"""Standard deviation of the noise ÷ that of the function."""

NEW_ROWS = 2000

OURS = ("default", "trees", "auto")
"""Names of this package's methods."""

TARGET = 1.05
"""Largest ratio to the best other method that counts as equal."""

STEPS = (0.35, 0.6, 0.2, 0.75)
"""Thresholds of the jumps."""


def additive(X: Float) -> Float:
    """Return a sum of waves, one of each feature, with frequencies from 1 to 5."""
    frequencies = 1 + np.arange(X.shape[1]) % 5
    return np.asarray(np.sin(np.pi * frequencies * X + np.arange(X.shape[1])).sum(axis=1))


def steps(X: Float) -> Float:
    """Return a function of four features with jumps, two of which interact."""
    above = X[:, :4] > np.array(STEPS)
    return np.asarray(2.0 * above[:, 0] + above[:, 1] - 1.5 * (above[:, 2] & above[:, 3]))


def one_interaction(X: Float) -> Float:
    """Return a sum of waves and the product of two features."""
    return additive(X) + 4.0 * (X[:, 0] - 0.5) * (X[:, 1] - 0.5) * np.sqrt(X.shape[1])


FORMS: dict[str, tuple[int, Callable[[Float], Float]]] = {
    "additive, 6 features": (6, additive),
    "additive, 12 features": (12, additive),
    "additive, 20 features": (20, additive),
    "steps, 6 features": (6, steps),
    "additive and an interaction, 8 features": (8, one_interaction),
}
"""Number of features and function, by name; features are uniform between 0 and 1."""


@dataclass
class Line:
    """The errors of one function.

    Attributes:
        name: name of the function
        n_rows: number of training rows
        errors: error of each method, divided by the function's standard deviation
        seconds: CPU seconds of each fit
    """

    name: str
    n_rows: int
    errors: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The smaller error of the default and the trees ÷ that of the best other method."""
        own = min(error for name, error in self.errors.items() if name in OURS)
        return own / min(error for name, error in self.errors.items() if name not in OURS)


def methods() -> dict[str, Callable[[], Any]]:
    """Return constructors of the estimators that are installed, by name."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    known: dict[str, Callable[[], Any]] = {
        "default": lambda: RVMRegressor(random_state=0),
        "trees": lambda: RVMRegressor(random_state=0, basis="trees"),
        "auto": lambda: RVMRegressor(random_state=0, basis="auto"),
        "HGB": lambda: HistGradientBoostingRegressor(random_state=0),
    }
    others = {
        "LightGBM": ("lightgbm", "LGBMRegressor", {"n_jobs": 1, "verbose": -1}),
        "CatBoost": (
            "catboost",
            "CatBoostRegressor",
            {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
        ),
    }
    for name, (module, kind, options) in others.items():
        try:
            kinds = importlib.import_module(module)
        except ImportError:
            continue
        known[name] = lambda kinds=kinds, kind=kind, options=options: getattr(kinds, kind)(
            **options
        )
    return known


def compared(name: str, n_rows: int, chosen: list[str], seed: int = 0) -> Line:
    """Fit each chosen method to a function.

    Args:
        name: name of the function
        n_rows: number of training rows
        chosen: names of the methods
        seed: seed of the rows and the noise
    """
    d, function = FORMS[name]
    rng = np.random.default_rng([seed, n_rows])
    X = rng.uniform(size=(n_rows + NEW_ROWS, d))
    truth = function(X)
    scale = float(truth.std())
    y = truth[:n_rows] + NOISE * scale * rng.normal(size=n_rows)
    line = Line(name, n_rows)
    for method, construct in methods().items():
        if method not in chosen:
            continue
        began = time.process_time()
        predicted = construct().fit(X[:n_rows], y).predict(X[n_rows:])
        line.seconds[method] = time.process_time() - began
        error = np.sqrt(np.mean((predicted - truth[n_rows:]) ** 2))
        line.errors[method] = float(error) / scale
    return line


def table(lines: list[Line]) -> Iterator[str]:
    """Yield the lines of a Markdown table, and the share of ratios within ``TARGET``."""
    names = list(lines[0].errors)
    yield f"| function | rows | {' | '.join(names)} | ratio |"
    yield "|---" * (len(names) + 3) + "|"
    for line in lines:
        errors = " | ".join(
            f"{line.errors[name]:.3f} ({line.seconds[name]:.1f} s)" for name in names
        )
        yield f"| {line.name} | {line.n_rows:,} | {errors} | {line.ratio:.2f} |"
    close = sum(line.ratio <= TARGET for line in lines)
    yield ""
    yield f"{close} of {len(lines)} ratios are at most {TARGET}."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--forms", nargs="+", default=list(FORMS), help="names of functions")
    parser.add_argument("--methods", nargs="+", default=list(methods()), help="names of methods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="file for the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for n_rows in options.rows:
        for name in options.forms:
            lines.append(compared(name, n_rows, options.methods, options.seed))
            print(json.dumps({**vars(lines[-1]), "ratio": round(lines[-1].ratio, 3)}), flush=True)
    text = "\n".join(table(lines))
    print(text)
    if options.table is not None:
        options.table.write_text(f"# Made sets (`benchmarks.forms`)\n\n{__doc__}\n{text}\n")


if __name__ == "__main__":
    main()
