"""Jobs whose noise depends on the inputs: every strategy, stops and resumes, appended rows, the command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from partirvm import ingest, jobs, open_job
from partirvm.core.termination import Termination
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.jobs.driver import MemoryJournal
from partirvm.jobs.run import run
from partirvm.options import Request
from partirvm.setup.resolve import resolve
from partirvm.strategies import STRATEGIES

ASKED = Request(gamma=0.4, partition_size=60, noise="local", seed=1)


def rows(n=700, seed=0, low=-3.0):
    """A wave whose noise grows tenfold from left to right, and a feature without effect on either."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(low, 3, n), rng.uniform(-1, 1, n)])
    return X, np.sin(2 * X[:, 0]) + np.where(X[:, 0] > 0, 0.5, 0.05) * rng.normal(size=n)


LEFT_AND_RIGHT = np.array([[-1.5, 0.0], [1.5, 0.0]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    place = tmp_path_factory.mktemp("data") / "rows.zarr"
    ingest(rows(), place, tile_rows=128)
    return str(place)


def request_for(strategy):
    rounds = None if strategy in ("basic", "split-merge") else 3
    partition = "auto" if strategy == "basic" else 60
    return replace(ASKED, strategy=strategy, max_rounds=rounds, partition_size=partition)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_states_it(strategy, data, tmp_path):
    """Three times the deviation at least where the noise is ten times as large; the history counts its vectors."""
    fitted = jobs.fit(data, str(tmp_path / "job"), request_for(strategy))
    _, std = fitted.model.predict(LEFT_AND_RIGHT, return_std=True)
    assert std[1] > 3 * std[0]
    *before, last = fitted.history
    assert last["kind"] == "final"
    assert last["noise_vectors"] == len(fitted.model.design.noise.weights)
    assert all(entry["noise_vectors"] is None for entry in before)
    saved = open_job(tmp_path / "job").model()
    assert saved.digest() == fitted.model.digest()
    np.testing.assert_array_equal(saved.predict(LEFT_AND_RIGHT, return_std=True)[1], std)


class After:
    """Wants the end from a poll on, and counts them."""

    def __init__(self, at):
        self.at, self.polls = at, 0

    def __call__(self):
        self.polls += 1
        return Termination.TIME if self.polls > self.at else None


def ended(at):
    """Run in memory with the time up at a poll: the polls, the journal, and the reason of the end."""
    source, executor, after, journal = (
        ArraySource(*rows(), tile_rows=128),
        LocalExecutor(1),
        After(np.inf),
        MemoryJournal(),
    )
    spec = resolve(source, request_for("basic"), executor)
    after.at = at
    outcome = run(spec, source, executor, journal, interrupted=after)
    executor.close()
    return after, journal, outcome.reason


def test_time_that_is_up_meanwhile_leaves_the_model_with_constant_noise():
    """From the kernels of the noise to the last pass over weighted rows: the whole fit, not a small one."""
    whole, complete, _ = ended(np.inf)
    vectors = complete.model.n_vectors
    kinds = []
    for at in range(whole.polls - 20, whole.polls - 1, 8):
        _, journal, reason = ended(at)
        assert reason is Termination.TIME
        kinds.append(journal.history[-1]["kind"])
        assert journal.model.design.noise is None
        assert abs(journal.model.n_vectors - vectors) <= vectors
        _, std = journal.model.predict(LEFT_AND_RIGHT, return_std=True)
        assert std[1] < 1.5 * std[0]
        assert journal.model.calibration is not None
    assert set(kinds) == {"early"}


def test_appended_rows_keep_the_noise(tmp_path):
    """A job that goes on with new rows has the noise factors of before, and weighs the new rows by them."""
    place, job = tmp_path / "d.zarr", tmp_path / "job"
    ingest(rows(500), place, tile_rows=128)
    before = jobs.fit(str(place), str(job), replace(ASKED, max_rounds=2)).model
    ingest(rows(200, seed=5), place, append=True)
    updated = open_job(job).update()
    updated.wait()
    after = updated.model()
    assert after.n_rows == 700
    np.testing.assert_array_equal(after.design.noise.weights, before.design.noise.weights)
    _, std = after.predict(LEFT_AND_RIGHT, return_std=True)
    assert std[1] > 3 * std[0]
