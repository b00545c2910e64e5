"""Search with an exact process: starts, families, directions, left-out rows, many rows."""

from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sampling import Stopped, problem_of, sample_of
from scipy.stats import ortho_group

from partirvm.kernels import Gaussian, Matern32
from partirvm.learning import (
    ProcessRows,
    SearchEffort,
    SearchSettings,
    learning_options,
    process_search,
)
from partirvm.learning.forms import DIRECTIONS, FAMILIES
from partirvm.learning.process_steps import first_widths, left_out, search


def learned(
    X,
    y,
    kernel=None,
    *,
    metric="auto",
    family=False,
    columns=1000,
    most=np.inf,
    on_best=None,
    effort=None,
    **options,
):
    """Return the last history line of ``learn_regression`` for standardised inputs."""
    lines = []
    hooks = {"effort": effort} if effort else {}
    learning = learning_options(len(X), metric=metric, **options)
    with sample_of(X, y, lines=lines, on_best=on_best, **hooks) as sample:
        problem = problem_of(X, y, kernel)
        settings = SearchSettings(learning, seed=0, columns=columns, family=family)
        process_search.learn_regression(sample, problem, settings)
    return lines[-1]


def waves(n, d=4, seed=0, noise=0.1):
    """Return d features, and targets that are a product of two waves without main effects."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, d))
    f = np.sin(2.5 * X[:, 0]) * np.sin(2.5 * X[:, 1])
    return X, f + noise * rng.normal(size=n)


def test_a_product_of_waves_is_found():
    """Neither feature explains anything by itself; the fitted noise agrees with the data."""
    X, y = waves(200)
    line = learned(X, y - y.mean(), metric="widths")
    gamma = np.array(line.kernel["gamma"])
    assert gamma[2:].max() < 0.05 * gamma[:2].min()
    assert line.noise_sd == pytest.approx(0.1, rel=0.35)


@pytest.mark.parametrize(
    ("name", "twin"), [("gaussian", Gaussian(4.0)), ("matern32", Matern32(4.0))]
)
def test_the_family_of_the_generating_process_is_found(name, twin):
    """Processes of one input are smooth or rough."""
    rng = default_rng(4)
    X = rng.uniform(-3, 3, size=(150, 1))
    K = np.empty((150, 150)).T
    twin.prepare(X)(X, K)
    y = np.linalg.cholesky(K + 1e-8 * np.eye(150)) @ rng.normal(size=150) + 0.01 * rng.normal(
        size=150
    )
    line = learned(X, y - y.mean(), family=True)
    assert set(line.choice["families"]) == set(FAMILIES)
    assert line.choice["family"] == line.kernel["name"] == name
    assert line.choice["families"][name] == max(line.choice["families"].values())


def test_directions_are_used_if_they_help_on_left_out_rows():
    """A wave along a diagonal needs them; features with separate effects do not."""
    X, y = waves(160, 3)
    Q = ortho_group.rvs(3, random_state=5)
    turned = learned(X @ Q, y - y.mean())
    assert turned.choice["form"] == DIRECTIONS
    assert turned.choice["rows"] == 160
    assert turned.choice["gain"] > turned.choice["error"] > 0
    axes = np.array(turned.kernel["axes"])[np.argsort(turned.kernel["kernel"]["gamma"])[::-1][:2]]
    assert_allclose((axes @ Q.T)[:, 2], 0, atol=0.15)
    plain = learned(X[:80], y[:80] - y[:80].mean())
    assert (plain.choice["form"] == DIRECTIONS) == (plain.choice["gain"] > plain.choice["error"])


@pytest.mark.parametrize(("n", "expected"), some([(60, 60), (1000, 500)], {(60, 60)}))
def test_left_out_rows_are_predicted_by_fits_without_them(n, expected):
    """A small number of rows is divided into folds, a large one is split once; each row counts
    once."""
    X, y = waves(n, 2)
    seen = []

    class Watched(ProcessRows):
        def predicted(self, fit, new):
            seen.append((set(map(tuple, self.X)), set(map(tuple, new.X))))
            return super().predicted(fit, new)

    problem = problem_of(X, y)
    with sample_of(X, y) as sample:
        order = default_rng(0).permutation(n)
        most = min(n, 500)
        first = first_widths(sample, problem, order, most)
        widths, turned, _ = search(sample, problem, order, most, first, family=False, turned=True)
        found = left_out(sample, problem, widths, turned, order, most, process=Watched)
    assert found.shape == (3, 2, expected)
    assert all(not inside & outside for inside, outside in seen)
    assert len(set().union(*(outside for _, outside in seen))) == expected


def test_the_tied_search_with_many_rows_begins_at_the_widths_of_the_process():
    X, y = waves(200)
    line = learned(X, y - y.mean(), metric="widths", family=True, effort=SearchEffort(few=120))
    assert line.candidates < 200
    assert "families" in line.choice
    gamma = np.array(line.kernel["gamma"])
    assert gamma[2:].max() < 0.1 * gamma[:2].min()


def test_a_stop_keeps_the_best_kernel_so_far():
    """Widths are reported before directions are searched."""
    X, y = waves(60, 2)
    best, learning = [], learning_options(60, metric="auto")

    def stop(*asked):
        if best:
            raise Stopped

    with sample_of(X, y, on_best=best) as sample:
        watched = replace(sample, on_progress=stop)
        settings = SearchSettings(learning, seed=0, columns=1000)
        with pytest.raises(Stopped):
            process_search.learn_regression(watched, problem_of(X, y), settings)
    assert isinstance(best[-1].kernel, Gaussian)
