"""How the cost grows: rows doubled at fixed P and width, on Friedman#1-like data.

``sample`` and ``partition`` with a fixed number of noise rows are linear in the rows; ``partition`` with the residual
of all rows and ``full`` are quadratic. A run whose predicted time exceeds ``LONGEST`` seconds is left out, and so are
all larger ones of the same competitor.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from benchmarks.ben_shimon.data import FRIEDMAN_NOISE, friedman
from benchmarks.ben_shimon.fits import Competitor, fit_once, say, turned
from benchmarks.datasets import Split

ROWS = (5_000, 10_000, 20_000, 40_000, 80_000)

TEST_ROWS = 2_000

PARTITION_SIZE = 50

GAMMA = 0.0125
"""The width of Friedman#1's table, used for all sizes."""

NOISE_ROWS = 2_000
"""Rows whose residual gives σ² in ``partition, fixed noise rows``."""

LONGEST = 60.0
"""Maximum predicted seconds of a run."""

QUICK, RUNS = 10.0, 3
"""Fits shorter than ``QUICK`` seconds are run ``RUNS`` times, in turns; the table has the median."""

LIKELIHOODS: dict[str, dict[str, Any]] = {
    "sample": {"fit_rows": "sample"},
    f"partition, {NOISE_ROWS:,} noise rows": {"fit_rows": "partition", "noise_rows": NOISE_ROWS},
    "partition, all noise rows": {"fit_rows": "partition"},
    "full": {"fit_rows": "full"},
}

STRATEGIES = ("split-merge", "incremental")

COMPETITORS = tuple(
    Competitor(f"{strategy}, {name}", {"strategy": strategy, "partition_size": PARTITION_SIZE, **likelihood})
    for name, likelihood in LIKELIHOODS.items()
    for strategy in STRATEGIES
)

LINEAR = tuple(one.name for one in COMPETITORS if one.options["fit_rows"] == "sample" or "noise_rows" in one.options)
"""Competitors whose cost should be linear in the rows."""

COLUMNS = {
    "competitor": "", "rows": ",", "seconds": ".2f", "factor": ".2f", "vectors": "", "rmse": ".3f", "runs": ""
}  # fmt: skip
"""``seconds`` are CPU seconds of all cores, which depend little on other load; ``factor``: over half the rows."""


def data(rows: int) -> Split:
    """Friedman#1 of this many training rows; the first rows are the same whatever their number."""
    rng = np.random.default_rng(0)
    X_test, y_test = friedman(TEST_ROWS, rng)
    X, smooth = friedman(rows, rng)
    noise = np.random.default_rng(1).standard_normal(rows)
    return Split("friedman_1", X, smooth + FRIEDMAN_NOISE * noise, X_test, y_test)


def growth(sizes: tuple[int, ...] = ROWS, longest: float = LONGEST) -> list[dict[str, Any]]:
    """One line per competitor and number of rows, those of a competitor together."""
    lines: dict[str, list[dict[str, Any]]] = {one.name: [] for one in COMPETITORS}
    for rows in sizes:
        split = data(rows)
        running = [one for one in COMPETITORS if _affordable(lines[one.name], rows, longest)]
        fits: dict[str, list[dict[str, Any]]] = {one.name: [] for one in running}
        for run in range(RUNS):
            for one in turned(running, run):
                if run and fits[one.name][0]["seconds"] > QUICK:
                    continue
                fits[one.name].append(fit_once(split, one, GAMMA, 0))
        for name, own in fits.items():
            lines[name].append(_line(name, rows, own, lines[name]))
            line = lines[name][-1]
            say(f"growth: {rows:,} rows, {name}: {line['seconds']:.2f} s, {line['vectors']} vectors")
    return [line for own in lines.values() for line in own]


def _line(name: str, rows: int, fits: list[dict[str, Any]], before: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = median(fit["cpu_seconds"] for fit in fits)
    doubled = before and before[-1]["rows"] * 2 == rows
    return {
        "competitor": name,
        "rows": rows,
        "seconds": seconds,
        "factor": seconds / before[-1]["seconds"] if doubled else None,
        "vectors": fits[0]["vectors"],
        "rmse": fits[0]["rmse"],
        "runs": len(fits),
    }


def _affordable(before: list[dict[str, Any]], rows: int, longest: float) -> bool:
    """True if the predicted time is at most ``longest`` seconds, or if nothing is known yet."""
    if not before:
        return rows == min(ROWS[0], rows)
    last = before[-1]
    factor = last["factor"] or 4.0
    if last["rows"] * 2 != rows:
        return False
    affordable: bool = last["seconds"] * factor <= longest
    if not affordable:
        say(f"growth: {rows:,} rows, {last['competitor']}: left out, it would take {last['seconds'] * factor:.0f} s")
    return affordable
