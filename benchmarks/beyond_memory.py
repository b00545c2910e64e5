"""Test with DATA larger than the machine's memory: a fit on two workers, a kill, an abort and a
resume.

    python -m benchmarks.beyond_memory [--rows 200000000] [--folder FOLDER] [--output FOLDER]

DATA are N × 16 float64 inputs, uniform on [−1, 1], and a target sin(3x₀) + x₁x₂ + ½cos(4x₃) +
0.3·noise, 136 bytes per row, generated and ingested in blocks, which takes twice their size on
disk. Two workers with one thread and 1 GiB each, and a driver, fit them with ``--memory-limit
1GiB``. The first fit is undisturbed. During the second fit, one worker is killed with SIGKILL and
replaced; later, the job is aborted and resumed. Both models must be bit-identical.

``gigabytes`` of the fit are those read by its workers; a plain read of the DATA files is listed for
comparison. ``peak_mib`` is the largest peak resident memory of any process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import partirvm
from benchmarks.measure import apart, command_line, say, write
from partirvm.model import Model

COLUMNS = {
    "step": "", "gigabytes": ".1f", "seconds": ".1f", "mb_per_second": ".0f", "peak_mib": ".0f", "result": "",
}  # fmt: skip

FEATURES = 16
NOISE = 0.3
CHUNK = 262_144
LIMIT = "1GiB"


def generate(data: str, rows: int) -> dict[str, Any]:
    """Ingest generated rows."""
    import dask.array as da

    X = da.random.default_rng(0).uniform(-1, 1, size=(rows, FEATURES), chunks=(CHUNK, FEATURES))
    noise = da.random.default_rng(1).standard_normal(rows, chunks=CHUNK)
    y = da.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * da.cos(4 * X[:, 3]) + NOISE * noise
    partirvm.ingest((X, y), data, memory_limit=LIMIT)
    return {}


def plain_read(data: str, most: int = 8 * 10**9) -> dict[str, Any]:
    """Read at most this many bytes of the files of DATA, without any other work."""
    began = time.perf_counter()
    done = 0
    for file in sorted(Path(data).rglob("*")):
        if file.is_file() and done < most:
            done += len(file.read_bytes())
    return {"seconds": time.perf_counter() - began, "gigabytes": done / 1e9}


class Cluster:
    """A scheduler and workers, each a process."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.scheduler = self._start(
            "scheduler", "--scheduler-file", str(self.file), "--port", "0", "--no-dashboard"
        )
        for _ in range(300):
            if self.file.exists():
                break
            time.sleep(0.2)
        else:
            raise SystemExit(
                f"the scheduler wrote no {self.file} within 60 seconds: see {folder}/cluster.log"
            )
        self.address = json.loads(self.file.read_text())["address"]
        self.workers = [self.worker(), self.worker()]

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker."""
        one = (
            "--nthreads",
            "1",
            "--nworkers",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--memory-limit",
            LIMIT,
        )
        return self._start("worker", self.address, *one, "--local-directory", str(self.folder))

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "cluster.log").open("ab")
        return subprocess.Popen([sys.executable, "-m", "dask", *arguments], stdout=log, stderr=log)

    def peak(self) -> float:
        """Peak resident memory of the workers, MiB."""
        lines = [
            Path(f"/proc/{worker.pid}/status").read_text()
            for worker in self.workers
            if worker.poll() is None
        ]
        return max(int(text.split("VmHWM:")[1].split()[0]) for text in lines) / 1024

    def read(self) -> int:
        """Bytes that the workers have read so far."""
        lines = [Path(f"/proc/{worker.pid}/io").read_text() for worker in self.workers]
        return sum(int(text.split("rchar:")[1].split()[0]) for text in lines)

    def close(self) -> None:
        """End all processes."""
        for each in (*self.workers, self.scheduler):
            each.terminate()
            each.wait(60)


class Command:
    """A running ``partirvm`` command."""

    def __init__(self, *arguments: str) -> None:
        self.began = time.perf_counter()
        self.arguments = arguments
        self.process = subprocess.Popen(
            [sys.executable, "-m", "partirvm", *arguments], stdout=subprocess.PIPE
        )

    def end(self, wanted: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Wait for the end, and return seconds and peak."""
        assert self.process.stdout is not None
        printed = self.process.stdout.read().decode()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode not in wanted:
            raise SystemExit(
                f"partirvm {' '.join(self.arguments)} ended with {self.process.returncode}: "
                f"{printed}"
            )
        return {
            "seconds": time.perf_counter() - self.began,
            "peak_mib": usage.ru_maxrss / 1024,
            "printed": printed,
        }


