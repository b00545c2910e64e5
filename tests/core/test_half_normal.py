"""The half-normal prior of widths: its density by the formula with the best bounded precision, and its slopes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from partirvm.core.rprop import BOUND, LEAST, half_normal, half_normal_gamma


def density(logs):
    """Σ max over β ≤ 1/LEAST² of log(√β exp(−½βs²)), s = √(γ/Σγ), by search over a fine grid of β."""
    s = np.sqrt(np.exp(logs) / np.exp(logs).sum())
    beta = np.geomspace(1e-2, 1 / LEAST**2, 200_001)[:, None]
    return float((0.5 * np.log(beta) - 0.5 * beta * s**2).max(axis=0).sum())


@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_density_and_slopes(spread):
    """Up to a constant; no scale; slopes against differences, where some are at the bound and where none is."""
    rng = np.random.default_rng(0)
    one, two = spread * rng.normal(size=(2, 9))
    rise = half_normal(two)[0] - half_normal(one)[0]
    assert rise == pytest.approx(density(two) - density(one), abs=1e-6)
    value, slope = half_normal(one)
    assert half_normal(one + 5.0)[0] == pytest.approx(value, rel=1e-12)
    assert slope == pytest.approx(approx_fprime(one, lambda x: half_normal(x)[0], 1e-7), abs=1e-5)
    assert abs(slope.sum()) < 1e-12


def test_pfcvm_has_the_prior_on_gamma_itself():
    """Σ max over β ≤ ν of log(√β exp(−½βγ²)), by search; slopes against differences; a common factor counts."""
    rng = np.random.default_rng(1)
    one, two = 3.0 * rng.normal(size=(2, 9))
    beta = np.geomspace(1e-12, BOUND, 400_001)[:, None]

    def searched(logs):
        return float((0.5 * np.log(beta) - 0.5 * beta * np.exp(2 * logs)).max(axis=0).sum())

    rise = half_normal_gamma(two)[0] - half_normal_gamma(one)[0]
    assert rise == pytest.approx(searched(two) - searched(one), abs=1e-5)
    value, slope = half_normal_gamma(one)
    assert half_normal_gamma(one + 1.0)[0] < value
    assert slope == pytest.approx(approx_fprime(one, lambda x: half_normal_gamma(x)[0], 1e-7), abs=1e-5)
