"""Cluster failures: dead or missing workers, a dead scheduler, different packages."""

import asyncio
import os
import signal
from types import SimpleNamespace

import pytest
from backend_cases import PASSES, TILE, HeldSource, bits, first_row, long_fit, rows
from by_default import some
from clusters import Processes, cluster
from distributed import Client, LocalCluster
from distributed.versions import get_versions
from waiting import PATIENCE, Clock, stopped, wait_for

from partirvm import RVMRegressor, submit
from partirvm.cli import main
from partirvm.errors import ClusterError, NoWorkersError
from partirvm.execution import cluster as cluster_module
from partirvm.execution.cluster import PACKAGES, ClusterTimes, connect, start
from partirvm.execution.dask import DaskExecutor


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_does_not_change_bits(data, reference, tmp_path, victim):
    """Either of two workers is killed with kill -9 in a pass, and its tasks run again."""
    with cluster(2) as client:
        runner = DaskExecutor(client)
        pids = list(client.run(os.getpid).values())
        killed = []

        def kill(done, total):
            if not killed:
                killed.append((done, total))
                os.kill(pids[victim], signal.SIGKILL)
                gate.touch()

        gate = tmp_path / "gate"
        results = runner.run([PASSES["gram"]], HeldSource(data.url, gate), kill)
        assert killed[0][0] < killed[0][1]
        assert bits(results[0]) == bits(reference["gram"])
        assert bits(runner.run([PASSES["residual"]], data)[0]) == bits(reference["residual"])
        runner.close()


@pytest.mark.slow
def test_rows_sent_to_a_killed_worker_are_not_lost(memory, reference):
    """This process sends the dead worker's rows again; ``map`` continues in order."""
    with cluster(2) as client:
        runner = DaskExecutor(client)
        victims = list(client.run(os.getpid).values())
        assert bits(runner.run([PASSES["residual"]], memory)[0]) == bits(reference["residual"])
        os.kill(victims.pop(), signal.SIGKILL)
        assert bits(runner.run([PASSES["gram"]], memory)[0]) == bits(reference["gram"])
        results = []
        for number, value in runner.map(first_row, memory, range(8), None):
            if number == 2:
                os.kill(victims.pop(), signal.SIGKILL)
            results.append((number, value))
        assert results == [(number, rows()[0][number * TILE, 0]) for number in range(8)]
        runner.close()


@pytest.mark.parametrize("end", ["to the end", "left", "failed"])
def test_a_map_releases_its_futures(one_worker, memory, end):
    """This holds however the map ends, even while futures are referenced."""
    futures = []

    class Noting(DaskExecutor):
        def _submit(self, *arguments):
            futures.append(super()._submit(*arguments))
            return futures[-1]

        def _send(self, *arguments):
            futures.append(super()._send(*arguments))
            return futures[-1]

    runner = Noting(one_worker)
    mapped = runner.map(first_row, memory, range(8), give_up if end == "failed" else None)
    if end == "to the end":
        assert len(list(mapped)) == 8
    elif end == "left":
        assert next(mapped)[0] == 0
        mapped.close()
    else:
        with pytest.raises(KeyError):
            list(mapped)
    assert len(futures) > 3
    runner.close()
    wait_for(lambda: not one_worker.futures, "the end of all futures")


def give_up(done, total):
    """Stop after the second tile."""
    if done >= 2:
        raise KeyError("enough")


@pytest.mark.usefixtures("processes")
def test_a_cluster_without_workers_raises_an_error():
    """At the first poll after the patience, the error explains how to start one."""
    clock = Clock()
    with cluster(0) as client:
        began = clock.now
        with pytest.raises(NoWorkersError, match="dask worker"):
            DaskExecutor(client, ClusterTimes(patience=1.0, clock=clock))
        assert 1.0 < clock.now - began < 1.0 + 2 * (clock.now - began) / clock.naps


ADAPTIVE = {
    "n_workers": 0,
    "threads_per_worker": 1,
    "dashboard_address": ":0",
    "memory_limit": "2GiB",
}


