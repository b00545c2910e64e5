"""Sums of effects for classes: taken where they clearly lower the log loss of left-out rows."""

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sampling import problem_of, sample_of
from surfaces import additive

from partirvm.core.held_back import search_splits
from partirvm.kernels import Anova, Directions, Gaussian
from partirvm.learning import (
    ProcessFit,
    ProcessRows,
    SearchEffort,
    SearchSettings,
    class_centres,
    learn_classes,
    learning_options,
)
from partirvm.learning.class_effects import (
    STEPS,
    LeftOutForms,
    first_comparison,
    left_out_forms,
)
from partirvm.learning.class_losses import left_out_classes, row_losses
from partirvm.learning.exact_process import climb
from partirvm.learning.forms import EACH, EFFECTS, ONE, kernel_text

NO_FIT = ProcessFit(Gaussian(0.5), 0.0, -1.0)


def classes_of(f, K):
    """Return the codes of K equally frequent classes, ranges of f (n,)."""
    inner = np.arange(1, K) / K
    return np.searchsorted(np.quantile(f, inner), f).astype(float)


def summed(n, d, K=2):
    """Return scaled rows, and classes that depend on sums of waves; the largest of K sums makes
    more than two classes."""
    X, f = additive(n, d)
    codes = classes_of(f, 2)
    if K > 2:
        shifts = np.arange(K)[:, None, None] + np.arange(d)
        codes = np.sin(4.0 * X + 2.0 * shifts).sum(axis=2).argmax(axis=0).astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0), codes


def central(n, d, K=2):
    """Return rows, and classes that depend on the distance from the origin alone."""
    X = default_rng(0).normal(size=(n, d))
    return X, classes_of(np.sqrt((X**2).sum(axis=1)), K)


def learned(X, codes, K=2, metric="auto", family=True, **effort):
    """Return the last history line, and the problem; a process has at most 150 rows by default."""
    lines = []
    learning = learning_options(len(X), limits=class_centres(K), metric=metric)
    settings = SearchSettings(learning, seed=0, columns=1000, family=family)
    effort = SearchEffort(**{"class_rows": 150, **effort})
    with sample_of(X, codes, lines=lines, effort=effort) as sample:
        problem = learn_classes(sample, problem_of(X, codes, K=K), settings)
    assert lines[-1].kernel == problem.empty.kernel.spec()
    return lines[-1], problem


@pytest.mark.parametrize("K", some([2, 3, 4], {2}))
def test_classes_of_a_sum_are_predicted_by_sums_of_effects(K):
    """The history holds the compared losses."""
    line, problem = learned(*summed(600, 4, K), K)
    assert isinstance(problem.empty.kernel, Anova)
    assert line.choice["form"] == EFFECTS
    assert line.choice["rows"] == 300
    losses = line.choice["losses"]
    assert set(losses) == {ONE, EACH, EFFECTS}
    assert losses[EFFECTS] < 0.8 * min(losses[ONE], losses[EACH])


@pytest.mark.slow
def test_many_rows_use_sums_of_effects():
    """The tied evidence of all rows does not follow."""
    line, _ = learned(*summed(600, 4), few=500)
    assert line.choice["form"] == EFFECTS
    assert line.candidates == 600


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (summed(399, 2), {}),
        (summed(420, 2), {"metric": "widths"}),
        pytest.param(summed(420, 2), {"family": False}, marks=pytest.mark.slow),
        pytest.param(summed(420, 43), {}, marks=pytest.mark.slow),
        pytest.param(summed(420, 1), {}, marks=pytest.mark.slow),
        pytest.param(central(600, 3), {}, marks=pytest.mark.slow),
        pytest.param(central(600, 3, 3), {"K": 3}, marks=pytest.mark.slow),
    ],
)
def test_other_searches_keep_a_radial_kernel(rows, options):
    """There are too few rows, one feature, a given metric or family, or classes without a sum."""
    line, _ = learned(*rows, **options, class_rows=60)
    assert line.kernel["name"] != "anova"
    assert "losses" not in line.choice


