"""Random rows of small fits, and what their history says of the work."""

from types import SimpleNamespace

import pytest
from numpy.testing import assert_array_equal
from sampling import arm, problem_of
from waiting import Clock

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.resolve.samples import Samples
from partirvm.spec import Spent


def drawn_rows(seed):
    """The numbers of 40 of 300 rows that a small fit with this seed takes."""
    X, y = arm(300, 2)
    executor = LocalExecutor(1)
    source = ArraySource(X, y)
    samples = Samples(source, None, None, SimpleNamespace(seed=seed), executor, lambda: None)
    with samples.take(problem_of(X, y, shuffled=False), 40) as sample:
        numbers = sample.rows.rows
    executor.close()
    return numbers


def test_the_seed_of_the_fit_draws_the_rows_of_small_fits():
    """The same seed draws the same rows, another one other rows."""
    rows = drawn_rows(7)
    assert len(rows) == 40
    assert_array_equal(rows, drawn_rows(7))
    assert set(rows) != set(drawn_rows(8))


def test_entries_that_are_written_together_share_the_work():
    """Of 12 s with three passes of 6 s and 900 rows, each of three entries has a third."""
    clock = Clock(100.0)
    spent = Spent(since=100.0, clock=clock.monotonic)
    clock.sleep(6.0)
    spent.add(100.0, 3, 900)
    clock.sleep(6.0)
    parts = [spent.share(of) for of in (3, 2, 1)]
    third = {"pass_seconds": 2.0, "passes": 1, "pass_rows": 300, "solve_seconds": 2.0}
    assert parts == [pytest.approx(third)] * 3
    assert spent.share()["solve_seconds"] == 0.0
