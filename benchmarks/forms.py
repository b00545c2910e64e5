"""Functions that trees see well: sums of parts, jumps, and sums with interactions, known exactly.

``python -m benchmarks.forms --help``. Each line is a function and a number of rows, with the root
mean square error to the true function (divided by its standard deviation) of each method: the
default fit, ``basis="trees"`` and ``basis="auto"``, scikit-learn's HistGradientBoosting and, if they
are installed, LightGBM, CatBoost, and sums of functions of features: InterpretML's
ExplainableBoostingRegressor (EBM, one process) and pyGAM's LinearGAM, whose smoothness is chosen by
its own grid search. All others have their defaults, except that EBM averages two bags, not 14,
which take seven times as long. The last column is the error of the first of this package's methods
(the default, unless it is left out), divided by that of the best other library. ``--lines FILE``
adds each result to a file, whose results ``--table FILE`` shows together.
"""

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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

MORE_STEPS = (0.35, 0.6, 0.2, 0.75, 0.5, 0.85, 0.45, 0.3)
"""Thresholds of the jumps of eight features."""

HEIGHTS = (2.0, 1.0, -1.5, 1.0, 0.8, -1.2, 0.6, 1.0)
"""Heights of the jumps of eight features."""


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


def more_steps(X: Float) -> Float:
    """Return a sum of jumps of eight features, the first two of which interact."""
    above = X[:, :8] > np.array(MORE_STEPS)
    return np.asarray(above @ np.array(HEIGHTS) + 2.0 * (above[:, 0] & above[:, 1]))


def periodic(X: Float) -> Float:
    """Return a sum of waves with two to seven periods, one of each feature."""
    periods = 2 + np.arange(X.shape[1])
    return np.asarray(np.sin(2 * np.pi * periods * X).sum(axis=1))


def waves_and_steps(X: Float) -> Float:
    """Return waves of the first four features and jumps of the next four."""
    above = X[:, 4:8] > np.array(STEPS)
    return np.asarray(additive(X[:, :4]) + above @ np.array(HEIGHTS[:4]))


def switched_waves(X: Float) -> Float:
    """Return one of two waves, of different features, by a threshold of a third feature."""
    first = np.sin(2 * np.pi * X[:, 1])
    second = np.cos(3 * np.pi * X[:, 2])
    return np.asarray(np.where(X[:, 0] > STEPS[0], first, second) + X[:, 3])


FORMS: dict[str, tuple[int, Callable[[Float], Float]]] = {
    "additive, 6 features": (6, additive),
    "additive, 12 features": (12, additive),
    "additive, 20 features": (20, additive),
    "steps, 6 features": (6, steps),
    "additive and an interaction, 8 features": (8, one_interaction),
    "steps and an interaction, 10 features": (10, more_steps),
    "periodic sum, 6 features": (6, periodic),
    "waves and steps, 8 features": (8, waves_and_steps),
    "switched waves, 6 features": (6, switched_waves),
}
"""Number of features and function, by name; features are uniform between 0 and 1."""


class Library(NamedTuple):
    """An estimator of another library, which need not be installed.

    Attributes:
        module: module that is imported
        estimator: name of the estimator
        options: its options; all others have their defaults
    """

    module: str
    estimator: str
    options: dict[str, Any]


LIBRARIES = {
    "LightGBM": Library("lightgbm", "LGBMRegressor", {"n_jobs": 1, "verbose": -1}),
    "CatBoost": Library(
        "catboost",
        "CatBoostRegressor",
        {"thread_count": 1, "verbose": 0, "allow_writing_files": False},
    ),
    "EBM": Library(
        "interpret.glassbox", "ExplainableBoostingRegressor", {"n_jobs": 1, "outer_bags": 2}
    ),
    "GAM": Library("pygam", "LinearGAM", {}),
}
"""Estimators of other libraries, by name."""


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
        """The error of the first method of this package ÷ that of the best other method; NaN if
        either is missing."""
        first = next((error for name, error in self.errors.items() if name in OURS), np.nan)
        others = [error for name, error in self.errors.items() if name not in OURS]
        return first / min(others, default=np.nan)


def methods() -> dict[str, Callable[[], Any]]:
    """Return constructors of the estimators that are installed, by name."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    known: dict[str, Callable[[], Any]] = {
        "default": lambda: RVMRegressor(random_state=0),
        "trees": lambda: RVMRegressor(random_state=0, basis="trees"),
        "auto": lambda: RVMRegressor(random_state=0, basis="auto"),
        "HGB": lambda: HistGradientBoostingRegressor(random_state=0),
    }
    for name, library in LIBRARIES.items():
        try:
            module = importlib.import_module(library.module)
        except ImportError:
            continue
        known[name] = partial(getattr(module, library.estimator), **library.options)
    return known


def fit(model: Any, X: Float, y: Float) -> Any:
    """Return the model, fitted to the rows; a LinearGAM chooses its smoothness by a grid search."""
    if hasattr(model, "gridsearch"):
        return model.gridsearch(X, y, progress=False)
    return model.fit(X, y)


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
        predicted = fit(construct(), X[:n_rows], y).predict(X[n_rows:])
        line.seconds[method] = time.process_time() - began
        error = np.sqrt(np.mean((predicted - truth[n_rows:]) ** 2))
        line.errors[method] = float(error) / scale
    return line


def merged(lines: Iterable[Line]) -> list[Line]:
    """Return one line for each function and number of rows, with the methods of all its lines."""
    by_case: dict[tuple[int, str], Line] = {}
    for line in lines:
        case = by_case.setdefault((line.n_rows, line.name), Line(line.name, line.n_rows))
        case.errors |= line.errors
        case.seconds |= line.seconds
    order = list(FORMS)
    return sorted(by_case.values(), key=lambda line: (line.n_rows, order.index(line.name)))


def table(lines: list[Line]) -> Iterator[str]:
    """Yield the lines of a Markdown table, and the share of ratios within ``TARGET``."""
    names = [
        name for name in (*OURS, "HGB", *LIBRARIES) if any(name in line.errors for line in lines)
    ]
    yield f"| function | rows | {' | '.join(names)} | ratio |"
    yield "|---" * (len(names) + 3) + "|"
    for line in lines:
        errors = [
            f"{line.errors[name]:.3f} ({line.seconds[name]:.1f} s)" if name in line.errors else ""
            for name in names
        ]
        yield f"| {line.name} | {line.n_rows:,} | {' | '.join(errors)} | {line.ratio:.2f} |"
    close = sum(line.ratio <= TARGET for line in lines)
    yield ""
    yield f"{close} of {len(lines)} ratios are at most {TARGET}."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[500, 2000])
    parser.add_argument("--forms", nargs="+", default=list(FORMS), help="names of functions")
    parser.add_argument("--methods", nargs="+", default=list(methods()), help="names of methods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--lines", type=Path, help="file to which each result is added; the table shows all of them"
    )
    parser.add_argument("--table", type=Path, help="file for the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    if options.lines is not None and options.lines.exists():
        stored = options.lines.read_text().splitlines()
        lines = [Line(**json.loads(text)) for text in stored]
    for n_rows in options.rows:
        for name in options.forms:
            lines.append(compared(name, n_rows, options.methods, options.seed))
            text = json.dumps(vars(lines[-1]))
            print(text, flush=True)
            if options.lines is not None:
                with options.lines.open("a") as file:
                    file.write(f"{text}\n")
    text = "\n".join(table(merged(lines)))
    print(text)
    if options.table is not None:
        options.table.write_text(f"# Made sets (`benchmarks.forms`)\n\n{__doc__}\n{text}\n")


if __name__ == "__main__":
    main()
