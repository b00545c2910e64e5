"""RVMClassifier keeps scikit-learn's rules: its checks, clones, pickles, searches, calibration, cross-validation."""

import pytest
from checks import run_check
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, parametrize_with_checks

from partirvm import RVMClassifier

MAY_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 counts as two rows, but fits stop within tol·N nats of the end, where probabilities still "
        "move by 1e-6, and the check asks for 1e-7; see the next test"
    )
}
"""Checks that an RVM need not pass, each with its reason."""


ROUNDS = {"strategy": "working-set", "partition_size": 20}


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@parametrize_with_checks([RVMClassifier(gamma="scale", random_state=0)])
def test_scikit_learns_checks(estimator, check):
    """All of ``sklearn.utils.estimator_checks``, for all rows as candidates, with a width."""
    run_check(estimator, check, MAY_FAIL)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@parametrize_with_checks([RVMClassifier(random_state=0), RVMClassifier(**ROUNDS, gamma=0.5, random_state=0)])
def test_scikit_learns_checks_of_others(estimator, check):
    """The same where the kernel is learned, many times in a check, and for rounds."""
    run_check(estimator, check, MAY_FAIL)


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@pytest.mark.parametrize("options", [{}, {**ROUNDS, "multi_class": "multinomial"}], ids=["basic", "rounds"])
def test_a_row_of_weight_two_is_two_rows(options):
    """scikit-learn's check of it, which no fit that stops early can pass, passes for one that goes on."""
    estimator = RVMClassifier(gamma="scale", tol=1e-13, random_state=0, **options)
    check_sample_weight_equivalence_on_dense_data("RVMClassifier", estimator)