@pytest.mark.parametrize("K", some([2, 3], {2}))
def test_the_first_comparison_ties_widths_and_shares(K):
    """A sum passes and starts from equal shares; a function of the distance does not pass."""
    for rows, passes in ((summed(600, 4, K), True), (central(600, 4, K), False)):
        with sample_of(*rows) as sample:
            problem = problem_of(*rows, K=K)
            process = ProcessRows.of(sample, problem, np.arange(200))
            radial = climb(process, ProcessFit(problem.empty.kernel, 0.0, -1.0), 5, together=True)
            start = first_comparison(process, radial, np.arange(600))
        assert (start is not None) == passes
        if start is not None:
            assert len(set(start.kernel.gamma)) == len(set(start.kernel.shares)) == 1
            assert len(start.kernel.gamma) == len(start.kernel.shares) == 4


def test_kernels_without_one_radial_part_have_no_comparison():
    """Directions have no widths of features."""
    X, codes = summed(400, 2)
    with sample_of(X, codes) as sample:
        kernel = Directions(Gaussian((0.5, 0.5)), np.eye(2))
        rows = ProcessRows.of(sample, problem_of(X, codes, kernel, K=2), np.arange(200))
        assert first_comparison(rows, ProcessFit(kernel, 0.0, -1.0), np.arange(400)) is None


@pytest.mark.parametrize(
    ("one", "each", "gains", "most", "is_chosen"),
    [
        (0.5, 0.4, (0.1, 0.1), 1.0, True),
        (0.4, 0.5, (0.1, 0.1), 1.0, True),
        (0.5, 0.4, (0.1, 0.1), 0.75, False),
        (0.5, 0.4, (0.1, 0.1), 0.76, True),
        (0.5, 0.4, (-0.1, -0.1), 1.0, False),
        # a mean of .01 with a standard error of .03 / √n, for n = 24, 34 and 38
        (0.5, 0.4, (0.04, -0.02) * 12, 1.0, False),
        (0.5, 0.4, (0.04, -0.02) * 17, 1.0, False),
        (0.5, 0.4, (0.04, -0.02) * 19, 1.0, True),
    ],
)
def test_sums_must_gain_two_standard_errors_over_the_best_radial_form(
    one, each, gains, most, is_chosen
):
    """With many rows, their loss must also be much lower."""
    gains = np.array(gains)
    losses = {
        ONE: np.full(len(gains), one),
        EACH: np.full(len(gains), each),
        EFFECTS: min(one, each) - gains,
    }
    assert LeftOutForms(losses, NO_FIT).choose_sums(most) == is_chosen


def test_forms_are_judged_by_processes_learned_without_the_rows():
    """The losses are those of a search on the other rows, with the best ramp for all left-out
    rows."""
    X, codes = summed(60, 2)
    order = np.arange(60)
    with sample_of(X, codes) as sample:
        rows = ProcessRows.of(sample, problem_of(X, codes, K=2), order)
        radial = ProcessFit(Gaussian((0.5, 0.5)), 0.0, -1.0)
        start = ProcessFit(Anova((1.0, 1.0), (0.1, 0.1)), 0.0, -1.0)
        forms = left_out_forms(rows, radial, start, order, 60)
        parts = []
        for kept, outside in search_splits(order, 60, None):
            known = ProcessRows.of(sample, rows.problem, kept)
            new = ProcessRows.of(sample, rows.problem, outside)
            fit = climb(known, start, STEPS)
            parts.append(left_out_classes(known, fit, new, outside))
    assert_allclose(forms.losses[EFFECTS], row_losses(parts), rtol=1e-12)
    assert forms.summed.kernel == fit.kernel
    assert set(map(len, forms.losses.values())) == {60}


def test_the_history_names_the_losses_of_the_forms():
    """They follow the losses of the families."""
    choice = {
        "family": "gaussian",
        "family_losses": {"gaussian": 0.55, "matern52": 0.56, "matern32": 0.57},
        "family_rows": 600,
        "form": EFFECTS,
        "rows": 300,
        "losses": {ONE: 0.5586, EACH: 0.5268, EFFECTS: 0.3527},
    }
    entry = {
        "kind": "kernel",
        "kernel": Anova((1.0, 2.0), (3.0, 4.0)).spec(),
        "choice": choice,
        "rows": 400,
        "candidates": 400,
        "iterations": 12,
        "gain": 3.0,
        "taken": None,
    }
    losses = f"{ONE} 0.559, {EACH} 0.527, {EFFECTS} 0.353"
    sentence = f"; {EFFECTS}, by the log loss of 300 left-out rows ({losses}): anova, share of b 4"
    assert sentence in kernel_text(entry, ["a", "b"])["text"]
