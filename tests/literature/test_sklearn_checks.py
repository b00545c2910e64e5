"""Conventions of scikit-learn."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from partirvm.literature.kth import FastRegressor
from partirvm.literature.own_rows import OwnRowsRegressor
from partirvm.literature.softmax import TippingClassifier
from partirvm.literature.tipping import DenoeuxRegressor, TippingRegressor

ESTIMATORS = [
    TippingRegressor(max_iter=50),
    DenoeuxRegressor(max_iter=50),
    FastRegressor(max_iter=2000),
    OwnRowsRegressor(max_iter=50),
    TippingClassifier(max_iter=20),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_conventions(estimator, check):
    check(estimator)
