"""Growing samples: the rows of each fit, sums of statistics, and when a sample grows."""

from itertools import pairwise

import naive
import numpy as np
import pytest
from class_simulator import ClassSimulator, groups
from numpy.random import default_rng
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from simulator import Simulator, wave

from partirvm.core import Termination
from partirvm.likelihoods import GramPass, Newton, Solve
from partirvm.spec import Options
from partirvm.strategies import WorkingSetRounds

PER_COLUMN = 4


class FewRows(WorkingSetRounds):
    """A working set with at least 4 rows per column in a growing sample, so that small data have
    several samples."""

    rows_per_column = PER_COLUMN


def simulated(shuffled=True, **options):
    """Return a run of 600 rows, whose first sample has 80 rows."""
    simulator = Simulator(*wave(600, noise=0.05), gamma=5.0, shuffled=shuffled)
    asked = {"fit_rows": "growing", "sample_rows": 80, "max_rounds": 4, "tol": 1e-6, **options}
    return simulator, simulator.run(FewRows(), Options(20, "random", **asked))


def samples(simulator):
    """Return the distinct row sets of the statistics of each fit before the last one."""
    found = [set(range(80)) if simulator.shuffled else set()]
    for pass_ in simulator.passes(GramPass):
        rows = set(range(len(simulator.X))) if pass_.rows is None else set(map(int, pass_.rows))
        if pass_.kept.n_columns == 0 and not rows & found[-1]:
            rows |= found[-1]  # new rows, whose statistics are added
        if rows != found[-1]:
            found.append(rows)
    return [rows for rows in found if rows]


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_larger_sample_contains_the_smaller_one(shuffled):
    """Only new rows are read; every fit has enough rows, and the last one has all."""
    simulator, reason = simulated(shuffled)
    assert reason is Termination.ROUNDS
    found = samples(simulator)
    assert len(found) >= 3
    assert all(one < other if shuffled else len(one) < len(other) for one, other in pairwise(found))
    assert len(found[-1]) == 600
    *fits, last = simulator.passes(Solve)
    assert all(PER_COLUMN * fit.start.n_vectors <= fit.start.statistics.n < 600 for fit in fits)
    assert last.start.statistics.n == 600
    records = [save.record for save in simulator.saves]
    assert [record.rows for record in records] == [*(fit.start.statistics.n for fit in fits), 600]
    assert [record.fit_rows for record in records] == ["growing"] * 4 + ["full"]


@pytest.mark.parametrize("weighted", [False, True])
def test_sample_statistics_add_up(weighted):
    """The sums are ΦᵀWΦ, ΦᵀWt and tᵀWt over all rows."""
    X, y = wave(600, noise=0.05)
    w = default_rng(3).choice([0.0, 1.0, 2.5], size=600) if weighted else None
    simulator = Simulator(X, y, gamma=5.0, w=w)
    options = Options(20, "random", "growing", sample_rows=80, max_rounds=5)
    simulator.run(FewRows(), options)
    fit = simulator.saves[-1].fit
    phi = simulator.phi(simulator.saves[-1].design)
    offset = fit.statistics.offset
    gram, projection, sum_squares = naive.gram(phi, simulator.t - phi @ offset, w)
    assert_allclose(fit.statistics.gram, gram, rtol=1e-10, atol=1e-10)
    assert_allclose(fit.statistics.projection, projection, atol=1e-8)
    assert_allclose(fit.statistics.sum_squares, sum_squares, rtol=1e-8)
    assert fit.statistics.n == (600 if w is None else np.count_nonzero(w))


def test_a_round_without_gain_enlarges_the_sample_before_it_ends_the_run():
    """Few columns explain this target, so that no more rows are needed."""
    simulator = Simulator(*wave(2000, noise=0.05), gamma=0.3)
    options = Options(10, "random", "growing", sample_rows=200, tol=1e-6)
    assert simulator.run(FewRows(), options) is Termination.CONVERGED
    rows = [fit.start.statistics.n for fit in simulator.passes(Solve)]
    assert max(len(fit.start.labels) for fit in simulator.passes(Solve)) * PER_COLUMN < 200
    assert 400 in rows
    assert 1000 not in rows[:-1]
    assert rows[-1] == 2000


def test_the_evidence_is_compared_over_the_same_rows():
    """After growth it is the evidence at the same α and β over the larger sample."""
    simulator = Simulator(*wave(600, noise=0.05), gamma=5.0)
    compared = []

    class Noting(FewRows):
        def enlarge(self, state, count):
            state = yield from super().enlarge(state, count)
            compared.append(state)
            return state

    simulator.run(Noting(), Options(20, "random", "growing", sample_rows=80, max_rounds=4))
    assert len(compared) >= 3
    for state in compared:
        fit = state.fit
        rows = state.fit.n
        phi = simulator.phi(state.design)[:rows]
        C = np.eye(rows) / fit.beta + (phi / fit.alpha) @ phi.T
        expected = multivariate_normal(np.zeros(rows), C).logpdf(simulator.t[:rows, 0])
        assert state.evidence == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classification_fits_use_the_complete_larger_sample(n_classes):
    """Their statistics are valid only for the weights of one fit."""
    likelihood = "bernoulli" if n_classes == 2 else "multinomial"
    simulator = ClassSimulator(*groups(500, n_classes), n_classes=n_classes, likelihood=likelihood)
    simulator.run(
        FewRows(), Options(15, "random", "growing", sample_rows=60, max_rounds=4, max_passes=10)
    )
    fits = simulator.passes(Newton)
    sizes = [500 if fit.rows is None else len(fit.rows) for fit in fits]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 500
    assert 60 in sizes
    assert len(set(sizes)) >= 3
    for fit, size in zip(fits[:-1], sizes, strict=False):
        assert size >= min(PER_COLUMN * len(fit.design.labels), 500)
