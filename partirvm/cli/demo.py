"""The demo: ordinary commands on the heights of a landscape, one after another, and a picture of the result.

The data are the elevation model of the Jacksboro fault that matplotlib bundles: 344 × 403 cells of longitude and
latitude with their height in metres. The cells are split at random: 80 % train, 10 % are validation rows, 10 % test.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from partirvm.cli.running import DEMO, ExitStatus, echo
from partirvm.errors import UsageError

Float = NDArray[np.float64]

SHARES = {"test": 0.1, "validation": 0.1, "train": 0.8}

FIT = ("--gamma", "80", "--partition-size", "350", "--max-rounds", "6")


class Terrain(NamedTuple):
    """A grid of heights (ny, nx) in metres, north to south and west to east, and the degrees of its cells' centres."""

    elevation: Float
    longitude: Float
    latitude: Float

    @property
    def points(self) -> Float:
        """Longitude and latitude of all cells, (ny·nx, 2), row by row."""
        return np.stack(np.meshgrid(self.longitude, self.latitude), axis=-1).reshape(-1, 2)


def load_terrain(every: int = 1) -> Terrain:
    """Load the bundled elevation model, with only each ``every``-th row and column.

    Raises ``UsageError`` if matplotlib or its sample data are not installed.
    """
    try:
        from matplotlib.cbook import get_sample_data

        sample: Any = get_sample_data("jacksboro_fault_dem.npz")
    except (ImportError, FileNotFoundError) as error:
        raise UsageError(
            f"the demo needs matplotlib with its sample data, for the data and for the picture ({error}): "
            'pip install "partirvm[plot]"'
        ) from error
    with sample:
        elevation = sample["elevation"].astype(np.float64)
        west, north, dx, dy = (float(sample[name]) for name in ("xmin", "ymin", "dx", "dy"))
    rows, columns = (np.arange(n) + 0.5 for n in elevation.shape)
    return Terrain(elevation[::every, ::every], (west + dx * columns)[::every], (north - dy * rows)[::every])


def run(
    verbs: click.Group, output: str, memory_limit: int, quiet: bool, fit: tuple[str, ...] = FIT, every: int = 1
) -> int:
    """Run the demo with these commands, write its files to the folder ``output``, and return the exit status.

    ``fit`` are options of the fit; ``every`` is as for ``load_terrain``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    began = time.perf_counter()
    folder, terrain = Path(output), load_terrain(every)
    folder.mkdir(parents=True, exist_ok=True)
    heights = terrain.elevation.ravel()
    order = np.random.default_rng(20060101).permutation(len(heights))
    bounds = np.round(np.cumsum(list(SHARES.values())) * len(heights)).astype(int)
    parts = dict(zip(SHARES, np.split(order, bounds[:-1]), strict=True)) | {"grid": np.arange(len(heights))}

    def command(*arguments: str) -> Any:
        if not quiet:
            echo(f"\n$ partirvm {shlex.join(arguments)}", err=True)
        arguments = (*arguments, *["--quiet"] * quiet)
        return verbs.main(arguments, prog_name="partirvm", standalone_mode=False, obj=DEMO)

    if not quiet:
        echo(f"{len(heights):,} cells of a landscape, split at random into train, validation and test", err=True)
    limit = ["--memory-limit", f"{memory_limit >> 20}MiB"]
    for name, rows in parts.items():
        longitude, latitude = terrain.points[rows].T
        columns = {"longitude": longitude, "latitude": latitude, "elevation": heights[rows]}
        table, data = str(folder / f"{name}.parquet"), str(folder / f"{name}.zarr")
        pq.write_table(pa.table(columns), table)
        command("ingest", table, data, "--target", "elevation", *limit, "--overwrite")
    job, picture = str(folder / "job"), folder / "terrain.png"
    names = ("train", "validation", "test", "grid", "prediction")
    train, validation, test, grid, prediction = (str(folder / f"{name}.zarr") for name in names)
    status: int = command("fit", train, job, *fit, "--validation", validation, *limit, "--overwrite")
    if status != ExitStatus.DONE:
        return status
    scores = command("evaluate", job, test)
    command("predict", job, grid, prediction, "--overwrite")
    draw(terrain, job, prediction, scores, picture)

    echo(
        f"\ntest RMSE {scores['rmse']:.2f} m; the 95 % interval covers {100 * scores['coverage_95']:.1f} % of "
        f"{scores['n_rows']:,} test cells; {time.perf_counter() - began:.0f} s\npicture: {picture}"
    )
    return ExitStatus.DONE


def draw(terrain: Terrain, job: str, prediction: str, scores: dict[str, Any], path: Path) -> None:
    """Write the picture: terrain and relevance vectors, predicted mean, its standard deviation, and errors."""
    import zarr
    from matplotlib.figure import Figure

    from partirvm.jobs import open_job
    from partirvm.report.plots import styled

    model, arrays = open_job(job).model(), zarr.open_group(prediction, mode="r")
    mean, std = (np.asarray(arrays[name]).reshape(terrain.elevation.shape) for name in ("mean", "std"))
    error = mean - terrain.elevation
    low, high = np.quantile(terrain.elevation, [0.005, 0.995])
    wide = float(np.quantile(np.abs(error), 0.99))
    maps: list[tuple[str, Float, dict[str, Any]]] = [
        (f"Terrain (m) and {model.n_vectors:,} relevance vectors", terrain.elevation, {"vmin": low, "vmax": high}),
        ("Predicted mean (m)", mean, {"vmin": low, "vmax": high}),
        ("Predicted standard deviation (m)", std, {"cmap": "magma", "vmin": 0.0, "vmax": wide}),
        ("Predicted mean − terrain (m)", error, {"cmap": "RdBu_r", "vmin": -wide, "vmax": wide}),
    ]
    x, y = terrain.longitude, terrain.latitude
    with styled():
        figure = Figure(figsize=(9.0, 7.8), dpi=110, layout="constrained")
        figure.suptitle(
            f"The Jacksboro fault, Tennessee: {model.n_rows:,} training cells; on {scores['n_rows']:,} test cells RMSE "
            f"{scores['rmse']:.1f} m, {100 * scores['coverage_95']:.1f} % inside the 95 % interval",
            fontsize=10,
        )
        axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        for axis, (title, values, colours) in zip(axes, maps, strict=True):
            shown = {"cmap": "terrain", "extent": (x[0], x[-1], y[-1], y[0]), **colours}
            image = axis.imshow(values, aspect=1 / np.cos(np.radians(y.mean())), interpolation="bilinear", **shown)
            figure.colorbar(image, ax=axis, extend="both", fraction=0.05, pad=0.02)
            axis.set_title(title)
        axes[0].locator_params(axis="x", nbins=4)  # shared by all maps
        axes[0].scatter(*model.design.centres.T, s=4, c="#bf4f2c", edgecolors="white", linewidths=0.2)
        figure.savefig(path)
