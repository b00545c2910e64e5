"""What every pass states of itself: a name, its designs, which rows; workers find its class by name."""

from __future__ import annotations

import importlib
from dataclasses import fields

import pytest

from partirvm.backends.tile_passes import MomentsPass
from partirvm.likelihoods import gaussian_passes, laplace_passes, slope_passes
from partirvm.likelihoods.passes import Pass

PASSES = [
    value
    for module in (gaussian_passes, laplace_passes, slope_passes)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Pass) and value.__module__ == module.__name__
] + [MomentsPass]


@pytest.mark.parametrize("kind", PASSES)
def test_its_designs_are_all_of_its_fields_that_are_designs(kind):
    """The room for kernel blocks is planned by them."""
    made, designs = object.__new__(kind), []
    for field in fields(kind):
        if field.type == "Design":
            designs.append(object())
            object.__setattr__(made, field.name, designs[-1])
    assert made.designs == tuple(designs)


@pytest.mark.parametrize("kind", PASSES)
def test_it_has_a_name_and_is_found_by_workers(kind):
    """Progress shows the name; only passes that score are over held-out rows."""
    assert kind.name
    assert kind.held_out == (kind.name == "held-out")
    assert getattr(importlib.import_module(kind.__module__), kind.__qualname__) is kind


def test_it_counts_its_rows():
    """All, or those that it lists."""
    assert MomentsPass().count(70) == 70
    some = object.__new__(gaussian_passes.DesignPass)
    object.__setattr__(some, "rows", [3, 5])
    assert some.count(70) == 2
    assert len(PASSES) == 14
