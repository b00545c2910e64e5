"""Fits on every executor have the same bits for any number of workers and threads and any BLAS
settings."""

import backend_cases
import numpy as np
import pandas as pd
import pytest
from backend_cases import TILE, D, bits

from partirvm import Local, RVMRegressor, ingest, jobs, open_job, predict
from partirvm.execution import LocalExecutor
from partirvm.jobs import attempt
from partirvm.options import Request
from partirvm.planning import DataShape, Machine, step_bytes
from partirvm.planning.memory import ALLOWANCE

pytestmark = pytest.mark.bits

OPTIONS = {"selection": "error", "strategy": "working-set", "noise": "constant", "residual": "none"}
PARAMETERS = Request(gamma=0.3, partition_size=40, max_rounds=3, **OPTIONS)


N = 2 * TILE + 123


def rows():
    """Return the first three tiles, of which the last is short."""
    return tuple(part[:N] for part in backend_cases.rows())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return these rows as DATA on disk."""
    place = tmp_path_factory.mktemp("few") / "rows.zarr"
    return ingest(rows(), place, tile_rows=TILE, shuffle=None)


def fitted_bits(model):
    """Return mean, labels, root and evidence of a model as bytes."""
    return bits(model.mean), bits(model.design.labels), bits(model.root), model.log_evidence.hex()


@pytest.mark.slow
def test_several_targets_have_the_same_bits_on_a_cluster(one_worker, tmp_path):
    """A fit to DATA with two targets, its held-out scores and its predictions are compared."""
    X, y, w = (part[:1500] for part in rows())
    data = ingest(
        (X, np.column_stack([y, X[:, 0] * X[:, 2]]), w), tmp_path / "two.zarr", tile_rows=512
    ).url
    parameters = Request(**{**vars(PARAMETERS), "max_rounds": 2})
    results = []
    for number, client in enumerate((None, one_worker)):
        job = str(tmp_path / f"job{number}")
        output = tmp_path / f"p{number}.csv"
        model = jobs.fit(data, job, parameters, validation=data, client=client).model
        predict.predict(job, data, str(output), client=client)
        assert model.n_targets == 2
        scores = predict.evaluate(job, data, client=client)
        results.append((fitted_bits(model), scores, output.read_bytes()))
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one target", "two targets", "three classes"])
def test_level_coordinates_have_the_same_bits_on_a_cluster(kind, one_worker, tmp_path):
    """Two rounds on a worker equal one round here and a resume; levels come before the kernel."""
    X = rows()[0][:300]
    y = rows()[1][:300]
    level = np.arange(300) % 20
    frame = pd.DataFrame({"x": X[:, 0], "level": pd.Categorical(level)})
    targets = {
        "one target": y + level,
        "two targets": np.column_stack([y + level, y - 0.5 * level]),
        "three classes": np.digitize(y + level, [6.0, 13.0]),
    }[kind]
    data = ingest(
        (frame, targets), tmp_path / "levels.zarr", tile_rows=100, classes=kind == "three classes"
    ).url
    options = {"kernel": "gaussian", "partition_size": 40}
    options |= {} if kind == "three classes" else OPTIONS
    two_rounds = Request(**options, max_rounds=2)
    remote = jobs.fit(data, str(tmp_path / "there"), two_rounds, client=one_worker).model
    jobs.fit(data, str(tmp_path / "here"), Request(**options, max_rounds=1))
    job = open_job(tmp_path / "here").resume(max_rounds=2)
    job.wait()
    resumed = job.model()
    assert resumed.design.scaling.embedded == [1]
    assert resumed.design.scaling.key == remote.design.scaling.key
    assert fitted_bits(resumed) == fitted_bits(remote)


def test_fewer_threads_under_a_low_limit_do_not_change_bits(monkeypatch, tmp_path):
    """Two of three threads, for three tiles, fit in the memory limit, as the plan notes."""
    X, y, _ = rows()
    data = ingest((X, y), tmp_path / "rows.zarr", tile_rows=TILE).url
    complete = jobs.fit(data, str(tmp_path / "whole"), PARAMETERS).model
    base = 100 << 20
    # M = 41 kept columns and P = 40 on three threads
    need = step_bytes(DataShape(N, D, 1, TILE), 41, 40, 3).peak

    class Small(LocalExecutor):
        def machine(self, limit):
            return Machine(self.threads, base, base + ALLOWANCE + need - 1)

    monkeypatch.setattr(attempt, "executor_for", lambda client: Small(3))
    fit = jobs.fit(data, str(tmp_path / "job"), PARAMETERS)
    assert fit.plan.threads == 2
    assert any("2 of 3 threads" in note for note in fit.plan.notes)
    assert fitted_bits(fit.model) == fitted_bits(complete)


def test_an_estimator_on_arrays_has_the_same_bits_on_a_cluster(one_worker, three_workers):
    """There is no client, one worker, or three; predictions are compared, too."""
    X, y, w = (part[:1200] for part in rows())
    options = {"partition_size": 30, "max_rounds": 2, "noise": "constant", "random_state": 3}
    results = []
    for client in (None, one_worker, three_workers):
        residual = Local(neighbours=10)
        estimator = RVMRegressor(gamma=0.3, residual=residual, client=client, **options)
        estimator.fit(X, y, sample_weight=w)
        predictions = bits(estimator.predict(X[:100], return_std=True))
        results.append((fitted_bits(estimator.model_), predictions))
        assert estimator.model_.residuals is not None
    assert results[0] == results[1] == results[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")
def test_a_kernel_that_is_a_function_is_imported_by_the_workers(data, one_worker, tmp_path):
    """The fit has the same bits as one in this process."""
    kernel = "sklearn.metrics.pairwise:laplacian_kernel"
    functions = {"kernel": kernel, "basis": ["linear", "numpy:tanh"]}
    request = Request(strategy="working-set", partition_size=40, max_rounds=2, seed=1, **functions)
    remote = jobs.fit(data.url, str(tmp_path / "there"), request, client=one_worker).model
    local = jobs.fit(data.url, str(tmp_path / "here"), request).model
    assert remote.design.kernel.spec() == {"name": "function", "function": request.kernel}
    assert remote.design.functions.spec()[1][0] == "numpy:tanh"
    assert remote.design.n_leading > 1
    assert fitted_bits(remote) == fitted_bits(local)
