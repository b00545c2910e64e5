"""Data and picture of the demo. The steps of the demo are ordinary commands of the command line.

The data are the elevation model of the Jacksboro fault that matplotlib bundles: 344 × 403 cells of longitude and
latitude with their height in metres. The cells are split at random: 80 % train, 10 % are validation rows, 10 % test.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError

Float = NDArray[np.float64]

SAMPLE = "jacksboro_fault_dem.npz"
FEATURES = ("longitude", "latitude")
TARGET = "elevation"
SHARES = {"test": 0.1, "validation": 0.1, "train": 0.8}
SEED = 20060101

EXAGGERATION = 3.0
"""Exaggeration of heights in the shaded relief."""


@dataclass(frozen=True)
class Terrain:
    """A grid of heights (ny, nx) in metres, north to south and west to east, and the degrees of its cells' centres."""

    elevation: Float
    longitude: Float
    latitude: Float

    @property
    def points(self) -> Float:
        """Longitude and latitude of all cells, (ny·nx, 2), row by row."""
        return np.stack(np.meshgrid(self.longitude, self.latitude), axis=-1).reshape(-1, 2)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """West, east, south and north edge."""
        x, y = self.longitude, self.latitude
        dx, dy = (x[1] - x[0]) / 2, (y[0] - y[1]) / 2
        return float(x[0] - dx), float(x[-1] + dx), float(y[-1] - dy), float(y[0] + dy)

    @property
    def aspect(self) -> float:
        """Ratio of a degree of latitude to a degree of longitude, for maps without distortion."""
        return float(1 / np.cos(np.radians(self.latitude.mean())))


def load_terrain(every: int = 1) -> Terrain:
    """Load the bundled elevation model, with only each ``every``-th row and column.

    Raises ``UsageError`` if matplotlib or its sample data are not installed.
    """
    try:
        from matplotlib.cbook import get_sample_data
    except ImportError as error:
        raise UsageError(
            'the demo needs matplotlib, for its data and for the picture: pip install "partirvm[plot]"'
        ) from error
    try:
        sample: Any = get_sample_data(SAMPLE)
        with sample:
            elevation = sample["elevation"].astype(np.float64)
            west, north = float(sample["xmin"]), float(sample["ymin"])
            dx, dy = float(sample["dx"]), float(sample["dy"])
    except FileNotFoundError as error:
        raise UsageError(
            f"this matplotlib comes without its sample data ({SAMPLE}): pip install --force-reinstall matplotlib"
        ) from error
    rows, columns = (np.arange(n) + 0.5 for n in elevation.shape)
    return Terrain(elevation[::every, ::every], (west + dx * columns)[::every], (north - dy * rows)[::every])


def write_tables(terrain: Terrain, folder: Path) -> dict[str, int]:
    """Write train.npz, validation.npz and test.npz, and grid.npz with all cells; return their numbers of rows."""
    points, heights = terrain.points, terrain.elevation.ravel()
    order = np.random.default_rng(SEED).permutation(len(heights))
    bounds = np.round(np.cumsum(list(SHARES.values())) * len(heights)).astype(int)
    parts = dict(zip(SHARES, np.split(order, bounds[:-1]), strict=True))
    parts = {"train": parts["train"], "validation": parts["validation"], "test": parts["test"]}
    parts["grid"] = np.arange(len(heights))
    for name, rows in parts.items():
        arrays: dict[str, Any] = {"X": points[rows], TARGET: heights[rows], "columns": np.array(FEATURES)}
        np.savez(folder / f"{name}.npz", **arrays)
    return {name: len(rows) for name, rows in parts.items()}


