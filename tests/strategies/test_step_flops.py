"""The arithmetic of one step of a fit, counted product by product."""

from __future__ import annotations

from itertools import combinations_with_replacement
from types import SimpleNamespace

import pytest

from partirvm.strategies.in_order import step_flops


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_a_newton_step_has_a_block_for_each_pair_of_outputs(outputs):
    """N·M² multiplications and as many additions for each block Φᵀ·W_cd·Φ, c ≤ d, and (C·M)³ for the factorisation."""
    rows, columns = 40, 3
    pairs = len(list(combinations_with_replacement(range(outputs), 2)))
    expected = pairs * 2 * rows * columns**2 + (outputs * columns) ** 3
    assert step_flops(SimpleNamespace(classifies=True, n_outputs=outputs), rows, columns) == expected


@pytest.mark.parametrize("targets", [1, 4])
def test_a_gaussian_step_is_a_factorisation_for_each_target(targets):
    """M³ each; no row is read."""
    assert step_flops(SimpleNamespace(classifies=False, n_targets=targets), 40, 3) == targets * 27