def _model(job: str) -> Model:
    model = partirvm.open_job(job).model()
    assert isinstance(model, Model)
    return model


def bits(job: str) -> bytes:
    """Return the weights and α of a job's model."""
    model = _model(job)
    return bytes(model.mean.tobytes() + model.alpha.tobytes())


def experiment(place: Path, rows: int, fit_rows: str) -> list[dict[str, Any]]:
    """Run all steps."""
    data, whole, hurt = (str(place / name) for name in ("rows.zarr", "whole", "hurt"))
    began = time.perf_counter()
    apart(generate, data, rows)
    gigabytes = sum(file.stat().st_size for file in Path(data).rglob("*")) / 1e9
    found = [{"step": "ingest", "gigabytes": gigabytes, "seconds": time.perf_counter() - began}]
    found.append({"step": "plain read", **apart(plain_read, data)})
    cluster = Cluster(place)
    asked = (
        "--partition-size",
        "32",
        "--max-rounds",
        "4",
        "--gamma",
        "0.05",
        "--memory-limit",
        LIMIT,
    )
    asked += ("--fit-rows", fit_rows, "--scheduler", cluster.address, "--quiet")
    try:
        before = cluster.read()
        first = Command("fit", data, whole, *asked).end()
        n_vectors = _model(whole).n_vectors
        read = (cluster.read() - before) / 1e9
        first |= {"peak_mib": max(first["peak_mib"], cluster.peak()), "gigabytes": read}
        found.append({"step": "fit", **first, "result": f"{n_vectors} vectors"})
        say(f"fit: {first['seconds']:.0f} s")

        run = Command("fit", data, hurt, *asked)
        time.sleep(0.3 * first["seconds"])
        cluster.workers[0].send_signal(signal.SIGKILL)
        cluster.workers[0].wait()
        cluster.workers[0] = cluster.worker()
        time.sleep(0.45 * first["seconds"])
        asking = time.perf_counter()
        Command("abort", hurt).end()
        ended = run.end((3, 0))
        found.append(
            {"step": "kill a worker", "seconds": ended["seconds"], "peak_mib": cluster.peak()}
        )
        status = partirvm.open_job(hurt).status()
        found.append(
            {"step": "abort", "seconds": time.perf_counter() - asking, "result": str(status)}
        )
        kept = _model(hurt)
        found.append({"step": "model after abort", "result": f"{kept.n_vectors} vectors"})
        again = Command("resume", hurt, "--scheduler", cluster.address, "--quiet").end()
        same = "same bits" if bits(hurt) == bits(whole) else "OTHER BITS"
        found.append({"step": "resume", **again, "result": same})
    finally:
        cluster.close()
    for row in found:
        if row.get("gigabytes") and row.get("seconds"):
            row["mb_per_second"] = 1e3 * row["gigabytes"] / row["seconds"]
    return [{**row, "printed": None} for row in found]


def main() -> None:
    """Run the benchmark and write the table."""
    parser = command_line(__doc__, data=False)
    parser.add_argument("--rows", type=int, default=200_000_000, metavar="N")
    parser.add_argument(
        "--fit-rows", default="growing", help="rows of fits before the last (default: growing)"
    )
    parser.add_argument(
        "--folder", help="folder for 58 GB of temporary files (default: the system's)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-", dir=options.folder) as name:
        rows = experiment(Path(name), options.rows, options.fit_rows)
    write(options.output, "beyond_memory", rows, COLUMNS)


if __name__ == "__main__":
    main()
