"""Makes the strategy simulator importable."""

import sys
from pathlib import Path

import pytest

from partirvm.jobs import attempt

sys.path.append(str(Path(__file__).parents[1] / "strategies"))


@pytest.fixture
def without_resolving(monkeypatch):
    """Return a function after whose call no option is resolved and no kernel is learned in jobs."""
    return lambda: monkeypatch.setattr(attempt, "resolve", None)
