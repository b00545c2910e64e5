"""Split-and-merge, incremental and working set under every likelihood: the same bits on a cluster, and in parallel."""

from __future__ import annotations

import numpy as np
import pytest
from backend_cases import bits, cluster

from partirvm import service
from partirvm.data import ingest
from partirvm.types import FitParameters

CASES = [
    (strategy, likelihood)
    for strategy in ("split-merge", "incremental", "working-set")
    for likelihood in ("full", "sample", "partition")
]


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """4,000 rows of a noisy wave, shuffled, in tiles of 512."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, size=(4000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=4000)
    return ingest((X, y), tmp_path_factory.mktemp("waves") / "waves.zarr", tile_rows=512)


def parameters(strategy, likelihood, size):
    return FitParameters(
        gamma=0.2,
        strategy=strategy,
        likelihood=likelihood,
        likelihood_rows=1500,
        noise_rows=1000,
        partition_size=size,
        max_rounds=None if strategy == "split-merge" else 5,
    )


def left(fitted):
    """Everything that a fit decided: the model and each line of history, but for times and bytes."""
    times = {
        "seconds",
        "pass_seconds",
        "solve_seconds",
        "solve_began",
        "peak_memory",
        "kernel_evaluated",
        "kernel_kept",
    }
    lines = [tuple((k, repr(v)) for k, v in line.items() if k not in times) for line in fitted.history]
    model = fitted.model
    return bits(model.mean), bits(model.design.labels), bits(model.root), model.log_evidence.hex(), tuple(lines)


@pytest.mark.parametrize(("strategy", "likelihood"), CASES)
def test_the_same_bits_on_three_workers(waves, three_workers, tmp_path, strategy, likelihood):
    """Model and history, inline and on a cluster."""
    asked = parameters(strategy, likelihood, 300)
    here = service.fit(waves.url, str(tmp_path / "here"), asked)
    there = service.fit(waves.url, str(tmp_path / "there"), asked, client=three_workers)
    assert left(here) == left(there)


def test_the_first_level_runs_in_parallel_on_four_workers(waves, tmp_path):
    """Dense fits of the first level overlap in time on 4 workers of one thread; the bits are those of the inline run.

    The sum of their own times over the time from the first to the last is 1 where they take turns.
    """
    asked = parameters("split-merge", "full", 500)
    here = service.fit(waves.url, str(tmp_path / "here"), asked)
    with cluster(4) as client:
        there = service.fit(waves.url, str(tmp_path / "there"), asked, client=client)
    assert left(here) == left(there)
    first = [line for line in there.history if line["level"] == 0]
    assert len(first) == 8
    spans = sorted((line["solve_began"], line["solve_began"] + line["solve_seconds"]) for line in first)
    length = max(end for _, end in spans) - spans[0][0]
    together = [sum(begin <= at < end for begin, end in spans) for at, _ in spans]
    assert max(together) >= 3
    assert sum(end - begin for begin, end in spans) / length > 1.3
