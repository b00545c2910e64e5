"""One suite for every executor: statistics against dense formulas, and the same bits from threads and from a cluster.

The cluster is a real one: processes over TCP, with one worker of one thread and with three.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pytest
from scipy.stats import norm
from threadpoolctl import threadpool_info, threadpool_limits

from partirvm import RVMRegressor, service
from partirvm.backends import LocalExecutor, executor_for
from partirvm.backends import dask as dask_backend
from partirvm.backends.dask import DaskExecutor
from partirvm.backends.passes import MomentsPass, tiles_of
from partirvm.data import ArraySource, ZarrSource, ingest
from partirvm.errors import ClusterError, MissingDataError, NoWorkersError
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.planning.memory import ALLOWANCE, DataShape, step_bytes
from partirvm.planning.plan import Machine
from partirvm.service import jobs
from partirvm.strategies.instructions import GramPass, ResidualPass, ScorePass
from partirvm.types import PANEL_ROWS, FitParameters, Scaling

N, D, TILE, GAMMA = 7 * 2500 + 123, 3, 2500, 0.4
"""Eight tiles, each of more than one panel, the last one short."""

assert TILE > PANEL_ROWS


@contextlib.contextmanager
def cluster(n_workers):
    """A ``LocalCluster`` of processes over TCP and its client."""
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
        Client(local, timeout="30s", set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def one_worker():
    with cluster(1) as client:
        yield client


@pytest.fixture(scope="module")
def three_workers():
    with cluster(3) as client:
        yield client


def rows():
    """Inputs, targets and weights; some weights are zero."""
    rng = np.random.default_rng(11)
    X = rng.uniform(-2, 2, size=(N, D))
    y = 10 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)
    return X, y, rng.choice([0.0, 0.5, 2.0], size=N, p=[0.1, 0.4, 0.5])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The rows as DATA on disk, in their own order."""
    folder = tmp_path_factory.mktemp("data")
    return ingest(rows(), folder / "rows.zarr", tile_rows=TILE, shuffle=None)


@pytest.fixture(scope="module")
def memory():
    """The rows as arrays in this process."""
    return ArraySource(*rows(), tile_rows=TILE)


EXECUTORS = ["one thread", "three threads", "one worker", "three workers"]


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(request):
    if "thread" in request.param:
        made = LocalExecutor(1 if request.param == "one thread" else 3)
    else:
        made = executor_for(request.getfixturevalue(request.param.replace(" ", "_")))
    yield made
    made.close()


def design(labels, bias=False):
    """A design whose centres are these rows, under a scaling that is not trivial."""
    X, y, _ = rows()
    scaling = Scaling(np.array([0.1, -0.2, 0.0]), np.array([1.0, 2.0, 0.5]), np.array([y.mean()]), np.array([y.std()]))
    labels = np.array(labels, dtype=np.int64)
    return Design(Gaussian((GAMMA,)), scaling, X[labels], labels, bias)


KEPT, NEW = design([5, 900, 17000], bias=True), design([1, 2, 3, 4000, 12000])
OFFSET = np.array([[0.5], [-1.0], [0.2], [0.0]])
MEAN = np.array([0.3, 1.0, -0.5, 0.1])
ROOT = np.tril(np.ones((4, 4))) * 0.1
EXCLUDED = np.arange(0, N, 3)

PASSES = {
    "moments": MomentsPass(),
    "gram": GramPass(KEPT, NEW, OFFSET),
    "gram, first": GramPass(design([]), NEW, np.zeros((0, 1))),
    "gram, diagonal": GramPass(KEPT, NEW, OFFSET, diagonal=True),
    "residual": ResidualPass(KEPT, MEAN[:, None]),
    "residual, selection": ResidualPass(KEPT, MEAN[:, None], select=40, exclude=EXCLUDED),
    "residual, sample": ResidualPass(KEPT, MEAN[:, None], select=40, sample=5000, draw=3),
    "score": ScorePass(KEPT, MEAN, ROOT, 0.05),
}


def phi(design, X):
    """The design matrix by pairwise differences of scaled inputs."""
    s = design.scaling
    kernels = naive.gaussian((X - s.x_shift) / s.x_scale, (design.centres - s.x_shift) / s.x_scale, GAMMA)
    return np.hstack([np.ones((len(X), int(design.bias))), kernels])


