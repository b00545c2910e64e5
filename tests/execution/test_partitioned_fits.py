"""Split-and-merge, incremental and working set under every likelihood, of numbers and of classes:
the same bits on a cluster, in parallel, and wherever kernel values are kept."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from by_default import some
from journals import left

from partirvm import jobs
from partirvm.core import ascent
from partirvm.data import ingest
from partirvm.learning import class_search, search
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
    """2,000 rows of a noisy wave, shuffled, in tiles of 512."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, size=(2000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=2000)
    return ingest((X, y), tmp_path_factory.mktemp("waves") / "waves.zarr", tile_rows=512)


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """1,500 rows of K = 2 and 3 classes behind such a wave, shuffled, in tiles of 512; DATA by
    K."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-3, 3, size=(1500, 3))
    score = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=1500)
    folder = tmp_path_factory.mktemp("classes")
    cuts = {2: [0.0], 3: [-0.8, 0.8]}
    return {
        K: ingest(
            (X, np.digitize(score, cuts[K])),
            folder / f"{K}.zarr",
            tile_rows=512,
            classes=True,
            shuffle=1,
        )
        for K in cuts
    }


@pytest.mark.parametrize(("strategy", "likelihood"), CASES)
def test_the_same_bits_on_three_workers(waves, three_workers, tmp_path, strategy, likelihood):
    """Model and history, inline and on a cluster."""
    rounds = None if strategy == "split-merge" else 3
    some = {"fit_rows": likelihood, "sample_rows": 800, "residual": "none"}
    asked = Request(gamma=0.2, strategy=strategy, max_rounds=rounds, partition_size=150, **some)
    here = jobs.fit(waves.url, str(tmp_path / "here"), asked)
    there = jobs.fit(waves.url, str(tmp_path / "there"), asked, client=three_workers)
    assert left(here) == left(there)


@pytest.mark.parametrize(
    ("strategy", "likelihood"),
    [pytest.param("working-set", "multinomial", marks=pytest.mark.slow), ("incremental", "auto")],
)
def test_classes_have_the_same_bits_everywhere(
    classes, three_workers, tmp_path, strategy, likelihood
):
    """Model and history of three classes: inline, and on three workers that keep kernel blocks."""
    asked = Request(
        gamma=0.2,
        strategy=strategy,
        fit_rows="full",
        partition_size=30,
        max_rounds=2,
        likelihood=likelihood,
    )
    here = jobs.fit(classes[3].url, str(tmp_path / "here"), asked)
    keeping = replace(asked, kernel_store="memory")
    there = jobs.fit(classes[3].url, str(tmp_path / "there"), keeping, client=three_workers)
    assert left(here) == left(there)
    assert here.model.mean.shape[1] == 3
    assert there.plan.kernel_store.where == "memory"


@pytest.mark.slow
@pytest.mark.parametrize("K", [0, 2])
def test_a_learned_kernel_has_the_same_bits_everywhere(
    waves, classes, three_workers, tmp_path, monkeypatch, K
):
    """Kernel, model and history, of numbers and of classes, which leave out rows first: inline and
    on a cluster. The kernel of numbers is learned again, as the first round has more than 3.2 times
    its centres."""
    monkeypatch.setattr(class_search, "ROWS", 60)
    monkeypatch.setattr(ascent, "MOST", 3)
    monkeypatch.setattr(search, "CENTRES", 30 if K else 5)
    monkeypatch.setattr(search, "MOST_CENTRES", 5)
    asked = Request(strategy="working-set", partition_size=40, max_rounds=2)
    data = classes[K] if K else waves
    here = jobs.fit(data.url, str(tmp_path / "here"), asked)
    there = jobs.fit(data.url, str(tmp_path / "there"), asked, client=three_workers)
    assert any(entry["taken"] is not None for entry in here.history) == (not K)
    assert left(here) == left(there)
