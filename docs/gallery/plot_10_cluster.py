"""
A Dask cluster
==============

This example runs the same fit in the current process and on a Dask cluster with two worker
processes, and checks that the two models are bit-identical. The figure shows which worker ran which
task.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster, get_task_stream

from partirvm import RVMRegressor, ingest

# %% The worker processes import this script, so all code that starts processes or uses the cluster
# is guarded by ``if __name__ == "__main__":``. A notebook does not need this guard.  The workers
# read the rows themselves, so the dataset must be a folder or a URL that all of them can open. On a
# real cluster, connect to the scheduler's address: ``Client("tcp://scheduler:8786")``.

OPTIONS = {
    "kernel": "gaussian",
    "gamma": "scale",
    "partition_size": 60,
    "max_rounds": 2,
    "residual": "none",
    "random_state": 0,
}

COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#F0E442",
    "#666666",
    "#000000",
)


def generated(n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 6))
    noise = np.random.default_rng(1).normal(scale=0.2, size=n_rows)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise


def inline_and_cluster(data):
    """Fit in this process and on a cluster; return both models and the cluster's task stream."""
    began = time.monotonic()
    inline = RVMRegressor(**OPTIONS).fit(data)
    print(
        f"in this process: {time.monotonic() - began:.1f} s, {inline.n_relevance_vectors_} "
        "relevance vectors"
    )
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        print(f"cluster dashboard: {client.dashboard_link}")
        began = time.monotonic()
        with get_task_stream(client) as stream:
            remote = RVMRegressor(**OPTIONS, client=client).fit(data)
        print(
            f"on two workers: {time.monotonic() - began:.1f} s, {remote.n_relevance_vectors_} "
            "relevance vectors"
        )
    return inline, remote, stream.data


# %% The results do not depend on the number of workers, so the vectors, the weights, the noise
# variance and the evidence are compared for exact equality.

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ingest(generated(30_000), Path(folder) / "rows.zarr")
        inline, remote, tasks = inline_and_cluster(Path(folder) / "rows.zarr")
    print("equal vectors:", np.array_equal(inline.relevance_vectors_, remote.relevance_vectors_))
    print("equal weights:", np.array_equal(inline.weights_, remote.weights_))
    print("equal noise variance:", inline.noise_variance_ == remote.noise_variance_)
    print("equal evidence:", inline.log_evidence_ == remote.log_evidence_)

# %% Each bar in the figure is a task. Its colour indicates the task name, which also appears on
# Dask's dashboard.


def draw(tasks):
    intervals = [
        (task["worker"], task["key"].rpartition("-")[0], step["start"], step["stop"])
        for task in tasks
        for step in task["startstops"]
        if step["action"] == "compute"
    ]
    zero = min(start for _, _, start, _ in intervals)
    workers = sorted({worker for worker, *_ in intervals})
    names = sorted({name for _, name, *_ in intervals})
    colours = dict(zip(names, COLOURS, strict=False))
    figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
    for name in names:
        mine = [
            (workers.index(w), start - zero, stop - start)
            for w, of, start, stop in intervals
            if of == name
        ]
        rows, starts, seconds = zip(*mine, strict=True)
        axis.barh(
            rows,
            seconds,
            left=starts,
            height=0.7,
            color=colours[name],
            ec="white",
            lw=0.3,
            label=name,
        )
    axis.set(
        xlabel="time (s)",
        yticks=range(len(workers)),
        yticklabels=["worker 1", "worker 2"][: len(workers)],
    )
    axis.set_title("Tasks of the fit")
    figure.legend(loc="outside right center", title="task", fontsize=9)
    plt.show()


if __name__ == "__main__":
    draw(tasks)

# %% The passes over the rows keep both workers busy. During the gaps, dense fits run, which do not
# read any rows.
