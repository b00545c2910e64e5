"""Markdown tables of the fits, alongside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, mode, stdev
from typing import Any

from benchmarks.ben_shimon import paper
from benchmarks.ben_shimon.fits import Fit
from benchmarks.measure import table

NEAR_BEST = 1.02
"""RMSE values within this factor of the best RMSE count as equal to the best."""


@dataclass(frozen=True)
class Quantity:
    """A quantity of a table: its title, its key in a fit, and a function that returns the paper's
    number as text."""

    title: str
    key: str
    paper: Callable[[str, str], Any] = lambda name, strategy: None


RMSE = Quantity("RMSE on test rows", "rmse", paper.rmse)
RELEVANCE_VECTORS = Quantity("relevance vectors", "vectors", paper.vectors)
SECONDS = Quantity("seconds of a fit", "seconds", paper.seconds)


def values(fits: Iterable[Fit], key: str, **where: Any) -> list[float]:
    """Return the values of a quantity over all fits that match ``where``, in the order of the
    splits."""
    chosen = [fit for fit in fits if all(fit[name] == value for name, value in where.items())]
    return [fit[key] for fit in sorted(chosen, key=lambda fit: int(fit["split"]))]


def names(fits: Iterable[Fit], key: str) -> list[Any]:
    """Return the different values of a key, in order of appearance."""
    return list(dict.fromkeys(fit[key] for fit in fits))


def spread(numbers: Sequence[float]) -> float:
    """Return the standard deviation over splits; 0 for a single split."""
    return stdev(numbers) if len(numbers) > 1 else 0.0


def decimals(number: float, digits: int = 3) -> int:
    """Return the number of decimals that shows ``digits`` significant digits."""
    return 0 if not number else max(0, digits - 1 - math.floor(math.log10(abs(number))))


def mean_and_spread(numbers: Sequence[float]) -> str:
    """Format mean and standard deviation like ``1.17 ± 0.02``, with three digits of the mean."""
    if not numbers:
        return ""
    mean = fmean(numbers)
    places = decimals(mean)
    return f"{mean:.{places}f}" + (f" ± {stdev(numbers):.{places}f}" if len(numbers) > 1 else "")


def printed(number: Any) -> str:
    """Format a number of the paper, or its mean ± standard deviation."""
    if number is None:
        return ""
    return " ± ".join(f"{each:g}" for each in (number if isinstance(number, tuple) else (number,)))


def by_competitor(fits: list[Fit], quantity: Quantity, *, strategies: bool = True) -> str:
    """Return a table with one row per set: for each competitor our mean ± sd over splits, and the
    paper's number."""
    competitors = sorted_names(fits)
    rows = []
    for name in names(fits, "data"):
        row: dict[str, Any] = {"data": name}
        for competitor in competitors:
            row[competitor] = mean_and_spread(
                values(fits, quantity.key, data=name, competitor=competitor)
            )
            if strategies:
                row[f"{competitor}, paper"] = printed(quantity.paper(name, competitor))
        rows.append(row)
    columns = {key: "" for key in rows[0] if any(row[key] for row in rows)} if rows else {}
    return table(rows, columns)


def sorted_names(fits: list[Fit]) -> list[str]:
    """Return the competitors in the order of split 0, which is not rotated."""
    return names([fit for fit in fits if fit["split"] == 0], "competitor")


def ratios(fits: list[Fit]) -> str:
    """Return a table of the seconds of each strategy divided by the seconds of ``basic`` on each
    split, and the paper's ratio.
    """
    rows = []
    for name in names(fits, "data"):
        row: dict[str, Any] = {"data": name}
        for strategy in [one for one in sorted_names(fits) if one != "basic"]:
            row[strategy] = mean_and_spread(ratios_to_basic(fits, name, strategy))
            ours = paper.seconds(name, strategy)
            theirs = paper.seconds(name, "basic")
            row[f"{strategy}, paper"] = f"{ours[0] / theirs[0]:.2f}" if ours and theirs else ""
        rows.append(row)
    return table(rows, dict.fromkeys(rows[0], "")) if rows else ""


def ratios_to_basic(fits: list[Fit], name: str, strategy: str) -> list[float]:
    """Return the seconds divided by the seconds of ``basic``, for each split."""
    basic = values(fits, "seconds", data=name, competitor="basic")
    return [
        a / b
        for a, b in zip(values(fits, "seconds", data=name, competitor=strategy), basic, strict=True)
    ]


def what_was_run(fits: list[Fit]) -> str:
    """Return a table of the sizes, width, P and number of splits of each set."""
    rows = []
    for name in names(fits, "data"):
        own = [fit for fit in fits if fit["data"] == name]
        rows.append(
            {
                "data": name,
                "training rows": own[0]["rows"],
                "sd of the target": mean_and_spread(
                    list({fit["split"]: fit["deviation"] for fit in own}.values())
                ),
                "gamma": own[0]["gamma"],
                "P": ", ".join(
                    str(size)
                    for size in sorted({fit["partition_size"] for fit in own} - {own[0]["rows"]})
                ),
                "splits": len(names(own, "split")),
            }
        )
    return table(
        rows,
        {
            "data": "",
            "training rows": ",",
            "sd of the target": "",
            "gamma": "g",
            "P": "",
            "splits": "",
        },
    )


def partition_sizes(fits: list[Fit]) -> str:
    """Return Table 6 with one row per set and P. The heuristic's P is marked; its seconds include
    the choice of P."""
    rows = []
    for name in names(fits, "data"):
        for competitor in sorted_names(fits):
            own = [fit for fit in fits if fit["data"] == name and fit["competitor"] == competitor]
            size = mode([fit["partition_size"] for fit in own])
            rows.append(
                {
                    "data": name,
                    "P": f"{size} (heuristic)" if competitor == "heuristic" else str(size),
                    "paper's P": printed(paper.TABLE_6.get(name))
                    if competitor == "heuristic"
                    else "",
                    "RMSE": mean_and_spread(values(own, "rmse")),
                    "vectors": mean_and_spread(values(own, "vectors")),
                    "seconds": mean_and_spread(values(own, "seconds")),
                    "of these for P": mean_and_spread(values(own, "heuristic_seconds"))
                    if competitor == "heuristic"
                    else "",
                }
            )
    return table(rows, dict.fromkeys(rows[0], "")) if rows else ""


def heuristic_quality(fits: list[Fit]) -> list[dict[str, Any]]:
    """Compare the heuristic's P with the best P of each set, by seconds and RMSE.

    Seconds are divided by the seconds at the fastest P, and by the seconds at the fastest P with
    nearly minimum RMSE.
    """
    lines = []
    for name in names(fits, "data"):
        own = {
            one: values(fits, "seconds", data=name, competitor=one) for one in sorted_names(fits)
        }
        error = {one: fmean(values(fits, "rmse", data=name, competitor=one)) for one in own}
        time = {one: fmean(numbers) for one, numbers in own.items()}
        good = [one for one in time if error[one] <= NEAR_BEST * min(error.values())]
        best = min(time, key=time.__getitem__)
        best_good = min(good, key=time.__getitem__)
        lines.append(
            {
                "data": name,
                "best P": best,
                "time ÷ best": time["heuristic"] / time[best],
                f"best P within {NEAR_BEST - 1:.0%} of the least RMSE": best_good,
                "time ÷ that": time["heuristic"] / time[best_good],
                "RMSE ÷ least": error["heuristic"] / min(error.values()),
            }
        )
    return lines
