"""The demo: runs ordinary commands on terrain heights, one after another, and draws a picture of
the result.

The data are the elevation model of the Jacksboro fault that comes with matplotlib: 344 × 403 cells
with longitude, latitude and height in metres. The cells are split at random into 80 % training, 10
% validation and 10 % test rows.
"""

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from partirvm.cli.running import DEMO, ExitStatus, echo
from partirvm.errors import ExistsError, UsageError
from partirvm.types import Float, Int

MARK = ".partirvm-demo"
"""Name of an empty file that marks a demo folder, whose other files may be replaced."""

FIT = ("--max-vectors", "200", "--neighbours", "20")
"""Options of the demo's fit."""


class Terrain(NamedTuple):
    """The elevation model.

    Attributes:
        heights: heights of the cells in metres, (ny, nx).
        longitudes: longitudes of the columns, (nx,).
        latitudes: latitudes of the rows, (ny,).
    """

    heights: Float
    longitudes: Float
    latitudes: Float


class Map(NamedTuple):
    """A map in the picture.

    Attributes:
        title: its title.
        values: the values of the cells, (ny, nx).
        colours: the name of matplotlib's colour map.
        lowest: the value of the first colour.
        highest: the value of the last colour.
    """

    title: str
    values: Float
    colours: str
    lowest: float
    highest: float


def load_terrain() -> Terrain:
    """Return the elevation model. Raises ``UsageError`` without matplotlib."""
    try:
        from matplotlib.cbook import get_sample_data

        sample: Any = get_sample_data("jacksboro_fault_dem.npz")
    except (ImportError, FileNotFoundError) as error:
        raise UsageError(
            f'the demo needs matplotlib sample data ({error}): pip install "partirvm[plot]"'
        ) from error
    with sample:
        heights = sample["elevation"].astype(np.float64)
        longitudes = float(sample["xmin"]) + float(sample["dx"]) * _centres(heights.shape[1])
        latitudes = float(sample["ymin"]) - float(sample["dy"]) * _centres(heights.shape[0])
    return Terrain(heights, longitudes, latitudes)


def _centres(n: int) -> Float:
    """Return the positions of the centres of n cells of width 1."""
    return np.arange(n, dtype=np.float64) + 0.5


