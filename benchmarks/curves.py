"""Test error against fit time, compared with other libraries' kernel methods and boosting.

    python -m benchmarks.curves --data DIR [--set NAME ...] [--method NAME ...] [--output FOLDER]

Each fit runs in its own process on all cores and is a whole fit: the choice of widths or penalties
counts towards its seconds. For this library, ``max_vectors`` varies and everything else has its
default. The others are

nystroem    ``Nystroem`` and ``BayesianRidge`` on all rows; the width of the kernel is chosen on 8,000 rows
svr         ``SVR`` on a random subset of the rows; width and C are chosen on 2,000 rows
svgp        a sparse Gaussian process with 500 inducing points and a width per feature (``benchmarks.regressors``)
boosting    ``HistGradientBoostingRegressor`` with early stopping

RMSE is for held-out rows, in units of the sd of the training target. All methods receive
standardised inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import regressors, sheets
from benchmarks.datasets import load
from benchmarks.measure import apart, command_line, say, write

Float = np.ndarray[Any, np.dtype[np.float64]]

SIZES: dict[str, tuple[int, ...]] = {
    "partirvm": (50, 100, 200, 400, 800, 1600),
    "nystroem": (100, 250, 500, 1000, 2000),
    "svr": (2_500, 5_000, 10_000),
    "svgp": (50, 150, 500, 1000),
    "boosting": (30, 100, 300, 1000),
}
"""Methods, and their sizes: vectors, components, rows, steps, trees."""

LARGE, MOST_COMPONENTS = 500_000, 500
"""From ``LARGE`` rows on, ``nystroem`` has at most ``MOST_COMPONENTS`` components: its features
must fit in memory."""

COLUMNS = {
    "data": "", "rows": ",", "method": "", "size": ",", "seconds": ".1f", "rmse": ".4f", "vectors": "",
}  # fmt: skip


def partirvm(X: Float, y: Float, size: int) -> Any:
    """Fit with at most ``size`` vectors."""
    from partirvm import RVMRegressor

    return RVMRegressor(max_vectors=size, random_state=0).fit(X, y)


def nystroem(X: Float, y: Float, size: int) -> Any:
    """Fit a Bayesian ridge of Nyström features."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.model_selection import GridSearchCV, ShuffleSplit
    from sklearn.pipeline import make_pipeline

    steps = make_pipeline(Nystroem(n_components=300, random_state=0), BayesianRidge())
    grid = {"nystroem__gamma": [factor / X.shape[1] for factor in (0.1, 0.3, 1.0, 3.0)]}
    some = np.random.default_rng(0).permutation(len(X))[:8_000]
    found = GridSearchCV(
        steps, grid, cv=ShuffleSplit(1, test_size=0.25, random_state=0), refit=False
    )
    found.fit(X[some], y[some])
    return steps.set_params(**found.best_params_, nystroem__n_components=size).fit(X, y)


def svr(X: Float, y: Float, size: int) -> Any:
    """Fit a support vector machine to ``size`` rows."""
    from sklearn.model_selection import GridSearchCV, ShuffleSplit
    from sklearn.svm import SVR

    grid = {
        "gamma": [factor / X.shape[1] for factor in (0.1, 0.3, 1.0, 3.0)],
        "C": [1.0, 10.0, 100.0],
    }
    order = np.random.default_rng(0).permutation(len(X))
    split = ShuffleSplit(1, test_size=0.25, random_state=0)
    found = GridSearchCV(SVR(epsilon=0.05, cache_size=1000), grid, cv=split, refit=False)
    found.fit(X[order[:2_000]], y[order[:2_000]])
    return SVR(epsilon=0.05, cache_size=1000, **found.best_params_).fit(
        X[order[:size]], y[order[:size]]
    )


def boosting(X: Float, y: Float, size: int) -> Any:
    """Fit at most ``size`` trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(max_iter=size, early_stopping=True, random_state=0).fit(
        X, y
    )


def svgp(X: Float, y: Float, size: int) -> Any:
    """Fit a sparse Gaussian process in this number of steps."""
    return regressors.svgp(X, y, steps=size)


METHODS: dict[str, Callable[[Float, Float, int], Any]] = {
    "partirvm": partirvm,
    "nystroem": nystroem,
    "svr": svr,
    "svgp": svgp,
    "boosting": boosting,
}


def measure(folder: str, name: str, method: str, size: int) -> dict[str, Any]:
    """Fit one method at one size, and return seconds and RMSE."""
    split = load(folder, name)
    shift = split.X.mean(axis=0)
    scale = split.X.std(axis=0)
    unit = split.deviation
    X = (split.X - shift) / scale
    y = (split.y - split.y.mean()) / unit
    new = (split.X_test - shift) / scale
    truth = (split.y_test - split.y.mean()) / unit
    began = time.perf_counter()
    model = METHODS[method](X, y, size)
    seconds = time.perf_counter() - began
    found = model.predict(new)
    vectors = getattr(model, "n_relevance_vectors_", None)
    if method == "svgp":
        found = found[0]
        vectors = None
    rmse = float(np.sqrt(np.mean((found - truth) ** 2)))
    return {"rows": len(X), "seconds": seconds, "rmse": rmse, "vectors": vectors}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw a panel per set: all fits, and the smallest error of each method so far."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    figure, panels = sheets.sheet(
        len(sets), "Test error over the seconds of a fit", columns=len(sets)
    )
    for panel, name in zip(panels, sets, strict=True):
        for method in SIZES:
            some = sorted(
                (row["seconds"], row["rmse"])
                for row in rows
                if (row["data"], row["method"]) == (name, method)
            )
            if some:
                seconds, errors = map(np.array, zip(*some, strict=True))
                width = 2.4 if method == "partirvm" else 1.2
                (line,) = panel.step(
                    seconds, np.minimum.accumulate(errors), where="post", lw=width, label=method
                )
                panel.plot(seconds, errors, "o", ms=4, color=line.get_color())
        panel.set(xscale="log", xlabel="seconds of the fit", ylabel="test RMSE ÷ sd(y)", title=name)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
    panels[0].legend(frameon=False)
    sheets.save(figure, path)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark; write the table and the picture."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--set", nargs="+", default=["kin40k", "protein", "nyc_green_taxi"], metavar="NAME"
    )
    parser.add_argument("--method", nargs="+", default=list(SIZES), choices=list(SIZES))
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for name in options.set:
        for method in options.method:
            for size in SIZES[method]:
                if (
                    method == "nystroem"
                    and size > MOST_COMPONENTS
                    and rows
                    and rows[-1]["rows"] > LARGE
                ):
                    continue
                found = apart(measure, options.data, name, method, size)
                rows.append({"data": name, "method": method, "size": size, **found})
                say(f"{name} {method} {size}: {found['seconds']:.1f} s, RMSE {found['rmse']:.4f}")
                write(options.output, "curves", rows, COLUMNS)
    draw(rows, Path(options.output) / "curves.png")


if __name__ == "__main__":
    main()
