"""Every name that the estimators document for a parameter is accepted, as an option of the command line too."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import pytest

from partirvm import RVMClassifier, RVMRegressor
from partirvm.kernels import Gaussian, kernel_from_spec
from partirvm.resolve.resolve import check_parameters


def documented(estimator):
    """Pairs of a parameter and a name that the docstring lists for it in braces."""
    found = re.findall(r"^    ([a-z_, ]+) : \{(.*?)\}", inspect.getdoc(estimator).replace("\n", "\n    "), re.MULTILINE)
    for names, values in found:
        for name in names.split(", "):
            for value in re.findall(r'"([^"]+)"', values):
                yield pytest.param(estimator, name, value, id=f"{estimator.__name__}-{name}-{value}")


@pytest.mark.parametrize(("estimator", "name", "value"), [*documented(RVMRegressor), *documented(RVMClassifier)])
def test_documented_names_are_accepted(estimator, name, value):
    asked = replace(estimator(random_state=0).parameters(), **{name: value})
    assert getattr(check_parameters(asked), name) == value


def test_the_documented_names_are_found():
    """The docstrings are searched as they are written."""
    names = {(case.values[1], case.values[2]) for kind in (RVMRegressor, RVMClassifier) for case in documented(kind)}
    assert {("kernel_store", "none"), ("kernel_store", "memory"), ("gamma", "learn")} <= names
    assert len(names) > 30


def test_rbf_is_gaussian():
    """To the check of the options, and in a spec."""
    assert check_parameters(RVMRegressor(kernel="rbf", random_state=0).parameters()).kernel == "gaussian"
    assert isinstance(kernel_from_spec({"name": "rbf", "gamma": [1.0]}), Gaussian)
