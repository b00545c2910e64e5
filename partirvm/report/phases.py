"""How the time of a fit was spent, and its memory beside the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from partirvm.planning.units import format_bytes, format_duration
from partirvm.report.bars import Bar, draw_bars
from partirvm.report.quantities import Entry, format_share


def phases(history: Sequence[Entry], seconds: float | None) -> list[tuple[str, float]]:
    """Return the seconds of each phase: name and seconds, without phases that took no time.

    ``seconds`` is the running time of the job. Fits that ran in parallel count with the time of each, so that the sum
    may exceed it; then there is no rest.

    >>> fit = {"kind": "round", "pass_seconds": 2.0, "solve_seconds": 1.0}
    >>> phases([{**fit, "kind": "kernel"}, fit], 7.5)
    [('kernel learning', 3.0), ('passes', 2.0), ('dense fits', 1.0), ('rest', 1.5)]
    """
    sums = dict.fromkeys(("kernel learning", "partition size", "passes", "dense fits"), 0.0)
    for entry in history:
        passing, solving = float(entry.get("pass_seconds") or 0.0), float(entry.get("solve_seconds") or 0.0)
        before = {"kernel": "kernel learning", "heuristic": "partition size"}.get(entry["kind"])
        if before:
            sums[before] += passing + solving
        else:
            sums["passes"] += passing
            sums["dense fits"] += solving
    if not any(sums.values()):
        return []
    sums["rest"] = max((seconds or 0.0) - sum(sums.values()), 0.0)
    return [(name, value) for name, value in sums.items() if value > 0]


def time_and_memory(
    history: Sequence[Entry], seconds: float | None, plan: dict[str, Any] | None
) -> list[tuple[str, str, Any]]:
    """Return heading, remark and drawing of the time by phase and of the peak memory beside the limit."""
    from markupsafe import Markup

    drawn = []
    spent = phases(history, seconds)
    if spent:
        total = sum(value for _, value in spent)
        most = max(value for _, value in spent)
        bars = [
            Bar(name, value / most, f"{format_duration(value)} ({format_share(round(value / total, 3))})")
            for name, value in spent
        ]
        parallel = seconds is not None and total > 1.01 * seconds
        remark = "fits in parallel are added up" if parallel else f"{format_duration(total)} in all"
        drawn.append(("Time by phase", remark, Markup(draw_bars("Time by phase", bars))))
    peak = max((entry["peak_memory"] for entry in history if entry.get("peak_memory")), default=None)
    if peak and plan and plan.get("memory_limit"):
        limit = max(plan["memory_limit"], peak, plan["memory_peak"])
        sizes = [("measured", peak), ("expected", plan["memory_peak"]), ("limit", plan["memory_limit"])]
        bars = [Bar(name, size / limit, format_bytes(size)) for name, size in sizes]
        remark = f"{format_share(round(peak / plan['memory_limit'], 3))} of the limit"
        drawn.append(("Peak memory", remark, Markup(draw_bars("Peak memory", bars))))
    return drawn
