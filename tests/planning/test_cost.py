"""Floating-point work and seconds follow the formulas in planning/cost.py."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partirvm.planning import DataShape, Rates, Work
from partirvm.planning.cost import (
    RowsRead,
    boosting_operations,
    gram_cost,
    levels_cost,
    rounds_cost,
    search_cost,
)

READ = 1e-7
ELEMENT = 2e-9
PRODUCT = 1e10
RATES = Rates(read=READ, element=ELEMENT, product=PRODUCT)


def work(n=10**6, rows=None, threads=1, **search):
    return Work(
        DataShape(n, 4, 1, 1024), RowsRead(n if rows is None else rows, **search), RATES, threads
    )


def gram(rows, kept, new):
    """Return products and seconds of one Gram pass on one thread."""
    products = rows * (2 * kept * new + new**2)
    return products, rows * READ + rows * (kept + new) * ELEMENT + products / PRODUCT


def dense(columns):
    """Return the seconds of 20 iterations of (M + P)³ + 1500 (M + P)²."""
    return 20 * (columns**3 + 1500 * columns**2) / PRODUCT + 5e-3


@given(st.integers(2, 10**6), st.integers(0, 500), st.integers(1, 500), st.integers(1, 16))
def test_the_cost_of_a_gram_pass_follows_from_products_and_elements(rows, kept, new, threads):
    """There are 2MP + P² products and M + P elements per row; a fit has 20 dense iterations."""
    cost = gram_cost(work(10**6, threads=threads), rows, kept, new)
    seconds = gram(rows, kept, new)[1]
    assert cost.pass_seconds == pytest.approx(seconds / threads)
    assert cost.solve_seconds == pytest.approx(dense(kept + new)), "one fit is one thread's"
    assert cost.passes == int(rows == 10**6)
    assert cost.columns == kept + new


@given(
    st.integers(2, 10**6),
    st.integers(0, 500),
    st.integers(1, 500),
    st.sampled_from("eEg"),
    st.integers(1, 16),
)
def test_the_cost_of_a_candidate_search_follows_from_its_elements(n, kept, pool, look, threads):
    """There are M per row for all (E) or half (e) of the rows; a pool (g) has M + Q, and 2MQ
    products."""
    search = {"e": {"searched": n // 2}, "E": {"searched": n}, "g": {"pool": pool}}[look]
    cost = search_cost(work(n, threads=threads, **search), kept)
    rows = n // 2 if look == "e" else n
    elements, products = (kept + pool, 2 * kept * pool) if look == "g" else (kept, 0)
    assert cost.pass_seconds == pytest.approx(
        rows * (READ + elements * ELEMENT + products / PRODUCT) / threads
    )
    assert cost.passes == (look != "e")


@given(st.integers(10, 300), st.integers(1, 12))
def test_candidate_sets_grow_to_twice_the_partition_size(partition_size, rounds):
    """Their sizes are P, 1.5P, 1.75P … with stop_fraction ½."""
    assume(partition_size % 2 == 0)
    costs = rounds_cost(work(searched=10**6), partition_size, rounds, 0.5)
    totals = [cost.columns - 1 for cost in costs]
    expected = [partition_size * (2 - 0.5**k) for k in range(rounds)]
    assert totals == pytest.approx(expected, abs=rounds)
    assert max(totals) <= 2 * partition_size


def residuals(n, kept):
    """Return the cost of a residual pass."""
    return n * READ + n * kept * ELEMENT


def settling(n, kept):
    """Return the cost of the last fit's residual pass with leverages: two blocks, and a product
    with (M, M)."""
    return n * READ + 2 * n * kept * ELEMENT + 2 * n * kept**2 / PRODUCT


def test_all_rounds_except_the_first_search_and_the_last_settles():
    """Three rounds of 100 over 10⁴ rows keep 1, 51 and 76 columns."""
    n = 10**4
    kept = (1, 51, 76)
    costs = rounds_cost(work(n, searched=n), 100, 3, 0.5)
    expected = [gram(n, m, 100)[1] + (residuals(n, m) if k else 0) for k, m in enumerate(kept)]
    expected[-1] += settling(n, 1 + int(0.5 * 175))
    assert [cost.pass_seconds for cost in costs] == pytest.approx(expected)
    assert [cost.passes for cost in costs] == [1, 2, 4]
    assert sum(cost.passes for cost in rounds_cost(work(n), 100, 3, 0.5)) == 5


def test_the_cost_of_the_last_round_includes_passes_over_all_rows():
    """One is for its columns, one for the residual."""
    n = 10**4
    costs = rounds_cost(work(n, rows=500), 100, 3, 0.5)
    assert [cost.passes for cost in costs] == [0, 0, 3]
    assert costs[-1].columns == 176
    assert costs[-1].pass_seconds == pytest.approx(
        gram(500, 76, 100)[1] + gram(n, 0, 88)[1] + settling(n, 88)
    )


def test_the_cost_of_local_noise_includes_two_fits():
    """One is the noise fit, with 4·10⁶ operations a row, one a refit of the kept columns."""
    n = 10**4
    rows = 500
    plain = rounds_cost(work(n), 100, 3, 0.5)
    costs = rounds_cost(
        replace(work(n), shape=DataShape(n, 4, 1, 1024, local_noise_rows=rows)), 100, 3, 0.5
    )
    assert costs[:-1] == plain[:-1]
    assert costs[-1].passes == plain[-1].passes + 3
    more = costs[-1].pass_seconds - plain[-1].pass_seconds
    assert more == pytest.approx(gram(n, 0, 88)[1] + settling(n, 88))
    more = costs[-1].solve_seconds - plain[-1].solve_seconds
    assert more == pytest.approx(dense(88) + rows * 4e6 / PRODUCT)


@pytest.mark.parametrize(
    ("what", "n", "expected"),
    [
        ("residuals", 10**4, 1e10 + 8e10 * (10**4 / 16_384) ** 1.5),
        ("compared", 10**5, 3e10 + 1e6 * 20_000),
        ("compared", 1000, 3e10 + 1e6 * 1000),
    ],
)
def test_the_cost_of_local_residuals_and_boosted_trees(what, n, expected):
    """A trial of residuals costs 10¹⁰, their use 8·10¹⁰, trees cost 3·10¹⁰ and 10⁶ a row."""
    plain, more = (
        rounds_cost(replace(work(n), **{what: tried}), 100, 3, 0.5)[-1] for tried in (False, True)
    )
    assert more.solve_seconds - plain.solve_seconds == pytest.approx(expected / PRODUCT)


def test_the_cost_of_levels_is_the_sum_of_their_fits():
    """Four partitions of 100 rows have 4 fits, 2 merges, and a last fit."""
    n = 400
    costs = levels_cost(work(n, threads=2), 100, 0.5)
    seconds = gram(n, 1, 100)[1]
    alone = n * READ
    for cost, fits in zip(costs, (4, 2), strict=False):
        assert cost.pass_seconds == pytest.approx((alone + fits * (seconds - alone)) / 2)
        assert cost.solve_seconds == pytest.approx(fits * dense(101) / 2)
        assert cost.passes == fits
    last = costs[2]
    assert last.pass_seconds == pytest.approx((gram(n, 0, 101)[1] + settling(n, 50)) / 2)
    assert last.solve_seconds == pytest.approx(dense(101) + 4e9 / PRODUCT), "with several starts"
    assert last.passes == 3


@pytest.mark.parametrize(
    ("features", "targets", "classes", "times"),
    [(8, 1, 0, 1), (8, 1, 2, 1), (8, 3, 0, 3), (8, 1, 5, 5), (24, 1, 0, 2), (24, 1, 3, 6)],
)
def test_boosting_takes_30_000_operations_per_row_round_and_output(
    features, targets, classes, times
):
    """With 8 features; half of them grow with the number of features."""
    shape = DataShape(1000, features, targets, 1024, n_classes=classes)
    assert boosting_operations(shape, 500, 40) == pytest.approx(times * 3e4 * 500 * 40)


def test_boosted_trees_add_their_seconds_to_the_last_fit():
    plain, boosted = (
        rounds_cost(replace(work(1000), boosted=operations), 100, 3, 0.5)
        for operations in (0.0, 5 * PRODUCT)
    )
    seconds = [sum(cost.solve_seconds for cost in costs) for costs in (plain, boosted)]
    assert seconds[1] - seconds[0] == pytest.approx(5.0)
