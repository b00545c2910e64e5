"""Partitioned strategies have the same bits on a cluster and wherever kernel values are stored."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from by_default import some
from journals import left
from surfaces import bent_plane

from partirvm import jobs
from partirvm.data import ingest
from partirvm.learning import SEARCHES, CentreLimits
from partirvm.options import Request

pytestmark = pytest.mark.bits


CASES = some(
    [
        *product(("split-merge", "incremental", "working-set"), ("full", "sample")),
        ("working-set", "growing"),
    ],
    {("split-merge", "sample"), ("working-set", "growing")},
)


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """Return 2,000 shuffled rows of a noisy wave, in tiles of 512."""
    place = tmp_path_factory.mktemp("waves") / "waves.zarr"
    return ingest(bent_plane(2000, seed=5, d=3), place, tile_rows=512)


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Return DATA of 1,500 shuffled rows by number of classes, 2 and 3, in tiles of 512."""
    X, score = bent_plane(1500, seed=6, noise=0.5, d=3)
    folder = tmp_path_factory.mktemp("classes")
    cuts = {2: [0.0], 3: [-0.8, 0.8]}
    options = {"tile_rows": 512, "classes": True, "shuffle": 1}
    return {
        K: ingest((X, np.digitize(score, cuts[K])), folder / f"{K}.zarr", **options) for K in cuts
    }


@pytest.mark.parametrize(("strategy", "likelihood"), CASES)
def test_every_strategy_has_the_same_bits_on_three_workers(
    waves, three_workers, tmp_path, strategy, likelihood
):
    """Model and history are compared."""
    rounds = None if strategy == "split-merge" else 3
    options = {"fit_rows": likelihood, "sample_rows": 800, "residual": "none"}
    request = Request(
        gamma=0.2, strategy=strategy, max_rounds=rounds, partition_size=150, **options
    )
    local = jobs.fit(waves.url, str(tmp_path / "here"), request)
    remote = jobs.fit(waves.url, str(tmp_path / "there"), request, client=three_workers)
    assert left(local) == left(remote)


@pytest.mark.parametrize(
    ("strategy", "likelihood"),
    [pytest.param("working-set", "multinomial", marks=pytest.mark.slow), ("incremental", "auto")],
)
def test_classes_have_the_same_bits_on_three_workers(
    classes, three_workers, tmp_path, strategy, likelihood
):
    """Model and history are compared while the workers store kernel blocks."""
    options = {"fit_rows": "full", "partition_size": 30, "max_rounds": 2}
    request = Request(gamma=0.2, strategy=strategy, likelihood=likelihood, **options)
    local = jobs.fit(classes[3].url, str(tmp_path / "here"), request)
    keeping = replace(request, kernel_store="memory")
    remote = jobs.fit(classes[3].url, str(tmp_path / "there"), keeping, client=three_workers)
    assert left(local) == left(remote)
    assert local.model.mean.shape[1] == 3
    assert remote.plan.kernel_store.where == "memory"


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("K", [0, 2])
def test_a_learned_kernel_has_the_same_bits_on_three_workers(
    waves, classes, three_workers, tmp_path, monkeypatch, K
):
    """For classes, rows are left out first; in the regression, the kernel is learned again."""
    limits = CentreLimits(0.25, 30, 30) if K else CentreLimits(0.5, 5, 5)
    for word, search in SEARCHES.items():
        few = replace(search, centres=lambda n_classes: limits)
        monkeypatch.setitem(SEARCHES, word, few)
    request = Request(strategy="working-set", partition_size=40, max_rounds=2)
    data = classes[K] if K else waves
    local = jobs.fit(data.url, str(tmp_path / "here"), request)
    remote = jobs.fit(data.url, str(tmp_path / "there"), request, client=three_workers)
    assert any(entry["taken"] is not None for entry in local.history) == (not K)
    assert left(local) == left(remote)
