"""Panels of a fit: errors, vectors and evidence over rounds and over time, seconds by phase, memory, and relevance."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.planning.units import counted, format_bytes, format_duration
from partirvm.report.panels import CONTRAST, EVIDENCE, OBSERVED, VECTORS, Chart, bars, dress, styled
from partirvm.report.quantities import SIDES, Entry, Kind, Measure, Quantity, format_share
from partirvm.report.stages import FitStage, Range, comparable
from partirvm.types import OFF

DECADES = 20.0
"""Ratio of the largest to the smallest value above which an axis of positive values is logarithmic."""

MARKED, MOST = 60, 240
"""Maximum number of points with visible marks, and maximum number of points drawn."""

UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))

SHOWN, LISTED = 20, 60
"""Maximum number of features with a bar, and of switched-off features that are named at once."""


@dataclass(frozen=True)
class Curve:
    """A line of a chart: its name, colour, form, stages, and the value of each."""

    name: str
    colour: str
    form: str
    stages: Sequence[FitStage]
    values: Sequence[Range]


def curves(found: Sequence[FitStage], kind: Kind) -> list[Chart]:
    """Return the charts of errors, vectors and evidence, over rounds or levels and over time."""
    if len(found) < 2:
        return []
    levels = any(stage.kind == "level" for stage in found)
    same = comparable(found)
    charts = [(measure.title, measure.unit, _errors(found, measure)) for measure in kind.curves]
    numbers = [Range(stage.vectors, stage.vectors, stage.vectors) for stage in found]
    charts += [("Relevance vectors", "all of a level" * levels, [Curve("vectors", VECTORS, "o-", found, numbers)])]
    rows = f"nats, over {same[0].rows:,} rows" if same else "nats"
    charts += [("Log evidence", rows, [_line("evidence", EVIDENCE, "o-", same, "log_evidence")])]
    drawn = [(title, unit, [line for line in lines if line.values]) for title, unit, lines in charts]
    step = "level" if levels else "round"
    shown = [each for each in drawn if any(len(line.values) > 1 for line in each[2])]
    return [_chart(*each, step, timed=timed) for each in shown for timed in (False, True)]


def _errors(found: Sequence[FitStage], measure: Measure) -> list[Curve]:
    keys = [Quantity(rows, measure).key for rows in SIDES]
    return [
        _line("training", OBSERVED, "o-", found, keys[0], measure.scale),
        _line("held-out", CONTRAST, "s--", found, keys[1], measure.scale),
    ]


def _line(name: str, colour: str, form: str, found: Sequence[FitStage], key: str, scale: float = 1.0) -> Curve:
    """Return the line of a quantity through the stages that have a finite value of it."""
    pairs = [(stage, stage.values[key]) for stage in found if key in stage.values]
    pairs = [pair for pair in pairs if math.isfinite(pair[1].low) and math.isfinite(pair[1].high)]
    values = [Range(scale * each.low, scale * each.middle, scale * each.high) for _, each in pairs]
    return Curve(name, colour, form, [stage for stage, _ in pairs], values)


def _chart(title: str, unit: str, lines: Sequence[Curve], step: str, *, timed: bool) -> Chart:
    last = max((line.stages[-1] for line in lines), key=lambda stage: stage.seconds)
    name, size = next((one for one in UNITS if last.seconds >= 2 * one[1]), UNITS[-1])

    def draw(axis: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        for line in lines:
            shown = np.unique(np.linspace(0, len(line.values) - 1, min(len(line.values), MOST)).round().astype(int))
            stages, values = [line.stages[k] for k in shown], [line.values[k] for k in shown]
            x = [stage.seconds / size if timed else stage.x for stage in stages]
            y = [value.middle for value in values]
            marks = {"markersize": 4, "markerfacecolor": line.colour if line.form == "o-" else "none"}
            form = line.form if len(y) <= MARKED else line.form[1:]
            axis.plot(x, y, form, color=line.colour, linewidth=1.4, label=line.name, **marks)
            ranges = [(at, value) for at, value in zip(x, values, strict=True) if value.low < value.high]
            if ranges:
                spread = np.array([(at, value.low, value.high) for at, value in ranges]).T
                axis.vlines(*spread, color=line.colour, alpha=0.3, linewidth=4)
        ends = [end for line in lines for value in line.values for end in (value.low, value.high)]
        if lines[0].name in SIDES:
            if 0 < DECADES * min(ends) < max(ends):
                axis.set_yscale("log")
            else:
                axis.set_ylim(bottom=max(axis.get_ylim()[0], 0.0))
        dress(axis, f"elapsed, {name}" if timed else step, "")
        if not timed:
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if len(lines) > 1:
            axis.legend()

    texts = [
        f"{line.name}: {line.values[0].middle:,.4g} at first, {line.values[-1].middle:,.4g} at last" for line in lines
    ]
    return Chart(f"{title} over {'time' if timed else step + 's'}", unit, draw, texts)


def phases(history: Sequence[Entry], seconds: float | None) -> dict[str, float]:
    """Return the seconds of each phase by name, without phases that took no time.

    ``seconds`` is the running time of the job. Fits that ran in parallel count with the time of each, so that the sum
    may exceed it; then there is no rest.

    >>> fit = {"kind": "round", "pass_seconds": 2.0, "solve_seconds": 1.0}
    >>> phases([{**fit, "kind": "kernel"}, fit], 7.5)
    {'kernel learning': 3.0, 'passes': 2.0, 'dense fits': 1.0, 'rest': 1.5}
    """
    sums = dict.fromkeys(("kernel learning", "partition size", "passes", "dense fits"), 0.0)
    for entry in history:
        passing, solving = float(entry.get("pass_seconds") or 0.0), float(entry.get("solve_seconds") or 0.0)
        before = {"kernel": "kernel learning", "heuristic": "partition size"}.get(entry["kind"])
        sums[before or "passes"] += passing
        sums[before or "dense fits"] += solving
    if not any(sums.values()):
        return {}
    sums["rest"] = max((seconds or 0.0) - sum(sums.values()), 0.0)
    return {name: value for name, value in sums.items() if value > 0}


def time_and_memory(history: Sequence[Entry], seconds: float | None, plan: dict[str, Any] | None) -> list[Chart]:
    """Return the panels of the time by phase and of the peak memory beside the limit."""
    panels = []
    spent = phases(history, seconds)
    if spent:
        total, most = sum(spent.values()), max(spent.values())
        texts = [f"{format_duration(value)} ({format_share(round(value / total, 3))})" for value in spent.values()]
        parallel = seconds is not None and total > 1.01 * seconds
        remark = "fits in parallel are added up" if parallel else f"{format_duration(total)} in all"
        panels.append(bars("Time by phase", remark, {name: value / most for name, value in spent.items()}, texts))
    peak = max((entry["peak_memory"] for entry in history if entry.get("peak_memory")), default=None)
    if peak and plan and plan.get("memory_limit"):
        sizes = {"measured": peak, "expected": plan["memory_peak"], "limit": plan["memory_limit"]}
        lengths = {name: size / max(sizes.values()) for name, size in sizes.items()}
        remark = f"{format_share(round(peak / plan['memory_limit'], 3))} of the limit"
        panels.append(bars("Peak memory", remark, lengths, [format_bytes(size) for size in sizes.values()]))
    return panels


@dataclass(frozen=True)
class RankedFeatures:
    """Features by decreasing relevance: γ_j·var_j as a fraction of the largest.

    ``shown`` are the features with bars, ``more`` is the number of less relevant features without a bar, and ``off``
    are the names of the features whose relevance is below ``OFF``: they are switched off.
    """

    shown: Mapping[str, float]
    more: int
    off: tuple[str, ...]

    @property
    def panel(self) -> Chart:
        """The bars of the shown features."""
        texts = [_figure(value) for value in self.shown.values()]
        return bars("Relevance", "gamma × variance, the largest = 1", self.shown, texts)

    @property
    def rest(self) -> str:
        """Text about the features without a bar; empty if all features have bars."""
        parts = [f"{counted(self.more, 'feature')} of less relevance"] * bool(self.more)
        return " and ".join(parts + [f"{counted(len(self.off), 'feature')} switched off"] * bool(self.off))


def ranking(relevance: Mapping[str, float]) -> RankedFeatures:
    """Rank features by relevance. Features of equal relevance keep their order.

    >>> ranking({"age": 0.2, "height": 1.0, "shoe": 1e-4})
    RankedFeatures(shown={'height': 1.0, 'age': 0.2}, more=0, off=('shoe',))
    """
    on = sorted(((name, value) for name, value in relevance.items() if value >= OFF), key=lambda pair: -pair[1])
    off = tuple(name for name, value in relevance.items() if value < OFF)
    return RankedFeatures(dict(on[:SHOWN]), max(len(on) - SHOWN, 0), off)


def informative(relevance: Mapping[str, float]) -> bool:
    """Return True if relevances differ; one width for all standardised features is not informative.

    >>> informative({"age": 1.0, "height": 1.0, "constant": 0.0}), informative({"age": 1.0, "height": 0.4})
    (False, True)
    """
    values = [value for value in relevance.values() if value]
    return bool(values) and min(values) < max(values) * (1 - 1e-6)


def draw_relevance(model: Any, path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Write bars of the relevance of features to a PNG file, or another format of matplotlib by the ending of ``path``.

    ``model`` is a fitted estimator, or relevances by name, such as from ``Job.relevance()``. At most 20 features have
    a bar, the largest first; the label states how many have none. Raises ``AttributeError`` for an estimator whose
    kernel has no relevances.
    """
    from matplotlib.figure import Figure

    if not isinstance(model, Mapping):
        values = model.feature_relevance_
        names = getattr(model, "feature_names_in_", [f"x{column}" for column in range(len(values))])
        model = dict(zip(map(str, names), values.tolist(), strict=True))
    found = ranking(model)
    panel = found.panel
    with styled():
        figure = Figure(figsize=(6.0, panel.size[1] + 0.8), dpi=160, layout="constrained")
        axis = figure.add_subplot()
        panel.draw(axis)
        rest = f"\n({found.rest})" if found.rest else ""
        axis.set(title=title or "", xlabel=f"relevance, as a fraction of the largest{rest}")
        figure.savefig(os.fspath(path))


def _figure(value: float) -> str:
    """Format a relevance with two significant digits and at most three decimals.

    >>> _figure(1.0), _figure(0.4321), _figure(0.0123), _figure(0.001)
    ('1', '0.43', '0.012', '0.001')
    """
    return f"{float(f'{value:.2g}'):.3f}".rstrip("0").rstrip(".")
