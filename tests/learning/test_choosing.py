"""gamma="auto" of classes: folds, what is held out, which form wins where, and that no row decides about itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sampling import Passes, arm, problem_of, sample_of
from scipy.special import expit

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.jobs.driver import Driver, MemoryJournal
from partirvm.kernels import Gaussian
from partirvm.learning import folds
from partirvm.learning.folds import FOLDS, ONE, WIDTHS, choice_of, choose, losses, one_widths, stratified_folds
from partirvm.learning.forms import EACH
from partirvm.learning.search import learning_options
from partirvm.likelihoods.passes import GramPass, LogisticPass, ResidualPass
from partirvm.strategies.problem import Options
from partirvm.strategies.rounds import BasicRound


def chosen(X, y, w=None, K=0, kernel=None, all_candidates=False, most=np.inf, told=None):
    """The last line of history, the kernel, and all passes that were made; it begins at one gamma, 1/d unless given."""
    problem, lines, passes = problem_of(X, y, kernel or Gaussian(1 / X.shape[1]), K), [], Passes(most)
    learning, options = learning_options(len(X), classes=problem.n_classes > 0), Options(len(X), "random")
    heard = [] if told is None else told
    with sample_of(X, y, w, passes=passes, lines=lines, on_best=heard) as sample:
        found = choose(sample, problem, learning, options, all_candidates=all_candidates)
    assert found.spec() == lines[-1].kernel
    assert heard[-1].kernel == found
    return lines[-1], found, passes


def test_classes_are_dealt_evenly_and_judged_by_log_loss():
    """Two of four features part the classes; those off are the others; the log loss is below that of the shares."""
    X, f = arm(240, 4, seed=3, noise=0.05)
    codes = (f > np.quantile(f, 0.7)).astype(float)
    assert [
        int(codes[fold].sum()) for fold in stratified_folds(problem_of(X, codes, K=2), 0, np.arange(240))
    ] == pytest.approx([72 / FOLDS] * FOLDS, abs=1)
    line, kernel, _ = chosen(X, codes, K=2)
    assert line.choice["form"] == EACH
    assert line.choice["errors"][EACH] < line.choice["errors"][ONE] < -(0.3 * np.log(0.3) + 0.7 * np.log(0.7))
    assert (np.array(kernel.gamma)[2:] < 0.1 * min(kernel.gamma[:2])).all()


def test_no_row_decides_about_itself():
    """Rows that judge are outside those that a fit saw and outside its centres; each row judges once; the same rows
    and centres for every width."""
    X, f = arm(90, 2)
    line, _, seen = chosen(X, (f > 0).astype(float), K=2)
    judged, trained = [], None
    for one, rows in seen.made:
        if isinstance(one, GramPass):
            trained = one, rows
        if isinstance(one, ResidualPass) and not np.array_equal(rows, trained[1]):
            assert not np.isin(rows, trained[1]).any()
            assert np.isin(one.design.labels, trained[1]).all()
            np.testing.assert_array_equal(one.design.labels, trained[0].new.labels)
            judged.append(rows)
    assert len(judged) == FOLDS * (len(WIDTHS) + 1)
    every = np.concatenate(judged[:: len(WIDTHS) + 1])
    np.testing.assert_array_equal(np.sort(every), np.arange(90))
    assert line.choice["rows"] == 90


def test_where_all_rows_are_candidates_that_fit_is_judged():
    """The error of the best width is that of basic fits at it, cross-validated over the same folds."""
    X, f = arm(60, 2, seed=7)
    y = (f > 0.2).astype(float)
    line, _, seen = chosen(X, y, K=2, all_candidates=True)
    choice, problem = line.choice, problem_of(X, y, K=2)
    total = 0.0
    for fold in stratified_folds(problem, 0, np.arange(60)):
        kept = np.setdiff1d(np.arange(60), fold)
        journal, executor, source = MemoryJournal(), LocalExecutor(1), ArraySource(X[kept], y[kept])
        source.columns = replace(source.columns, classes=(0, 1))
        mine = problem_of(X[kept], y[kept], Gaussian(choice["width"] / 2), 2)
        Driver(executor, source).run(BasicRound(), mine, Options(48, "all", tol=1e-5), journal)
        executor.close()
        f = journal.model.design.block(X[fold]) @ journal.model.mean.ravel()
        total += -np.log(expit((2 * y[fold] - 1) * f)).sum()
    assert choice["errors"][ONE] == pytest.approx(total / 60, rel=2e-3)
    assert max(len(one.design.labels) for one in seen.of(LogisticPass)) <= 48


def test_a_width_of_each_must_be_ahead_of_chance():
    """Losses of five folds: ahead in the mean by less than a standard error, and by more."""
    X, f = arm(60, 2)
    problem, sums = problem_of(X, (f > 0).astype(float), K=2), np.full((5, len(WIDTHS) + 1), 10.0)
    sums[:, 2] = 5.0
    for each, form in (([4.0, 5.5, 4.5, 5.5, 4.5], ONE), ([4.0, 4.5, 4.5, 4.0, 5.1], EACH)):
        sums[:, -1] = each
        assert choice_of(problem, sums, 60)[0]["form"] == form


def test_what_a_row_held_out_is_worth():
    """−log p of the class of two, and squared errors of the indicators of three: by their definitions."""
    rng = np.random.default_rng(4)
    X, rows = rng.normal(size=(30, 2)), np.arange(3, 17)
    for K, columns in ((2, 1), (3, 3)):
        y, weights = rng.integers(0, K, 30).astype(float), rng.normal(size=(5, columns))
        problem = problem_of(X, y, Gaussian(0.3), K)
        design = problem.empty.with_centres(X[:4], np.arange(4), bias=True)
        f = np.column_stack([np.ones(30), np.exp(-0.3 * ((X[:, None] - X[None, :4]) ** 2).sum(axis=2))]) @ weights
        with sample_of(X, y, None, rows, tile_rows=10) as sample:
            found = losses(sample, problem, [(design, weights), (design, 0 * weights)])
        indicators = np.eye(K)[y.astype(int)]
        each = -np.log(expit((2 * y - 1) * f[:, 0])) if K == 2 else ((indicators - f) ** 2).sum(axis=1)
        nothing = np.full(30, np.log(2)) if K == 2 else (indicators**2).sum(axis=1)
        assert found == pytest.approx([each[rows].sum(), nothing[rows].sum()], rel=1e-12)


def test_many_rows_get_a_width_of_each_unasked(monkeypatch):
    """No folds: all looks are at all rows, with a gamma for each feature."""
    monkeypatch.setattr(folds, "MANY", 199)
    X, f = arm(200, 3)
    line, kernel, seen = chosen(X, (f > 0).astype(float), K=2, all_candidates=True)
    assert line.choice == {"form": EACH, "rows": 200}
    assert all(len(rows) == 200 for _, rows in seen.made)
    assert all(len(one.new.kernel.gamma) == 3 for one in seen.of(GramPass))
    assert len(kernel.gamma) == 3


def test_unscaled_features_have_gammas_in_proportion_to_their_variances():
    """Of three classes: γ_j = width · γ · v_j / mean(v); of two classes there is one gamma alone."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 3)) * [1.0, 2.0, 0.0]
    for K in (2, 3):
        y = rng.integers(0, K, 60).astype(float)
        with sample_of(X, y) as sample:
            found = one_widths(sample, problem_of(X, y, Gaussian(0.5), K))
        assert [kernel.gamma for kernel in found[: len(WIDTHS)]] == [(0.5 * width,) for width in WIDTHS]
        assert len(found) == (2 if K == 3 else 1) * len(WIDTHS)
    variance = X.var(axis=0)
    for kernel, width in zip(found[len(WIDTHS) :], WIDTHS, strict=True):
        np.testing.assert_allclose(kernel.gamma, 0.5 * width * variance / variance.mean(), rtol=1e-12)


def test_kernels_far_behind_are_left_out_of_further_folds(monkeypatch):
    """Widths more than 10 % behind the best width, a width per feature more than 20 %; they keep their ratio to it."""
    first, later, asked = [10.0, 10.9, 11.1, 20.0, 10.0, 30.0, 12.0, 12.1], [5.0, 5.4, 5.0], []

    def given(held_out, problem, fits):
        asked.append(len(fits))
        return later if asked[1:] else first

    monkeypatch.setattr(folds, "losses", given)
    X, f = arm(60, 2)
    choice = chosen(X, (f > 0).astype(float), K=2, all_candidates=True)[0].choice
    assert asked == [8, 3, 3, 3, 3]
    assert choice["errors"] == pytest.approx({ONE: 30 / 60, EACH: 12.1 * (1 + 4 * 0.5) / 60})
