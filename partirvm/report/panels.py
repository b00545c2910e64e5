"""Panels of pictures, drawn by matplotlib into axes of a figure or as SVG on the page of a job.

What was observed is blue or orange, what the model states is a dashed line, and what chance alone explains is a grey
band. In the SVG these colours become those of the page, light or dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from partirvm.quoting import printable

Float = NDArray[np.float64]

INK, CELL, GRID, OBSERVED, CONTRAST, VECTORS, EVIDENCE = (
    "#222222", "#111111", "#e4e4e4", "#2c66a8", "#bf4f2c", "#357a5b", "#7451a8",
)  # fmt: skip

ON_PAGE = {
    INK: "soft", CELL: "ink", GRID: "grid", OBSERVED: "training", CONTRAST: "held-out", VECTORS: "vectors",
    EVIDENCE: "evidence",
}  # fmt: skip
"""Colours that are variables of the page's style sheet."""

CLASSES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d00")
"""Colours of lines of classes, which colour-blind readers can tell apart (Okabe & Ito 2008)."""

STYLE: dict[str, Any] = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
)
STYLE |= {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}
STYLE |= {"text.parse_math": False, "axes.unicode_minus": True, "legend.frameon": False, "legend.fontsize": 8}

Z = 1.959964
"""Half width of a 95 % interval, in standard errors."""

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
"""Names of the elements of a drawing, and of its links."""

LETTERS = 18
"""Maximum number of characters of a name in a drawing."""


class Row(NamedTuple):
    """A row of a table with its cell texts and CSS class. A row of class ``gap`` has one cell across the table."""

    cells: Sequence[str]
    style: str = ""


class Table(NamedTuple):
    """A table with column titles, rows and CSS class."""

    header: Sequence[str]
    rows: Sequence[Row]
    style: str = "figures-table"


@dataclass(frozen=True)
class Chart:
    """A panel: its title, a remark on how to read it, and the function that draws it into axes.

    ``values`` are texts that state what is drawn, and ``table`` is a table that does. ``size`` is in inches.
    """

    title: str
    remark: str
    draw: Callable[[Any], None]
    values: Sequence[str] = ()
    table: Table | None = None
    size: tuple[float, float] = (4.2, 2.5)

    def plot(self, axis: Any) -> None:
        """Draw the panel with its title into matplotlib axes."""
        self.draw(axis)
        axis.set_title(self.title)

    def svg(self, key: str = "") -> str:
        """Return the panel without its title as SVG, with a ``key`` that differs from those of like panels of a page.

        Raises ``ImportError`` without matplotlib.
        """
        from matplotlib.figure import Figure

        text, label = io.StringIO(), f"{self.title}. {self.remark}" + "".join(f"; {value}" for value in self.values)
        own = {"svg.fonttype": "none", "svg.hashsalt": key + label, "font.sans-serif": ["DejaVu Sans"]}
        with styled(own):
            figure = Figure(figsize=self.size, layout="constrained")
            self.draw(figure.add_subplot())
            nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure.savefig(text, format="svg", transparent=True, metadata=nothing)
        return _for_page(text.getvalue(), label)


