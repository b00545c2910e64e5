"""Peaks against plans: settings of the benchmark, each in a process of its own."""

from __future__ import annotations

import pytest

from benchmarks.measure import apart
from benchmarks.memory_limits import DATA, SETTINGS, make, measured


def test_settings_are_told_apart():
    """A name, data that there are, and a limit for each; at least 30."""
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS) >= 30
    assert all(setting.data in DATA for setting in SETTINGS)


@pytest.mark.parametrize(
    "setting",
    [pytest.param(setting, id=setting.name, marks=pytest.mark.slow) for setting in SETTINGS],
)
def test_a_peak_is_within_its_limit_and_near_its_plan(setting, tmp_path):
    """VmHWM at most the limit, and between a half and all of what the plan expects."""
    apart(make, str(tmp_path), setting.data)
    found = measured(str(tmp_path), setting, 240.0)
    assert found["peak_mib"] <= found["limit_mib"]
    assert 0.5 <= found["ratio"] <= 1.0
