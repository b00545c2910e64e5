"""Categorical columns: the kernel that combines numbers and categories, and texts about it."""

import numpy as np
import pandas as pd
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import RVMRegressor
from partirvm.core import Moments
from partirvm.errors import UsageError
from partirvm.kernels import Anova, Categorical, Gaussian, Laplacian, OnColumns, Product
from partirvm.options import Request
from partirvm.resolve.kernel import resolve_kernel
from partirvm.scaling import Scaling
from partirvm.types import Columns

LEVELS = ("east", "north", "west")
EFFECT = np.array([0.0, 3.0, -1.0])


def rows(n=240, seed=0):
    """Return a wave in one number, an effect of a category, and an irrelevant input."""
    rng = default_rng(seed)
    x = rng.uniform(-2, 2, n)
    codes = rng.integers(0, 3, n)
    noise = 50 * rng.normal(size=n)
    y = np.sin(2 * x) + EFFECT[codes] + 0.1 * rng.normal(size=n)
    zone = pd.Categorical.from_codes(codes, list(LEVELS))
    return pd.DataFrame({"noise": noise, "zone": zone, "x": x}), y


def coded(frame):
    """Return the same rows as numbers."""
    return np.column_stack([frame["noise"], frame["zone"].cat.codes, frame["x"]]).astype(float)


COLUMNS = Columns(("noise", "zone", "x"), categories={"zone": LEVELS})


def resolved(columns=COLUMNS, **asked):
    """Return the kernel for ``rows``."""
    X, y = rows()
    moments = Moments.of(coded(X), y[:, None], None, 0)
    d = len(columns.features)
    scaling = Scaling(np.zeros(d), np.ones(d), np.zeros(1), np.ones(1))
    return resolve_kernel(Request(**asked), moments, columns, scaling)


def mixed(of_numbers, of_zone, kernel=Gaussian):
    """Return the product of a numeric and a categorical kernel."""
    return Product((OnColumns(kernel(of_numbers), (0, 2)), OnColumns(Categorical(of_zone), (1,))))


THIRD = 1 / 3
OF_ZONE = 1 / (3 * 0.5 * (1 - 1 / 3))
"""1/(d·v) with v = (1 − 1/L)/2 for L = 3 levels."""


@pytest.mark.parametrize(
    ("gamma", "kernel"),
    [
        ("scale", mixed(THIRD, OF_ZONE)),
        ("learn-shared", mixed(THIRD, OF_ZONE)),
        ("learn-per-feature", mixed((THIRD, THIRD), OF_ZONE)),
        (0.7, mixed(0.7, 0.7)),
        ([0.1, 0.2, 0.3], mixed((0.1, 0.3), 0.2)),
        ([0.1, 0.0, 0.3], OnColumns(Gaussian((0.1, 0.3)), (0, 2))),
        ([0.0, 0.2, 0.0], OnColumns(Categorical(0.2), (1,))),
    ],
)
def test_gamma_for_numbers_and_categories(gamma, kernel):
    """Each kind has a scale, all features share one gamma, or each has its own; zero removes a
    feature."""
    assert resolved(gamma=gamma) == kernel


def test_scales_of_raw_inputs_ignore_codes():
    """The scale is 1/(d·var) of all numbers together."""
    numbers = coded(rows()[0])[:, [0, 2]]
    kernel = resolved(gamma="scale", standardize=False, kernel="laplacian")
    expected = mixed(1 / (3 * numbers.var()), OF_ZONE, Laplacian)
    assert_allclose(kernel.logs, expected.logs, rtol=1e-12)
    assert [part.columns for part in kernel.parts] == [(0, 2), (1,)]


def test_only_kernels_for_numbers_and_categories_become_products():
    assert resolved(Columns(("a", "b", "c")), gamma="scale") == Gaussian(THIRD)
    assert resolved(kernel=Gaussian(2.0)) == mixed(2.0, 2.0)
    assert resolved(kernel=Gaussian((1.0, 2.0, 3.0)), gamma="learn-shared") == mixed(
        (1.0, 3.0), 2.0
    )
    every = OnColumns(Gaussian(2.0), (0, 1, 2))
    assert resolved(kernel=every) == every
    assert resolved(kernel="categorical", gamma=0.5) == Categorical(0.5)
    every = Columns(("a", "b", "c"), categories={"a": (1, 2), "b": (1, 2), "c": (1, 2)})
    assert resolved(every, gamma="scale") == OnColumns(Categorical(1 / (3 * 0.25)), (0, 1, 2))
    with pytest.raises(UsageError, match="2 values but the data have 3 features"):
        resolved(gamma=[0.1, 0.2])


@pytest.mark.parametrize(
    ("asked", "kernel"),
    [
        ({"kernel": "anova", "gamma": "scale"}, Anova(1.0, categorical=(1,))),
        (
            {"kernel": "anova", "gamma": "learn-per-feature"},
            Anova((1.0, 1 / (0.5 * (1 - 1 / 3)), 1.0), (THIRD,) * 3, categorical=(1,)),
        ),
        (
            {"kernel": "anova", "gamma": [0.1, 0.2, 0.3]},
            Anova((0.1, 0.2, 0.3), categorical=(1,)),
        ),
        (
            {"kernel": Anova(2.0, (0.1, 0.2, 0.3), base="matern32", categorical=(0,))},
            Anova(2.0, (0.1, 0.2, 0.3), base="matern32", categorical=(0, 1)),
        ),
    ],
)
def test_categories_are_features_of_an_anova_kernel(asked, kernel):
    """The scale is 1/var, since each feature has a kernel of its own."""
    assert resolved(**asked) == kernel


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_learned_kernels_are_described_by_feature_names():
    """Plan, history and model name the features."""
    X, y = rows(150)
    asked = {"gamma": "learn-per-feature", "partition_size": 50, "max_rounds": 2, "random_state": 0}
    plain = {"residual": "none", "noise": "constant", "reference": "none"}
    fitted = RVMRegressor(kernel="gaussian", **asked, **plain).fit(X, y)
    text = next(entry["text"] for entry in fitted.history_ if entry["kind"] == "kernel")
    for part in (
        " × categorical, gamma of ",
        "gamma of x ",
        "gamma of zone ",
        "not in the kernel: noise",
    ):
        assert part in text
    assert text in str(fitted.plan_)
    (of_noise, of_x), (of_zone,) = (part.kernel.gamma for part in fitted.kernel_.parts)
    assert fitted.gamma_.tolist() == [of_noise, of_zone, of_x]
    assert fitted.feature_relevance_[0] == 0.0 < fitted.feature_relevance_[1:].min()
    assert fitted.get_support().tolist() == [False, True, True]
    assert fitted.score(X, y) > 0.99
