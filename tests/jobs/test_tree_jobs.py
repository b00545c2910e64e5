"""Jobs with boosted trees beside the fit: DATA, the choice of trees, and ends, kills and updates
while the trees are learned."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng

from partirvm import ingest, jobs, open_job
from partirvm.fit import Watcher
from partirvm.jobs import Status
from partirvm.options import Request

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

REQUEST = Request(
    gamma=0.5, partition_size=20, max_rounds=1, noise="constant", residual="none", tree_rounds=4
)

KINDS = {
    "numbers": {},
    "local residuals": {"residual": "local", "neighbours": 10},
    "local noise": {"noise": "local"},
    "two targets": {},
    "two classes": {},
    "three classes": {},
    "groups": {},
    "groups of classes": {},
    "automatic trees": {"basis": "auto"},
}


def steps(n=420, seed=0):
    """Return rows of three features, and targets with jumps in two of them."""
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, 3.0 * (X[:, 0] > 0.2) + 2.0 * (X[:, 1] > -0.3) + 0.1 * rng.normal(size=n)


def request_of(kind):
    """Return the request of a kind of fit."""
    return Request(**{**vars(REQUEST), "basis": "trees", **KINDS[kind]})


def rows_of(kind, n=420, seed=0):
    """Return inputs and targets, and the arguments of ``ingest`` for a kind of fit."""
    X, y = steps(n, seed)
    facts = {}
    if "targets" in kind:
        y = np.column_stack([y, X[:, 2] > 0.0])
    if "classes" in kind:
        y = np.digitize(y, [4.0] if kind != "three classes" else [1.0, 4.0])
        facts["classes"] = True
    if "groups" in kind:
        table = pd.DataFrame(X).assign(group=np.arange(n) // 7, y=y).rename(columns=str)
        return table, {**facts, "target": "y", "groups": "group"}
    return (X, y), facts


def data_of(kind, folder, tile_rows=128):
    """Return DATA for a kind of fit."""
    rows, facts = rows_of(kind)
    return ingest(rows, folder / f"d{tile_rows}.zarr", tile_rows=tile_rows, **facts).url


class AtTrees(Watcher):
    """Ends a fit at a step of boosted trees.

    Attributes:
        step: number of the step
        steps: number of steps so far
        kill: called at this step, or None to abort the fit
    """

    def __init__(self, step, kill=None):
        self.step = step
        self.steps = 0
        self.kill = kill

    def on_tiles(self, name, done, total):
        self.steps += name == "trees"
        if self.kill is not None and self.steps == self.step:
            self.kill()

    def aborted(self):
        return self.kill is None and self.steps >= self.step


def interrupt():
    """Break off, as after a second Ctrl-C."""
    raise KeyboardInterrupt


def some_steps(count):
    """Return the first step of a stage and one in its middle."""
    return [1, count // 2]


@pytest.mark.parametrize("has_jumps", [True, False])
def test_auto_takes_trees_where_left_out_rows_gain(tmp_path, has_jumps):
    """A smooth function of few features gains nothing from coarse steps."""
    X, y = steps()
    y = y if has_jumps else np.sin(X[:, 0]) + X[:, 1]
    data = ingest((X, y), tmp_path / "d.zarr", tile_rows=128).url
    jobs.fit(data, str(tmp_path / "job"), Request(**{**vars(REQUEST), "basis": "auto"}))
    job = open_job(tmp_path / "job")
    model = job.model()
    assert (model.trees is not None) == has_jumps
    entry = job.state().history[-1]["trees"]
    assert bool(entry["reason"]) != has_jumps
    assert (entry["share"] > 0) == has_jumps
    mean = model.values(X)[0][:, 0]
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.7 * y.std()


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize("kind", some(KINDS, {"three classes"}))
def test_an_abort_while_trees_are_learned_leaves_the_fit_without_them(kind, tmp_path):
    """A resumed job has the bits of an undisturbed one."""
    data = data_of(kind, tmp_path)
    counted = AtTrees(np.inf)
    complete = jobs.fit(data, str(tmp_path / "whole"), request_of(kind), watcher=counted).model
    assert complete.trees is not None
    X, _ = steps()
    for step in some_steps(counted.steps):
        place = tmp_path / f"job-{step}"
        jobs.fit(data, str(place), request_of(kind), watcher=AtTrees(step))
        job = open_job(place)
        assert job.state().status is Status.ABORTED
        assert [line["kind"] for line in job.state().history][-1] == "early"
        early = job.model()
        assert early.trees is None
        assert early.n_vectors > 0
        assert np.isfinite(early.values(X)[0].astype(float)).all()
        resumed = job.resume()
        resumed.wait()
        assert resumed.model().digest() == complete.digest()


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize("kind", some(KINDS, {"local residuals"}))
def test_a_job_that_broke_off_while_trees_were_learned_resumes(kind, tmp_path):
    """Nothing is stored during the stage, and the resumed job has the bits of an undisturbed
    one."""
    data = data_of(kind, tmp_path)
    complete = jobs.fit(data, str(tmp_path / "whole"), request_of(kind)).model
    place = str(tmp_path / "job")
    with pytest.raises(KeyboardInterrupt):
        jobs.fit(data, place, request_of(kind), watcher=AtTrees(2, interrupt))
    job = open_job(place)
    assert job.state().status is Status.INTERRUPTED
    assert {line["kind"] for line in job.state().history} <= {"round"}
    resumed = job.resume()
    resumed.wait()
    assert resumed.model().digest() == complete.digest()


KILLED = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from test_tree_jobs import AtTrees, jobs, request_of
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
jobs.fit(sys.argv[1], sys.argv[2], request_of("numbers"), watcher=AtTrees(2, kill))
"""


