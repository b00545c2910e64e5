"""Kernels learned in little time."""

from __future__ import annotations

import pytest

from partirvm.core import ascent
from partirvm.learning import folds


@pytest.fixture
def quick_learning(monkeypatch):
    """The default kernel is learned all the same, in fewer rounds and with one fold: hundreds of fits do so."""
    monkeypatch.setattr(ascent, "MOST_EVALUATIONS", 3)
    monkeypatch.setattr(folds, "HELD_OUT", 1)
