#!/usr/bin/env python
"""Run a command of partirvm on a Dask cluster of Slurm jobs, which end with the command.

    python deploy/slurm.py --workers 4 --threads 8 --memory 16GiB -- fit trips.zarr jobs/run1
    --max-rounds 9

submits four jobs of one worker each, starts when the first one runs, and adds the others when they
start. Data and jobs must be in a file system that all nodes share, and so must the Python
environment. The scheduler runs in this process: start it on a machine that the nodes can reach, or
in a job of its own (``deploy/fit.sbatch``). Ctrl-C stops a fit and keeps the model of its last
round.

Needs dask-jobqueue: ``pip install ".[deploy]"``. Site-specific options (modules, constraints,
scratch folders) belong in ``~/.config/dask/jobqueue.yaml``, under ``jobqueue.slurm``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from dask.utils import parse_bytes, parse_timedelta

SHARE = 0.9
"""Fraction of a job's memory that is the limit of its Dask worker; the rest is for the worker's
nanny process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status of the command."""
    chosen = _parser().parse_args(arguments)
    if not chosen.print_script and shutil.which("sbatch") is None:
        print(
            "slurm: there is no sbatch here: run this on a machine of the Slurm cluster",
            file=sys.stderr,
        )
        return 2
    with start(chosen) as cluster:
        if chosen.print_script:
            print(cluster.job_script(), end="")
            return 0
        # otherwise a refused job would only be noticed as a missing worker
        if subprocess.run(
            ["sbatch", "--test-only"], input=cluster.job_script(), text=True, check=False
        ).returncode:
            print(
                "slurm: sbatch refuses the workers' jobs; --print-script shows one", file=sys.stderr
            )
            return 2
        cluster.scale(jobs=chosen.workers)
        try:
            cluster.wait_for_workers(1, timeout=chosen.patience)
        except TimeoutError:
            print(
                f"slurm: no worker started within {chosen.patience:.0f} s: see `squeue --me`",
                file=sys.stderr,
            )
            return 4
        from partirvm.cli import main as partirvm

        return partirvm([*chosen.verb, "--scheduler", cluster.scheduler_address])


def start(chosen: argparse.Namespace) -> Any:
    """A ``SLURMCluster`` without workers: its scheduler runs in this process."""
    from dask_jobqueue import SLURMCluster  # type: ignore[attr-defined,unused-ignore]

    return SLURMCluster(
        cores=chosen.threads,
        processes=1,
        memory=int(SHARE * chosen.memory),
        job_mem=f"{chosen.memory >> 20}M",
        walltime=chosen.time,
        queue=chosen.partition,
        account=chosen.account,
        interface=chosen.interface,
        job_name="partirvm-worker",
        log_directory=chosen.logs,
        python=sys.executable,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("``", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--workers", type=int, default=2, help="Slurm jobs, one worker each  [default: 2]")
    add("--threads", type=int, default=4, help="cores of a job  [default: 4]")
    add("--memory", type=_bytes, default="8GiB", help="memory of a job  [default: 8GiB]")
    add("--time", default="12:00:00", help="time limit of a job  [default: 12:00:00]")
    add("--partition", help="Slurm's partition for the jobs")
    add("--account", help="Slurm's account for the jobs")
    add(
        "--interface",
        help=(
            "network interface of scheduler and workers, such as ib0  [default: that of the host "
            "name]"
        ),
    )
    add("--logs", default="logs", help="folder for the jobs' output  [default: logs]")
    add(
        "--patience",
        type=_seconds,
        default="6h",
        help="how long to wait for the first worker  [default: 6h]",
    )
    add("--print-script", action="store_true", help="print the script of a worker's job and exit")
    add(
        "verb",
        nargs="+",
        help="command, arguments and options of partirvm, after a --; --scheduler is added",
    )
    return parser


def _bytes(text: str) -> int:
    """Bytes of ``16GiB``; argparse shows the function's name in its message."""
    return int(parse_bytes(text))


def _seconds(text: str) -> float:
    return float(parse_timedelta(text))


if __name__ == "__main__":
    sys.exit(main())
