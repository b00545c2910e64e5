"""Clusters of worker processes over TCP."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def cluster(n_workers: int) -> Iterator[Any]:
    """The client of a ``LocalCluster`` of so many processes, each with one thread."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            protocol="tcp://",
            dashboard_address=":0",
            memory_limit="2GiB",
        ) as local,
        Client(local, timeout="120s", set_as_default=False) as client,
    ):
        yield client
