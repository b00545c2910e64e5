"""The goals of the benchmark. Each goal has a result, a bound, and a mark that states whether the bound is met."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.classification.published import TIPPING
from benchmarks.classification.runs import Run
from benchmarks.classification.tables import find, standard_error, values
from benchmarks.measure import table

OURS, LEARNED = "partirvm", "learned"

VECTORS = 2.5
"""Maximum number of vectors, divided by the number of Tipping's RVM."""

SETS_WON = 5
"""Minimum number of sets on which our log loss must be better than the calibrated SVC's."""

MOONS = {"log_loss": 0.205, "vectors": 15.0}

SPEED = 20.0
"""Minimum ratio of fastrvm's seconds to ours on moons."""

SKIN_ERROR = 0.005
"""Maximum error on colours that are not in the training rows."""

COLUMNS = {"goal": "", "data": "", "reached": ".4g", "bound": "", "met": ""}


def goal(what: str, name: str, reached: float, bound: float, *, least: bool = False) -> dict[str, Any]:
    """Return one table row; ``bound`` is the maximum, or with ``least`` the minimum."""
    met = reached >= bound if least else reached <= bound
    return {
        "goal": what,
        "data": name,
        "reached": reached,
        "bound": f"{'≥' if least else '≤'} {bound:.4g}",
        "met": "yes" if met else "NO",
    }


def published_goals(runs: list[Run]) -> list[dict[str, Any]]:
    """Return two goals per set: error (%) ≤ published RVM's error + one standard error, and vectors ≤ 2.5 × the
    published number.
    """
    goals = []
    for name, theirs in TIPPING.items():
        if (run := find(runs, name, OURS)) is None:
            continue
        error, bound = 100 * fmean(values(run, "error")), theirs.rvm_error + 100 * standard_error(run)
        goals.append(goal("error % ≤ published + standard error", name, error, bound))
        vectors = fmean(values(run, "vectors"))
        goals.append(goal(f"vectors ≤ {VECTORS:g} × published", name, vectors, VECTORS * theirs.rvm_vectors))
    return goals


def log_loss_difference(runs: list[Run], name: str, method: str = OURS) -> float | None:
    """Return our log loss minus the calibrated SVC's, over the common splits; None without common splits."""
    ours, svc = find(runs, name, method), find(runs, name, "svc")
    if ours is None or svc is None:
        return None
    return fmean(a - b for a, b in zip(values(ours, "log_loss"), values(svc, "log_loss"), strict=False))


def log_loss_goals(runs: list[Run]) -> list[dict[str, Any]]:
    """Return goals of the number of sets on which our log loss is better than the calibrated SVC's.

    One goal is for widths of the grid, the other goal for learned widths.
    """
    names, goals = dict.fromkeys(run["data"] for run in runs), []
    for method in (OURS, LEARNED):
        found = {name: log_loss_difference(runs, name, method) for name in names}
        compared = {name: difference for name, difference in found.items() if difference is not None}
        if compared:
            won = [name for name, difference in compared.items() if difference < 0]
            said = f"{', '.join(won) or 'none'} (of {len(compared)})"
            goals.append(goal(f"sets with better log loss than svc: {method}", said, len(won), SETS_WON, least=True))
    return goals


def moons_goals(runs: list[Run]) -> list[dict[str, Any]]:
    """Return the goals of moons: log loss, vectors, and seconds divided by fastrvm's."""
    ours, theirs = find(runs, "moons", OURS), find(runs, "moons", "fastrvm")
    if ours is None:
        return []
    goals = [goal(key.replace("_", " "), "moons", fmean(values(ours, key)), bound) for key, bound in MOONS.items()]
    if theirs is not None:
        ratio = fmean(values(theirs, "seconds")) / fmean(values(ours, "seconds"))
        goals.append(goal("fastrvm's seconds ÷ ours", "moons", ratio, SPEED, least=True))
    return goals


def skin_goals(runs: list[Run]) -> list[dict[str, Any]]:
    """Return the goal of the error on colours that are not in the training rows."""
    run = find(runs, "skin_nonskin", OURS)
    return [goal("error on unseen colours", "skin_nonskin", fmean(values(run, "error")), SKIN_ERROR)] if run else []


def goals(runs: list[Run]) -> list[dict[str, Any]]:
    """Return all goals for which there are runs."""
    return published_goals(runs) + log_loss_goals(runs) + moons_goals(runs) + skin_goals(runs)


def goals_text(runs: list[Run]) -> str:
    """Return the table of goals as Markdown."""
    return table(goals(runs), COLUMNS)
