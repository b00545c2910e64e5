"""Learned kernels and several widths: plans, histories, partition sizes and evidence."""

import re
from dataclasses import replace

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose

from benchmarks.estimator_parameters import grouped
from partirvm import RVMRegressor, ingest, jobs, open_job
from partirvm.data import as_source
from partirvm.execution import LocalExecutor
from partirvm.fit import Watcher
from partirvm.kernels import Gaussian, kernel_from_spec
from partirvm.learning import SEARCHES, CentreLimits
from partirvm.learning.sample import STAGES
from partirvm.options import Request
from partirvm.planning import DataShape, Machine
from partirvm.resolve.resolve import resolve
from partirvm.resolve.samples import Samples
from partirvm.resolve.small_fits import with_learned_kernel
from partirvm.storage import LeaseTimes

REQUEST = Request(
    kernel="gaussian", gamma="learn-per-feature", strategy="working-set", max_rounds=2, seed=1
)
NAMES = ("noise", "slope", "wave")
KERNEL = (
    r"gaussian, gamma of wave \S+, gamma of slope \S+: from 600 rows × 600 centres, \d+ evaluations"
)


def rows(n=600, seed=0):
    """Return a wave in the last feature on a slope in the second; the first is noise in other
    units."""
    rng = default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3)) * [1000.0, 1.0, 0.1]
    return X, 5 + np.sin(20 * X[:, 2]) + X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the rows as DATA with named columns."""
    from pandas import DataFrame

    X, y = rows()
    place = tmp_path_factory.mktemp("data") / "rows.zarr"
    ingest(
        DataFrame({**dict(zip(NAMES, X.T, strict=True)), "y": y}), place, target="y", tile_rows=200
    )
    return str(place)


@pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")
def test_plan_and_history_describe_the_learned_kernel(data, tmp_path):
    """They give features, rows, evaluations and gain; P is raised to the number of centres."""
    times = LeaseTimes(beat=0.01)
    steps = []
    doing = set()

    class Listener(Watcher):
        def on_learning(self, *step):
            steps.append(step[:2])
            doing.add(open_job(tmp_path / "job").progress()["doing"])

    fitted = jobs.fit(data, str(tmp_path / "job"), REQUEST, watcher=Listener(), times=times)
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {len(STAGES)}
    stage = rf"learning the kernel, \d of {len(STAGES)}: left-out rows"
    assert any(re.match(stage, text) for text in doing)
    learned, measured, *rounds = fitted.history
    assert [learned["kind"], measured["kind"]] == ["kernel", "heuristic"]
    assert fitted.model.design.kernel == kernel_from_spec(learned["kernel"])
    assert (learned["rows"], learned["candidates"]) == (600, 600)
    assert learned["gain"] > 0
    seconds = [entry["seconds"] for entry in fitted.history]
    assert seconds == sorted(seconds)
    text = learned["text"]
    assert re.match(KERNEL, text)
    assert "evidence +" in text
    assert "not in the kernel: noise" in text
    plan = str(fitted.plan)
    assert f"kernel      {text}" in plan
    assert fitted.plan.partition_size == 240
    assert measured["partition_size"] == 240
    state = open_job(tmp_path / "job").state()
    assert state.plan["learned"] == text
    assert open_job(tmp_path / "job").progress()["fits"] == len(rounds)


def test_kernels_without_gamma_and_kernels_for_few_rows_are_not_learned():
    """With a total row weight below 20, the width is "scale"."""
    X, y = rows(120)
    w = np.where(np.arange(120) < 19, 1.0, 0.0)
    few = RVMRegressor(random_state=0).fit(X, y, sample_weight=w)
    assert few.kernel_ == Gaussian(1 / 3)
    assert "no kernel was learned: gamma is 'scale', because 19 rows are too few" in few.plan_.notes
    assert [entry["kind"] for entry in few.history_] == ["final"]
    for kernel in (Gaussian(0.5), "linear"):
        assert RVMRegressor(kernel=kernel, random_state=0).fit(X, y).plan_.learned is None


def test_low_memory_limits_the_centres_for_kernel_learning(data):
    """A note reports this."""
    source = as_source(*rows(), seed=0)
    executor = LocalExecutor(1)
    shape = DataShape(source.n_rows, source.n_features, 1, source.tile_rows, 1)
    machine = Machine(1, 0, 34 << 20)
    spec = resolve(source, replace(REQUEST, gamma="scale"), executor)
    samples = Samples(source, shape, machine, REQUEST, executor, lambda: None)
    moments = source.moments
    learned = with_learned_kernel(samples, spec.problem, moments)
    executor.close()
    assert learned.centres < 240
    assert f"at most {learned.centres:,} centres because of the memory limit" in learned.notes[0]


def test_a_relearned_kernel_is_in_the_history(monkeypatch):
    """Learning starts from ten centres; the model has the last accepted kernel."""
    few = replace(SEARCHES["numbers"], centres=lambda n_classes: CentreLimits(0.5, 10, 10))
    monkeypatch.setitem(SEARCHES, "numbers", few)
    options = {
        "gamma": "learn-per-feature",
        "strategy": "working-set",
        "partition_size": 60,
        "max_rounds": 3,
    }
    model = RVMRegressor(**options, random_state=0).fit(*rows(300))
    first, *again = [entry for entry in model.history_ if entry["kind"] == "kernel"]
    assert first["taken"] is None
    assert again
    for entry in again:
        assert entry["candidates"] >= 20
        assert (
            f"from 300 rows × {entry['candidates']} centres, {entry['iterations']} evaluations"
            in entry["text"]
        )
        assert (": kernel accepted" in entry["text"]) == entry["taken"] == (entry["gain"] > 0)
    taken = [first, *(entry for entry in again if entry["taken"])]
    assert model.kernel_ == kernel_from_spec(taken[-1]["kernel"])


WIDTHS = (0.5, 40.0)
TWO = {"gamma": 0.5, "gamma_multiples": (1, 80), "partition_size": 61, "random_state": 0}


@pytest.mark.parametrize(
    "strategy",
    some(["basic", "working-set", "incremental", "split-merge"], {"working-set"}),
)
def test_every_strategy_uses_both_widths(strategy):
    """P functions of P // K rows join at a time; the evidence is computed for the final columns."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(150, 2))  # hills as wide as the map, and a steep one
    y = np.sin(X[:, 0]) + 3 * np.exp(-40 * ((X - 1) ** 2).sum(axis=1)) + 0.05 * rng.normal(size=150)
    y = y + 0.4 * default_rng(0).normal(size=150)
    model = RVMRegressor(
        standardize=False, **grouped({**TWO, "strategy": strategy, "partition_size": 41})
    ).fit(X, y)
    design = model.model_.design
    assert [kernel.gamma for kernel in design.kernels] == [
        (WIDTHS[0],),
        (pytest.approx(WIDTHS[1]),),
    ]
    assert set(design.which.tolist()) == {0, 1}
    assert len(set(design.labels.tolist())) == len(design.labels)
    joined = [entry["candidates"] for entry in model.history_ if entry["kind"] in ("round", "part")]
    if strategy == "working-set":
        assert joined[0] == 40
    if strategy != "basic":
        assert model.plan_.partitions == -(-150 // 20)
    columns = [
        naive.gaussian(X, design.centres[[m]], WIDTHS[k]) for m, k in enumerate(design.which)
    ]
    Phi = np.hstack([np.ones((150, int(design.bias))), *columns])
    beta = 1 / model.model_.evidence_noise
    evidence = naive.log_evidence(Phi, y - y.mean(), model.model_.alpha, beta, np.ones(150))
    assert_allclose(model.log_evidence_, evidence, rtol=1e-5)
