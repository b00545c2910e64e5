"""The state of a Dask cluster as reported by its client: the workers, and whether the scheduler responds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from partirvm.backends import tasks
from partirvm.backends.window import POLL
from partirvm.errors import ClusterError, NoWorkersError, PartirvmError

QUESTION = 5.0
"""Seconds to wait for one response of the scheduler."""

SILENCE = 20.0
"""Seconds without response after which a scheduler counts as gone. A restarted scheduler can respond in time."""


class Cluster:
    """A ``distributed.Client`` and the seconds to wait for a worker before an error (``patience``)."""

    def __init__(self, client: Any, patience: float) -> None:
        self.client, self.patience = client, patience
        self.address: str = client.scheduler.address
        self.n_threads = 1  # of all workers, at the last poll
        self.least_threads = 1  # of a worker, at the last poll

    def watch(self) -> Watch:
        """Return a new ``Watch`` of the cluster."""
        return Watch(self)

    def workers(self) -> dict[str, Any]:
        """Wait for at least one worker, and return the scheduler's record of each worker.

        Raises ``NoWorkersError`` if no worker joins, ``ClusterError`` if the scheduler does not respond.
        """
        watch = self.watch()
        while not (workers := watch.poll()):
            time.sleep(0.1)
        return workers

    def current_workers(self) -> dict[str, Any] | None:
        """Return the current workers, or None if the scheduler does not respond."""
        try:
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=QUESTION)
        except (OSError, RuntimeError, AttributeError):  # unreachable, event loop ended, client closed
            return None
        workers: dict[str, Any] = identity["workers"]
        self.n_threads = sum(worker["nthreads"] for worker in workers.values()) or 1
        self.least_threads = min((worker["nthreads"] for worker in workers.values()), default=1)
        return workers

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Convert errors of client calls inside the block to ``ClusterError`` if the scheduler is gone."""
        try:
            yield
        except (PartirvmError, CancelledError):
            raise
        except Exception:
            watch = self.watch()
            while watch.poll() is None:
                time.sleep(0.1)
            raise

    def check_packages(self) -> None:
        """Raise ``ClusterError`` unless all workers have this process's versions of the packages that affect bits."""
        ours = tasks.package_versions()
        try:
            with self.reaching():
                theirs = self.client.run(tasks.package_versions)
        except ClusterError:
            raise
        except Exception as error:
            raise ClusterError(
                f"the workers cannot import partirvm: install the same packages there ({error})"
            ) from error
        for worker, versions in theirs.items():
            for name, version in versions.items():
                if ours[name] != version:
                    raise ClusterError(
                        f"worker {worker} has {name} {version}, this process has {ours[name]}: results would differ; "
                        "install the same versions"
                    )


class Watch:
    """Regular polls of a cluster, with an error after too long a time without workers or without scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last_poll = self._last_response = self._last_worker = time.monotonic()

    def poll_if_due(self) -> None:
        """Poll the cluster, unless the last poll was less than ``POLL`` seconds ago."""
        if time.monotonic() - self._last_poll > POLL:
            self.poll()

    def poll(self) -> dict[str, Any] | None:
        """Return the workers, or None while the scheduler does not respond.

        Raises ``NoWorkersError`` after ``patience`` seconds without a worker, ``ClusterError`` after ``SILENCE``
        seconds without a scheduler, or at once if the client has closed.
        """
        cluster, workers = self._cluster, self._cluster.current_workers()
        self._last_poll = now = time.monotonic()
        if workers is None:
            if now - self._last_response > SILENCE or cluster.client.status == "closed":
                raise ClusterError(
                    f"the Dask scheduler at {cluster.address} does not respond any more: start a new one with "
                    "`dask scheduler`, and its workers, and resume there with `partirvm resume JOB --scheduler ADDRESS`"
                )
            return None
        self._last_response = now
        if workers:
            self._last_worker = now
        elif now - self._last_worker > cluster.patience:
            raise NoWorkersError(
                f"the cluster at {cluster.address} has had no worker for {cluster.patience:.0f} s: start one with "
                f"`dask worker {cluster.address}`"
            )
        return workers