def draw(terrain: Terrain, job: Path, predictions: Path, scores: dict[str, Any], path: Path) -> None:
    """Write the picture: terrain, prediction and its deviation above; vectors, errors and rounds of the fit below."""
    import zarr
    from matplotlib.figure import Figure

    from partirvm.jobs.store import JobStore
    from partirvm.report.curves import curves
    from partirvm.report.panels import CONTRAST, styled
    from partirvm.report.quantities import kind_of
    from partirvm.report.stages import stages

    store = JobStore(str(job))
    model, arrays = store.model(), cast(Any, zarr.open_group(str(predictions), mode="r"))
    mean, std = (np.asarray(arrays[name][:]).reshape(terrain.elevation.shape) for name in ("mean", "std"))
    history = [event for event in store.events() if event["event"] == "fit"]
    error = mean - terrain.elevation
    wide = float(np.quantile(np.abs(error), 0.99))
    with styled({"font.size": 7.5, "axes.titlesize": 8.5}):
        figure = Figure(figsize=(10.7, 7.4), dpi=150, layout="constrained")
        axes = figure.subplots(2, 3)
        title = "A landscape from its relevance vectors: the Jacksboro fault, Tennessee"
        figure.suptitle(
            f"{title}\n{model.n_rows:,} training cells, {model.n_vectors:,} relevance vectors; on {scores['n_rows']:,} "
            f"test cells: RMSE {scores['rmse']:.1f} m, {100 * scores['coverage_95']:.1f} % inside the 95 % interval",
            fontsize=10,
        )
        _relief(axes[0, 0], terrain, terrain.elevation, "a  Terrain (m)")
        _relief(axes[0, 1], terrain, mean, "b  Predicted mean (m)")
        _map(axes[0, 2], terrain, std, "c  Predicted standard deviation (m)", cmap="magma", vmin=0.0, vmax=wide)
        _map(axes[1, 1], terrain, error, "e  Predicted mean − terrain (m)", cmap="RdBu_r", vmin=-wide, vmax=wide)
        _show(axes[1, 0], terrain, _shade(terrain), cmap="gray", vmin=-0.5, vmax=1.1)
        axes[1, 0].scatter(*model.design.centres.T, s=4, c=CONTRAST, edgecolors="white", linewidths=0.2)
        axes[1, 0].set_title(f"d  {model.n_vectors:,} relevance vectors")
        for panel in curves(stages(history), kind_of(history[-1]))[:1]:
            panel.draw(axes[1, 2])
        axes[1, 2].set(title="f  Error of each round", ylabel="RMSE, m", box_aspect=1)
        figure.savefig(path)


def _relief(axis: Any, terrain: Terrain, heights: Float, title: str) -> None:
    """Draw heights in colour, shaded by light from the north-west. All reliefs have the same range of colours."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    land = ListedColormap(colormaps["gist_earth"](np.linspace(0.32, 0.97, 256)))
    low, high = np.quantile(terrain.elevation, [0.005, 0.995])
    _map(axis, terrain, heights, title, cmap=land, vmin=low, vmax=high)
    light = _shade(Terrain(heights, terrain.longitude, terrain.latitude))
    _show(axis, terrain, light, cmap="gray", vmin=0.0, vmax=1.0, alpha=0.35)


def _shade(terrain: Terrain) -> Float:
    from matplotlib.colors import LightSource

    west, east, south, north = terrain.extent
    rows, columns = terrain.elevation.shape
    dx, dy = 111_200 * (east - west) / columns / terrain.aspect, 111_200 * (north - south) / rows
    light = LightSource(azdeg=315, altdeg=45)
    return np.asarray(light.hillshade(terrain.elevation, vert_exag=EXAGGERATION, dx=dx, dy=dy))


def _map(axis: Any, terrain: Terrain, values: Float, title: str, **colours: Any) -> None:
    """Draw values with a colour bar. Only limits that values may exceed have an arrow: not a lower limit of 0."""
    image = _show(axis, terrain, values, **colours)
    axis.figure.colorbar(image, ax=axis, extend="max" if colours["vmin"] == 0.0 else "both", fraction=0.05, pad=0.02)
    axis.set_title(title)


def _show(axis: Any, terrain: Terrain, values: Float, **options: Any) -> Any:
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    for side, letters in ((axis.xaxis, "EW"), (axis.yaxis, "NS")):
        side.set_major_locator(MultipleLocator(0.1))
        side.set_major_formatter(FuncFormatter(lambda v, _, two=letters: f"{abs(v):.1f}° {two[int(v < 0)]}"))
    axis.tick_params(length=2.5, pad=2)
    return axis.imshow(values, extent=terrain.extent, aspect=terrain.aspect, interpolation="bilinear", **options)
