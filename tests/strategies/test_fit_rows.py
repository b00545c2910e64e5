"""Which rows a fit sees, where its noise comes from, and what the heuristic measures."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from simulator import Simulator, wave

from partirvm.core.updates import step
from partirvm.likelihoods.gaussian import Solve
from partirvm.likelihoods.gaussian_passes import GramPass, ResidualPass
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import FULL_FLOPS, automatic
from partirvm.strategies.instructions import Log, Solved
from partirvm.strategies.problem import Options

PARTITIONED = ["split-merge", "incremental", "working-set"]


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("name", PARTITIONED)
def test_a_sample_is_the_same_for_every_intermediate_fit(name, shuffled):
    """sample_rows distinct rows; the last fit sees all."""
    simulator = Simulator(*wave(150, noise=0.3), shuffled=shuffled)
    simulator.run(name, Options(20, "random", "sample", sample_rows=60, max_rounds=4))
    passes = simulator.passes(GramPass)
    rows = passes[0].rows
    assert len(np.unique(rows)) == 60
    for pass_ in passes[:-1]:
        np.testing.assert_array_equal(pass_.rows, rows)
    assert passes[-1].rows is None
    assert simulator.passes(Solve)[-1].start.statistics.n == 150
    assert all(solve.start.statistics.n == 60 for solve in simulator.passes(Solve)[:-1])


@pytest.mark.parametrize("noise_rows", [None, 70])
@pytest.mark.parametrize("name", PARTITIONED)
def test_a_partition_is_fitted_to_the_rows_of_its_candidates(name, noise_rows):
    """One pass over these, one for the noise over all rows or a sample of them; the last fit sees all."""
    simulator = Simulator(*wave(150, noise=0.3))
    simulator.run(name, Options(20, "random", "partition", noise_rows=noise_rows, max_rounds=3))
    passes = simulator.passes(GramPass)
    for own, noise in zip(passes[:-1:2], passes[1:-1:2], strict=True):
        np.testing.assert_array_equal(own.rows, np.sort(own.new.labels))
        np.testing.assert_array_equal(own.new.labels, noise.new.labels)
        assert noise.rows is None if noise_rows is None else len(np.unique(noise.rows)) == noise_rows
    assert passes[-1].rows is None
    records = [log.record for log in simulator.passes(Log)] + [save.record for save in simulator.saves]
    assert {record.fit_rows for record in records[:-1]} == {"partition"}
    assert records[-1].fit_rows == "full"


@pytest.mark.parametrize("name", PARTITIONED)
def test_the_literal_scheme_never_fits_to_all_rows(name):
    """last_rows="partition": the last posterior, too, sees the rows of its own candidates."""
    simulator = Simulator(*wave(150, noise=0.3))
    options = Options(20, "random", "partition", "partition", max_rounds=3)
    simulator.run(name, options)
    assert max(solve.start.statistics.n for solve in simulator.passes(Solve)) < 150
    last = simulator.saves[-1]
    assert isinstance(simulator.said[-3], ResidualPass)
    fit = simulator.heard[-3].fit
    r = simulator.t - simulator.phi(last.design) @ fit.posterior.mean[:, None]
    expected = float((r**2).sum() / (150 - fit.posterior.determinedness.sum()))
    np.testing.assert_allclose(last.record.noise_variance, expected, rtol=1e-8)


def test_the_noise_of_a_partition_comes_from_all_rows():
    """β = (N − Σγ)/‖t − Φμ‖² over the other rows, at the old mean; α from the posterior of its own (eqs. 16 and 18)."""
    simulator = Simulator(*wave(150, noise=0.3))
    simulator.run("split-merge", Options(30, "order", "partition"))
    start = simulator.passes(Solve)[0].start
    stepped, _ = step(start)
    labels = start.statistics.labels
    Phi = np.hstack([np.ones((150, 1)), naive.gaussian(simulator.X, simulator.X, simulator.gamma)])[:, labels + 1]
    own = Phi[:30]
    Sigma = np.linalg.inv(start.beta * own.T @ own + np.diag(start.alpha))
    mean = start.beta * Sigma @ own.T @ simulator.t[:30, 0]
    gamma = 1 - start.alpha * np.diagonal(Sigma)
    residual = ((simulator.t[:, 0] - Phi @ mean) ** 2).sum()
    np.testing.assert_allclose(stepped.beta, (150 - gamma.sum()) / residual, rtol=1e-8)
    there = np.isin(labels, stepped.statistics.labels)
    np.testing.assert_allclose(stepped.alpha, (gamma / mean**2)[there], rtol=1e-6)
    np.testing.assert_array_equal(stepped.noise.labels, stepped.statistics.labels)


def test_noise_every_so_many_iterations():
    """β moves at iterations 0, 3, 6 … only."""
    simulator = Simulator(*wave(150, noise=0.3))
    simulator.run("incremental", Options(30, "order", "partition", noise_every=3))
    fit = simulator.passes(Solve)[0].start
    betas = [fit.beta]
    for _ in range(7):
        fit, _ = step(fit)
        betas.append(fit.beta)
    moved = [k for k in range(7) if betas[k + 1] != betas[k]]
    assert moved == [0, 3, 6]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_auto_counts_flops(name):
    """All rows while 2·N²·P stays below the bound; for the working set and basic always."""
    n = 10_000
    P = int(FULL_FLOPS / (2 * n**2))
    assert automatic(STRATEGIES[name].schedule, n, P) == "full"
    partitioned = name in ("split-merge", "incremental")
    assert automatic(STRATEGIES[name].schedule, n, P + 1) == ("sample" if partitioned else "full")


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_centre_far_from_every_row_of_the_sample(name):
    """Its column is zero there: an intermediate fit that has it prunes it at once, and nothing is divided by it."""
    X, y = wave(300, noise=0.3)
    X[250] = 1e3
    simulator = Simulator(X, y)
    simulator.run(name, Options(50, "random", "sample", sample_rows=100))
    assert 250 in simulator.candidates()
    for solve, answer in zip(simulator.passes(Solve), simulator.heard_of(Solved), strict=True):
        if solve.start.statistics.n == 100 and 250 in solve.start.statistics.labels:
            assert 250 not in answer.fit.statistics.labels


@pytest.mark.parametrize("selection", ["error", "random", "gain"])
@pytest.mark.parametrize("likelihood", ["full", "partition"])
def test_a_working_set_ends_where_only_absent_rows_are_left(selection, likelihood):
    """Rows of no weight are no candidates, and are not drawn again and again."""
    X, y = wave(120, noise=0.3)
    w = np.where(np.arange(120) % 3, 1.0, 0.0)
    simulator = Simulator(X, y, w=w)
    simulator.run("working-set", Options(20, selection, likelihood))
    assert not set(simulator.candidates()) & set(np.flatnonzero(w == 0).tolist())


@pytest.mark.parametrize("name", ["split-merge", "incremental"])
def test_noise_from_a_sample_is_about_that_from_all_rows(name):
    """σ² of the first fits from 200 of 1,000 rows, with σ² from all: within a quarter, though P is 60."""
    X, y = wave(1000, noise=0.3)
    found = []
    for rows in (None, 200):
        simulator = Simulator(X, y)
        simulator.run(name, Options(60, "order", "partition", noise_rows=rows))
        fits = [event.fit for event in simulator.heard if isinstance(event, Solved)][:8]
        found.append(np.array([1 / fit.beta for fit in fits]))
    np.testing.assert_allclose(np.log(found[1]).mean(), np.log(found[0]).mean(), atol=0.25)


def test_noise_rows_are_not_those_of_the_first_partitions():
    """A run of neighbours from the far end; and never all of one partition's rows and no others."""
    simulator = Simulator(*wave(400, noise=0.3))
    simulator.run("incremental", Options(50, "order", "partition", noise_rows=100, max_rounds=3))
    noise = simulator.passes(GramPass)[1].rows
    assert noise.tolist() == list(range(300, 400))
