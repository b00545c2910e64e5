"""A strategy that the package does not have: entered in the registry, it is planned, described, run and reported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import partirvm.strategies
from partirvm import RVMRegressor, ingest, load_model
from partirvm.cli import main
from partirvm.options.values import Value, held
from partirvm.planning.cost import Schedule
from partirvm.strategies.fit_rows import partition
from partirvm.strategies.in_order import IncrementalRounds
from partirvm.strategies.stages import columns_of


class Backwards(IncrementalRounds):
    """``incremental`` from the last partition to the first."""

    name = "backwards"
    schedule = Schedule(name, whole_partitions=True)

    def propose(self, state, room):
        count = -(-state.problem.n_rows // state.options.partition_size)
        return state, (
            yield from columns_of(state.design, partition(state.problem, state.options, count - state.round))
        )


@dataclass(eq=False, repr=False)
class BackwardsValue(Value):
    """What a user may give of it."""

    name = "backwards"
    of = "strategy"
    stop_fraction: float = held("stop_fraction")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """One line of the registry."""
    monkeypatch.setitem(partirvm.strategies.STRATEGIES, Backwards.name, Backwards)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, size=(150, 1))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=150)


def test_an_estimator_takes_its_value(rows):
    """The plan names it its rounds join as the machine proposes, and the model is as good as any."""
    X, y = rows
    options: dict[str, Any] = {"gamma": 1.0, "partition_size": 50, "random_state": 0}
    model = RVMRegressor(strategy=BackwardsValue(stop_fraction=0.25), **options).fit(X, y)
    assert "3 partitions of 50 candidates in order" in str(model.plan_)
    assert model.plan_.strategy == "backwards"
    assert len(model.plan_.rounds) == len([entry for entry in model.history_ if entry["kind"] != "kernel"]) == 3
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.13
    forwards = RVMRegressor(strategy="incremental", **options).fit(X, y)
    assert model.history_[0]["log_evidence"] != forwards.history_[0]["log_evidence"], "other rows joined first"


def test_the_command_line_plans_fits_resumes_and_reports_it(rows, tmp_path, capsys):
    """From the word of an option to the page of its job; a resume goes on with it."""
    X, y = rows
    data, job, page = (str(tmp_path / name) for name in ("data", "job", "page.html"))
    ingest((X, y), data, tile_rows=64, shuffle=None)
    asked = [
        "--strategy",
        "backwards",
        "--gamma",
        "1",
        "--partition-size",
        "50",
        "--memory-limit",
        "1GiB",
        "--selection",
        "gain",
    ]
    assert main(["plan", data, *asked]) == 0
    said = capsys.readouterr().out
    assert "3 partitions of 50 candidates in order" in said
    assert "without effect here: selection" in said
    assert "the rows are not shuffled" in said
    assert main(["fit", data, job, *asked, "--max-rounds", "2"]) == 0
    said = "".join(capsys.readouterr())
    assert "backwards, 3 partitions of 50 candidates in order" in said
    assert "backwards, 2 fits" in said
    assert main(["resume", job, "--max-rounds", "3"]) == 0
    capsys.readouterr()
    assert main(["status", job, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"] == "backwards"
    assert main(["report", job, page]) == 0
    assert "3 partitions of 50 candidates in order" in (tmp_path / "page.html").read_text()
    assert np.sqrt(np.mean((load_model(job).predict(X) - y) ** 2)) < 0.13
