"""Jobs with boosted trees beside the fit: DATA, the choice of trees, and ends, kills and updates
while the trees are learned."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
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
        y = np.digitize(y, [2.5] if kind != "three classes" else [1.0, 4.0])
        facts["classes"] = True
    if "groups" in kind:
        facts["groups"] = np.arange(n) // 7
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
    raise KeyboardInterrupt


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


@pytest.mark.parametrize("kind", some(KINDS, {"numbers", "three classes"}))
def test_an_abort_while_trees_are_learned_leaves_the_fit_without_them(kind, tmp_path):
    """A resumed job has the bits of an undisturbed one."""
    data = data_of(kind, tmp_path)
    counted = AtTrees(np.inf)
    complete = jobs.fit(data, str(tmp_path / "whole"), request_of(kind), watcher=counted).model
    assert complete.trees is not None
    X = rows_of(kind)[0][0]
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


def some_steps(count):
    """Return the first step of a stage, one in its middle, and the last one."""
    return sorted({1, (count + 1) // 2, count})
