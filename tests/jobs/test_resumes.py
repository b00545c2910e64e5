"""run(2n) equals run(n) followed by resume(n): jobs that reached a limit continue like the longer
fit."""

from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import RVMRegressor, ingest, jobs, load_model, open_job
from partirvm.errors import DoneError, UsageError
from partirvm.jobs import Status
from partirvm.kernels import Several, kernel_from_spec
from partirvm.model.base import bases_of
from partirvm.options import Request
from partirvm.storage import Folder, read_json, to_json
from partirvm.strategies import STRATEGIES, WorkingSetRounds
from partirvm.strategies.stopping import PATIENCE

pytestmark = [
    pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning"),
    pytest.mark.usefixtures("quick_learning"),
]

REQUEST = Request(gamma=0.5, partition_size=30, max_rounds=2, noise="constant", seed=4)

BASIS = ["linear", "numpy:tanh"]

FITS = {
    "numbers": {"strategy": "auto", "selection": "auto"},
    "random candidates": {"selection": "random"},
    "a kernel that is learned": {"gamma": "learn"},
    "several learned widths": {"gamma": "learn-shared", "gamma_multiples": (1, 30)},
    "local noise": {"noise": "local"},
    "a basis": {"basis": BASIS},
    "boosted trees": {"basis": "trees", "tree_rounds": 3},
    "several targets": {"targets": 2, "residual": "local", "neighbours": 10},
    "two classes": {"classes": 2},
}


def data(folder, targets=1, classes=0):
    """Return DATA of 300 rows of two inputs in three tiles."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 2))
    y = np.column_stack(
        [np.sin(3 * X[:, 0] + k) * X[:, 1] + 0.1 * rng.normal(size=300) for k in range(targets)]
    )
    y = np.digitize(y[:, 0], [0.0]) if classes else y[:, 0] if targets == 1 else y
    return ingest((X, y), folder / "d.zarr", tile_rows=128, classes=bool(classes)).url


def complete_and_resumed(folder, place, request, without_resolving):
    """Return a fit of four rounds, and one of two that is resumed for four with a wrong plan
    event."""
    complete = jobs.fit(place, str(folder / "whole"), replace(request, max_rounds=4))
    jobs.fit(place, str(folder / "job"), request)
    events = Folder(str(folder / "job"), folder / "job")
    for name in events.list("events"):
        event = read_json(events, f"events/{name}")
        if event["event"] == "plan":
            lies = {**event, "strategy": "none at all", "partition_size": -1}
            events.write(f"events/{name}", to_json(f"events/{name}", lies))
    without_resolving()
    job = open_job(folder / "job").resume(max_rounds=4, allow_code=True)
    assert job.wait(60) is Status.DONE, job.state().reason
    return complete, job


@pytest.mark.bits
@pytest.mark.parametrize("name", some(FITS, {"numbers", "two classes"}))
def test_a_resume_with_more_rounds_equals_the_longer_fit(name, tmp_path, without_resolving):
    """Bits and history are equal; nothing is decided or learned again, only the spec is read."""
    options = dict(FITS[name])
    place = data(tmp_path, options.pop("targets", 1), options.pop("classes", 0))
    complete, job = complete_and_resumed(
        tmp_path, place, replace(REQUEST, **options), without_resolving
    )
    model = job.model(allow_code=True)
    assert model.digest() == complete.model.digest()
    assert model.design.kernel == complete.model.design.kernel
    keys = ("kind", "number", "candidates", "vectors", "train_rmse", "log_evidence", "iterations")
    resumed, expected = (
        [[line.get(key) for key in keys] for line in fit.history] for fit in (job.state(), complete)
    )
    assert resumed == expected
    assert job.asked()["max_rounds"] == 4
    assert job.asked()["gamma"] == options.get("gamma", 0.5)
    assert job.progress()["attempt"] == 2
    assert job.facts()["relevance"] is not None
    if isinstance(complete.model.design.kernel, Several):
        assert complete.model.design.kernel == kernel_from_spec(complete.history[0]["kernel"])
        assert "2 kernels (gaussian), " in complete.history[0]["text"]
        design = complete.model.design
        other = replace(complete.model, design=replace(design, labels=design.labels ^ 1))
        assert other.digest() != complete.model.digest(), (
            "the digest depends on the labels of centres"
        )


@pytest.mark.slow
def test_a_resume_with_more_effort_equals_the_thorough_fit(tmp_path, monkeypatch):
    """A balanced fit ends because of its effort if the rule applies to small fits."""
    eager = type("EffortEndsSmallFits", (WorkingSetRounds,), {"least_work": 1.0})
    monkeypatch.setitem(STRATEGIES, "working-set", eager)
    place = data(tmp_path)
    request = replace(REQUEST, max_rounds=8, strategy="working-set")
    jobs.fit(place, str(tmp_path / "job"), replace(request, effort="balanced"))
    complete = jobs.fit(place, str(tmp_path / "whole"), replace(request, effort="thorough"))
    job = open_job(tmp_path / "job")
    assert (job.state().reason, open_job(tmp_path / "whole").state().reason) == ("effort", "rounds")
    for effort in ("balanced", "quick"):
        with pytest.raises(UsageError, match="resume with a larger effort"):
            job.resume(effort=effort)
    assert job.resume(effort="thorough").wait(60) is Status.DONE
    assert job.model().digest() == complete.model.digest()


def test_a_job_stores_its_basis(tmp_path):
    """It is JSON in the spec; names, weights and relevances equal those of the estimator."""
    place = data(tmp_path)
    jobs.fit(place, str(tmp_path / "job"), replace(REQUEST, basis=BASIS))
    job = open_job(tmp_path / "job")
    assert job.store.spec()["parameters"]["basis"] == BASIS
    options = {"partition_size": 30, "max_rounds": 2, "noise": "constant", "random_state": 4}
    inline = RVMRegressor(gamma=0.5, basis=BASIS, **options).fit(place)
    facts = job.facts()["bases"]
    model = load_model(tmp_path / "job", allow_code=True)
    assert model.digest() == inline.model_.digest()
    names = ["bias", "x0", "x1", "tanh[0]", "tanh[1]"]
    assert [column["name"] for column in facts] == names == list(bases_of(model).names)
    weights = [column["weights"][0] for column in facts]
    assert_array_equal(weights, inline.basis_weights_)
    relevances = [column["relevance"] for column in facts]
    assert_array_equal(relevances, inline.basis_relevance_)


def test_a_stop_by_validation_goes_on_only_when_asked(tmp_path):
    """The held-out targets are noise, so their error never falls below that of the first round."""
    rng = default_rng(1)
    place = data(tmp_path)
    noise = (rng.uniform(-2, 2, (100, 2)), rng.normal(0, 3, 100))
    held_out = ingest(noise, tmp_path / "v.zarr").url
    request = replace(REQUEST, max_rounds=None, partition_size=10)
    outcome = jobs.fit(place, str(tmp_path / "job"), request, validation=held_out)
    assert outcome.reason.value == "validation"
    job = open_job(str(tmp_path / "job"))
    rounds = [entry["number"] for entry in job.state().history if entry["kind"] == "round"]
    for changes in ({}, {"max_rounds": max(rounds)}):
        with pytest.raises(DoneError):
            job.requeue(**changes)
    assert job.resume(max_rounds=max(rounds) + 9).wait(120) is Status.DONE
    state = job.state()
    again = [entry["number"] for entry in state.history if entry["kind"] == "round"]
    assert max(again) == max(rounds) + PATIENCE
    assert state.reason == "validation"
    assert state.history[-1]["held_out_rmse"] == outcome.history[-1]["held_out_rmse"]
