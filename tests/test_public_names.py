"""Every public name has a docstring with an example that runs: doctests run it."""

from __future__ import annotations

import inspect

import pytest

import partirvm

NAMES = [name for name in partirvm.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    text = inspect.getdoc(getattr(partirvm, name))
    assert "Examples\n--------\n>>> " in text
    assert name in text.partition("Examples\n--------\n")[2]