@pytest.mark.usefixtures("processes")
def test_an_adaptive_cluster_starts_a_worker_for_a_fit(data, reference):
    """It keeps a worker between the passes, and stops it when the executor is closed."""
    with LocalCluster(**ADAPTIVE) as local, Client(local, set_as_default=False) as client:
        local.adapt(minimum=0, maximum=1, interval="100ms", wait_count=1)
        runner = DaskExecutor(client, ClusterTimes(patience=PATIENCE))
        (worker,) = client.scheduler_info(n_workers=-1)["workers"]
        assert bits(runner.run([PASSES["gram"]], data)[0]) == bits(reference["gram"])
        assert list(client.scheduler_info(n_workers=-1)["workers"]) == [worker]
        runner.close()
        wait_for(
            lambda: not client.scheduler_info(n_workers=-1)["workers"], "the end of the worker"
        )


@pytest.mark.slow
def test_an_adaptive_cluster_runs_every_kind_of_work(data, tmp_path, monkeypatch):
    """A job, a resume, a prediction, an estimator and a command each start with no worker."""
    times = ClusterTimes(patience=PATIENCE)
    monkeypatch.setattr(DaskExecutor.__init__, "__defaults__", (times,))
    job = str(tmp_path / "job")
    other = str(tmp_path / "other")
    options = {"gamma": 1.0, "strategy": "working-set", "partition_size": 20, "residual": "none"}
    with LocalCluster(**ADAPTIVE) as local, Client(local, set_as_default=False) as client:
        local.adapt(minimum=0, maximum=2, interval="200ms", wait_count=2)

        def idle():
            wait_for(
                lambda: not client.scheduler_info(n_workers=-1)["workers"], "the end of the workers"
            )

        submitted = submit(RVMRegressor(**options, max_rounds=1), data.url, job, client=client)
        assert submitted.wait(PATIENCE).value == "done"
        idle()
        assert submitted.resume(client=client, max_rounds=2).wait(PATIENCE).value == "done"
        idle()
        address = client.scheduler.address
        places = [job, data.url, str(tmp_path / "new.csv")]
        assert main(["predict", *places, "--scheduler", address]) == 0
        idle()
        RVMRegressor(**options, max_rounds=1, client=client).fit(*rows())
        idle()
        flags = "--gamma 1 --partition-size 20 --strategy working-set --max-rounds 1"
        assert main(["fit", data.url, other, *flags.split(), "--scheduler", address]) == 0


def client_of(sync, **calls):
    """Return a client whose scheduler is called with ``sync``; ``calls`` are its functions."""
    calls = {"identity": None, "events": None, **calls}
    scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786", **calls)
    return SimpleNamespace(scheduler=scheduler, status="running", sync=sync)


def test_lost_workers_are_counted_and_retired_ones_are_not():
    """The scheduler's events decide; a worker without events counts as lost."""
    present = [{"a", "b", "c", "d"}, {"b", "c", "d"}, {"c", "d"}, {"c", "d"}, {"d", "e"}]
    removed = {"action": "remove-worker"}
    events = {
        "a": ((5.0, {"action": "add-worker"}), (7.0, removed | {"expected": False})),
        "b": ((8.0, removed | {"expected": True}),),
        "c": ((9.0, removed),),
    }
    topics = []

    def sync(function, topic=None, **options):
        if topic is not None:
            topics.append(topic)
            return events[topic]
        return {"workers": {address: {"nthreads": 1} for address in present.pop(0)}}

    monitor = cluster_module.Cluster(client_of(sync))
    counts = []
    while present:
        monitor.poll()
        counts.append((monitor.n_lost, monitor.last_lost))
    assert counts == [(0, 0.0), (1, 7.0), (1, 7.0), (1, 7.0), (2, 9.0)]
    assert topics == ["a", "b", "c"]


@pytest.mark.slow
def test_a_killed_worker_is_lost_and_a_retired_one_is_not(data):
    """A nanny replaces the killed worker."""
    with cluster(2) as client:
        runner = DaskExecutor(client)
        pids = client.run(os.getpid)
        victim, *_ = pids
        os.kill(pids[victim], signal.SIGKILL)
        wait_for(lambda: victim not in client.scheduler_info(n_workers=-1)["workers"], "the loss")
        runner.run([PASSES["gram"]], data)
        n_lost, last_lost = runner.lost_workers
        assert n_lost == 1
        assert last_lost > 0.0
        retired = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
        client.retire_workers([retired])
        runner.run([PASSES["gram"]], data)
        assert runner.lost_workers == (n_lost, last_lost)
        runner.close()


def test_a_cancelled_request_raises_a_cluster_error(one_worker):
    """Stopping a worker cancels its client's calls."""

    async def cancelled():
        raise asyncio.CancelledError

    with pytest.raises(ClusterError, match="the worker that ran the fit was stopped"):
        cluster_module.Cluster(one_worker).ask(cancelled())


