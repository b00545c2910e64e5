"""Growth of the cost: the number of rows doubles at fixed P and width, on data like Friedman#1.

The cost of ``sample``, and of ``partition`` with a fixed number of noise rows, is linear in the number of rows. The
cost of ``full``, and of ``partition`` with the residuals of all rows, is quadratic. A run is skipped if its predicted
time exceeds ``LONGEST`` seconds, and all larger runs of its competitor are skipped too.
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
"""The width of the Friedman#1 tables, used for all sizes."""

NOISE_ROWS = 2_000
"""Number of rows whose residuals estimate σ² in ``partition, fixed noise rows``."""

LONGEST = 60.0
"""Maximum predicted seconds of a run."""

QUICK, RUNS = 10.0, 3
"""Fits shorter than ``QUICK`` seconds are repeated ``RUNS`` times, alternating with other fits; the table has the
median.
"""

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
"""The competitors whose cost should be linear in the number of rows."""

COLUMNS = {
    "competitor": "", "rows": ",", "seconds": ".2f", "factor": ".2f", "vectors": "", "rmse": ".3f", "runs": ""
}  # fmt: skip
"""``seconds`` are CPU seconds of all cores, which depend little on other load.

``factor`` is the ratio to the seconds for half the number of rows.
"""


def data(rows: int) -> Split:
    """Generate Friedman#1 with the given number of training rows.

    The first rows are the same for every number of rows.
    """
    rng = np.random.default_rng(0)
    X_test, y_test = friedman(TEST_ROWS, rng)
    X, smooth = friedman(rows, rng)
    noise = np.random.default_rng(1).standard_normal(rows)
    return Split("friedman_1", X, smooth + FRIEDMAN_NOISE * noise, X_test, y_test)


def growth(sizes: tuple[int, ...] = ROWS, longest: float = LONGEST) -> list[dict[str, Any]]:
    """Return one line per competitor and number of rows, sorted by competitor."""
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
    """Return True if the predicted time is at most ``longest`` seconds, or if there is no earlier run."""
    if not before:
        return rows == min(ROWS[0], rows)
    last = before[-1]
    factor = last["factor"] or 4.0
    if last["rows"] * 2 != rows:
        return False
    affordable: bool = last["seconds"] * factor <= longest
    if not affordable:
        say(f"growth: {rows:,} rows, {last['competitor']}: skipped, predicted time {last['seconds'] * factor:.0f} s")
    return affordable
