"""The goals of the tables. Each goal has a result, a bound, and a mark that states whether the bound is met."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.ben_shimon import paper
from benchmarks.ben_shimon.fits import Fit
from benchmarks.ben_shimon.tables import heuristic_quality, names, ratios_to_basic, sorted_names, values
from benchmarks.measure import table

VECTORS = 1.5
"""Maximum number of vectors, divided by the paper's mean number."""

TIMES = {"abalone": 0.5, "friedman_1": 1.5}
"""Maximum seconds of a strategy, divided by the seconds of ``basic`` in the same run. The other ratios have no goal."""

HEURISTIC = 1.5
"""Maximum seconds at the heuristic's P, divided by the seconds at the best P."""

GROWTH = 2.3
"""Maximum growth of seconds per doubling of rows, for fits of linear cost."""

COLUMNS = {"goal": "", "data": "", "competitor": "", "reached": ".4g", "bound": ".4g", "met": ""}


def goal(what: str, name: str, competitor: str, reached: float, bound: float) -> dict[str, Any]:
    """Return one table row; ``bound`` is an upper bound."""
    met = "yes" if reached <= bound else "NO"
    return {"goal": what, "data": name, "competitor": competitor, "reached": reached, "bound": bound, "met": met}


def accuracy_goals(fits: list[Fit]) -> list[dict[str, Any]]:
    """Return two goals per strategy: RMSE ≤ the paper's mean + its standard deviation, and vectors ≤ 1.5 × the paper's
    number.
    """
    goals = []
    for name in names(fits, "data"):
        for strategy in [one for one in sorted_names(fits) if one != "basic"]:
            errors = values(fits, "rmse", data=name, competitor=strategy)
            bound, most = paper.largest_rmse(name, strategy), paper.vectors(name, strategy)
            if bound is not None:
                goals.append(goal("RMSE ≤ paper + sd", name, strategy, fmean(errors), bound))
            if most is not None:
                mean = fmean(values(fits, "vectors", data=name, competitor=strategy))
                goals.append(goal(f"vectors ≤ {VECTORS:g} × paper", name, strategy, mean, VECTORS * most[0]))
    return goals


def time_goals(fits: list[Fit]) -> list[dict[str, Any]]:
    """Return the goals of seconds ÷ seconds of ``basic`` in the same run."""
    return [
        goal("seconds ÷ basic", name, strategy, fmean(ratios_to_basic(fits, name, strategy)), TIMES[name])
        for name in names(fits, "data")
        if name in TIMES
        for strategy in sorted_names(fits)
        if strategy != "basic"
    ]


def heuristic_goals(fits: list[Fit]) -> list[dict[str, Any]]:
    """Return the goals of seconds at the heuristic's P ÷ seconds at the best P."""
    return [
        goal(
            "time at the heuristic's P ÷ at the best",
            line["data"],
            f"best: {line['best P']}",
            line["time ÷ best"],
            HEURISTIC,
        )
        for line in heuristic_quality(fits)
    ]


def growth_goals(rows: list[dict[str, Any]], linear: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the goals of the largest growth of seconds per doubling of rows, for competitors of linear cost."""
    return [
        goal("growth per doubling", "friedman_1", name, max(factors), GROWTH)
        for name in linear
        if (factors := [row["factor"] for row in rows if row["competitor"] == name and row["factor"] is not None])
    ]


def goals_text(goals: list[dict[str, Any]]) -> str:
    """Return the table of goals as Markdown."""
    return table(goals, COLUMNS)