def test_different_packages_on_the_workers_are_refused(one_worker, monkeypatch):
    """The error names worker, package and both versions."""
    ours = get_versions(PACKAGES)
    versions = {"packages": {**ours["packages"], "numpy": "0.0.1"}}
    monkeypatch.setattr("distributed.versions.get_versions", lambda packages: versions)
    with pytest.raises(
        ClusterError, match=f"numpy {ours['packages']['numpy']}, this process has 0.0.1"
    ):
        DaskExecutor(one_worker)


@pytest.fixture
def cluster_processes(tmp_path):
    """Yield a scheduler, its address, and a worker."""
    started = Processes(tmp_path, 1)
    yield started.scheduler, started.address
    started.close()


WORK = {
    "run": lambda runner, data, progress: runner.run([PASSES["gram"]], data, progress),
    "solve": lambda runner, data, progress: runner.solve(
        [long_fit(seed, steps=10**6) for seed in (1, 5)], progress
    ),
    "map": lambda runner, data, progress: list(
        runner.map(first_row, data, range(data.n_tiles), progress)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("work", some(WORK, {"run"}))
def test_a_dead_scheduler_is_named(cluster_processes, data, tmp_path, work):
    """A scheduler is killed with kill -9 during endless work: the error gives its address and
    advice."""
    scheduler, address = cluster_processes
    client = connect(address)
    runner = DaskExecutor(client, ClusterTimes(silence=5.0, question=2.0))
    killed = []

    def progress(done, total):
        if not killed:
            killed.append(done < total)
            scheduler.kill()
            scheduler.wait()

    with pytest.raises(ClusterError, match=f"{address}.*dask scheduler"):
        WORK[work](runner, HeldSource(data.url, tmp_path / "never"), progress)
    assert killed == [True]
    with pytest.raises(ClusterError, match=address):
        runner.run([PASSES["gram"]], data)
    runner.close()
    client.close()


def test_polls_of_a_silent_scheduler_fail_after_the_limit():
    """Each poll returns None; the first one after the accepted silence raises."""
    clock = Clock()
    times = ClusterTimes(clock=clock)

    def silent(*args, **options):
        raise OSError("timed out")

    monitor = cluster_module.Cluster(client_of(silent), times)
    for _ in range(int(times.silence) + 1):
        assert monitor.poll() is None
        clock.sleep(1.0)
    with pytest.raises(ClusterError, match=monitor.address):
        monitor.poll()


def test_a_cancelled_poll_has_no_reply(one_worker):
    """Stopping a worker cancels the call, so that ``sync`` returns no result."""

    async def cancelled(*args, **options):
        raise asyncio.CancelledError

    client = client_of(one_worker.sync, identity=cancelled, events=cancelled)
    monitor = cluster_module.Cluster(client)
    assert monitor.poll() is None
    assert monitor._events_of("tcp://10.0.0.5:1") == ()


def test_a_stopped_worker_raises_an_error_before_a_fit(one_worker):
    """The error is raised after the reply timeout, not when the scheduler gives up the worker."""
    (pid,) = one_worker.run(os.getpid).values()
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: stopped(pid), "the stop")
        with pytest.raises(
            ClusterError, match=f"{one_worker.scheduler.address} has not responded for 1 s"
        ):
            DaskExecutor(one_worker, ClusterTimes(answer=1.0))
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_closed_client_raises_a_cluster_error(one_worker, data, tmp_path):
    """It is closed before a fit is submitted, before an executor is created, or in a pass."""
    address = one_worker.scheduler.address
    client = Client(address, set_as_default=False)
    runner = DaskExecutor(client)
    with pytest.raises(ClusterError, match=f"{address} ended: its client was closed"):
        runner.run(
            [PASSES["gram"]],
            HeldSource(data.url, tmp_path / "gate"),
            lambda done, total: client.close(),
        )
    (tmp_path / "gate").touch()  # the worker, and then the next test, would wait
    for call in (
        lambda: DaskExecutor(client),
        lambda: submit(RVMRegressor(), data.url, str(tmp_path / "job"), client=client),
        lambda: start(client, "driver", print),
    ):
        with pytest.raises(ClusterError, match=r"Dask client.* closed"):
            call()
    assert not (tmp_path / "job").exists()
