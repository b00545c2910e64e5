"""Kernel search for classes: indicators, one width or several, features in raw units."""

from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sampling import Passes, arm, problem_of, sample_of

from partirvm.core.held_back import search_splits
from partirvm.core.ramp import LeftOutClasses, Ramp
from partirvm.kernels import Categorical, Gaussian, OnColumns, Product
from partirvm.learning import (
    ProcessFit,
    ProcessRows,
    SearchEffort,
    SearchSettings,
    class_centres,
    learn_classes,
    learning_options,
)
from partirvm.learning.class_search import (
    ONE,
    UNSCALED,
    choose,
    choose_family,
    family_losses,
    left_out,
    lowers_loss_by_widths,
    one_width,
    unscaled,
    with_family_of,
)
from partirvm.learning.exact_process import climb
from partirvm.learning.forms import EACH, kernel_text, with_family
from partirvm.likelihoods import SlopePass


def learned(X, codes, K, **hooks):
    """Return the last history line, and the problem."""
    lines = []
    learning = learning_options(len(X), limits=class_centres(K))
    settings = SearchSettings(learning, seed=0, columns=1000)
    with sample_of(X, codes, lines=lines, **hooks) as sample:
        found = learn_classes(sample, problem_of(X, codes, K=K), settings)
    assert lines[-1].kernel == found.empty.kernel.spec()
    return lines[-1], found


def two_of(n, d, seed=0):
    """Return two classes that two of d features separate."""
    X, f = arm(n, d, seed=seed, noise=0.02)
    return X, (f > np.quantile(f, 0.6)).astype(float)


@pytest.mark.parametrize("K", [2, 4])
def test_indicators_have_mean_0_and_mean_square_1_over_all_rows(K):
    """They are (1[c = k] − p_k)/s, where s² is the mean of p_k(1 − p_k)."""
    codes = default_rng(1).integers(0, K, 60).astype(float)
    X = np.zeros((60, 1))
    rows = np.arange(5, 30)
    with sample_of(X, codes) as sample:
        found = ProcessRows.of(sample, problem_of(X, codes, K=K), rows).t
    every = np.stack([codes == k for k in range(K)], axis=1)[:, K == 2 :]
    shares = every.mean(axis=0)
    assert_allclose(
        found, ((every - shares) / np.sqrt((shares * (1 - shares)).mean()))[rows], rtol=1e-12
    )


def test_a_common_width_keeps_the_ratios_of_gammas():
    """The width found is a maximum."""
    X, codes = two_of(80, 3)
    with sample_of(X, codes) as sample:
        rows = ProcessRows.of(sample, problem_of(X, codes, K=2), np.arange(80))
        found = climb(rows, ProcessFit(Gaussian((0.1, 0.2, 0.0)), 0.0, -1.0), 50, together=True)
        assert found.kernel.gamma[1] / found.kernel.gamma[0] == pytest.approx(2.0, rel=1e-12)
        assert found.kernel.gamma[2] == 0.0

        def value(fit):
            theta = np.append(fit.kernel.logs, [fit.signal, fit.noise])
            return rows.evaluate(fit)[0] + rows.log_prior(theta[np.isfinite(theta)])[0]

        assert found.value == pytest.approx(value(found), rel=1e-12)
        for factor in (0.8, 1.25):
            assert value(replace(found, kernel=found.kernel.rescaled(factor))) < found.value


def test_unscaled_features_have_gammas_proportional_to_their_variances():
    """They are gamma_j v_j / mean(v) for numeric features; categories are unchanged."""
    X = np.zeros((3, 4))
    kernel = Product((OnColumns(Gaussian(0.5), (0, 2, 3)), OnColumns(Categorical(0.7), (1,))))
    problem = problem_of(X, np.zeros(3), kernel, K=3)
    scale = np.array([1.0, 9.0, 2.0, 0.5])
    found = unscaled(problem.with_scaling(replace(problem.empty.scaling, x_scale=scale)))
    assert_allclose(found.parts[0].kernel.gamma, np.array([0.5, 2.0, 0.125]) / 1.75, rtol=1e-12)
    assert found.parts[1] == kernel.parts[1]


