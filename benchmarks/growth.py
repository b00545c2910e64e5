"""Seconds per row of fits to 10⁵ … 10⁷ generated rows with the same number of vectors, with a plot.

    python -m benchmarks.growth [--rows N ...] [--vectors M] [--output FOLDER]

Each fit runs with default options except the width (gamma .5), at most M vectors and constant
noise, in a separate process with a memory limit of 512 MiB. ``ingest`` is the seconds taken to
write DATA, ``fit`` the seconds of the fit, and ``microseconds_per_row`` the fit time divided by the
rows. ``bare`` is the seconds of one bare pass (``benchmarks.working_set``), R = fit ÷ bare. RMSE
refers to 20,000 other rows; the noise is .2.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import partirvm
from benchmarks import sheets
from benchmarks.measure import apart, command_line, say, write
from benchmarks.working_set import bare_pass, generated
from partirvm import jobs, predict
from partirvm.data import ZarrSource
from partirvm.model import load_model, save_model
from partirvm.options import Request

COLUMNS = {
    "rows": ",", "vectors": ",", "ingest": ".1f", "fit": ".1f", "microseconds_per_row": ".1f", "bare": ".1f",
    "R": ".2f", "peak_mib": ".0f", "rmse": ".4f",
}  # fmt: skip


def ingest(folder: str, rows: int) -> dict[str, Any]:
    """Make DATA of generated rows, and of 20,000 other rows."""
    split = generated(rows)
    began = time.perf_counter()
    partirvm.ingest((split.X, split.y), f"{folder}/train.zarr")
    seconds = time.perf_counter() - began
    partirvm.ingest((split.X_test, split.y_test), f"{folder}/test.zarr")
    return {"seconds": seconds}


def fit(folder: str, vectors: int) -> dict[str, Any]:
    """Fit in this process."""
    asked = Request(
        gamma=0.5, partition_size=100, max_vectors=vectors, noise="constant", memory_limit="512MiB"
    )
    began = time.perf_counter()
    fitted = jobs.fit(f"{folder}/train.zarr", f"{folder}/job", asked)
    seconds = time.perf_counter() - began
    save_model(fitted.model, f"{folder}/model")
    return {"seconds": seconds, "vectors": fitted.model.n_vectors}


def compare(folder: str) -> dict[str, Any]:
    """Return the seconds of a bare pass, and the error for other rows."""
    seconds = bare_pass(load_model(f"{folder}/model"), ZarrSource(f"{folder}/train.zarr"))
    return {
        "seconds": seconds,
        "rmse": predict.evaluate(f"{folder}/job", f"{folder}/test.zarr")["rmse"],
    }


def measure(rows: int, vectors: int) -> dict[str, Any]:
    """Measure a fit to this number of rows."""
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-") as folder:
        written = apart(ingest, folder, rows)
        fitted = apart(fit, folder, vectors)
        bare = apart(compare, folder)
    return {
        "rows": rows,
        "vectors": fitted["vectors"],
        "ingest": written["seconds"],
        "fit": fitted["seconds"],
        "microseconds_per_row": 1e6 * fitted["seconds"] / rows,
        "bare": bare["seconds"],
        "R": fitted["seconds"] / bare["seconds"],
        "peak_mib": fitted["peak_mib"],
        "rmse": bare["rmse"],
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the seconds of fits and bare passes over the number of rows."""
    most = max(row["vectors"] for row in rows)
    figure, (axes,) = sheets.sheet(1, f"at most {most:,} vectors, two cores", panel=(6, 3.6))
    for key, label in (("fit", "fit"), ("bare", "one bare pass"), ("ingest", "ingest")):
        axes.loglog([row["rows"] for row in rows], [row[key] for row in rows], "o-", label=label)
    axes.set(xlabel="rows", ylabel="seconds")
    axes.legend()
    sheets.save(figure, path)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, write the table and the plot."""
    parser = command_line(__doc__, data=False)
    default = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000]
    parser.add_argument("--rows", type=int, nargs="+", default=default, metavar="N")
    parser.add_argument(
        "--vectors", type=int, default=400, metavar="M", help="most vectors (default: 400)"
    )
    options = parser.parse_args(arguments)
    rows = []
    for count in options.rows:
        rows.append(measure(count, options.vectors))
        say(
            f"{count:,} rows: {rows[-1]['fit']:.1f} s, R {rows[-1]['R']:.2f}, RMSE "
            f"{rows[-1]['rmse']:.4f}"
        )
    write(options.output, "growth", rows, COLUMNS)
    draw(rows, Path(options.output) / "growth.png")


if __name__ == "__main__":
    main()
