"""Values as JSON and arrays: the same bits back, and nothing that was not allowed."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from same import assert_same

from partirvm.errors import FormatError
from partirvm.jobs.codec import Codec


class Colour(Enum):
    """An enum whose values are no JSON."""

    RED = (1, 2)
    BLUE = object()


@dataclass(frozen=True)
class Leaf:
    """Holds anything."""

    value: object
    other: object = None

    @cached_property
    def costly(self):
        """Computed, not stored."""
        return object()


@dataclass(frozen=True)
class Branch(Leaf):
    """A subclass with a field more."""

    leaves: tuple = ()


CODEC = Codec([Colour, Leaf, Branch])

bits = st.integers(0, 2**64 - 1).map(lambda n: struct.unpack(">d", struct.pack(">Q", n))[0])
floats = st.floats() | bits | st.sampled_from([-0.0, np.inf, -np.inf, np.nan, 5e-324])
dtypes = (
    hnp.boolean_dtypes()
    | hnp.integer_dtypes()
    | hnp.floating_dtypes(sizes=(16, 32, 64))
    | hnp.complex_number_dtypes(sizes=(64, 128))
)
plain_arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
arrays = plain_arrays | plain_arrays.map(np.asfortranarray) | plain_arrays.map(np.transpose)
scalars = hnp.arrays(dtypes, ()).map(lambda array: array[()])
leaves = st.none() | st.booleans() | st.integers() | st.text() | floats | st.sampled_from(Colour) | arrays | scalars
hashable = st.text() | st.integers() | st.booleans() | st.sampled_from(Colour) | st.tuples(st.text(), st.integers())


def nested(children):
    """Containers and dataclasses of these."""
    some = st.lists(children, max_size=4)
    return (
        some
        | some.map(tuple)
        | st.dictionaries(hashable, children, max_size=3)
        | st.builds(Leaf, children, children)
        | st.builds(Branch, children, leaves=some.map(tuple))
        | children.map(lambda child: (child, child))
    )


values = st.recursive(leaves, nested, max_leaves=12)


@given(values)
def test_what_goes_in_comes_out(value):
    """Types, bits, order of memory and shared arrays, through JSON."""
    tree, stored = CODEC.encode(value)
    text = json.dumps(tree, allow_nan=False)
    assert_same(value, CODEC.decode(json.loads(text), stored))


def test_a_shared_array_is_stored_once():
    """And is one array again."""
    array = np.arange(3.0)
    tree, stored = CODEC.encode(Leaf(array, (array, array[:])))
    assert len(stored) == 2  # the slice is another object
    found = CODEC.decode(tree, stored)
    assert found.value is found.other[0]
    assert found.value is not found.other[1]


def test_what_was_computed_is_left_out():
    """Cached properties are no fields."""
    leaf = Leaf(1)
    assert leaf.costly is leaf.costly
    tree, _ = CODEC.encode(leaf)
    assert set(tree["fields"]) == {"value", "other"}
    assert CODEC.decode(tree, []).costly is not leaf.costly


class Strange(Leaf):
    """Not in the list, though its parent is."""


class Text(str):
    """A string with more to it."""


@pytest.mark.parametrize(
    "value",
    [object(), Strange(1), Text("a"), {1, 2}, b"bytes", np.array(["text"]), np.array([object()]), int, lambda: 0,
     np.datetime64("2026-01-01"), np.ma.masked_array([1.0])],
)  # fmt: skip
def test_what_cannot_be_stored_is_said_with_its_place(value):
    """TypeError: a checkpoint that loses something is none."""
    with pytest.raises(TypeError, match=r"value\.other\[1\]"):
        CODEC.encode(Leaf(0, (1, value)))


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"class": "Strange", "fields": {}}, "class 'Strange' is unknown"),
        ({"class": "os.system", "fields": {}}, r"class 'os\.system' is unknown"),
        ({"enum": "Phase", "member": "ROWS"}, "enum 'Phase' is unknown"),
        ({"enum": "Colour", "member": "GREEN"}, "damaged.*GREEN"),
        ({"class": "Leaf", "fields": {"value": 1, "more": 2}}, "Leaf has the field 'more'"),
        ({"class": "Leaf", "fields": {}}, "Leaf lacks the field '(value|other)'"),
        ({"class": "Leaf", "fields": 3}, "damaged"),
        ({"array": 7}, "damaged"),
        ({"array": 0, "more": 1}, None),
        ({"scalar": "O", "bytes": "00" * 8}, "dtype 'O'"),
        ({"scalar": "<f8", "bytes": "00"}, "damaged"),
        ({"float": "1.5.5"}, "damaged"),
        ({"float": 1.5}, "damaged"),
        (1.5, "found 1.5 in place of a value"),
        ([1, 2], "in place of a value"),
        ({}, "in place of a value"),
        ({"tuple": [{"pickle": "gASVAAAA"}]}, "'pickle'"),
    ],
)
def test_what_a_file_may_not_say(tree, says):
    """FormatError."""
    if says is None:
        return
    with pytest.raises(FormatError, match=says):
        CODEC.decode(tree, [])


def test_names_are_unique_and_classes_are_dataclasses():
    """Else a file would not say what it means."""
    other = dataclass(frozen=True)(type("Leaf", (), {}))
    with pytest.raises(ValueError, match="two classes are called Leaf"):
        Codec([Leaf, other])
    with pytest.raises(TypeError, match="neither"):
        Codec([Text])
    with pytest.raises(TypeError, match="cannot be stored in a checkpoint"):
        CODEC.encode(other())
    assert replace(Leaf(1), value=2) == Leaf(2)
