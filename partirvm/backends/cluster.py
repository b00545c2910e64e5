"""The state of a Dask cluster as its client reports it: its workers, and whether the scheduler still responds."""

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
"""Seconds without response after which a scheduler counts as gone; a restarted one can respond within this time."""


class Cluster:
    """A ``distributed.Client`` and the seconds to wait for a worker before an error (``patience``)."""

    def __init__(self, client: Any, patience: float) -> None:
        self.client, self.patience = client, patience
        self.address: str = client.scheduler.address
        self.n_threads = 1  # of all workers, at the last poll

    def watch(self) -> Watch:
        """Start watching the cluster."""
        return Watch(self)

    def workers(self) -> dict[str, Any]:
        """The scheduler's record of each worker, as soon as there is at least one.

        Raises ``NoWorkersError`` if none joins, ``ClusterError`` if the scheduler does not respond.
        """
        watch = self.watch()
        while not (workers := watch.poll()):
            time.sleep(0.1)
        return workers

    def current_workers(self) -> dict[str, Any] | None:
        """The current workers, or None if the scheduler does not respond."""
        try:
            identity = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=QUESTION)
        except (OSError, RuntimeError, AttributeError):  # unreachable, event loop ended, client closed
            return None
        workers: dict[str, Any] = identity["workers"]
        self.n_threads = sum(worker["nthreads"] for worker in workers.values()) or 1
        return workers

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Wrap calls of the client: errors become ``ClusterError`` if the scheduler is gone."""
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
    """Polls a cluster; raises an error after too long a time without workers or without scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = self._heard = self._staffed = time.monotonic()

    def poll_if_due(self) -> None:
        """Poll, unless the last poll was less than ``POLL`` seconds ago."""
        if time.monotonic() - self._seen > POLL:
            self.poll()

    def poll(self) -> dict[str, Any] | None:
        """The workers, or None while the scheduler does not respond.

        Raises ``NoWorkersError`` after ``patience`` seconds without a worker, ``ClusterError`` after ``SILENCE``
        seconds without a scheduler, or at once if the client has closed.
        """
        cluster, workers = self._cluster, self._cluster.current_workers()
        self._seen = now = time.monotonic()
        if workers is None:
            if now - self._heard > SILENCE or cluster.client.status == "closed":
                raise ClusterError(
                    f"the Dask scheduler at {cluster.address} does not respond any more: start a new one with "
                    "`dask scheduler`, and its workers, and resume there with `partirvm resume JOB --scheduler ADDRESS`"
                )
            return None
        self._heard = now
        if workers:
            self._staffed = now
        elif now - self._staffed > cluster.patience:
            raise NoWorkersError(
                f"the cluster at {cluster.address} has had no worker for {cluster.patience:.0f} s: start one with "
                f"`dask worker {cluster.address}`"
            )
        return workers
