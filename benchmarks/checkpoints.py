"""Cost of checkpoints: seconds of a fit with checkpoints, divided by the seconds of a fit without checkpoints.

    python -m benchmarks.checkpoints --data DIR [--rounds R] [--repeats K] [--output FOLDER]

Both variants are complete fits into a job folder, from opening DATA to the last model, with lease, events and models.
Only one variant writes checkpoints. Each fit runs in a separate process, and the two variants alternate. ``ratio`` is a
ratio of medians; ``writing`` is the total time of writing checkpoints, divided by the time of the fit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import apart, write
from benchmarks.working_set import CASES, Case, ingest
from partirvm import jobs
from partirvm.jobs.store import JobStore
from partirvm.options import Request

COLUMNS = {
    "data": "", "rows": ",", "rounds": "", "vectors": ",", "checkpoints": "", "mib": ".2f", "seconds": ".2f",
    "without": ".2f", "ratio": ".3f", "writing": ".4f",
}  # fmt: skip


def fit(place: str, case: Case, memory_limit: str, checkpoints: bool) -> dict[str, Any]:
    """Run one complete fit in this process, and return the seconds for checkpoints, their number, and the bytes of the
    last one.
    """
    writing: list[float] = []
    whole = JobStore.checkpoint

    def timed(store: JobStore, value: Any, **about: Any) -> None:
        began = time.perf_counter()
        if checkpoints:
            whole(store, value, **about)
        writing.append(time.perf_counter() - began)

    JobStore.checkpoint = timed  # type: ignore[method-assign]
    parameters = Request(
        gamma=case.gamma,
        strategy="working-set",
        partition_size=case.partition_size,
        max_rounds=case.rounds,
        memory_limit=memory_limit,
    )
    job = Path(place, "job")
    began = time.perf_counter()
    fitted = jobs.fit(f"{place}/train.zarr", str(job), parameters, overwrite=True)
    seconds = time.perf_counter() - began
    assert fitted.model is not None
    last = sorted(path for path in (job / "checkpoints").glob("*") if path.is_dir())[-1:]
    return {
        "seconds": seconds,
        "writing": sum(writing),
        "checkpoints": len(writing),
        "mib": sum(path.stat().st_size for path in last[0].rglob("*") if path.is_file()) / 2**20 if last else 0.0,
        "vectors": fitted.model.n_vectors,
        "sum": float(np.sum(fitted.model.mean)),
    }


def measure(folder: str, case: Case, memory_limit: str, repeats: int) -> dict[str, Any]:
    """Run fits with and without checkpoints, alternating."""
    runs: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-") as place:
        about = apart(ingest, folder, case.name, place)
        for repeat in range(repeats):
            for checkpoints in (True, False) if repeat % 2 else (False, True):
                runs[checkpoints].append(apart(fit, place, case, memory_limit, checkpoints))
    assert len({run["sum"] for each in runs.values() for run in each}) == 1, "checkpoints change no bits"
    seconds, without = (median(run["seconds"] for run in runs[each]) for each in (True, False))
    return {
        "data": case.name,
        "rows": about["rows"],
        "rounds": case.rounds,
        "vectors": runs[True][0]["vectors"],
        "checkpoints": runs[True][0]["checkpoints"],
        "mib": max(run["mib"] for run in runs[True]),
        "seconds": seconds,
        "without": without,
        "ratio": seconds / without,
        "writing": median(run["writing"] / run["seconds"] for run in runs[True]),
    }


def main() -> None:
    """Run the requested case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the .npz files, see benchmarks/datasets.py")
    parser.add_argument("--case", choices=CASES, default="nyc_green_taxi", help="data set (default: nyc_green_taxi)")
    parser.add_argument("--rounds", type=int, help="rounds of each fit (default: the rounds of the case)")
    parser.add_argument("--memory-limit", default="2GiB", help="memory limit of each process (default: 2GiB)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="number of runs of each variant; the table has medians (default: 3)"
    )
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args()
    case = CASES[options.case]
    if options.rounds is not None:
        case = Case(case.name, case.gamma, case.partition_size, options.rounds)
    write(options.output, "checkpoints", [measure(options.data, case, options.memory_limit, options.repeats)], COLUMNS)


if __name__ == "__main__":
    main()