def expected(name):
    """Fields of the statistic by the formulas, over all rows at once."""
    X, y, w = rows()
    t = ((y - y.mean()) / y.std())[:, None]
    there = w > 0
    if name == "moments":
        mean = np.average(X, axis=0, weights=w)
        return {"inputs.n": there.sum(), "inputs.mean": mean, "targets.mean": [np.average(y, weights=w)], "bad": 0,
                "inputs.square": w @ (X - mean) ** 2, "inputs.minimum": X[there].min(axis=0)}  # fmt: skip
    if name.startswith("gram"):
        pass_ = PASSES[name]
        kept, new = phi(pass_.kept, X), phi(pass_.new, X)
        r = t - kept @ pass_.offset
        root = np.sqrt(w)[:, None]
        kept, new, r = kept * root, new * root, r * root
        fields = {"cross": kept.T @ new, "projection": new.T @ r, "n": there.sum()}
        if pass_.diagonal:
            return fields | {"diagonal": (new**2).sum(axis=0)}
        return fields | {"gram": new.T @ new, "energy": (r**2).sum(axis=0), "log_weight": np.log(w[there]).sum()}
    Phi = phi(KEPT, X)
    if name.startswith("residual"):
        pass_ = PASSES[name]
        if pass_.sample:  # 5,000 rows are two of eight tiles, spread evenly from the third on
            w = np.where(np.isin(np.arange(N) // TILE, [3, 7]), w, 0.0)
            there = w > 0
        r = t[:, 0] - Phi @ MEAN
        fields = {"n": there.sum(), "energy": [w @ r**2], "projection": Phi.T @ (w * r)[:, None]}
        open_ = np.setdiff1d(np.flatnonzero(there), pass_.exclude)
        best = open_[np.lexsort((open_, -np.abs(r[open_])))][: pass_.select]
        return fields | {"largest.rows": best, "largest.points": X[best], "largest.errors": np.abs(r[best])}
    mean = y.mean() + y.std() * Phi @ MEAN
    sd = y.std() * np.sqrt(((Phi @ ROOT) ** 2).sum(axis=1) + 0.05)
    hits = np.abs(y - mean) <= norm.ppf(0.975) * sd
    return {
        "n": N,
        "square": ((y - mean) ** 2).sum(),
        "surprise": -norm(mean, sd).logpdf(y).sum(),
        "covered": hits.sum(),
    }


def field(value, path):
    """``value.a.b`` for the path "a.b"."""
    for name in path.split("."):
        value = getattr(value, name)
    return value


def bits(value):
    """All numbers of a statistic, to the bit."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if hasattr(value, "__dataclass_fields__"):
        return tuple(bits(getattr(value, name)) for name in value.__dataclass_fields__)
    return value.hex() if isinstance(value, float) else value


@pytest.fixture(scope="module")
def reference(data):
    """Statistics of one thread over DATA, compared with the formulas by the first test."""
    single = LocalExecutor(1)
    yield {name: single.run(pass_, data) for name, pass_ in PASSES.items()}
    single.close()


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_the_statistic_of_its_formula(reference, name):
    """Tiles, panels, weights and offsets together give what the whole design gives."""
    found = reference[name]
    if name.startswith("residual"):
        found = type(found)(found.n, found.energy, found.projection, found.largest.ranked())
    for path, value in expected(name).items():
        np.testing.assert_allclose(field(found, path), value, rtol=1e-9, atol=1e-9, err_msg=path)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("where", ["data", "memory"])
def test_every_executor_gives_the_same_bits(executor, reference, request, name, where):
    """One thread, three, one worker, three workers; rows on disk and rows in this process."""
    assert bits(executor.run(PASSES[name], request.getfixturevalue(where))) == bits(reference[name])


def first_row(source, number):
    """A function of one tile that takes longest for the first ones."""
    time.sleep(0.05 / (1 + number))
    return float(source.tile(number).X[0, 0])


def test_map_keeps_the_order_of_the_tiles(executor, data):
    """Whoever finishes first: results come in the order asked for."""
    X, _, _ = rows()
    asked = [3, 0, 7, 1]
    found = list(executor.map(first_row, data, asked, None))
    assert found == [(number, X[number * TILE, 0]) for number in asked]


@pytest.mark.parametrize("where", ["data", "memory"])
def test_gather_keeps_the_order_of_the_rows(executor, request, where):
    """Inputs of rows by number, twice where asked twice."""
    asked = np.array([N - 1, 0, 2500, 2499, 0])
    np.testing.assert_array_equal(executor.gather(request.getfixturevalue(where), asked), rows()[0][asked])


@pytest.mark.parametrize("name", ["gram", "residual, selection"])
def test_progress_counts_all_tiles(executor, data, name):
    """Tiles done never fall and end at all of them."""
    seen = []
    executor.run(PASSES[name], data, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8, 8)
    assert seen == sorted(seen)


def test_progress_may_leave_the_pass(executor, data):
    """An exception of the watcher ends the pass; the executor goes on to serve the next."""

    class Enough(Exception):
        pass

    def progress(done, total):
        raise Enough

    with pytest.raises(Enough):
        executor.run(PASSES["gram"], data, progress)
    assert executor.run(PASSES["residual"], data).n == (rows()[2] > 0).sum()


def test_an_error_in_a_task_arrives_as_itself(executor, tmp_path):
    """A chunk that is gone: MissingDataError that names it, from a thread as from a worker."""
    source = ingest(rows()[:2], tmp_path / "damaged.zarr", tile_rows=TILE, shuffle=None)
    (tmp_path / "damaged.zarr" / "X" / "c" / "5" / "0").unlink()
    with pytest.raises(MissingDataError, match="chunk 5"):
        executor.run(PASSES["residual"], source)
    with pytest.raises(MissingDataError, match="chunk 5"):
        executor.gather(source, np.array([5 * TILE + 1]))


def test_the_machine_is_described(executor):
    """Threads, workers, bytes in use and the limit, or the limit given."""
    machine = executor.machine(None)
    assert machine.threads >= 1
    assert 10 << 20 < machine.base < machine.limit
    assert executor.machine(123 << 20).limit == 123 << 20
    if isinstance(executor, DaskExecutor):
        assert machine.threads == 1
        assert machine.limit == int(0.7 * (2 << 30))


def test_tiles_of_a_sample_are_spread_evenly(data):
    """About ``sample`` rows in whole tiles, never more tiles than there are."""
    assert tiles_of(GramPass(KEPT, NEW, OFFSET), data) == list(range(8))
    for sample, draw, expected in [
        (0, 5, list(range(8))),
        (1, 0, [0]),
        (1, 13, [5]),
        (4 * TILE, 0, [0, 2, 4, 6]),
        (4 * TILE, 1, [1, 3, 5, 7]),
        (10**9, 2, list(range(8))),
    ]:
        assert tiles_of(ResidualPass(KEPT, MEAN[:, None], sample=sample, draw=draw), data) == expected


PARAMETERS = FitParameters(gamma=0.3, partition_size=40, max_rounds=3, selection="error", strategy="working-set")


def fitted_bits(model):
    """What a fit leaves, to the bit."""
    return bits(model.mean), bits(model.design.labels), bits(model.root), model.log_evidence.hex()


@pytest.fixture(scope="module")
def fit_reference(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    return fitted_bits(service.fit(data.url, str(folder / "job"), PARAMETERS).model)


@pytest.mark.parametrize("where", ["here", "one_worker", "three_workers"])
def test_a_whole_fit_has_the_same_bits_everywhere(request, data, fit_reference, tmp_path, where):
    """Weights, relevance vectors, Σ and evidence of a fit of DATA; here under another memory limit."""
    client = None if where == "here" else request.getfixturevalue(where)
    limited = FitParameters(**{**vars(PARAMETERS), "memory_limit": "900MiB" if client is None else "auto"})
    found = service.fit(data.url, str(tmp_path / "job"), limited, client=client)
    assert fitted_bits(found.model) == fit_reference


def test_fewer_threads_under_a_small_limit_change_no_bits(data, fit_reference, monkeypatch, tmp_path):
    """Three threads that do not fit become fewer, the plan says so, and the model is the same."""
    base = 100 << 20
    need = step_bytes(DataShape(N, D, 1, TILE), 41, 40, 3).peak  # M = 41 kept columns and P = 40 on three threads

    class Small(LocalExecutor):
        def machine(self, limit):
            return Machine(self.threads, base, base + ALLOWANCE + need - 1)

    monkeypatch.setattr(jobs, "executor_for", lambda client: Small(3))
    found = service.fit(data.url, str(tmp_path / "job"), PARAMETERS)
    assert found.plan.threads == 2
    assert any("2 of 3 threads" in note for note in found.plan.notes)
    assert fitted_bits(found.model) == fit_reference


def test_an_estimator_on_arrays_has_the_same_bits_on_a_cluster(one_worker, three_workers):
    """RVMRegressor.fit with client=None, one worker and three; predictions too."""
    X, y, w = rows()
    X, y, w = X[:6000], y[:6000], w[:6000]
    found = []
    for client in (None, one_worker, three_workers):
        estimator = RVMRegressor(gamma=0.3, partition_size=30, max_rounds=2, random_state=3, client=client)
        estimator.fit(X, y, sample_weight=w)
        mean, std = estimator.predict(X[:100], return_std=True)
        found.append((fitted_bits(estimator.model_), bits(mean), bits(std), estimator.log_evidence_.hex()))
    assert found[0] == found[1] == found[2]


class SlowSource(ZarrSource):
    """DATA whose tiles take a while to read, so that a worker can die in the middle of a pass."""

    def tile(self, number):
        time.sleep(0.25)
        return super().tile(number)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_changes_no_bits(data, reference, victim):
    """kill -9 of either of two workers in the middle of a pass: its tasks, or all of them, run again elsewhere."""
    with cluster(2) as client:
        runner = DaskExecutor(client)
        pids = list(client.run(os.getpid).values())
        killed = []

        def kill(done, total):
            if not killed:
                killed.append((done, total))
                os.kill(pids[victim], signal.SIGKILL)

        found = runner.run(PASSES["gram"], SlowSource(data.url), kill)
        assert killed[0][0] < killed[0][1]
        assert bits(found) == bits(reference["gram"])
        assert bits(runner.run(PASSES["residual"], data)) == bits(reference["residual"])
        runner.close()


def test_a_killed_worker_loses_no_rows_of_this_process(memory, reference):
    """Rows that were sent to the worker that dies are sent again; ``map`` goes on where it was, in order."""
    with cluster(2) as client:
        runner = DaskExecutor(client)
        victims = list(client.run(os.getpid).values())
        assert bits(runner.run(PASSES["residual"], memory)) == bits(reference["residual"])
        os.kill(victims.pop(), signal.SIGKILL)
        assert bits(runner.run(PASSES["gram"], memory)) == bits(reference["gram"])
        found = []
        for number, value in runner.map(first_row, memory, range(8), None):
            if number == 2:
                os.kill(victims.pop(), signal.SIGKILL)
            found.append((number, value))
        assert found == [(number, rows()[0][number * TILE, 0]) for number in range(8)]
        runner.close()


def test_a_cluster_without_workers_is_given_up():
    """NoWorkersError that says how to start one, after the patience and not much more."""
    with cluster(0) as client:
        began = time.monotonic()
        with pytest.raises(NoWorkersError, match="dask worker"):
            DaskExecutor(client, patience=1.0)
        assert time.monotonic() - began < 20


def test_a_cluster_whose_workers_leave_for_good_is_given_up(data):
    """In the middle of a pass: NoWorkersError, not a wait for ever."""
    with cluster(1) as client:
        runner = DaskExecutor(client, patience=1.0)
        gone = []

        def progress(done, total):
            if not gone:
                gone.append(client.cluster.scale(0))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the cluster's own farewell
            with pytest.raises(NoWorkersError, match="worker"):
                runner.run(PASSES["gram"], SlowSource(data.url), progress)
        runner.close()


def test_other_packages_on_the_workers_are_refused(one_worker, monkeypatch):
    """This process claims another numpy: ClusterError that names worker, package and both versions."""
    ours = dask_backend.package_versions()
    monkeypatch.setattr(dask_backend, "package_versions", Versions({**ours, "numpy": "0.0.1"}))
    with pytest.raises(ClusterError, match=f"numpy {ours['numpy']}, this process has 0.0.1"):
        DaskExecutor(one_worker)


class Versions:
    """Says one thing here and the truth elsewhere: it pickles as the real function."""

    def __init__(self, found):
        self.found = found

    def __call__(self):
        return self.found

    def __reduce__(self):
        return _real_versions, ()


def _real_versions():
    return dask_backend.package_versions


@pytest.mark.parametrize("selection", ["error", "gain"])
def test_bits_do_not_depend_on_the_threads_that_blas_was_given(selection):
    """The same fit with BLAS set to one thread and to two outside it; the setting is there again afterwards."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(3000, 3))
    y = np.sin(3 * X).sum(axis=1) + 0.1 * rng.normal(size=3000)
    models = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            model = RVMRegressor(gamma=1.0, partition_size=150, max_rounds=3, selection=selection, random_state=0).fit(
                X, y
            )
            assert {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"} == {threads}
        models.append(model)
    one, two = models
    assert one.log_evidence_ == two.log_evidence_
    np.testing.assert_array_equal(one.weights_, two.weights_)
    np.testing.assert_array_equal(one.predict(X, return_std=True)[1], two.predict(X, return_std=True)[1])


def test_fits_at_the_same_time_leave_blas_as_it_was():
    """Four fits in threads: each has the bits of a fit alone, and the threads of BLAS are what they were before."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=800)

    def fit(_=None):
        return RVMRegressor(gamma=0.5, partition_size=60, max_rounds=3, random_state=0).fit(X, y).log_evidence_

    fit()
    before = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fit, range(4)))
    assert [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"] == before
    assert set(together) == {fit()}
