"""RMSE over vectors and over P for several widths. The results show how P and width affect goals that are not met.

A working set is fitted with each P and each width on the same splits. All three strategies are fitted at the width of
the tables.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.ben_shimon import paper
from benchmarks.ben_shimon.data import Dataset
from benchmarks.ben_shimon.fits import Competitor, Settings, fit_once, say
from benchmarks.ben_shimon.tables import mean_and_spread, names, printed, values

SIZES = (25, 50, 100, 200, 400)
"""The partition sizes P."""

FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Widths as multiples of the width of the tables."""

SPLITS = 3
"""Maximum number of splits per point."""

COLUMNS = {"data": "", "gamma": "g", "P": "", "splits": "", "RMSE": "", "vectors": "", "seconds": "", "paper": ""}


def tradeoff(datasets: list[Dataset], settings: Settings) -> list[dict[str, Any]]:
    """Run all fits: sets × splits × widths × P. Each set ends after its share of the table's seconds."""
    fits: list[dict[str, Any]] = []
    for dataset in datasets:
        fits += _fits(dataset, settings, settings.budget / len(datasets))
        points = [fit for fit in fits if fit["data"] == dataset.name]
        best = min(points, key=lambda fit: fit["rmse"])
        say(f"tradeoff: {dataset.name}: {len(points)} fits, minimum RMSE {best['rmse']:.4g} with {best['vectors']}")
    return fits


def _fits(dataset: Dataset, settings: Settings, share: float) -> list[dict[str, Any]]:
    fits: list[dict[str, Any]] = []
    for seed in range(min(SPLITS, settings.repeats)):
        spent = sum(fit["seconds"] for fit in fits)
        if seed and spent * (seed + 1) / seed > share:
            say(f"tradeoff: {dataset.name} stops after {seed} splits, at its {share:.0f} s")
            break
        split = dataset.split(settings.folder, seed, settings.rows)
        for factor in FACTORS:
            gamma = float(f"{factor * settings.gammas[dataset.name]:.3g}")
            for size in SIZES:
                if size < len(split.y):
                    one = Competitor(f"{gamma:g}, {size}", {"strategy": "working-set", "partition_size": size})
                    fits.append(fit_once(split, one, gamma, seed))
    return fits


def tradeoff_rows(fits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per set, width and P."""
    rows = []
    for name in names(fits, "data"):
        theirs, most = paper.rmse(name, "working-set"), paper.vectors(name, "working-set")
        for competitor in names([fit for fit in fits if fit["data"] == name], "competitor"):
            own = [fit for fit in fits if fit["data"] == name and fit["competitor"] == competitor]
            rows.append(
                {
                    "data": name,
                    "gamma": own[0]["gamma"],
                    "P": own[0]["partition_size"],
                    "splits": len(own),
                    "RMSE": mean_and_spread(values(own, "rmse")),
                    "vectors": mean_and_spread(values(own, "vectors")),
                    "seconds": mean_and_spread(values(own, "seconds")),
                    "paper": f"{printed(theirs)} with {printed(most)}",
                    "mean": {key: fmean(values(own, key)) for key in ("rmse", "vectors", "seconds")},
                }
            )
    return rows
