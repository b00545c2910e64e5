"""Coverage of 95 % intervals on tables with a category: rows per level, levels seen and not seen,
strength of effects.

``python benchmarks/levels.py --help``. Each line is a fit to levels with the same number of rows
each, whose effects on the target are normal with the standard deviation STRENGTH × that of the
noise; the target also depends on a number, and with ``--slopes`` its slope differs by level. It
gives the share of new targets inside their 95 % intervals, and stated standard deviation ÷ root
mean square error, for rows of known levels and of new ones. All shares should be in .92–.98.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from partirvm import RVMRegressor
from partirvm.errors import PartirvmWarning

NEW_ROWS = 400
NOISE = 1.0


@dataclass(frozen=True)
class Table:
    """A planted table: the effects of levels (L, 2), of which the last half have no training
    rows."""

    effects: np.ndarray
    rng: np.random.Generator

    @classmethod
    def planted(cls, n_levels: int, strength: float, *, slopes: bool, seed: int) -> "Table":
        rng = np.random.default_rng(seed)
        effects = strength * NOISE * rng.normal(size=(n_levels + NEW_ROWS, 2))
        effects[:, 1] *= 0.5 if slopes else 0.0
        return cls(effects, rng)

    def rows(self, codes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        """Return rows with these levels and their targets."""
        x = self.rng.normal(size=len(codes))
        intercept, slope = self.effects[codes].T
        targets = np.sin(1.5 * x) + intercept + slope * x + NOISE * self.rng.normal(size=len(codes))
        labels = [f"level {code:05d}" for code in codes.tolist()]
        return pd.DataFrame({"x": x, "label": pd.Categorical(labels)}), targets


def coverage(
    model: RVMRegressor, frame: pd.DataFrame, targets: np.ndarray
) -> tuple[float, float, float]:
    """Return the share inside 95 % intervals, stated standard deviation ÷ error, and the error."""
    mean, std = model.predict(frame, return_std=True)
    lower, upper = model.predict_interval(frame, 0.95)
    error = float(np.sqrt(np.mean((mean - targets) ** 2)))
    inside = (lower < targets) & (targets < upper)
    return float(inside.mean()), float(np.sqrt(np.mean(std**2))) / error, error


def cells(
    n_rows: int,
    per_level: int,
    strength: float,
    *,
    slopes: bool = False,
    seed: int = 0,
    effort: str = "quick",
) -> Iterator[tuple[str, float, float, float]]:
    """Fit a table and yield "seen" or "new" with the figures of ``coverage``, for ``NEW_ROWS`` rows
    each."""
    n_levels = max(n_rows // per_level, 2)
    table = Table.planted(n_levels, strength, slopes=slopes, seed=seed)
    frame, targets = table.rows(np.repeat(np.arange(n_levels), per_level))
    model = RVMRegressor(random_state=0, effort=effort, reference="none").fit(frame, targets)
    seen = table.rng.integers(0, n_levels, NEW_ROWS)
    for name, codes in (("seen", seen), ("new", n_levels + np.arange(NEW_ROWS))):
        yield name, *coverage(model, *table.rows(codes))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[600, 1800], help="training rows (600 1800)"
    )
    parser.add_argument(
        "--per-level", type=int, nargs="+", default=[1, 2, 3, 10, 30, 300], help="rows per level"
    )
    parser.add_argument(
        "--strength",
        type=float,
        nargs="+",
        default=[0.5, 2.0, 5.0],
        help="sd of effects ÷ noise sd",
    )
    parser.add_argument("--slopes", action="store_true", help="the slope of x differs by level")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", default="quick", choices=["quick", "balanced", "thorough"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore", PartirvmWarning)
    print("  rows  per level  strength  seen: 95 %  std/error  error   new: 95 %  std/error  error")
    for n_rows in asked.rows:
        for per_level in asked.per_level:
            for strength in asked.strength:
                found = cells(
                    n_rows,
                    per_level,
                    strength,
                    slopes=asked.slopes,
                    seed=asked.seed,
                    effort=asked.effort,
                )
                text = "  ".join(
                    f"{inside:10.3f} {ratio:10.2f} {error:6.2f}"
                    for _, inside, ratio, error in found
                )
                print(f"{n_rows:6} {per_level:10} {strength:9} {text}", flush=True)


if __name__ == "__main__":
    main()