def test_widths_per_feature_must_gain_more_than_a_standard_error():
    """The standard error is computed for the mean gain; recorded errors are roots of means."""
    gain = np.array([1.0, -1.0, 1.0, 0.0])  # mean .25, standard error √.6875 / 2 = .41
    for more, form in ((0.1, ONE), (0.2, EACH)):
        found = choose(np.array([4.0 + gain + more, np.full(4, 4.0)]), ONE)
        assert found["form"] == form
        assert found["rows"] == 4
        assert found["errors"] == pytest.approx({ONE: np.sqrt(4.25 + more), EACH: 2.0})


def test_rows_are_judged_by_processes_fitted_without_them():
    """Each row counts once."""
    X, codes = two_of(60, 2)
    seen = []

    class Watched(ProcessRows):
        def predicted(self, fit, new):
            predictions = super().predicted(fit, new)
            seen.append((set(map(tuple, self.X)), set(map(tuple, new.X)), predictions[0]))
            return predictions

    with sample_of(X, codes) as sample:
        one = ProcessFit(Gaussian((0.5, 0.5)), 0.0, -1.0)
        order = default_rng(0).permutation(60)
        problem = problem_of(X, codes, K=2)
        found = left_out(sample, problem, one, order, 60, process=Watched)
    assert found.shape == (3, 60)
    assert all(not inside & outside for inside, outside, _ in seen)
    assert len(set().union(*(outside for _, outside, _ in seen))) == 60
    assert_allclose(
        found[0], np.concatenate([errors[:, 0] ** 2 for *_, errors in seen[::2]]), rtol=1e-12
    )


@pytest.mark.parametrize("K", some([2, 3], {3}))
def test_irrelevant_features_are_switched_off(K):
    """Two of six features separate the classes, and a width per feature predicts better."""
    X, f = arm(240, 6, seed=3, noise=0.02)
    best = []
    codes = np.digitize(f, np.quantile(f, [0.6] if K == 2 else [0.3, 0.7])).astype(float)
    line, found = learned(X, codes, K, on_best=best)
    assert line.choice["form"] == EACH
    assert line.choice["errors"][EACH] < line.choice["errors"][ONE] < 1
    assert line.choice["rows"] == 240
    gamma = np.array(found.empty.kernel.gamma)
    assert gamma[2:].max() < 0.2 * gamma[:2].min()
    assert best[-1].kernel == found.empty.kernel


def test_features_with_a_common_unit_are_unscaled_if_that_is_better():
    """Two features of large variance matter equally; ten of small variance do not matter."""
    X = default_rng(2).normal(size=(150, 12))
    codes = (X[:, 0] > 0).astype(float) + 2 * (X[:, 1] > 0)
    scale = np.array([10.0] * 2 + [1.0] * 10)
    problem = problem_of(X, codes, K=4)
    problem = problem.with_scaling(replace(problem.empty.scaling, x_scale=scale))
    with sample_of(X * scale, codes) as sample:
        start = one_width(sample, problem, SearchSettings(learning_options(150), 0, 150))
    assert start.form == UNSCALED
    gammas = np.array(start.fit.kernel.gamma)
    assert_allclose(gammas / gammas[0], (scale / 10) ** 2, rtol=1e-12)


def test_skewed_features_are_warped_jointly():
    """Classes depend on a sum of logarithms; category codes are not warped."""
    rng = default_rng(5)
    Z = rng.normal(size=(300, 8))
    codes = rng.integers(9, size=300) ** 2.0
    y = (Z.sum(axis=1) > 0).astype(float)
    X = np.column_stack([np.exp(1.5 * Z), codes])
    kernel = Product(
        (OnColumns(Gaussian((0.1,) * 8), tuple(range(8))), OnColumns(Categorical(1.0), (8,)))
    )
    for warp, count in ((True, 8), (False, 0)):
        with sample_of(X, y) as sample:
            settings = SearchSettings(learning_options(300), 0, 300, warp=warp)
            start = one_width(sample, problem_of(X, y, kernel, K=2), settings)
        features = start.rows.problem.empty.scaling.features
        assert (start.form, count) == (
            ONE,
            0 if features is None else (features.spreads[:8] > 0).sum(),
        )
        assert features is None or not features.spreads[8]