@dataclass(frozen=True)
class Demo:
    """A run of the demo.

    Attributes:
        verbs: the commands.
        folder: the output folder.
        limit: the flag for the memory limit, and its value.
        quiet: True if the commands are not shown and print no progress.
        options: the options of the fit.
    """

    verbs: click.Group
    folder: Path
    limit: tuple[str, str]
    quiet: bool
    options: tuple[str, ...] = FIT

    def command(self, *arguments: str) -> Any:
        """Show and run a command, and return its result."""
        if not self.quiet:
            echo(f"\n$ partirvm {shlex.join(arguments)}", err=True)
        quiet = ("--quiet",) if self.quiet else ()
        return self.verbs.main(
            (*arguments, *quiet), prog_name="partirvm", standalone_mode=False, obj=DEMO
        )

    def place(self, name: str) -> str:
        """Return the path of a file or folder of the demo."""
        return str(self.folder / name)

    def ingest(self, terrain: Terrain) -> None:
        """Write tables of the training, validation, test and all cells, and convert them to
        datasets."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        longitudes, latitudes = np.meshgrid(terrain.longitudes, terrain.latitudes)
        columns = {"longitude": longitudes, "latitude": latitudes, "elevation": terrain.heights}
        cells = pa.table({name: values.ravel() for name, values in columns.items()})
        for name, rows in _parts(len(cells)).items():
            table = self.place(f"{name}.parquet")
            pq.write_table(cells.take(rows), table)
            data = self.place(f"{name}.zarr")
            self.command("ingest", table, data, "--target", "elevation", *self.limit, "--overwrite")

    def fit(self) -> int:
        """Fit a model to the training cells, and return the exit status."""
        places = (self.place("train.zarr"), self.place("job"))
        validation = ("--validation", self.place("validation.zarr"))
        options = (*self.options, *validation, *self.limit)
        status: int = self.command("fit", *places, *options, "--overwrite")
        return status


def _parts(n: int) -> dict[str, Int]:
    """Return the cells of each dataset, of n cells: 10 % test, 10 % validation and 80 % training
    cells, and the grid of all cells."""
    order = np.random.default_rng(20060101).permutation(n)
    ends = np.round(np.array([0.1, 0.2]) * n).astype(int)
    test, validation, train = np.split(order, ends)
    return {"test": test, "validation": validation, "train": train, "grid": np.arange(n)}


def run(
    verbs: click.Group,
    output: str,
    memory_limit: int,
    quiet: bool,
    *,
    terrain: Terrain | None = None,
    options: tuple[str, ...] = FIT,
) -> int:
    """Run the demo and return the exit status.

    Raises ``UsageError`` for a folder that is not on this machine, and ``ExistsError`` if the
    folder contains files that no demo wrote.

    Args:
        verbs: the commands.
        output: the folder to which all files are written.
        memory_limit: the memory limit in bytes.
        quiet: True if the commands are not shown and print no progress.
        terrain: the heights; None for those that matplotlib contains.
        options: the options of the fit.
    """
    began = time.perf_counter()
    terrain = load_terrain() if terrain is None else terrain
    limit = ("--memory-limit", f"{memory_limit >> 20}MiB")
    demo = Demo(verbs, _own_folder(output), limit, quiet, options)
    demo.ingest(terrain)
    status = demo.fit()
    if status != ExitStatus.DONE:
        return status
    job = demo.place("job")
    prediction = demo.place("prediction.zarr")
    picture = demo.folder / "terrain.png"
    scores = demo.command("evaluate", job, demo.place("test.zarr"))
    demo.command("predict", job, demo.place("grid.zarr"), prediction, "--overwrite")
    draw(terrain, job, prediction, picture)
    echo(
        f"\ntest RMSE {scores['rmse']:.2f} m; the 95 % interval covers "
        f"{100 * scores['coverage_95']:.1f} % of {scores['n_rows']:,} test cells; "
        f"{time.perf_counter() - began:.0f} s\npicture: {picture}"
    )
    return ExitStatus.DONE


def _own_folder(output: str) -> Path:
    """Return a new folder, or the folder of an earlier demo."""
    if "://" in output:
        raise UsageError(f"{output}: the demo writes to a folder on this machine: pass a path")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ExistsError(
            f"{output} contains files that the demo did not write: choose another folder"
        )
    (folder / MARK).touch()
    return folder


def draw(terrain: Terrain, job: str, prediction: str, path: Path) -> None:
    """Write the picture: terrain with relevance vectors, predicted mean, its standard deviation,
    and errors.

    Args:
        terrain: the elevation model.
        job: the folder of the fit.
        prediction: the predictions of all cells, a Zarr group.
        path: the file to write.
    """
    from matplotlib.figure import Figure

    from partirvm.jobs import open_job
    from partirvm.report.plots import styled

    model = open_job(job).model()
    with styled():
        figure = Figure(figsize=(9.0, 7.8), dpi=110, layout="constrained")
        figure.suptitle(
            f"The Jacksboro fault, Tennessee: {model.n_rows:,} training cells", fontsize=10
        )
        axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        axes[0].locator_params("x", nbins=5)
        for axis, map_ in zip(axes, _maps(terrain, prediction, model.n_vectors), strict=True):
            _draw_map(axis, map_, terrain)
        longitudes, latitudes = model.design.centres.T
        axes[0].scatter(longitudes, latitudes, s=4, c="#bf4f2c", edgecolors="white", linewidths=0.2)
        figure.savefig(path)


def _maps(terrain: Terrain, prediction: str, n_vectors: int) -> list[Map]:
    """Return the maps of the picture, for a model with this number of relevance vectors."""
    import zarr

    heights = terrain.heights
    arrays = zarr.open_group(prediction, mode="r")
    mean = np.asarray(arrays["mean"]).reshape(heights.shape)
    std = np.asarray(arrays["std"]).reshape(heights.shape)
    low, high = np.quantile(heights, [0.005, 0.995])
    error = float(np.quantile(np.abs(mean - heights), 0.99))
    return [
        Map(f"Terrain (m) and {n_vectors:,} relevance vectors", heights, "terrain", low, high),
        Map("Predicted mean (m)", mean, "terrain", low, high),
        Map("Predicted standard deviation (m)", std, "magma", 0.0, error),
        Map("Predicted mean − terrain (m)", mean - heights, "RdBu_r", -error, error),
    ]


def _draw_map(axis: Any, map_: Map, terrain: Terrain) -> None:
    """Draw a map with its colour bar."""
    x = terrain.longitudes
    y = terrain.latitudes
    image = axis.imshow(
        map_.values,
        cmap=map_.colours,
        vmin=map_.lowest,
        vmax=map_.highest,
        interpolation="bilinear",
        extent=(x[0], x[-1], y[-1], y[0]),
        aspect=1 / np.cos(np.radians(y.mean())),
    )
    axis.figure.colorbar(image, ax=axis, extend="both", fraction=0.05, pad=0.02)
    axis.set_title(map_.title)
