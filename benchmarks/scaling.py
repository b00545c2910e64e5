"""CPU seconds of a fit on Dask clusters compared with the same fit in one process, and a model of
larger clusters.

    python -m benchmarks.scaling [--rows N] [--workers W ...] [--repeats K] [--output FOLDER]

DATA has N × 9 generated rows in tiles of 16,384. The fit has three rounds of 250 candidates, with
all rows in each. Workers are processes with one thread each, over TCP on this machine; the
reference fit has one thread in this process. A first fit, which is not measured, loads the packages
in the workers. ``cpu`` is the CPU seconds of all processes of the fit, ``overhead`` its excess over
the fit in one process, and ``tasks`` the number of tasks that the scheduler ran. Repeats alternate;
values are medians.

``per_task`` is the seconds that the scheduler and the client need for one task that does nothing
(of 2,000). The model extrapolates one pass over larger data to 64 workers: a task reads at most
``MOST_TILES`` tiles, ``pass_minutes`` is the workers' time, and ``scheduler_share`` is the fraction
of it during which the scheduler works. Above 100 %, workers wait for the scheduler.
"""

from __future__ import annotations

import tempfile
import time
from statistics import median
from typing import Any

import numpy as np

import partirvm
from benchmarks.measure import apart, command_line, say, write
from partirvm import jobs
from partirvm.execution.dask import MOST_TILES
from partirvm.options import Request

COLUMNS = {
    "workers": "", "seconds": ".1f", "cpu": ".1f", "overhead": ".1%", "tasks": ",", "tasks_per_second": ".0f",
    "per_task": ".5f", "same_bits": "",
}  # fmt: skip

MODEL = {
    "rows": ",", "model_workers": "", "tiles_per_task": "", "tasks": ",", "pass_minutes": ".1f",
    "scheduler_share": ".1%",
}  # fmt: skip

TILE_ROWS = 16_384

TRANSITIONS = 5
"""State transitions of a task in the scheduler."""

EMPTY_TASKS = 2_000
"""Number of tasks that measure the scheduler."""

ASKED = Request(
    gamma=0.1,
    partition_size=250,
    max_rounds=3,
    fit_rows="full",
    noise="constant",
    memory_limit="1GiB",
    kernel_store="none",
)


def ingest(folder: str, rows: int) -> dict[str, Any]:
    """Make DATA of generated rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 9))
    y = np.sin(X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] + 0.3 * rng.normal(size=rows)
    partirvm.ingest((X, y), f"{folder}/rows.zarr", tile_rows=TILE_ROWS)
    return {}


def fit(folder: str, workers: int) -> dict[str, Any]:
    """Fit in this process (``workers`` = 0), or on a cluster, and return seconds, tasks and the
    model's bits."""
    if not workers:
        import os

        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        return {**_fitted(folder, None), "tasks": 0}
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit="4GiB",
        ) as local,
        Client(local, timeout="120s", set_as_default=False) as client,
    ):
        _fitted(folder, client)
        done = local.scheduler.transition_counter
        before = sum(client.run(time.process_time).values())
        found = _fitted(folder, client)
        found["cpu"] += sum(client.run(time.process_time).values()) - before
        # each task becomes waiting, processing, in memory, released and forgotten
        tasks = (local.scheduler.transition_counter - done) // TRANSITIONS
        began = time.perf_counter()
        client.gather(client.map(abs, range(EMPTY_TASKS)))
        return {**found, "tasks": tasks, "per_task": (time.perf_counter() - began) / EMPTY_TASKS}


def _fitted(folder: str, client: Any) -> dict[str, Any]:
    began = time.perf_counter()
    cpu = time.process_time()
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-") as place:
        fitted = jobs.fit(f"{folder}/rows.zarr", f"{place}/job", ASKED, client=client)
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "bits": fitted.model.mean.tobytes().hex(),
        "vectors": fitted.model.n_vectors,
        "passes": sum(line["passes"] for line in fitted.history),
    }


def modelled(rows: list[dict[str, Any]], n_rows: int, passes: int) -> list[dict[str, Any]]:
    """Extrapolate one pass to larger data on 64 workers, from the measured CPU seconds per row and
    per task."""
    most = max(rows, key=lambda row: row["workers"])
    per_row = most["cpu"] / (n_rows * passes)
    per_task = most["per_task"]
    found = []
    for wanted in (10**7, 10**8, 10**9):
        workers = 64
        tiles = -(-wanted // TILE_ROWS)
        per = min(max(tiles // (4 * workers), 1), MOST_TILES)
        tasks = 2 * -(-tiles // per)
        minutes = wanted * per_row / workers / 60
        share = tasks * per_task / 60 / minutes
        row = {"rows": wanted, "model_workers": workers, "tiles_per_task": per, "tasks": tasks}
        found.append({**row, "pass_minutes": minutes, "scheduler_share": share})
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and write the tables."""
    parser = command_line(__doc__, data=False)
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], metavar="W")
    parser.add_argument("--repeats", type=int, default=3, metavar="K")
    options = parser.parse_args(arguments)
    ways = [0, *options.workers]
    runs: dict[int, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-") as folder:
        apart(ingest, folder, options.rows)
        for _ in range(options.repeats):
            for way in ways:
                runs[way].append(apart(fit, folder, way))
                say(
                    f"{way} workers: {runs[way][-1]['seconds']:.1f} s, {runs[way][-1]['cpu']:.1f} "
                    "CPU s"
                )
    middle = {
        way: {
            key: median(run.get(key, 0) for run in runs[way])
            for key in ("seconds", "cpu", "tasks", "per_task")
        }
        for way in ways
    }
    rows = [
        {
            "workers": way,
            **middle[way],
            "overhead": middle[way]["cpu"] / middle[0]["cpu"] - 1,
            "tasks_per_second": middle[way]["tasks"] / middle[way]["seconds"],
            "same_bits": runs[way][0]["bits"] == runs[0][0]["bits"],
        }
        for way in ways
    ]
    write(options.output, "scaling", rows, COLUMNS)
    write(
        options.output, "scaling_model", modelled(rows, options.rows, runs[0][0]["passes"]), MODEL
    )


if __name__ == "__main__":
    main()