@pytest.mark.parametrize("K", some([2, 4], {2}))
def test_many_rows_use_the_tied_evidence(K):
    """The search has fewer centres for more than ``few`` rows."""
    passes = Passes()
    (X, codes) = two_of(200, 3)
    codes = codes + 2 * (X[:, 1] > 0) if K == 4 else codes
    line, _ = learned(X, codes, K, passes=passes, effort=SearchEffort(few=100, class_rows=80))
    assert line.choice == {"form": EACH}
    assert line.candidates == 50  # a quarter of the rows
    assert passes.of(SlopePass)


def test_a_common_width_for_many_rows_is_recorded_last_if_chosen():
    """Each row is left out once."""
    X = default_rng(4).normal(size=(300, 2))
    squares = (X**2).sum(axis=1)  # the classes are rings: both features matter equally
    codes = np.digitize(squares, np.quantile(squares, [0.25, 0.5, 0.75])).astype(float)
    line, found = learned(X, codes, 4, effort=SearchEffort(few=100))
    assert (line.choice["form"], line.choice["rows"], line.candidates) == (ONE, 300, 300)
    assert len(set(found.empty.kernel.gamma)) == 1


@pytest.mark.parametrize(
    ("matern52", "matern32", "family"),
    [
        ([0.9, 0.9, 0.9, 0.9], [0.8, 0.8, 0.8, 0.8], "matern32"),
        ([0.7, 0.7, 0.7, 0.7], [0.8, 0.8, 0.8, 0.8], "matern52"),
        ([1.1, 1.1, 1.1, 1.1], [1.2, 1.2, 1.2, 1.2], "gaussian"),
        ([1.0, 0.8, 0.9, 0.7], [2.0, 2.0, 2.0, 2.0], "matern52"),
        ([1.2, 0.8, 0.9, 0.7], [2.0, 2.0, 2.0, 2.0], "gaussian"),
    ],
)
def test_another_family_must_lower_the_loss_by_two_standard_errors(matern52, matern32, family):
    """Gains of the last two cases: 0, .2, .1, .3 with mean .15 and standard error .112/2 = .056;
    −.2, .2, .1, .3 with mean .1 and standard error .187/2 = .094."""
    losses = {
        "gaussian": np.ones(4),
        "matern52": np.array(matern52),
        "matern32": np.array(matern32),
    }
    assert choose_family(losses).family == family


def started(sample, X, codes, K=2):
    settings = SearchSettings(learning_options(len(X)), seed=0, columns=1000, family=True)
    return one_width(sample, problem_of(X, codes, K=K), settings)


@pytest.mark.parametrize("is_rough", some([False, True], {False}))
def test_another_family_must_lower_the_loss_with_a_width_per_feature(is_rough):
    """The log odds of the classes are a plane, or the classes alternate at random places of one
    feature."""
    rng = default_rng(3)
    X = rng.uniform(-1, 1, size=(100, 2))
    edges = np.sort(rng.uniform(-1, 1, 9))
    places = (
        np.searchsorted(edges, X[:, 0]) if is_rough else 2 * X.sum(axis=1) > rng.logistic(size=100)
    )
    with sample_of(X, places % 2.0) as sample:
        smoothest = started(sample, X, places % 2.0)
        rival = with_family_of(smoothest, "matern32")
        assert lowers_loss_by_widths(rival, smoothest) == is_rough


