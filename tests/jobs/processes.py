"""Processes that write to a job until they end or are killed."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent

HEAD = f"""
import sys; sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
import numpy as np, time
from reference import QUICK, model
from partirvm.storage import lease as leases
leases.TIMES = QUICK
from waiting import wait_for
from partirvm.errors import *
from partirvm.jobs.store import JobStore
def say(*words):
    print(*words, flush=True)
"""


@contextmanager
def running(code, *arguments):
    """Run a Python process, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", HEAD + code, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()
