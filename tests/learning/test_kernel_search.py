"""Kernel learning: relevant features, number of centres, evidence that never falls, classes."""

from dataclasses import asdict, replace

import naive
import numpy as np
import pytest
from numpy.random import default_rng
from sampling import arm, problem_of, sample_of

from partirvm.core.ascent import OFF
from partirvm.kernels import Gaussian, kernel_from_spec
from partirvm.learning import SEARCHES, learning_options
from partirvm.learning.forms import learn
from partirvm.learning.search import KernelSearch
from partirvm.spec import Options
from partirvm.strategies.fit_rows import posterior_rows


def learned(X, y, w=None, rows=None, seed=0, centres=None, passes=None, told=None, **about):
    """Return the history lines (as dicts with the kernel) recorded by learning."""
    problem = problem_of(X, y, **about)
    lines = []
    limits = SEARCHES[problem.likelihood.working.search].centres(problem.n_classes)
    learning = learning_options(rows or len(X), limits=limits)
    if centres is not None:
        learning = replace(learning, centres=min(centres, learning.centres))
    options = Options(len(X), "random", sample_rows=rows or len(X), seed=seed)
    numbers = posterior_rows(problem, options, "sample")
    heard = [] if told is None else told
    with sample_of(
        X, y, w, numbers, tile_rows=300, passes=passes, lines=lines, on_best=heard
    ) as sample:
        found = learn(sample, problem, learning, seed).kernel
    assert found == heard[-1].kernel == kernel_from_spec(lines[-1].kernel)
    return [{**asdict(line), "kernel": kernel_from_spec(line.kernel)} for line in lines]


def gammas(entries):
    found = np.array(entries[-1]["kernel"].gamma)
    return found / found.max()


def test_relevant_features_are_found():
    """Two of ten features are relevant."""
    entries = learned(*arm(1200, 10), centres=100)
    found = gammas(entries)
    assert (found[:2] > 0.05).all()
    assert (found[2:] < OFF).all()
    (line,) = entries
    assert (line["kind"], line["rows"], line["candidates"]) == ("kernel", 1200, 100)
    assert line["gain"] > 100


def test_one_width_is_searched_from_several_starts():
    """The width for a trend with ripples is a local maximum, 280 nats below the best one."""
    rng = default_rng(5)
    X = rng.uniform(-2, 2, size=(400, 1))
    y = np.tanh(X[:, 0]) + 0.3 * np.sin(12 * X[:, 0]) + 0.1 * rng.normal(size=400)
    near, far = (
        learned(X, y - y.mean(), kernel=Gaussian(gamma), centres=60)[0] for gamma in (1.0, 20.0)
    )
    assert near["log_evidence"] > far["log_evidence"] - 1
    assert near["kernel"].gamma[0] == pytest.approx(far["kernel"].gamma[0], rel=0.1)


def test_relevant_features_for_classes_are_found():
    rng = default_rng(4)
    X = rng.normal(size=(500, 6))
    f = X[:, 1] ** 2 + X[:, 4] + 0.3 * rng.normal(size=500)
    for K in (2, 3):
        codes = np.searchsorted(np.quantile(f, np.arange(1, K) / K), f).astype(float)
        entries = learned(X, codes, K=K, centres=50)
        found = gammas(entries)
        assert (found[[1, 4]] > 0.05).all()
        assert (np.delete(found, [1, 4]) < 0.03).all()
        assert max(entry["gain"] for entry in entries) > 10
        assert entries[-1]["noise_variance"] is None


def dense(X, y, w, line, kernel, centres, alpha):
    """Return the log evidence (eq. 15) with these centres."""
    empty = problem_of(X, y, kernel).empty
    design = replace(empty.with_centres(X[centres], centres), bias=True)
    return naive.log_evidence(design.block(X), y, alpha, 1 / line["noise_variance"], w)


def test_centres_double_and_the_evidence_never_falls(monkeypatch):
    """The evidence at each stage equals that from the dense formula."""
    bests = []
    old = KernelSearch.record

    def spy(stage, problem):
        bests.append(stage)
        return old(stage, problem)

    monkeypatch.setattr(KernelSearch, "record", spy)
    rng = default_rng(5)
    X = rng.uniform(-2, 2, size=(700, 2))
    w = rng.choice([0.0, 0.5, 2.0], size=700)
    y = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + 0.02 * rng.normal(size=700)
    entries = learned(X, y, w, centres=20, kernel=Gaussian((2.0, 2.0)))
    assert [entry["number"] for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) > 1
    assert [entry["candidates"] for entry in entries[:-1]] == [
        20 * 2**k for k in range(len(entries) - 1)
    ]
    for entry, state in zip(entries, bests, strict=True):
        assert entry["gain"] >= 0
        design = state.design(state.kernel)
        alpha = state.best.tied.alphas(np.append(-1, design.labels))
        found = dense(X, y, w, entry, entry["kernel"], design.labels, alpha)
        assert entry["log_evidence"] == pytest.approx(found, rel=1e-6)
