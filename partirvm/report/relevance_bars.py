"""Relevance of features as bars, on a job's page and in matplotlib axes.

The relevance of feature j is gamma_j·var_j, with the variance var_j of the feature, as a fraction of the largest
relevance. Features below ``OFF`` are switched off. They have no bar, and are listed by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partirvm.planning.units import counted
from partirvm.report.bars import Bar, draw_bars, shortened
from partirvm.types import OFF

MOST = 20
"""Maximum number of bars. A text states the number of less relevant features."""

LISTED = 60
"""Maximum number of switched-off features that are named."""

INK, SERIES, GRID = "#222222", "#357a5b", "#dddddd"

STYLE: dict[str, Any] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
STYLE |= {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}


@dataclass(frozen=True)
class Ranking:
    """Features by decreasing relevance.

    ``shown`` are the features with bars, ``more`` is the number of less relevant features without a bar, and ``off``
    are the names of the features that are switched off.
    """

    shown: tuple[tuple[str, float], ...]
    more: int
    off: tuple[str, ...]

    @property
    def rest(self) -> str:
        """Text about the features without a bar; empty if all features have bars."""
        parts = [f"{counted(self.more, 'feature')} of less relevance"] if self.more else []
        return " and ".join(parts + ([f"{counted(len(self.off), 'feature')} switched off"] if self.off else []))


def ranking(relevance: Mapping[str, float]) -> Ranking:
    """Rank features by relevance. Features of equal relevance keep their order.

    >>> ranking({"age": 0.2, "height": 1.0, "shoe": 1e-4})
    Ranking(shown=(('height', 1.0), ('age', 0.2)), more=0, off=('shoe',))
    """
    on = sorted(((name, value) for name, value in relevance.items() if value >= OFF), key=lambda pair: -pair[1])
    off = tuple(name for name, value in relevance.items() if value < OFF)
    return Ranking(tuple(on[:MOST]), max(len(on) - MOST, 0), off)


def informative(relevance: Mapping[str, float]) -> bool:
    """Return True if relevances differ; one width for all standardised features is not informative.

    >>> informative({"age": 1.0, "height": 1.0, "constant": 0.0}), informative({"age": 1.0, "height": 0.4})
    (False, True)
    """
    values = [value for value in relevance.values() if value]
    return bool(values) and min(values) < max(values) * (1 - 1e-6)


def bars(relevance: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the bars for a page and the features without bar, or None if relevances do not differ."""
    from markupsafe import Markup

    if not informative(relevance):
        return None
    found = ranking(relevance)
    return {
        "drawing": Markup(_drawing(found)),
        "more": f"{found.more:,} more of less relevance" if found.more else "",
        "off_title": f"{counted(len(found.off), 'feature')} switched off",
        "off": ", ".join(found.off),
        "folded": len(found.off) > LISTED,
    }


def _drawing(found: Ranking) -> str:
    """Draw one bar per feature as SVG, with the name on the left and the value on the right."""
    return draw_bars("Relevance of features", [Bar(name, value, figure(value)) for name, value in found.shown])


def figure(value: float) -> str:
    """Format a relevance with two significant digits and at most three decimals.

    >>> figure(1.0), figure(0.4321), figure(0.0123), figure(0.001)
    ('1', '0.43', '0.012', '0.001')
    """
    return f"{float(f'{value:.2g}'):.3f}".rstrip("0").rstrip(".")


def draw_relevance(model: Any, path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Write the bars to a PNG file, or to another format of matplotlib according to the ending of ``path``.

    ``model`` is as for ``plot_relevance``.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = max(len(ranking(relevance_of(model)).shown), 3)
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(6.0, 1.1 + 0.24 * drawn), dpi=160, layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.add_subplot()
        plot_relevance(axis, model)
        if title is not None:
            axis.set_title(title)
        figure.savefig(os.fspath(path))


def plot_relevance(axis: Any, model: Any) -> None:
    """Draw at most ``MOST`` bars into matplotlib axes, largest first; the label states how many features have no bar.

    ``model`` is a fitted estimator, or relevances by name, such as from ``Job.relevance()``. Raises ``AttributeError``
    for an estimator whose kernel has no relevances.
    """
    found = ranking(relevance_of(model))
    values = [value for _, value in found.shown]
    places = range(len(values))
    axis.barh(places, values, color=SERIES, height=0.66)
    axis.set_yticks(places, [shortened(name) for name, _ in found.shown])
    for place, value in zip(places, values, strict=True):
        axis.annotate(figure(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set(xlim=(0, 1.12), ylim=(len(values) - 0.4, -0.6))
    rest = f"\n({found.rest})" if found.rest else ""
    axis.set_xlabel(f"relevance, as a fraction of the largest{rest}")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)


def relevance_of(model: Any) -> Mapping[str, float]:
    """Return the relevances of a fitted estimator by feature name; a mapping is returned unchanged."""
    if isinstance(model, Mapping):
        return model
    values = model.feature_relevance_
    names = getattr(model, "feature_names_in_", [f"x{column}" for column in range(len(values))])
    return dict(zip(map(str, names), values.tolist(), strict=True))
