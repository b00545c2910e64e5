"""Conventions of scikit-learn."""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_dict_unchanged,
    check_dont_overwrite_parameters,
    check_estimators_pickle,
    check_fit_idempotent,
    check_n_features_in,
    parametrize_with_checks,
)

from partirvm.literature.kth import FastRegressor
from partirvm.literature.own_rows import OwnRowsRegressor
from partirvm.literature.softmax import TippingClassifier
from partirvm.literature.tipping import DenoeuxRegressor, TippingRegressor
from partirvm.literature.tmb import TMBClassifier, TMBRegressor

QUICK = {"batch": 5, "max_iterations": 10, "max_rounds": 2}
ESTIMATORS = [
    TMBRegressor(**QUICK),
    TMBClassifier("krvm", **QUICK),
    TippingRegressor(max_iter=50),
    DenoeuxRegressor(max_iter=50),
    FastRegressor(max_iter=2000),
    OwnRowsRegressor(max_iter=50),
    TippingClassifier(max_iter=20),
]


CHECKS = [
    check_dict_unchanged,
    check_dont_overwrite_parameters,
    check_estimators_pickle,
    check_fit_idempotent,
    check_n_features_in,
]


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=["regressor", "classifier"])
@pytest.mark.parametrize("check", CHECKS)
def test_few_conventions(estimator, check):
    """Those about parameters, copies and state; all conventions are checked by slow tests."""
    check(type(estimator).__name__, clone(estimator))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_conventions(estimator, check):
    check(estimator)
