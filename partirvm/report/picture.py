"""The picture of the demo: a landscape, its prediction by a model, and the history of the fit.

The figure is drawn from arrays with matplotlib's Agg canvas. This needs no screen and does not change global state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.report.quantities import Entry, Quantity, Rows, kind_of

Float = NDArray[np.float64]

WIDTH, DPI = 1600, 150
"""Width and height in pixels, and pixels per inch."""

LEFT, TOP, PITCH, MAP, GAP, FOOT = 92, 108, 504, 414, 76, 58
"""Layout in pixels: left margin, height of the head, distance of columns, width of a map, row spacing, foot."""

VERTICAL = 3.0
"""Exaggeration of heights in the shaded relief."""

INK, TRAIN, HELD_OUT, VECTORS = "#222222", "#3b6ea8", "#c8553d", "#8a8a8a"


@dataclass(frozen=True)
class Landscape:
    """The content of the picture.

    ``elevation``, ``mean`` and ``std`` are grids in metres, with rows from north to south and columns from west to
    east. ``extent`` is west, east, south and north in degrees. ``vectors`` (M, 2) are the longitudes and latitudes of
    the relevance vectors. ``history`` holds the rounds of a fit. ``title`` and ``subtitle`` are headings.
    """

    elevation: Float
    mean: Float
    std: Float
    extent: tuple[float, float, float, float]
    vectors: Float
    history: list[dict[str, Any]]
    title: str
    subtitle: str

    @property
    def aspect(self) -> float:
        """Ratio of a degree of latitude to a degree of longitude on the page, for maps without distortion."""
        _, _, south, north = self.extent
        return float(1 / np.cos(np.radians((south + north) / 2)))

    @property
    def metres(self) -> tuple[float, float]:
        """Size of a cell, east and north, in metres."""
        west, east, south, north = self.extent
        rows, columns = self.elevation.shape
        return 111_200 * (east - west) / columns / self.aspect, 111_200 * (north - south) / rows


class Sheet:
    """The page: a figure and the positions of its panels, in pixels from the top left."""

    def __init__(self, landscape: Landscape) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        west, east, south, north = landscape.extent
        self.high = round(MAP * (north - south) * landscape.aspect / (east - west))
        self.height = TOP + 2 * self.high + GAP + FOOT
        self.figure = Figure(figsize=(WIDTH / DPI, self.height / DPI), dpi=DPI)
        FigureCanvasAgg(self.figure)

    def axes(self, row: int, column: int, left: int = 0, width: int = MAP) -> Any:
        """Return axes at a grid position, ``left`` pixels from the left edge of the position, with this width."""
        x, y = LEFT + column * PITCH + left, TOP + row * (self.high + GAP)
        bottom = self.height - y - self.high
        return self.figure.add_axes((x / WIDTH, bottom / self.height, width / WIDTH, self.high / self.height))

    def map(self, row: int, column: int, landscape: Landscape, title: str) -> Any:
        """Return axes for a map, with degrees only at the outer edges of the page."""
        axis = self.axes(row, column)
        _dress(axis, landscape, title)
        axis.tick_params(labelleft=column == 0)
        return axis

    def bar(self, row: int, column: int, mappable: Any) -> None:
        """Draw a colour bar beside a map. Only limits that values may exceed have an arrow: not a lower limit of 0."""
        extend = "max" if mappable.norm.vmin == 0.0 else "both"
        bar = self.figure.colorbar(mappable, cax=self.axes(row, column, MAP + 9, 12), extend=extend)
        bar.outline.set_linewidth(0.5)
        bar.ax.tick_params(length=2, pad=2)


STYLE: dict[str, Any] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
STYLE |= dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6)
STYLE |= {"font.size": 7.5, "axes.titlesize": 8.5, "axes.titleweight": "bold", "axes.titlelocation": "left"}


def draw(landscape: Landscape) -> Any:
    """Return the figure: terrain, prediction, standard deviation; relevance vectors, error, and errors per round."""
    from matplotlib import rc_context

    with rc_context(STYLE):  # type: ignore[arg-type]
        sheet = Sheet(landscape)
        _relief(sheet, 0, landscape, landscape.elevation, "a  Terrain (m)")
        _relief(sheet, 1, landscape, landscape.mean, "b  Predicted mean (m)")
        error = landscape.mean - landscape.elevation
        width = float(np.quantile(np.abs(error), 0.99))
        title = "c  Predicted standard deviation (m)"  # on the scale of the errors: an even map is drawn as even
        _map(sheet, (0, 2), landscape, landscape.std, title, "magma", (0.0, width))
        _vectors(sheet, landscape, f"d  {len(landscape.vectors):,} relevance vectors")
        _map(sheet, (1, 1), landscape, error, "e  Predicted mean − terrain (m)", "RdBu_r", (-width, width))
        rounds(sheet.axes(1, 2, 34, MAP - 34), landscape.history, "f  Error of each round", "m")
        for text, y, size, weight in ((landscape.title, 30, 12, "bold"), (landscape.subtitle, 58, 8.5, "normal")):
            sheet.figure.text(LEFT / WIDTH, 1 - y / sheet.height, text, va="center", fontsize=size, fontweight=weight)
        sheet.figure.draw_without_rendering()
    return sheet.figure


def save(figure: Any, path: str) -> None:
    """Write the figure as PNG."""
    figure.savefig(path, dpi=DPI)


def _range(values: Float) -> tuple[float, float]:
    low, high = np.quantile(values, [0.005, 0.995])
    return float(low), float(high)


def _relief(sheet: Sheet, column: int, landscape: Landscape, heights: Float, title: str) -> None:
    """Draw heights in colour, shaded by light from the north-west. All reliefs have the same range of colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LightSource, Normalize

    colours = ScalarMappable(Normalize(*_range(landscape.elevation)), _earth())
    east, north = landscape.metres
    rgb = colours.to_rgba(heights)[..., :3]
    light = LightSource(azdeg=315, altdeg=45)
    shaded = light.shade_rgb(rgb, heights, vert_exag=VERTICAL, dx=east, dy=north, blend_mode="soft")
    _show(sheet.map(0, column, landscape, title), landscape, shaded)
    sheet.bar(0, column, colours)


