"""Coverage of 95 % intervals in each tenth of new rows, ordered by the predicted standard deviation.

    python -m benchmarks.deciles --data DIR [--sets NAME ...] [--splits 3] [--output FOLDER]

``RVMRegressor()`` with defaults is fitted to 2,000 random rows of a set and predicts at most 8,000
others, for each split. *one* has the same multiples of the standard deviation for all rows, a
quantile of |z| of left-out rows; *local* is ``predict_interval``, with separate tails that depend on
the standard deviation (``partirvm.core.local_quantiles``). Coverage is averaged over the splits.

within         deciles in which the coverage is from .92 to .975, of ten
chance         expected number of these, from the number of rows alone, if every row were covered
               with a probability of .95
lowest …       coverage in the deciles with the lowest and the highest coverage
below, above   fractions of all rows below and above the intervals
width, score   mean width and interval score (Gneiting & Raftery 2007, eq. 43) of *local* ÷ *one*

The predicted mean and standard deviation, and so NLPD and CRPS, are the same for both. Sets are
described in ``benchmarks/datasets.py``; further ones are the UCI sets of power plants, Seoul bike
sharing and appliances, the Delve sets of census houses, ``pol`` and used cars.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from benchmarks import measure
from benchmarks.datasets import Split, load_random, read
from partirvm import RVMRegressor
from partirvm.core.scores import interval_score
from partirvm.errors import PartirvmWarning
from partirvm.model import Model
from partirvm.types import Float

SETS = (
    "abalone",
    "appliances",
    "census_house_16L",
    "census_house_8H",
    "etopo20",
    "kin40k",
    "nyc_green_taxi",
    "pol",
    "power_plant",
    "protein",
    "pumadyn_32nm",
    "pumadyn_8fm",
    "pumadyn_8nh",
    "pumadyn_8nm",
    "seoul_bike",
    "used_cars",
)
TRAINING = 2000
NEW = 8000
LEVEL = 0.95
BAND = (0.92, 0.975)
COLUMNS = {
    "set": "",
    "within one": "d",
    "within local": "d",
    "chance": ".1f",
    "lowest one": ".3f",
    "highest one": ".3f",
    "lowest local": ".3f",
    "highest local": ".3f",
    "coverage one": ".3f",
    "coverage local": ".3f",
    "below one": ".3f",
    "above one": ".3f",
    "below local": ".3f",
    "above local": ".3f",
    "width": ".3f",
    "score": ".3f",
}


class Coverage(NamedTuple):
    """Intervals of one split: coverage by decile (10,), fractions of rows below and above them,
    mean width and mean interval score."""

    deciles: Float
    below: float
    above: float
    width: float
    score: float


def with_one_quantile(model: Model) -> Model:
    """Return the model with the same multiples of all standard deviations."""
    residuals = model.residuals
    if residuals is not None:
        alike = tuple(replace(part, local=None) for part in residuals.calibrations)
        return replace(model, residuals=replace(residuals, calibrations=alike))
    assert model.calibration is not None
    return replace(model, calibration=replace(model.calibration, local=None))


def coverage_of(model: Model, split: Split) -> Coverage:
    """Return the coverage of a model's intervals."""
    y = split.y_test
    lower, upper = model.interval(LEVEL)(split.X_test)[0].T
    inside = (lower <= y) & (y <= upper)
    std = model.predict(split.X_test, return_std=True)[1]
    deciles = np.array_split(np.argsort(std, kind="stable"), 10)
    return Coverage(
        np.array([inside[rows].mean() for rows in deciles]),
        float((y < lower).mean()),
        float((y > upper).mean()),
        float((upper - lower).mean()),
        float(interval_score(y, lower, upper, LEVEL).mean()),
    )


def within(deciles: Float) -> int:
    """Return how many of the deciles are in the band."""
    return int(((deciles >= BAND[0]) & (deciles <= BAND[1])).sum())


def by_chance(rows: int) -> float:
    """Return the expected number of deciles in the band, if each of their rows, of all splits, is
    covered with the nominal probability."""
    low, high = np.ceil(BAND[0] * rows) - 1, np.floor(BAND[1] * rows)
    return float(10 * (binom.cdf(high, rows, LEVEL) - binom.cdf(low, rows, LEVEL)))


def row_of(name: str, new: int, one: Sequence[Coverage], local: Sequence[Coverage]) -> Any:
    """Return the table row of a set.

    Args:
        name: of the set
        new: number of new rows of all splits
        one: of each split, with one quantile
        local: of each split, with local quantiles
    """
    row: dict[str, Any] = {"set": name, "chance": by_chance(new // 10)}
    for kind, splits in (("one", one), ("local", local)):
        deciles = np.mean([split.deciles for split in splits], axis=0)
        row |= {
            f"within {kind}": within(deciles),
            f"lowest {kind}": float(deciles.min()),
            f"highest {kind}": float(deciles.max()),
            f"coverage {kind}": float(deciles.mean()),
            f"below {kind}": float(np.mean([split.below for split in splits])),
            f"above {kind}": float(np.mean([split.above for split in splits])),
        }
    for figure in ("width", "score"):
        sums = [sum(getattr(split, figure) for split in splits) for splits in (local, one)]
        row[figure] = sums[0] / sums[1]
    return row


def run(folder: str, name: str, splits: int) -> dict[str, Any]:
    """Fit to the splits of a set; return its table row."""
    new = min(NEW, len(read(folder, name)[1]) - TRAINING)
    one = []
    local = []
    for seed in range(1, splits + 1):
        split = load_random(folder, name, TRAINING, new, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartirvmWarning)
            model = RVMRegressor(random_state=0).fit(split.X, split.y).model_
            one.append(coverage_of(with_one_quantile(model), split))
            local.append(coverage_of(model, split))
    return row_of(name, new * splits, one, local)


def main(arguments: list[str] | None = None) -> None:
    """Run the requested sets; write the table."""
    parser = measure.command_line(__doc__)
    parser.add_argument(
        "--sets", nargs="+", choices=SETS, metavar="NAME", help="data sets (default: all)"
    )
    parser.add_argument("--splits", type=int, default=3, help="random splits (default: 3)")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for name in options.sets or SETS:
        rows.append(run(options.data, name, options.splits))
        measure.write(options.output, "deciles", rows, COLUMNS)
    for kind in ("one", "local"):
        share = sum(row[f"within {kind}"] for row in rows) / (10 * len(rows))
        measure.say(f"{kind}: {share:.1%} of the deciles within {BAND[0]} to {BAND[1]}")


if __name__ == "__main__":
    main()
