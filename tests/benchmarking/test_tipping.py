"""Tipping's experiments: each case has its row, and EM ends where MacKay's updates do."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.tipping import over, regressions, ripley


def test_sinc_is_the_papers():
    """9 vectors without noise and few with it; the error without noise is below that of an SVM (0.01), times 1.5."""
    exact, noisy, mackay, em = regressions(3)
    assert exact["vectors"] == 9
    assert exact["error"] < 0.015
    assert 3 <= noisy["vectors"] <= 10
    assert noisy["error"] < 0.06
    assert (mackay["draws"], em["draws"]) == (1, 1)
    assert em["vectors"] <= 15
    assert em["error"] == pytest.approx(mackay["error"], abs=0.02)


def test_a_row_has_medians_and_the_share_of_good_draws():
    """Errors 1, 2, 4 of which two are at most 2; one draw has no share."""
    row = over("a", "b", 2.0, [(1, 1.0, 0.1), (2, 2.0, 0.1), (3, 4.0, 0.1)])
    assert (row["vectors"], row["error"], row["draws"]) == (2.0, 2.0, 3)
    assert row["share"] == pytest.approx(2 / 3)
    assert row["error_sd"] == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert "share" not in over("a", "b", 2.0, [(1, 1.0, 0.1)])


def test_sets_that_are_missing_are_left_out(tmp_path):
    """Without the file of Ripley's classes there is no row."""
    assert ripley(str(tmp_path), 2) == []
