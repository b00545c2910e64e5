"""Data of the demo. The steps of the demo are ordinary commands of the command line.

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
from partirvm.jobs.store import JobStore

Float = NDArray[np.float64]

SAMPLE = "jacksboro_fault_dem.npz"
FEATURES = ("longitude", "latitude")
TARGET = "elevation"
SHARES = {"test": 0.1, "validation": 0.1, "train": 0.8}
SEED = 20060101


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


def landscape(terrain: Terrain, job: Path, predictions: Path, scores: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of the picture: terrain, predictions of every cell, and the vectors and rounds of the job."""
    import zarr

    store = JobStore(str(job))
    model, arrays = store.model(), cast(Any, zarr.open_group(str(predictions), mode="r"))
    mean, std = (np.asarray(arrays[name][:]).reshape(terrain.elevation.shape) for name in ("mean", "std"))
    return {
        "elevation": terrain.elevation,
        "mean": mean,
        "std": std,
        "extent": terrain.extent,
        "vectors": model.design.centres,
        "history": [event for event in store.events() if event["event"] == "fit"],
        "title": "A landscape from its relevance vectors: the Jacksboro fault, Tennessee",
        "subtitle": f"{model.n_rows:,} training cells, {model.n_vectors:,} relevance vectors; on {scores['n_rows']:,} "
        f"test cells: RMSE {scores['rmse']:.1f} m, {100 * scores['coverage_95']:.1f} % inside the 95 % interval",
    }
