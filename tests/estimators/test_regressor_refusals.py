"""What RVMRegressor refuses, and what it says then."""

import dask.array as da
import numpy as np
import pytest
from regressions import plane

from partirvm import RVMRegressor
from partirvm.errors import DataError, UsageError


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("kernel", "laplace", "gaussian"),
        ("kernel", None, "basis='linear'"),
        ("gamma", [1.0, 2.0], "3 features"),
        ("gamma", [0.0, 0.0, 0.0], "positive"),
        ("gamma", "wide", "scale"),
        ("partition_size", "large", "whole number ≥ 1 or 'auto'"),
        ("max_rounds", True, "whole number"),
        ("time_limit", "soon", "1h"),
    ],
)
def test_each_parameter_that_cannot_be_is_named(name, value, says):
    """UsageError, a ValueError, with the parameter's name and what it may be; nothing is fitted."""
    X, y = plane(30)
    estimator = RVMRegressor(**{name: value, "random_state": 0})
    with pytest.raises(UsageError, match=name) as caught:
        estimator.fit(X, y)
    assert says in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert not hasattr(estimator, "model_")


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_values_that_are_not_finite_out_of_core(value):
    """Count, first row and the name of its column, found by a pass over the tiles."""
    X, y = plane(50)
    X[33, 1], X[40, 2] = value, np.inf
    with pytest.raises(DataError, match=r"2 values .* row 33, column 'x1'"):
        RVMRegressor().fit(da.from_array(X, chunks=(20, 3)), y)


def test_validation_of_other_features():
    """Refused before anything is fitted."""
    X, y = plane(40)
    with pytest.raises(ValueError, match="2 features"):
        RVMRegressor().fit(X, y, validation=(X[:, :2], y))
    with pytest.raises(UsageError, match="4 parts"):
        RVMRegressor().fit(X, y, validation=(X, y, y, y))