@pytest.mark.parametrize("K", [2, 3])
def test_losses_of_families_are_those_of_processes_without_the_rows(K):
    """A row's indicators are predicted by k'(K + σ²I)⁻¹t, with the kernel and variances learned from
    the other rows, and become probabilities by the ramp of all left-out rows."""
    X, f = arm(60, 2, seed=0, noise=0.02)
    codes = np.searchsorted(np.quantile(f, np.arange(1, K) / K), f).astype(float)
    with sample_of(X, codes) as sample:
        start = started(sample, X, codes, K)
        losses = family_losses(start)["matern32"]
        splits = search_splits(start.order, start.most)
        parts = []
        for split in splits:
            rows = ProcessRows.of(sample, start.rows.problem, split.known)
            new = ProcessRows.of(sample, start.rows.problem, split.new)
            kernel = with_family(start.fit.kernel, "matern32", 2)
            fit = climb(rows, replace(start.fit, kernel=kernel, pairs=[]), 10, together=True)
            parts.append(predicted_indicators(rows, new, fit))
    order = np.concatenate([np.sort(split.new) for split in splits])
    shares = np.bincount(codes.astype(int)) / 60
    first = int(K == 2)
    spread = np.sqrt((shares * (1 - shares))[first:].mean())
    indicators = shares[first:] + spread * np.concatenate(parts)
    if K == 2:
        indicators = np.hstack([1 - indicators, indicators])
    rows = LeftOutClasses(indicators, codes[order], np.ones(60))
    ramp = rows.ramp(Ramp())
    probability = np.log1p(np.exp(indicators / ramp.width)) ** ramp.power
    probability /= probability.sum(axis=1, keepdims=True)
    expected = -np.log(probability[np.arange(60), codes[order].astype(int)])
    assert_allclose(losses, expected, rtol=1e-6, atol=1e-9)
    assert losses.mean() == pytest.approx(ramp.loss, rel=1e-12)


def predicted_indicators(rows, new, fit):
    """Return the standardised indicators of new rows from a dense process."""
    gamma = np.array(fit.kernel.gamma)

    def values(A, B):
        distance = np.sqrt(3 * ((A[:, None] - B[None]) ** 2 @ gamma))
        return np.exp(fit.signal) * (1 + distance) * np.exp(-distance)

    covariance = values(rows.X, rows.X) + rows.columns @ rows.columns.T
    covariance += np.exp(fit.noise) * np.eye(len(rows.X))
    cross = values(new.X, rows.X) + new.columns @ rows.columns.T
    return cross @ np.linalg.solve(covariance, rows.t)


def test_a_start_of_another_family_is_a_maximum_of_its_width():
    """Narrower and wider kernels of this family have a lower log posterior."""
    X, codes = two_of(60, 2)
    with sample_of(X, codes) as sample:
        found = with_family_of(started(sample, X, codes), "matern52")
        fit = found.fit
        assert fit.kernel.name == found.rows.problem.empty.kernel.name == "matern52"

        def value(fit):
            theta = np.append(fit.kernel.logs, [fit.signal, fit.noise])
            return found.rows.evaluate(fit)[0] + found.rows.log_prior(theta)[0]

        for factor in (0.5, 2.0):
            assert value(replace(fit, kernel=fit.kernel.rescaled(factor))) < value(fit)


@pytest.mark.parametrize(("n", "family"), [(200, True), (200, False), (199, True)])
def test_families_are_compared_if_the_kernel_is_to_be_chosen_from_enough_rows(n, family):
    """200 rows are enough."""
    X, codes = two_of(n, 2)
    lines = []
    settings = SearchSettings(learning_options(n), seed=0, columns=100, family=family)
    with sample_of(X, codes, lines=lines) as sample:
        learn_classes(sample, problem_of(X, codes, K=2), settings)
    assert ("family_losses" in lines[-1].choice) == (family and n == 200)


def test_the_history_names_the_families_that_were_compared():
    """A Matérn kernel of rough classes."""
    choice = {
        "family": "matern32",
        "family_losses": {"gaussian": 0.3331, "matern52": 0.3258, "matern32": 0.323},
        "family_rows": 600,
        "form": EACH,
    }
    entry = {
        "kind": "kernel",
        "kernel": Gaussian(0.5).spec(),
        "choice": choice,
        "rows": 400,
        "candidates": 400,
        "iterations": 12,
        "gain": 3.0,
        "taken": None,
    }
    text = kernel_text(entry, ["x"])["text"]
    losses = "gaussian 0.333, matern52 0.326, matern32 0.323"
    assert text.startswith(f"matern32, by the log loss of 600 left-out rows ({losses}); {EACH}: ")
