"""Clusters of worker processes that communicate over TCP."""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from waiting import PATIENCE, wait_for


@contextmanager
def cluster(n_workers: int) -> Iterator[Any]:
    """Yield the client of a ``LocalCluster`` of this many processes with one thread each."""
    from distributed import Client, LocalCluster

    how = {
        "threads_per_worker": 1,
        "processes": True,
        "protocol": "tcp://",
        "dashboard_address": ":0",
    }
    with (
        LocalCluster(n_workers=n_workers, memory_limit="2GiB", **how) as local,
        Client(local, timeout=PATIENCE, set_as_default=False) as client,
    ):
        yield client


PORTS = range(15_000, 32_000)
"""Ports outside the range from which the system gives each connection its own port: another
process's connection could take a free port of that range before the server does."""


def free_port() -> str:
    """Return a free port."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return str(port)


class Processes:
    """A scheduler and single-threaded worker processes; ``options`` apply to the workers."""

    def __init__(self, folder: Path, n_workers: int, *options: str, **environment: str) -> None:
        self._folder = folder
        self._options = options
        self._environment = environment
        self._all: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        contact = folder / "scheduler.json"
        place = [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--dashboard-address",
            ":0",
            "--scheduler-file",
        ]
        self.scheduler = self._start("scheduler", *place, str(contact))
        wait_for(lambda: contact.exists() and contact.read_text(), "the scheduler")
        self.address = json.loads(contact.read_text())["address"]
        self.add(n_workers)

    def add(self, n: int) -> None:
        """Start this many workers."""
        alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "2GiB")
        more = ("--local-directory", str(self._folder), *self._options)
        self.workers += [self._start("worker", self.address, *alone, *more) for _ in range(n)]

    def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.kill()
            process.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        more = {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            **self._environment,
        }
        with (self._folder / f"{arguments[0]}.log").open("a") as log:
            command = [sys.executable, "-m", "dask", *arguments]
            self._all.append(
                subprocess.Popen(command, env={**os.environ, **more}, stdout=log, stderr=log)
            )
        return self._all[-1]
