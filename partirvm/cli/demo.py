"""The demo: runs ordinary commands on terrain heights, one after another, and draws a picture of
the result.

The data are the elevation model of the Jacksboro fault that comes with matplotlib: 344 × 403 cells
with longitude, latitude and height in metres. The cells are split at random into 80 % training, 10
% validation and 10 % test rows.
"""

import shlex
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from partirvm.cli.running import DEMO, ExitStatus, echo
from partirvm.errors import ExistsError, UsageError
from partirvm.types import Float

MARK = ".partirvm-demo"
"""An empty file in a folder of the demo, whose other files may then be replaced."""

FIT = ("--max-vectors", "200", "--neighbours", "20")


def load_terrain() -> tuple[Float, Float, Float]:
    """Return heights (ny, nx) in metres, longitudes (nx,) and latitudes (ny,). ``UsageError``
    without matplotlib."""
    try:
        from matplotlib.cbook import get_sample_data

        sample: Any = get_sample_data("jacksboro_fault_dem.npz")
    except (ImportError, FileNotFoundError) as error:
        raise UsageError(
            f'the demo needs matplotlib sample data ({error}): pip install "partirvm[plot]"'
        ) from error
    with sample:
        heights = sample["elevation"].astype(np.float64)
        west, north, dx, dy = (float(sample[name]) for name in ("xmin", "ymin", "dx", "dy"))
    rows, columns = (np.arange(n) + 0.5 for n in heights.shape)
    return heights, west + dx * columns, north - dy * rows


def run(verbs: click.Group, output: str, memory_limit: int, quiet: bool) -> int:
    """Run the demo with these commands, write its files to the folder ``output``, and return the
    exit status.

    Raises ``UsageError`` for a folder that is not on this machine, ``ExistsError`` if it has files
    that no demo wrote.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    began = time.perf_counter()
    terrain = load_terrain()
    folder = _own_folder(output)
    heights = terrain[0].ravel()
    points = np.stack(np.meshgrid(*terrain[1:]), axis=-1).reshape(-1, 2)
    order = np.random.default_rng(20060101).permutation(len(heights))
    test, validation, train = np.split(
        order, np.round(np.array([0.1, 0.2]) * len(heights)).astype(int)
    )
    parts = {
        "test": test,
        "validation": validation,
        "train": train,
        "grid": np.arange(len(heights)),
    }

    def command(*arguments: str) -> Any:
        if not quiet:
            echo(f"\n$ partirvm {shlex.join(arguments)}", err=True)
        return verbs.main(
            (*arguments, *["--quiet"] * quiet),
            prog_name="partirvm",
            standalone_mode=False,
            obj=DEMO,
        )

    limit = ["--memory-limit", f"{memory_limit >> 20}MiB"]
    data = {name: str(folder / f"{name}.zarr") for name in (*parts, "prediction")}
    for name, rows in parts.items():
        longitude, latitude = points[rows].T
        columns = {"longitude": longitude, "latitude": latitude, "elevation": heights[rows]}
        table = str(folder / f"{name}.parquet")
        pq.write_table(pa.table(columns), table)
        command("ingest", table, data[name], "--target", "elevation", *limit, "--overwrite")
    job = str(folder / "job")
    picture = folder / "terrain.png"
    status: int = command(
        "fit", data["train"], job, *FIT, "--validation", data["validation"], *limit, "--overwrite"
    )
    if status != ExitStatus.DONE:
        return status
    scores = command("evaluate", job, data["test"])
    command("predict", job, data["grid"], data["prediction"], "--overwrite")
    draw(terrain, job, data["prediction"], picture)
    echo(
        f"\ntest RMSE {scores['rmse']:.2f} m; the 95 % interval covers "
        f"{100 * scores['coverage_95']:.1f} % of {scores['n_rows']:,} test cells; "
        f"{time.perf_counter() - began:.0f} s\npicture: {picture}"
    )
    return ExitStatus.DONE


def _own_folder(output: str) -> Path:
    """Return a new folder, or that of an earlier demo."""
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


def draw(terrain: tuple[Float, Float, Float], job: str, prediction: str, path: Path) -> None:
    """Write the picture: terrain with relevance vectors, predicted mean, its standard deviation,
    and errors."""
    import zarr
    from matplotlib.figure import Figure

    from partirvm.jobs import open_job
    from partirvm.report.plots import styled

    heights, x, y = terrain
    model = open_job(job).model()
    arrays = zarr.open_group(prediction, mode="r")
    mean, std = (np.asarray(arrays[name]).reshape(heights.shape) for name in ("mean", "std"))
    low, high = np.quantile(heights, [0.005, 0.995])
    wide = float(np.quantile(np.abs(mean - heights), 0.99))
    maps: list[tuple[str, Float, str, float, float]] = [
        (f"Terrain (m) and {model.n_vectors:,} relevance vectors", heights, "terrain", low, high),
        ("Predicted mean (m)", mean, "terrain", low, high),
        ("Predicted standard deviation (m)", std, "magma", 0.0, wide),
        ("Predicted mean − terrain (m)", mean - heights, "RdBu_r", -wide, wide),
    ]
    with styled():
        figure = Figure(figsize=(9.0, 7.8), dpi=110, layout="constrained")
        figure.suptitle(
            f"The Jacksboro fault, Tennessee: {model.n_rows:,} training cells", fontsize=10
        )
        axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        axes[0].locator_params("x", nbins=5)
        for axis, (title, values, colours, least, most) in zip(axes, maps, strict=True):
            form: dict[str, Any] = {
                "extent": (x[0], x[-1], y[-1], y[0]),
                "aspect": 1 / np.cos(np.radians(y.mean())),
            }
            image = axis.imshow(
                values, cmap=colours, vmin=least, vmax=most, interpolation="bilinear", **form
            )
            figure.colorbar(image, ax=axis, extend="both", fraction=0.05, pad=0.02)
            axis.set_title(title)
        axes[0].scatter(
            *model.design.centres.T, s=4, c="#bf4f2c", edgecolors="white", linewidths=0.2
        )
        figure.savefig(path)