@pytest.mark.usefixtures("processes")
def test_a_killed_process_leaves_a_job_that_resumes(tmp_path):
    data = data_of("numbers", tmp_path)
    complete = jobs.fit(data, str(tmp_path / "whole"), request_of("numbers")).model
    place = str(tmp_path / "job")
    ended = subprocess.run([sys.executable, "-c", KILLED, data, place], check=False)
    assert ended.returncode == -signal.SIGKILL
    jobs.run_job(place, patience=60.0)
    assert open_job(place).model().digest() == complete.digest()


@pytest.mark.parametrize("kind", some(KINDS, {"two classes"}))
def test_tiles_do_not_change_the_trees(kind, tmp_path):
    """The rows are stored in the same order; sums over tiles differ in their last digits."""
    models = [
        jobs.fit(
            data_of(kind, tmp_path, rows), str(tmp_path / f"job{rows}"), request_of(kind)
        ).model
        for rows in (128, 420)
    ]
    one, other = (model.trees.trees for model in models)
    assert one.roots.shape == other.roots.shape
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_allclose(one.thresholds, other.thresholds, atol=1e-9)


@pytest.mark.parametrize("kind", some(KINDS, {"local residuals"}))
def test_trees_have_the_same_bits_on_three_workers(kind, three_workers, tmp_path):
    data = data_of(kind, tmp_path)
    local = jobs.fit(data, str(tmp_path / "here"), request_of(kind)).model
    remote = jobs.fit(data, str(tmp_path / "there"), request_of(kind), client=three_workers).model
    assert local.trees is not None
    assert remote.digest() == local.digest()


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize("kind", some(KINDS, {"numbers"}))
def test_an_update_learns_trees_from_all_rows(kind, tmp_path):
    """An aborted update resumes to the bits of an undisturbed one."""
    data = data_of(kind, tmp_path)
    place = tmp_path / "job"
    jobs.fit(data, str(place), request_of(kind))
    rows, _ = rows_of(kind, 150, seed=1)
    ingest(rows, data, append=True)
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    updated = open_job(place).update()
    updated.wait()
    entry = updated.state().history[-1]["trees"]
    assert entry["rows"] == 570
    job = open_job(copy)
    job.requeue(grown=True)
    jobs.run_job(str(copy), watcher=AtTrees(2), patience=0.0)
    assert job.model().trees is None
    resumed = job.resume()
    resumed.wait()
    assert resumed.model().digest() == updated.model().digest()
