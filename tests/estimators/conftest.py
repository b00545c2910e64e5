"""Kernels learned in little time."""

from __future__ import annotations

import pytest

from partirvm.core import ascent
from partirvm.learning import class_search, process_search


@pytest.fixture
def quick_learning(monkeypatch):
    """The default kernel is learned all the same, in fewer steps and with one fold: hundreds of fits do so."""
    monkeypatch.setattr(ascent, "MOST_EVALUATIONS", 3)
    monkeypatch.setattr(process_search, "LEFT_OUT", 1)
    monkeypatch.setattr(class_search, "ROWS", 60)
