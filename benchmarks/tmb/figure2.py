"""Figure 2: miles per gallon by weight of 392 cars; the 300 lightest are training rows.

Weights are standardised over all cars, as the axis of the figure seems to be, and miles per gallon
are centred, but not scaled. L has two maxima, which are found from different γ; the picture is that
of the second, at the smaller γ, which is like the paper's. Coverages are of 95 % intervals of a new car, with uncertain hyperparameters (left)
and with uncertain weights alone (right); widths are those of the 95 % intervals of f.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure, sheets
from partirvm.literature.tmb import TMBRegressor

Float = NDArray[np.float64]

TRAIN = 300
"""Number of training cars."""

STARTS = (1.0, 0.1, 0.3, 3.0)
"""γ at the start of each fit."""

DRAWN = 3.0
"""The start of the fit in the picture."""

PAPER = {"start": "paper", "vectors": 4, "training, left": 0.941, "test, left": 1.0}

COLUMNS = {
    "start": "", "vectors": "d", "places": "", "log evidence": ".2f", "gamma": ".2f",
    "training, left": ".3f", "test, left": ".3f", "training, right": ".3f", "test, right": ".3f",
    "narrowest at": ".2f", "width there": ".2f", "width at the end, left": ".2f", "width at the end, right": ".2f",
}  # fmt: skip


def load(folder: str) -> tuple[Float, Float]:
    """Return standardised weight (392, 1) and miles per gallon (392,), sorted by weight."""
    with np.load(Path(folder, "auto.npz")) as file:
        weight = file["X"][:, file["columns"].tolist().index("weight")]
        mpg = file["y"]
    order = np.argsort(weight, kind="stable")
    weight = (weight[order] - weight.mean()) / weight.std()
    return weight[:, None], mpg[order]


def fit(weight: Float, mpg: Float, start_gamma: float) -> TMBRegressor:
    """Fit the lightest cars.

    Args:
        weight: (392, 1), standardised
        mpg: (392,)
        start_gamma: γ at the start
    """
    model = TMBRegressor("rvm", standardize=False, start_gamma=start_gamma)
    return model.fit(weight[:TRAIN], mpg[:TRAIN] - mpg[:TRAIN].mean())


def row(model: TMBRegressor, weight: Float, mpg: Float, start: str) -> dict[str, Any]:
    """Return the table row of a fit.

    Args:
        model: of centred miles per gallon
        weight: (392, 1)
        mpg: (392,)
        start: its name
    """
    t = mpg - mpg[:TRAIN].mean()
    grid = np.linspace(weight.min(), weight.max(), 400)[:, None]
    summary: dict[str, Any] = {
        "start": start,
        "vectors": model.n_relevance_vectors_,
        "places": ", ".join(f"{place:.2f}" for place in model.relevance_vectors_[:, 0]),
        "log evidence": model.log_evidence_,
        "gamma": float(model.gamma_[0]),
    }
    for name, hyperparameters in (("left", True), ("right", False)):
        lower, upper = model.predict_interval(weight, hyperparameters=hyperparameters).T
        inside = (lower <= t) & (t <= upper)
        summary[f"training, {name}"] = float(inside[:TRAIN].mean())
        summary[f"test, {name}"] = float(inside[TRAIN:].mean())
        band = model.predict_interval(grid, hyperparameters=hyperparameters, noise=False)
        width = np.diff(band)[:, 0]
        summary[f"width at the end, {name}"] = float(width[-1])
        if hyperparameters:
            summary["narrowest at"] = float(grid[width.argmin(), 0])
            summary["width there"] = float(width.min())
    return summary


def picture(model: TMBRegressor, weight: Float, mpg: Float, path: Path) -> None:
    """Draw both panels.

    Args:
        model: of centred miles per gallon
        weight: (392, 1)
        mpg: (392,)
        path: of the picture
    """
    center = mpg[:TRAIN].mean()
    grid = np.linspace(weight.min() - 0.1, weight.max() + 0.1, 400)[:, None]
    figure, axes = sheets.sheet(
        2, "Miles per gallon by weight; 300 lightest cars are training rows"
    )
    for axis, hyperparameters in zip(axes, (True, False), strict=True):
        for noise, shade in ((True, 0.15), (False, 0.4)):
            band = model.predict_interval(grid, hyperparameters=hyperparameters, noise=noise)
            low, high = (center + band).T
            axis.fill_between(grid[:, 0], low, high, color="#3b6ea8", alpha=shade, lw=0)
        axis.plot(grid, center + model.predict(grid), color="#3b6ea8")
        axis.plot(weight[:TRAIN], mpg[:TRAIN], ".", color="#555555", ms=3)
        axis.plot(weight[TRAIN:], mpg[TRAIN:], ".", color="#c8553d", ms=4)
        places = model.relevance_vectors_
        heights = mpg[model.relevance_]
        axis.plot(places, heights, "o", ms=9, mfc="none", mec=sheets.INK)
        uncertain = "weights and hyperparameters" if hyperparameters else "weights"
        axis.set(xlabel="weight (standardised)", title=f"uncertain {uncertain}")
        axis.set_ylim(-5, 50)
    sheets.save(figure, path)


def run(options: Any) -> None:
    """Fit from several starts, and write the table and the picture."""
    weight, mpg = load(options.data)
    models = {start: fit(weight, mpg, start) for start in STARTS}
    rows = [row(model, weight, mpg, f"γ = {start:g}") for start, model in models.items()]
    measure.write(options.output, "tmb_figure2", [PAPER, *rows], COLUMNS)
    picture(models[DRAWN], weight, mpg, Path(options.output, "tmb_figure2.png"))
