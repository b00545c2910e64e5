"""α of basis functions that stay as they are, by their names."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm import RVMRegressor
from partirvm.errors import UsageError


def test_the_precision_of_a_basis_function_is_held():
    """A useless feature's linear term stays at the α that it was given, the other's is estimated; errors name both."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = 2 * X[:, 0] + 0.1 * rng.normal(size=80)
    asked = {"kernel": None, "basis": "linear"}
    fit = RVMRegressor(**asked, fixed_alpha={"x1": 3.0}).fit(X, y)
    alpha = dict(zip(fit.basis_names_, fit.basis_alpha_, strict=True))
    assert alpha["x1"] == 3.0
    assert alpha["x0"] != 3.0
    free = RVMRegressor(**asked).fit(X, y)
    assert dict(zip(free.basis_names_, free.basis_alpha_, strict=True))["x1"] > 100
    with pytest.raises(UsageError, match="a name in fixed_alpha is 'x7'; known: bias, x0, x1"):
        RVMRegressor(**asked, fixed_alpha={"x7": 3.0}).fit(X, y)
