"""Registries are as before after each test, whatever a module of ``partirvm.literature`` has added."""

from __future__ import annotations

import pytest

from partirvm.core.link import LINKS
from partirvm.likelihoods import LIKELIHOODS


@pytest.fixture(autouse=True)
def registries_as_before():
    before = [(registry, dict(registry)) for registry in (LINKS, LIKELIHOODS)]
    yield
    for registry, found in before:
        registry.clear()
        registry.update(found)
