"""Comparison of kernel blocks stored in memory, stored in Zarr, or evaluated again: seconds, peak memory and disk
space.

    python -m benchmarks.kernel_store --data DIR [--case NAME] [--repeats 3] [--memory-limit 512MiB]

DIR contains the .npz files of ``benchmarks.datasets``. Each fit runs in a separate process, and the stores alternate.
The table has medians. ``digest`` shows that all stores give the same model, bit for bit. CPU seconds are those of the
process and its threads, and depend little on other load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import _path
from benchmarks.measure import apart

STORES = ("none", "memory", "zarr", "auto")


def regression(
    target: Callable[[Any, Any], Any], **options: Any
) -> Callable[[Any, Any], tuple[Any, Any, dict[str, Any]]]:
    """Make a case from a function of the target and the options of the fit."""
    return lambda X, y: (X, target(X, y), options)


CASES: dict[str, tuple[str, Callable[[Any, Any], tuple[Any, Any, dict[str, Any]]]]] = {
    "kin40k": ("kin40k", regression(lambda X, y: y, partition_size=100, max_rounds=6)),
    "kin40k, split-merge": (
        "kin40k",
        regression(lambda X, y: y, strategy="split-merge", fit_rows="sample", partition_size=500),
    ),
    "skin": ("skin_nonskin", regression(lambda X, y: y, partition_size=64, max_rounds=6, gamma=1.0)),
}
"""The cases by name, each with its data set and preparation. Targets that are labels make a classification."""


def fit(folder: str, case: str, store: str, limit: str) -> dict[str, Any]:
    """Fit a case in this process, and return its measurements."""
    from partirvm.backends import LocalExecutor
    from partirvm.data import as_source
    from partirvm.jobs.driver import MemoryJournal
    from partirvm.jobs.run import run
    from partirvm.options import Request
    from partirvm.setup.resolve import resolve

    name, make = CASES[case]
    with np.load(_path(folder, name)) as file:
        X, y, options = make(file["X"], file["y"].astype(float))
    executor, journal = LocalExecutor(), MemoryJournal()
    parameters = Request(kernel_store=store, memory_limit=limit, **options)
    source = as_source(X, y, seed=0)
    spec = resolve(source, parameters, executor)
    largest, over = [0], threading.Event()
    watch = threading.Thread(target=_watch_disk, args=(largest, over))
    watch.start()
    began, cpu = time.perf_counter(), time.process_time()
    run(spec, source, executor, journal)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    over.set()
    watch.join()
    executor.close()
    assert journal.model is not None
    return {
        "plan": str(spec.plan.kernel_store),
        "seconds": seconds,
        "cpu_seconds": used,
        "pass_seconds": sum(entry["pass_seconds"] for entry in journal.history),
        "evaluated": sum(entry.get("kernel_evaluated", 0) for entry in journal.history) / 1e6,
        "kept": sum(entry.get("kernel_kept", 0) for entry in journal.history) / 1e6,
        "disk_mib": largest[0] / 2**20,
        "digest": journal.model.digest()[:8],
    }


def _watch_disk(largest: list[int], over: threading.Event) -> None:
    from partirvm.jobs.kernel_blocks import PREFIX

    while not over.wait(0.2):
        folders = Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getpid()}-*")
        sizes = (
            _size(Path(where, file)) for folder in folders for where, _, files in os.walk(folder) for file in files
        )
        largest[0] = max(largest[0], sum(sizes))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def main() -> None:
    """Run the cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the .npz files")
    parser.add_argument("--case", choices=CASES, action="append", help="only this case (may be repeated)")
    parser.add_argument("--repeats", type=int, default=3, help="number of fits of each kind (default: 3)")
    parser.add_argument("--memory-limit", default="1GiB", help="memory limit of each fit (default: 1GiB)")
    options = parser.parse_args()
    columns = ("seconds", "cpu_seconds", "pass_seconds", "peak_mib", "disk_mib", "evaluated", "kept")
    print(f"{'case':22}{'store':8}" + "".join(f"{name:>13}" for name in columns) + "  digest    plan")
    for case in options.case or CASES:
        rows: dict[str, list[dict[str, Any]]] = {store: [] for store in STORES}
        for _ in range(options.repeats):
            for store in STORES:
                rows[store].append(apart(fit, options.data, case, store, options.memory_limit))
        for store, found in rows.items():
            medians = "".join(f"{statistics.median(row[name] for row in found):13.2f}" for name in columns)
            digests = ",".join(sorted({row["digest"] for row in found}))
            print(f"{case:22}{store:8}{medians}  {digests:8}  {found[-1]['plan']}", flush=True)


if __name__ == "__main__":
    main()
