"""Local residuals for larger-than-memory data: seconds of the fit and of its cells, and rows
predicted per second.

    python -m benchmarks.local_scale [--rows 100000 1000000 10000000] [--new 100000] [--folder DIR]
    [--output DIR]

DATA are N × 8 inputs, uniform on [−1, 1], and a target sin(3x₀) + x₁x₂ + ½sin(8x₀)cos(6x₁) +
0.1·noise, for which 100 vectors leave errors shared by near rows. Each fit runs in a new process
with ``memory_limit="1GiB"`` and 40 neighbours; ``cells`` is the seconds of its pass over all rows
with the sort and the search for the local kernel. New rows are predicted with deviation in a
separate process, with one thread; ``peak_mib`` is the larger of the two peaks.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np

import partirvm
from benchmarks import measure
from partirvm.cli import main as main_of_command
from partirvm.core.local_quantiles import multiples_at

FEATURES = 8
NOISE = 0.1
LIMIT = "1GiB"
COLUMNS = {
    "rows": ",",
    "vectors": ".0f",
    "fit_seconds": ".1f",
    "cells_seconds": ".1f",
    "gigabytes": ".2f",
}
COLUMNS |= {
    "rows_per_second": ",.0f",
    "RMSE": ".4f",
    "coverage %": ".1f",
    "alone": ".4f",
    "peak_mib": ",.0f",
}


def target(X: Any, sin: Any, cos: Any) -> Any:
    """Return the function without noise."""
    return sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * sin(8 * X[:, 0]) * cos(6 * X[:, 1])


def generate(data: str, rows: int) -> dict[str, Any]:
    """Ingest generated rows."""
    import dask.array as da

    X = da.random.default_rng(0).uniform(-1, 1, size=(rows, FEATURES), chunks=(1 << 18, FEATURES))
    noise = da.random.default_rng(1).standard_normal(rows, chunks=1 << 18)
    partirvm.ingest((X, target(X, da.sin, da.cos) + NOISE * noise), data, memory_limit=LIMIT)
    return {}


def fit(data: str, job: str) -> dict[str, Any]:
    """Fit DATA with local residuals by the command line; ``cells_seconds`` is the time of the last
    line of history."""
    how = [
        "--residual",
        "local",
        "--neighbours",
        "40",
        "--max-vectors",
        "100",
        "--memory-limit",
        LIMIT,
        "--quiet",
    ]
    began = time.perf_counter()
    if main_of_command(["fit", data, job, "--reference", "none", "--seed", "0", *how]):
        raise SystemExit("the fit failed")
    seconds = time.perf_counter() - began
    lines = partirvm.open_job(job).state().history
    return {"fit_seconds": seconds, "cells_seconds": lines[-1]["seconds"] - lines[-2]["seconds"]}


def predict(job: str, new: int) -> dict[str, Any]:
    """Predict new rows with deviation, on one thread, and compare them with the vectors alone."""
    model = partirvm.open_job(job).model()
    X = np.random.default_rng(2).uniform(-1, 1, size=(new, FEATURES))
    y = target(X, np.sin, np.cos) + NOISE * np.random.default_rng(3).standard_normal(new)
    began = time.perf_counter()
    mean, variance, _ = model.moments(X)
    seconds = time.perf_counter() - began
    alone = model.sparse().moments(X)[0]
    deviation = np.sqrt(variance)
    low, high = multiples_at(model.multiples([0.95]), deviation[:, None])[:, :, 0]
    inside = (low * deviation <= y - mean) & (y - mean <= high * deviation)
    errors = {"RMSE": y - mean, "alone": y - alone}
    return {
        "vectors": model.n_vectors,
        "gigabytes": model.residuals.cells.nbytes / 1e9 if model.residuals else 0.0,
        "on disk": bool(model.cells_place),
        "rows_per_second": new / seconds,
        "coverage %": 100.0 * inside.mean(),
        **{name: float(np.sqrt(np.mean(each**2))) for name, each in errors.items()},
    }


def main(arguments: list[str] | None = None) -> None:
    """Run all sizes; write the table after each line."""
    parser = measure.command_line(__doc__ or "", data=False)
    parser.add_argument(
        "--rows",
        nargs="+",
        type=int,
        default=[10**5, 10**6, 10**7],
        metavar="N",
        help="rows of DATA",
    )
    parser.add_argument(
        "--new",
        type=int,
        default=10**5,
        metavar="N",
        help="rows that are predicted (default: 100000)",
    )
    parser.add_argument("--folder", help="folder for DATA and jobs (default: a temporary one)")
    options = parser.parse_args(arguments)
    table = list[dict[str, Any]]()
    for rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            data = f"{folder}/data.zarr"
            job = f"{folder}/job"
            measure.apart(generate, data, rows)
            fitted = measure.apart(fit, data, job)
            predicted = measure.apart(predict, job, options.new)
            peaks = {"peak_mib": max(fitted["peak_mib"], predicted["peak_mib"])}
            table.append({"rows": rows, **fitted, **predicted, **peaks})
            measure.write(options.output, "local_scale", table, COLUMNS)


if __name__ == "__main__":
    main()
