"""Sums of effects as a form of the learned kernel: found where they predict better, else skipped."""

import numpy as np
import pytest
from numpy.random import default_rng
from sampling import problem_of, sample_of
from surfaces import additive
from test_process_search import learned

from partirvm.kernels import (
    Anova,
    Categorical,
    Directions,
    Gaussian,
    Laplacian,
    Matern32,
    OnColumns,
    Product,
    Several,
    Sum,
)
from partirvm.learning import ProcessFit, ProcessRows, SearchEffort
from partirvm.learning.effects import FEW_STEPS, effects, start_of
from partirvm.learning.exact_process import climb
from partirvm.learning.forms import DIRECTIONS, EACH, EFFECTS, kernel_text
from partirvm.learning.search import SMALL
from partirvm.learning.unused_rows import UnusedRows


def centred(rows):
    """Return standardised inputs and centred targets."""
    X, y = rows
    return (X - X.mean(axis=0)) / X.std(axis=0), y - y.mean()


MIXED = Product((OnColumns(Matern32((0.25, 0.5)), (2, 0)), OnColumns(Categorical(1.5), (1,))))


@pytest.mark.parametrize(
    ("kernel", "d", "start"),
    [
        (Gaussian((0.2, 0.4)), 2, Anova((0.2, 0.4))),
        (Matern32((0.2, 0.4)), 2, Anova((0.4, 0.8))),
        (MIXED, 3, Anova((1.0, 1.5, 0.5), categorical=(1,))),
        (Gaussian(0.5), 1, None),
        (Gaussian(0.5), 65, None),
        (OnColumns(Gaussian(0.5), (0,)), 2, None),
        (Sum((Gaussian(0.5), Gaussian(0.1))), 2, None),
        (Several((Gaussian(0.5), Gaussian(0.1))), 2, None),
        (Directions(Gaussian(0.5), np.eye(2)), 2, None),
        (Laplacian(0.5), 2, None),
        (Anova(0.5), 2, None),
    ],
)
def test_starts_have_the_widths_of_a_radial_kernel(kernel, d, start):
    """A Matérn 3/2 kernel has typically half the gamma of a Gaussian one; other kernels have no
    start."""
    assert start_of(kernel, d) == start


def test_a_sum_of_waves_is_found_and_described():
    """Left-out rows prefer it by far."""
    line = learned(*centred(additive(420, 6)), family=True)
    assert line.kernel["name"] == "anova"
    assert line.choice["form"] == EFFECTS
    compared = line.choice["effects"]
    assert compared["gain"] > 5 * compared["error"] > 0
    assert compared["rows"] == 420 // 4
    assert line.noise_sd == pytest.approx(0.1, rel=0.25)
    facts = {
        "kind": "kernel",
        "kernel": line.kernel,
        "choice": line.choice,
        "rows": 420,
        "candidates": 420,
        "iterations": 50,
        "gain": 1.0,
        "taken": None,
    }
    text = kernel_text(facts, tuple("abcdef"))["text"]
    assert "sums of effects change the log density by +" in text
    named = kernel_text({**facts, "kernel": Anova((1.0, 2.0), (3.0, 4.0)).spec()}, ("a", "b"))
    assert "share of b 4, share of a 3, gamma of b 2, gamma of a 1" in named["text"]
    reduced = Anova((1.0, 2.0), (3.0, SMALL)).spec()
    named = kernel_text({**facts, "kernel": reduced}, ("a", "b"))
    assert named["text"].endswith("; not in the kernel: b")


def test_many_rows_choose_sums_by_their_squared_errors():
    line = learned(*centred(additive(520, 6)), family=True, effort=SearchEffort(few=420))
    assert line.kernel["name"] == "anova"
    errors = line.choice["errors"]
    (other,) = set(errors) - {EFFECTS}
    assert other in (EACH, DIRECTIONS)
    assert errors[EFFECTS] < 0.5 * errors[other]


@pytest.mark.parametrize(
    "options",
    [
        {"metric": "widths", "family": True},
        pytest.param({"family": False}, marks=pytest.mark.slow),
    ],
)
def test_a_given_form_is_not_replaced(options):
    """A given metric or family excludes sums."""
    line = learned(*centred(additive(400, 3)), **options)
    assert line.kernel["name"] != "anova"
    assert "effects" not in line.choice


def test_fewer_rows_than_judge_well_exclude_sums():
    line = learned(*centred(additive(390, 2)), family=True)
    assert line.kernel["name"] != "anova"


def test_sums_without_promise_are_skipped_early():
    """A function of the distance to a point is no sum: only the first rows are searched, from two
    starts of sums and from the widths."""
    rng = default_rng(0)
    X = rng.normal(size=(600, 5))
    y = np.exp(-0.5 * (X**2).sum(axis=1)) * 10 + 0.1 * rng.normal(size=600)
    evaluations = []
    kernel = Gaussian((0.5,) * 5)
    problem = problem_of(X, y - y.mean(), kernel)
    with sample_of(X, y - y.mean(), on_step=evaluations.append) as sample:
        every = ProcessRows.of(sample, problem, np.arange(600))
        rows = every.first(400)
        unused = UnusedRows(every, np.arange(600) >= 400)
        level = float(np.log(problem.target_variance))
        widths = climb(rows, ProcessFit(kernel, level, level - 4.0), 20)
        evaluations.clear()
        assert effects(rows.first(200), rows, unused, widths) is None
    assert 0 < len(evaluations) <= 3 * (FEW_STEPS + 1)
