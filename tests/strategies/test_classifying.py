"""Classification strategies as lists of instructions: candidates, rounds, limits, ends."""

from itertools import product

import numpy as np
import pytest
from by_default import some
from class_simulator import NAMES, ClassSimulator, groups, usable
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import Termination
from partirvm.likelihoods import ErrorPass, Newton
from partirvm.spec import Options, Solved
from partirvm.strategies import Gather
from partirvm.strategies.fit_rows import LEAST

KINDS = ((2, "bernoulli"), (3, "multinomial"), (3, "pooled"))


@pytest.mark.parametrize(
    ("name", "kind", "shuffled"),
    some(
        product(["incremental", "split-merge", "working-set"], KINDS, [True, False]),
        {
            ("incremental", KINDS[1], False),
            ("split-merge", KINDS[2], True),
            ("working-set", KINDS[0], True),
        },
    ),
)
def test_partitions_and_random_rounds_contain_all_classes(name, kind, shuffled):
    """The rows are sorted by class, and one class has four of 90 rows."""
    K, likelihood = kind
    X, codes = groups(90, K, seed=3)
    codes = np.sort(np.where(np.arange(90) < 4, K - 1, np.minimum(codes, K - 2)))
    simulator = ClassSimulator(X, codes, n_classes=K, likelihood=likelihood, shuffled=shuffled)
    max_rounds = None if name == "split-merge" else 3
    simulator.run(name, Options(30, "random", max_rounds=max_rounds, max_passes=10))
    gathered = [
        rows
        for pass_ in simulator.passes(Gather)
        for rows in np.split(pass_.rows, len(pass_.rows) // 30)
    ]
    assert len(gathered) == 3
    left = np.ones(90, dtype=bool)
    for rows in gathered:
        assert set(codes[rows]) == (set(codes[left]) if name == "working-set" else set(range(K)))
        left[rows] = False


def test_a_sample_has_at_least_ten_rows_of_each_class():
    """Every intermediate fit uses this sample."""
    codes = np.r_[np.zeros(170), np.ones(26), np.full(4, 2.0)]
    X = groups(200, 3, seed=1)[0]
    simulator = ClassSimulator(X, codes, n_classes=3, likelihood="multinomial")
    simulator.run(
        "working-set", Options(15, "random", "sample", sample_rows=40, max_rounds=3, max_passes=10)
    )
    tasks = simulator.passes(Newton)
    assert len(tasks[0].rows) == 40
    assert np.bincount(codes[tasks[0].rows].astype(int)).tolist() == [26, LEAST, 4]
    for task in tasks[:-1]:
        assert_array_equal(task.rows, tasks[0].rows)
    assert tasks[-1].rows is None


@pytest.mark.parametrize(
    ("name", "bias", "max_rounds"),
    some(
        product(NAMES, [True, False], [None, 1]),
        {
            ("incremental", True, None),
            ("working-set", False, 1),
        },
    ),
)
def test_absent_first_candidates_do_not_end_a_run(name, bias, max_rounds):
    """40 of 60 rows are absent; limited rounds end with the candidates they have."""
    X, codes = groups(60, 2)
    w = np.r_[np.zeros(40), np.ones(20)]
    simulator = ClassSimulator(X, codes, w=w, bias=bias)
    reason = simulator.run(name, Options(10, "gain", max_rounds=max_rounds))
    last = simulator.saves[-1]
    usable(last, simulator)
    assert last.record.rows == 20
    assert len([save for save in simulator.saves if save.record.kind == "final"]) == 1
    assert (simulator.weight(np.array(simulator.candidates(), dtype=np.int64)) > 0).all()
    if max_rounds is None or name in ("basic", "split-merge"):
        assert last.record.vectors > 0
    else:
        assert reason is Termination.ROUNDS
        assert last.record.log_evidence == pytest.approx(-20 * np.log(2), abs=2.0)


@pytest.mark.parametrize(("K", "likelihood"), some(KINDS, {KINDS[0], KINDS[2]}))
def test_candidates_are_rows_with_improbable_classes(K, likelihood):
    """Each round draws new rows; ``largest-error`` takes the least probable ones."""
    for selection in ("error", "largest-error", "gain"):
        simulator = ClassSimulator(*groups(100, K), n_classes=K, likelihood=likelihood)
        simulator.run("working-set", Options(10, selection, max_rounds=3, max_passes=15))
        looks = simulator.passes(ErrorPass)
        if selection == "gain" and likelihood == "pooled":
            assert not looks
            continue
        assert [look.select for look in looks] == [10] * 2
        assert len({look.draw for look in looks}) == (1 if selection == "largest-error" else 2)
        rows = simulator.found()
        for number, look in enumerate(looks):
            assert not np.isin(rows[10 * number : 10 * number + 10], look.exclude).any()
            if selection == "largest-error" and likelihood != "pooled":
                missed = 1 - simulator.probabilities(simulator.phi(look.design) @ look.mean)
                missed = missed[np.arange(100), simulator.y.astype(int)]
                missed[look.exclude] = -1
                assert set(rows[10 * number : 10 * number + 10]) == set(
                    np.argsort(-missed)[:10].tolist()
                )


@pytest.mark.slow
def test_a_fit_begins_with_alpha_and_weights_of_the_previous_one():
    """The weights of an output sum to zero."""
    simulator = ClassSimulator(*groups(120, 3), n_classes=3, likelihood="multinomial")
    simulator.run("working-set", Options(15, "gain", max_rounds=3))
    tasks = simulator.passes(Newton)
    answers = simulator.heard_of(Solved)
    assert len(tasks) == 3
    for task, before in zip(tasks[1:], answers, strict=False):
        assert_array_equal(task.start.labels, before.fit.labels)
        assert_array_equal(task.start.alpha, before.fit.alpha)
        assert_array_equal(task.start.weights, before.fit.mean)
    for answer in answers:
        assert_allclose(answer.fit.weights.sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "kind"),
    some(
        product(NAMES, KINDS),
        {("incremental", KINDS[0]), ("working-set", KINDS[2])},
    ),
)
def test_absent_rows_do_not_change_a_fit(name, kind):
    K, likelihood = kind
    X, codes = groups(60, K, seed=5)
    w = np.where(np.arange(60) % 4 == 3, 0.0, 1.0)
    simulator = ClassSimulator(X, codes, w=w, n_classes=K, likelihood=likelihood)
    simulator.run(name, Options(60, "order", max_passes=40))
    alone = ClassSimulator(X[w > 0], codes[w > 0], n_classes=K, likelihood=likelihood)
    alone.run(name, Options(60, "order", max_passes=40))
    one = simulator.saves[-1]
    other = alone.saves[-1]
    assert_allclose(one.design.centres, other.design.centres)
    means = (
        fit.posterior.mean if likelihood == "pooled" else fit.mean for fit in (one.fit, other.fit)
    )
    assert_allclose(*means, atol=1e-6)
    assert one.record.train_error == other.record.train_error
    assert one.record.rows == other.record.rows == 45
