"""Miles per gallon by weight, as in Figure 2 of the TMB paper: one learned width beyond the range of the training rows.

    python -m benchmarks.learning.figure2 --data DIR --output DIR

The data are the Auto set (R package ISLR, 392 cars). The 300 lightest cars are training rows, and the 92 heaviest cars
are test rows. The model is an RVM of one input with all training rows as candidates and one width learned by the
evidence. ``joint_laplace`` makes intervals by the delta method: ``weights`` with uncertain weights alone, ``all`` with
uncertain weights, α, σ² and width, as the paper has it. Coverages are fractions of rows inside the 95 % interval of a
new noisy target, and widths are mean standard deviations of the mean, in miles per gallon. The paper has 4 vectors, and
coverages of 94.1 % and 100 %, which we interpret as training and test (282 or 283 of 300 rows would be 94.0 or 94.3 %).

Measured: the Gaussian kernels have 2 vectors. 94.0 % of the training rows are covered, and of the test rows 97.8 % with
all parameters uncertain and 89.1 % with the weights alone. Beyond the training rows the standard deviation of the mean
is 2.3 with all parameters and 0.41 with the weights alone. The last row has random training rows, so that no test row
is far away: 93.9 and 93.8 % of the test rows are covered, in the mean of 20 draws.

DIR contains auto.npz with ``X`` (392, d), ``y``, and ``columns``, the names of X, which include ``weight``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure, sheets
from partirvm import RVMRegressor
from partirvm.data import as_source
from partirvm.kernels import Gaussian, Matern32, Matern52
from partirvm.literature.joint_laplace import JointLaplace, joint_laplace

Float = NDArray[np.float64]

TRAIN = 300
DRAWS = 20


def load(folder: str) -> tuple[Float, Float]:
    """Read weight (n, 1) in pounds and miles per gallon (n,), sorted by weight."""
    path = Path(folder, "auto.npz")
    if not path.exists():
        raise SystemExit(f"{path} does not exist: make this file from the Auto set of R's ISLR, with mpg as y")
    with np.load(path) as file:
        weight = file["X"][:, file["columns"].tolist().index("weight")]
        order = np.argsort(weight, kind="stable")
        return weight[order, None], file["y"][order]


def fit(weight: Float, mpg: Float, name: str, kernel: Any) -> tuple[JointLaplace, dict[str, Any]]:
    """Fit the first ``TRAIN`` cars; a width is learned from that of ``kernel``. Return predictions and a row."""
    model = RVMRegressor(kernel=kernel, gamma="learn-shared", strategy="basic", noise="constant", random_state=0)
    began = time.perf_counter()
    model.fit(weight[:TRAIN], mpg[:TRAIN])
    joint = joint_laplace(model.model_, as_source(weight[:TRAIN], mpg[:TRAIN]))
    row = {
        "fit": name,
        "vectors": model.n_relevance_vectors_,
        "log evidence": model.log_evidence_,
        "gamma": float(np.exp(joint.theta[-1])),
        "seconds": time.perf_counter() - began,
    }
    for uncertain, parameters in (("all", True), ("weights", False)):
        lower, upper = joint.interval(weight, parameters=parameters).T
        inside = (lower <= mpg) & (mpg <= upper)
        width = joint.predict(weight, noise=False, parameters=parameters)[1]
        row |= {
            f"train coverage, {uncertain}": float(inside[:TRAIN].mean()),
            f"test coverage, {uncertain}": float(inside[TRAIN:].mean()),
            f"test width, {uncertain}": float(width[TRAIN:].mean()),
        }
    return joint, row


def draws(weight: Float, mpg: Float) -> list[dict[str, Any]]:
    """Return the coverages of the first kernel on ``DRAWS`` random draws of the training rows."""
    rows = []
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(mpg))
        rows.append(fit(weight[order], mpg[order], f"draw {seed}", Gaussian(0.1))[1])
    keys = [key for key in rows[0] if "coverage" in key or "width" in key]
    mean = {"fit": f"mean of {DRAWS} draws"} | {key: float(np.mean([row[key] for row in rows])) for key in keys}
    return [mean]


KERNELS: dict[str, Any] = {
    "Gaussian, from gamma 1": "gaussian",
    "Gaussian, from gamma 0.1": Gaussian(0.1),
    "Matérn 5/2, from gamma 0.1": Matern52(0.1),
    "Matérn 3/2, from gamma 0.1": Matern32(0.1),
}
"""The kernels with the initial gamma of learning. "learn" starts at gamma 1 for one input."""

PAPER = {"fit": "paper", "vectors": 4, "train coverage, all": 0.941, "test coverage, all": 1.0}
COLUMNS = {"fit": "", "vectors": "d", "log evidence": ".1f", "gamma": ".3f"}
COLUMNS |= {
    f"{what}, {uncertain}": ".3f"
    for what in ("train coverage", "test coverage", "test width")
    for uncertain in ("all", "weights")
}
COLUMNS |= {"seconds": ".1f"}


def figure(joint: JointLaplace, weight: Float, mpg: Float, path: Path) -> None:
    """Draw cars, mean, 95 % interval and vectors over weight."""
    drawn, (axis,) = sheets.sheet(1, "Miles per gallon by weight: the 300 lightest cars are training rows", 1, (7, 4))
    grid = np.linspace(weight.min() - 50, weight.max() + 50, 400)[:, None]
    mean, _ = joint.predict(grid)
    low, high = joint.interval(grid).T
    axis.fill_between(grid[:, 0], low, high, color="#3b6ea8", alpha=0.15, lw=0, label="95 % of new cars")
    low, high = joint.interval(grid, noise=False).T
    axis.fill_between(grid[:, 0], low, high, color="#3b6ea8", alpha=0.35, lw=0, label="95 % of the mean, all uncertain")
    low, high = joint.interval(grid, noise=False, parameters=False).T
    axis.plot(grid[:, 0], low, ":", color=sheets.INK, lw=1, label="the same, weights uncertain")
    axis.plot(grid[:, 0], high, ":", color=sheets.INK, lw=1)
    axis.plot(grid[:, 0], mean, color="#3b6ea8", lw=1.8, label="mean")
    axis.plot(weight[:TRAIN, 0], mpg[:TRAIN], ".", color="#555555", ms=4, label="train")
    axis.plot(weight[TRAIN:, 0], mpg[TRAIN:], ".", color="#c8553d", ms=5, label="test")
    at = joint.model.design.centres
    label = f"{len(at)} relevance vectors"
    axis.plot(at[:, 0], joint.predict(at)[0], "o", ms=10, mfc="none", mec=sheets.INK, mew=1.4, label=label)
    axis.axvline((weight[TRAIN - 1, 0] + weight[TRAIN, 0]) / 2, color=sheets.INK, lw=0.8, ls=":")
    axis.set(xlabel="weight (pounds)", ylabel="miles per gallon", xlim=(grid[0, 0], grid[-1, 0]))
    axis.legend(frameon=False, fontsize=8)
    sheets.save(drawn, path)


def main(arguments: list[str] | None = None) -> None:
    """Run the fits, and write the table and the picture."""
    parser = measure.command_line(__doc__)
    options = parser.parse_args(arguments)
    weight, mpg = load(options.data)
    fits = [fit(weight, mpg, name, kernel) for name, kernel in KERNELS.items()]
    rows = [PAPER, *(row for _, row in fits), *draws(weight, mpg)]
    measure.write(options.output, "figure2", rows, COLUMNS)
    figure(fits[1][0], weight, mpg, Path(options.output, "figure2.png"))


if __name__ == "__main__":
    main()
