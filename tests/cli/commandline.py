"""Small tables, a finished fit, and commands run in another process."""

import os
import re
import subprocess
import sys

import numpy as np
from numpy.random import default_rng

from partirvm.cli import main

started = []
"""Processes that are killed at the end of a test."""

NOISE = 0.1
LONG = ("--gamma", "20", "--strategy", "incremental", "--partition-size", "6")
LONG += ("--max-rounds", "500", "--residual", "none")
"""A fit that takes long enough to be aborted."""


def target(X):
    """Return the function behind the tables, without noise."""
    return np.sin(2 * X[:, 0]) * X[:, 1] + 5


def write_csv(path, rows, seed):
    """Write a table of columns a, b, fare; return it, (rows, 3)."""
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    table = np.column_stack([X, target(X) + rng.normal(0, NOISE, rows)])
    np.savetxt(path, table, delimiter=",", header="a,b,fare", comments="", fmt="%.17g")
    return table


class Tour:
    """A folder with train.csv, test.csv, the DATA of both, and in ``job`` a fit to the first."""

    def __init__(self, folder):
        self.folder = folder
        self.train_table = write_csv(folder / "train.csv", 3000, 1)
        self.test_table = write_csv(folder / "test.csv", 700, 2)
        self.train, self.test, self.job = (
            str(folder / name) for name in ("train.zarr", "test.zarr", "job")
        )
        for name in ("train", "test"):
            arguments = ["ingest", str(folder / f"{name}.csv"), str(folder / f"{name}.zarr")]
            assert main([*arguments, "--target", "fare", "--quiet"]) == 0
        options = "--gamma 1 --partition-size 60 --max-rounds 3 --neighbours 20 --quiet"
        fit = ["fit", self.train, self.job, "--validation", self.test, *options.split()]
        assert main(fit) == 0


PEAK = """
import sys
from partirvm.cli import main
status = main(sys.argv[1:])
print(status, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def measured(*arguments):
    """Return exit status, VmHWM in MiB, stdout and stderr of a command in another process."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=False
    )
    status, kibibytes = map(int, done.stdout.splitlines()[-1].split())
    return status, kibibytes / 1024, done.stdout, done.stderr


def read_until(stream, pattern):
    """Read lines until they match the pattern."""
    text = ""
    for line in stream:
        text += line
        if re.search(pattern, text, re.MULTILINE):
            return text
    raise AssertionError(f"the process ended without {pattern!r}: {text}")


def start(*arguments, **options):
    """Start a command in another process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    terminal = {"env": {**os.environ, "TERM": "xterm", "COLUMNS": "100"}}
    command = [sys.executable, "-m", "partirvm", *arguments]
    process = subprocess.Popen(command, **pipes | terminal | options)
    started.append(process)
    return process
