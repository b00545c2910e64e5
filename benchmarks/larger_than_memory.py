"""Test of data larger than memory: a generated table is ingested and fitted by the command line under a memory limit.

    python -m benchmarks.larger_than_memory [--rows 20000000] [--folder FOLDER] [--output FOLDER]

The benchmark writes a Parquet folder of N × 16 float64 inputs, uniform on [−1, 1], and a CSV file with a tenth of the
rows. The target is sin(3x₀) + x₁x₂ + ½cos(4x₃) + 0.3·noise. Each source is ingested and fitted with ``--memory-limit``
(partition size 64, three rounds). Every command runs in a separate process, and the operating system reports its peak
resident memory. The lowest possible test RMSE is the noise, 0.3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import apart, write

FEATURES = 16
NOISE = 0.3
BLOCK = 1_000_000

COLUMNS = {
    "source": "", "rows": ",", "gigabytes": ".2f", "step": "", "seconds": ".1f", "peak_mib": ".0f", "limit": "",
    "rmse": ".4f", "vectors": "",
}  # fmt: skip


def blocks(rows: int, seed: int) -> Iterator[Any]:
    """Yield the table in blocks of rows, as Arrow tables."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    for start in range(0, rows, BLOCK):
        X = rng.uniform(-1, 1, size=(min(BLOCK, rows - start), FEATURES))
        smooth = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(4 * X[:, 3])
        columns = {f"x{column}": np.ascontiguousarray(X[:, column]) for column in range(FEATURES)}
        yield pa.table({**columns, "y": smooth + NOISE * rng.standard_normal(len(X))})


def write_parquet(folder: Path, rows: int, seed: int = 0) -> dict[str, Any]:
    """Write a folder of Parquet files with a million rows each."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for number, block in enumerate(blocks(rows, seed)):
        pq.write_table(block, folder / f"part-{number:04d}.parquet")
    return {"rows": rows}


def write_csv(path: Path, rows: int, seed: int = 1) -> dict[str, Any]:
    """Write one CSV file."""
    import pyarrow as pa
    import pyarrow.csv

    writer = None
    for block in blocks(rows, seed):
        writer = writer or pa.csv.CSVWriter(path, block.schema)
        writer.write(block)
    if writer is not None:
        writer.close()
    return {"rows": rows}


def command(*arguments: str) -> dict[str, Any]:
    """Run ``partirvm`` with the given arguments, and return its seconds, its peak resident memory, and its output.

    The peak of a child process includes the memory of its parent at the fork, so the parent allocates nothing large.
    """
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "partirvm", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"partirvm {' '.join(arguments)} ended with {process.returncode}")
    return {
        "seconds": time.perf_counter() - began,
        "peak_mib": usage.ru_maxrss / 1024,
        "printed": printed,
    }


def size(path: Path) -> float:
    """Return the size of a file, or of all files in a folder, in 10⁹ bytes."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e9


def tour(source: Path, rows: int, test: str, place: Path, limit: str) -> list[dict[str, Any]]:
    """Ingest, fit and evaluate one source."""
    data, job = str(place / f"{source.stem}.zarr"), str(place / f"{source.stem}-job")
    about = {"source": source.name, "rows": rows, "gigabytes": size(source), "limit": limit}
    ingest = command("ingest", str(source), data, "--target", "y", "--memory-limit", limit)
    fit = command(
        "fit", data, job, "--partition-size", "64", "--max-rounds", "3", "--memory-limit", limit, "--quiet", "--json"
    )  # fmt: skip
    evaluate = command("evaluate", job, test)
    scores = json.loads(evaluate["printed"])
    return [
        {**about, "step": "ingest", **ingest},
        {**about, "step": "fit", **fit, "vectors": scores["n_vectors"], "rmse": scores["rmse"]},
        {**about, "step": "evaluate", **evaluate},
    ]


def main() -> None:
    """Generate the data, run the commands, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=20_000_000, help="number of rows of the Parquet folder (default: 20,000,000)"
    )
    parser.add_argument("--memory-limit", default="512MiB", help="memory limit of each command (default: 512MiB)")
    parser.add_argument(
        "--folder", help="folder for about 8 GB of temporary files (default: the system's temporary folder)"
    )
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-", dir=options.folder) as name:
        place = Path(name)
        apart(write_csv, place / "test.csv", 100_000, seed=2)
        test = str(place / "test.zarr")
        command("ingest", str(place / "test.csv"), test, "--target", "y")
        apart(write_parquet, place / "parquet", options.rows)
        rows = tour(place / "parquet", options.rows, test, place, options.memory_limit)
        apart(write_csv, place / "table.csv", options.rows // 10)
        rows += tour(place / "table.csv", options.rows // 10, test, place, options.memory_limit)
    write(options.output, "larger_than_memory", [{**row, "printed": None} for row in rows], COLUMNS)


if __name__ == "__main__":
    main()
