"""Whole fits on every executor: the same bits, whatever the workers, the threads or the setting of
BLAS."""

import backend_cases
import numpy as np
import pandas as pd
import pytest
from backend_cases import TILE, D, bits

from partirvm import Local, RVMRegressor, ingest, jobs, open_job, predict
from partirvm.execution import LocalExecutor
from partirvm.jobs import attempt
from partirvm.options import Request
from partirvm.planning.memory import ALLOWANCE, DataShape, step_bytes
from partirvm.planning.plan import Machine

pytestmark = pytest.mark.bits

ASKED = {"selection": "error", "strategy": "working-set", "noise": "constant", "residual": "none"}
PARAMETERS = Request(gamma=0.3, partition_size=40, max_rounds=3, **ASKED)


N = 2 * TILE + 123


def rows():
    """The first three tiles, the last of them short: whole fits pass over them many times."""
    return tuple(part[:N] for part in backend_cases.rows())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """These rows as DATA on disk."""
    return ingest(
        rows(), tmp_path_factory.mktemp("few") / "rows.zarr", tile_rows=TILE, shuffle=None
    )


def fitted_bits(model):
    """What a fit leaves, to the bit."""
    return bits(model.mean), bits(model.design.labels), bits(model.root), model.log_evidence.hex()


@pytest.mark.slow
def test_several_targets_have_the_same_bits_on_a_cluster(one_worker, tmp_path):
    """A fit of DATA with two targets, its held-out scores and its predictions."""
    X, y, w = (part[:1500] for part in rows())
    data = ingest(
        (X, np.column_stack([y, X[:, 0] * X[:, 2]]), w), tmp_path / "two.zarr", tile_rows=512
    ).url
    parameters = Request(**{**vars(PARAMETERS), "max_rounds": 2})
    found = []
    for client in (None, one_worker):
        job, output = (str(tmp_path / f"{name}{len(found)}") for name in ("job", "p.csv"))
        model = jobs.fit(data, job, parameters, validation=data, client=client).model
        predict.predict(job, data, f"{output}.csv", client=client)
        assert model.n_targets == 2
        scores = predict.evaluate(job, data, client=client)
        found.append(
            (fitted_bits(model), scores, (tmp_path / f"p.csv{len(found)}.csv").read_bytes())
        )
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one target", "two targets", "three classes"])
def test_coordinates_of_levels_have_the_same_bits_on_a_cluster(kind, one_worker, tmp_path):
    """Twenty levels are learned before the kernel; two rounds on a worker are one round here and
    another later."""
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
    asked = {"kernel": "gaussian", "partition_size": 40} | (
        {} if kind == "three classes" else ASKED
    )
    there = jobs.fit(
        data, str(tmp_path / "there"), Request(**asked, max_rounds=2), client=one_worker
    ).model
    jobs.fit(data, str(tmp_path / "here"), Request(**asked, max_rounds=1))
    job = open_job(tmp_path / "here").resume(max_rounds=2)
    job.wait()
    here = job.model()
    assert here.design.scaling.embedded == [1]
    assert (here.design.scaling.key, *fitted_bits(here)) == (
        there.design.scaling.key,
        *fitted_bits(there),
    )


def test_fewer_threads_under_a_small_limit_change_no_bits(data, monkeypatch, tmp_path):
    """Three threads that do not fit become fewer, the plan says so, and the model is the same."""
    whole = jobs.fit(data.url, str(tmp_path / "whole"), PARAMETERS).model
    base = 100 << 20
    need = step_bytes(
        DataShape(N, D, 1, TILE), 41, 40, 3
    ).peak  # M = 41 kept columns and P = 40 on three threads

    class Small(LocalExecutor):
        def machine(self, limit):
            return Machine(self.threads, base, base + ALLOWANCE + need - 1)

    monkeypatch.setattr(attempt, "executor_for", lambda client: Small(3))
    found = jobs.fit(data.url, str(tmp_path / "job"), PARAMETERS)
    assert found.plan.threads == 2
    assert any("2 of 3 threads" in note for note in found.plan.notes)
    assert fitted_bits(found.model) == fitted_bits(whole)


def test_an_estimator_on_arrays_has_the_same_bits_on_a_cluster(one_worker, three_workers):
    """RVMRegressor.fit with client=None, one worker and three; predictions too."""
    X, y, w = rows()
    X = X[:1200]
    y = y[:1200]
    w = w[:1200]
    found = []
    for client in (None, one_worker, three_workers):
        few = {
            "partition_size": 30,
            "max_rounds": 2,
            "noise": "constant",
            "residual": Local(neighbours=10),
        }
        estimator = RVMRegressor(gamma=0.3, random_state=3, client=client, **few)
        estimator.fit(X, y, sample_weight=w)
        mean, std = estimator.predict(X[:100], return_std=True)
        found.append(
            (fitted_bits(estimator.model_), bits(mean), bits(std), estimator.log_evidence_.hex())
        )
        assert estimator.model_.residuals is not None
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")
def test_a_kernel_that_is_a_function_is_imported_by_the_workers(data, one_worker, tmp_path):
    """A fit on workers has the bits of one in this process."""
    functions = {
        "kernel": "sklearn.metrics.pairwise:laplacian_kernel",
        "basis": ["linear", "numpy:tanh"],
    }
    asked = Request(strategy="working-set", partition_size=40, max_rounds=2, seed=1, **functions)
    there = jobs.fit(data.url, str(tmp_path / "there"), asked, client=one_worker).model
    here = jobs.fit(data.url, str(tmp_path / "here"), asked).model
    assert there.design.kernel.spec() == {"name": "function", "function": asked.kernel}
    assert there.design.functions.spec()[1][0] == "numpy:tanh"
    assert there.design.n_leading > 1
    assert fitted_bits(there) == fitted_bits(here)