def _for_page(text: str, label: str) -> str:
    """Return matplotlib's SVG as an element of a page: with a label, the page's colours, and no style sheet of its own.

    Only attributes change, so that a name that looks like a colour stays as it is.
    """
    root = ElementTree.fromstring(text)
    for definitions in root.iter(f"{{{SVG}}}defs"):
        for sheet in definitions.findall(f"{{{SVG}}}style"):
            definitions.remove(sheet)
    links = " ".join(value for element in root.iter() for name, value in element.items() if name != "id")
    used = set(re.findall(r"#([\w.]+)", links))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        if f"{{{XLINK}}}href" in element.attrib:
            element.set("xlink:href", element.attrib.pop(f"{{{XLINK}}}href"))
        if "style" in element.attrib:
            own = element.attrib["style"]
            element.set("style", re.sub("|".join(ON_PAGE), lambda found: f"var(--{ON_PAGE[found[0]]})", own))
    spaces = {"xmlns": SVG, "xmlns:xlink": XLINK}
    root.attrib = {**spaces, "viewBox": root.attrib["viewBox"], "role": "img", "aria-label": printable(label)}
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def styled(own: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws in the style of this package, with ``own`` settings on top."""
    from matplotlib import rc_context

    settings: Any = {**STYLE, **(own or {})}
    return rc_context(settings)


def drawable() -> bool:
    """Return True if matplotlib is installed."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def dress(axis: Any, x_label: str, y_label: str, *, percent: str = "") -> None:
    """Label axes and draw a grid; ``percent`` names the axes ("x", "y", "xy") that are fractions."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    axis.set(xlabel=printable(x_label), ylabel=printable(y_label))
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(length=3)
    axis.grid(color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for name, side in (("x", axis.xaxis), ("y", axis.yaxis)):
        if name in percent:
            side.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))
        elif side.get_scale() == "linear":
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", "−")))
        if side.get_scale() == "linear":
            side.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def dots(axis: Any, x: Float, y: Float) -> None:
    """Draw rows as points (n,), (n,)."""
    axis.plot(x, y, ".", color=OBSERVED, alpha=0.4, markersize=4, markeredgewidth=0)


def stated(axis: Any, x: Any, y: Any, name: str = "") -> None:
    """Draw the line that the model states, or chance, through points (n,), (n,)."""
    marker = "_" if np.size(x) == 1 else None  # one point has no line
    axis.plot(x, y, marker=marker, color=INK, linewidth=1.0, linestyle=(0, (5, 4)), label=name or None, zorder=3)


def estimates(axis: Any, x: Float, y: Float, low: Float, high: Float, name: str = "") -> None:
    """Draw estimates (n,) with intervals from ``low`` to ``high`` (n,)."""
    ends = np.maximum([y - low, high - y], 0.0)
    style: dict[str, Any] = {"fmt": "o", "color": CONTRAST, "markersize": 4, "linewidth": 1.2}
    axis.errorbar(x, y, ends, label=name or None, zorder=4, clip_on=False, **style)


def bars(title: str, remark: str, lengths: Mapping[str, float], texts: Sequence[str]) -> Chart:
    """Return a panel of horizontal bars of lengths in 0 … 1 with a text at each end."""

    def draw(axis: Any) -> None:
        places, values = range(len(lengths)), list(lengths.values())
        axis.barh(places, values, color=VECTORS, height=0.66)
        axis.set_yticks(places, [shortened(name) for name in lengths])
        for place, value, text in zip(places, values, texts, strict=True):
            axis.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        room = 1.06 + 0.02 * max(map(len, texts), default=1)
        axis.set(xlim=(0, room), ylim=(len(values) - 0.4, -0.6), xticks=[])
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)

    values = [f"{name}: {text}" for name, text in zip(lengths, texts, strict=True)]
    return Chart(title, remark, draw, values, size=(4.2, 0.3 + 0.24 * max(len(lengths), 3)))


def shortened(name: str) -> str:
    """Return a name of at most ``LETTERS`` printable characters."""
    name = printable(str(name))
    return name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"


def binomial_interval(hits: Float, rows: Float) -> tuple[Float, Float]:
    """Return the ends of the 95 % interval of a probability (Wilson 1927), given counts (n,).

    >>> low, high = binomial_interval(np.array([50.0]), np.array([100.0]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.404, 0.596)
    """
    share, spread = hits / rows, Z**2 / rows
    centre = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * share * (1 - share) + (spread / 2) ** 2) / (1 + spread)
    return centre - half, centre + half


def span(*values: Float, margin: float = 0.04) -> tuple[float, float]:
    """Return the range of all values, with a margin on both sides as a fraction of the range.

    >>> span(np.array([0.0, 100.0]))
    (-4.0, 104.0)
    """
    low = min(float(each.min()) for each in values if each.size)
    high = max(float(each.max()) for each in values if each.size)
    wide = margin * (high - low) or 0.1 * abs(high) or 1.0
    return low - wide, high + wide
