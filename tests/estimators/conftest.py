"""Kernels learned in little time."""

import pytest

from partirvm.core import ascent
from partirvm.learning import class_search


@pytest.fixture
def quick_learning(monkeypatch):
    """The default kernel is learned all the same, in fewer steps and from fewer rows: hundreds of fits do so."""
    monkeypatch.setattr(ascent, "MOST", 3)
    monkeypatch.setattr(class_search, "ROWS", 60)