def _earth() -> Any:
    """Return the land colours of the colour map ``gist_earth``."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["gist_earth"](np.linspace(0.32, 0.97, 256)))


def _map(
    sheet: Sheet,
    place: tuple[int, int],
    landscape: Landscape,
    values: Float,
    title: str,
    colours: str,
    limits: tuple[float, float],
) -> None:
    axis = sheet.map(*place, landscape, title)
    image = _show(axis, landscape, values, cmap=colours, vmin=limits[0], vmax=limits[1])
    sheet.bar(*place, image)


def _vectors(sheet: Sheet, landscape: Landscape, title: str) -> None:
    """Draw the positions of the relevance vectors on a grey relief."""
    from matplotlib.colors import LightSource

    east, north = landscape.metres
    shade = LightSource(azdeg=315, altdeg=45).hillshade(landscape.elevation, vert_exag=VERTICAL, dx=east, dy=north)
    axis = sheet.map(1, 0, landscape, title)
    _show(axis, landscape, shade, cmap="gray", vmin=-0.5, vmax=1.1)
    longitude, latitude = landscape.vectors.T
    axis.scatter(longitude, latitude, s=4, c=HELD_OUT, edgecolors="white", linewidths=0.2, zorder=3)


def _show(axis: Any, landscape: Landscape, values: Float, **options: Any) -> Any:
    return axis.imshow(values, extent=landscape.extent, aspect="auto", interpolation="bilinear", **options)


def _dress(axis: Any, landscape: Landscape, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    west, east, south, north = landscape.extent
    axis.set(title=title, xlim=(west, east), ylim=(south, north))
    for side, letters in ((axis.xaxis, "EW"), (axis.yaxis, "NS")):
        side.set_major_locator(MultipleLocator(0.1))
        side.set_major_formatter(FuncFormatter(lambda v, _, two=letters: f"{abs(v):.1f}° {two[int(v < 0)]}"))
    axis.tick_params(length=2.5, pad=2)


def rounds(axis: Any, history: list[Entry], title: str, unit: str) -> None:
    """Draw training and held-out error after each round, and the number of vectors as bars.

    The error is the RMSE in this unit for regression, and the log loss in nats per row for classification.
    """
    from matplotlib.patches import Patch

    numbers = [entry["number"] for entry in history]
    kind = kind_of(history[-1])
    behind = axis.twinx()
    behind.bar(numbers, [entry["vectors"] for entry in history], width=0.5, color=VECTORS, alpha=0.28)
    behind.set(ylabel="relevance vectors", ylim=(0, 1.4 * max(entry["vectors"] for entry in history)))
    axis.set_zorder(behind.get_zorder() + 1)
    axis.patch.set_visible(False)
    styles: tuple[tuple[Rows, str, str, str], ...]
    styles = ("training", "o-", TRAIN, TRAIN), ("held-out", "s--", HELD_OUT, "white")
    for rows, style, colour, filled in styles:
        errors = [Quantity(rows, kind.first).of(entry) for entry in history]
        if all(error is not None for error in errors):
            label = rows.replace("-", " ")
            axis.plot(numbers, errors, style, ms=4, lw=1.3, color=colour, mfc=filled, label=label)
    name = f"{kind.first.name} ({unit if kind.noise else kind.first.unit})"
    axis.set(title=title, xlabel="round", ylabel=name, xlim=(min(numbers) - 0.6, max(numbers) + 0.6), xticks=numbers)
    axis.set_ylim(0, None)
    handles, _ = axis.get_legend_handles_labels()
    columns = Patch(color=VECTORS, alpha=0.28, label="vectors (right axis)")
    axis.legend(handles=[*handles, columns], frameon=False, loc="upper right", borderpad=0.2)
    for each in (axis, behind):
        each.tick_params(length=2.5, pad=2)
        each.spines["top"].set_visible(False)
