"""From options to numbers: likelihoods and partition sizes that the program chooses."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core import ColumnMoments
from partirvm.likelihoods import GAUSSIAN, SOFTMAX
from partirvm.options import Request
from partirvm.resolve.new_problem import scaled_variances
from partirvm.resolve.resolve import resolve_fit_rows, schedule_for
from partirvm.resolve.small_fits import partition_size
from partirvm.scaling import Scaling
from partirvm.strategies import STRATEGIES


@pytest.mark.parametrize(
    ("strategy", "n", "size", "expected"),
    [
        # 2·N²·P = 1.0e10, 2e12, and slightly more
        ("split-merge", 6144, 134, "full"),
        ("incremental", 100_000, 100, "full"),
        ("incremental", 100_001, 100, "sample"),
        ("split-merge", 1_000_000, 500, "sample"),
        ("working-set", 100_000_000, 1000, "full"),
        ("basic", 1000, 1000, "full"),
    ],
)
def test_intermediate_fits_use_all_rows_if_affordable(strategy, n, size, expected):
    """The limit is 2·N²·P = 2·10¹² flops; the working set always uses all rows."""
    assert resolve_fit_rows(Request(), STRATEGIES[strategy].schedule, n, size) == (
        expected,
        min(20 * size, n),
    )


@pytest.mark.parametrize(("new", "expected"), [(0, "sample"), (1_000, "full"), (100_000, "sample")])
def test_with_few_appended_rows_all_rows_are_affordable(new, expected):
    """n new rows cost 2·N·n·P flops."""
    assert (
        resolve_fit_rows(Request(), STRATEGIES["incremental"].schedule, 1_000_000, 500, new=new)[0]
        == expected
    )


def test_a_requested_likelihood_is_used():
    """The sample has at most all rows; the only fit of basic uses all rows."""
    asked = Request(fit_rows="sample", sample_rows=77)
    assert resolve_fit_rows(asked, STRATEGIES["incremental"].schedule, 50, 10) == ("sample", 50)
    assert resolve_fit_rows(asked, STRATEGIES["basic"].schedule, 1000, 1000) == ("full", 77)


@pytest.mark.parametrize(
    ("n", "d", "vectors", "size", "heuristic"),
    [
        (6144, 8, 20, 45, 45),
        (6144, 8, 100, 134, 134),
        (6144, 8, 190, 222, 222),
        (6144, 32, 100, 267, 267),
        (1000, 4, 20, 32, 13),
        (40_000, 100, 190, 1000, 2000),
        (40, 250, 190, 40, 100),
    ],
)
def test_the_partition_size_from_the_heuristic(n, d, vectors, size, heuristic):
    """It is ⌈f·√(N·d)⌉, with f = 0.2, 0.6, 1 by ρ = vectors/222, between 32 and 1,000 and at most
    N."""
    assert partition_size(n, d, vectors / 222) == (heuristic, size)


def test_few_rows_get_a_single_basic_fit():
    """These are up to 200 rows, or C·N² = 10⁶ for classes, unless a partition size is requested."""
    assert [schedule_for(Request(), n, GAUSSIAN).name for n in (200, 201)] == [
        "basic",
        "working-set",
    ]
    assert [schedule_for(Request(), n, SOFTMAX, 4).name for n in (500, 501)] == [
        "basic",
        "working-set",
    ]
    assert schedule_for(Request(partition_size=10), 200, GAUSSIAN).name == "working-set"
    assert schedule_for(Request(strategy="incremental"), 200, GAUSSIAN).name == "incremental"


@pytest.mark.parametrize("unit", [1.0, 100.0])
def test_the_variance_of_a_target_counts_rows_by_their_weights(unit):
    """It is Σ w (t − m)²/n of the scaled target, where m is the weighted mean."""
    rng = default_rng(0)
    t = unit * rng.normal(size=(40, 2))
    w = rng.uniform(1.0, 5.0, 40)
    scaling = Scaling(np.zeros(1), np.ones(1), np.zeros(2), np.array([unit, 2.0 * unit]))
    z = t / scaling.t_scale
    square = (z - np.average(z, axis=0, weights=w)) ** 2
    found = scaled_variances(ColumnMoments.of(t, w), scaling)
    assert_allclose(found, (w[:, None] * square).sum(axis=0) / 40, rtol=1e-12)
