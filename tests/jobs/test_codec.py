"""Values as JSON and arrays, and checkpoints in files, survive to the bit; others are refused."""

import json
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import default_rng
from numpy.typing import NDArray
from same import assert_same

from partirvm.errors import ExistsError, FormatError, MissingDataError, PartirvmError
from partirvm.jobs import checkpoint, load_checkpoint, save_checkpoint
from partirvm.storage import Codec, codec, write_group


class Colour(Enum):
    """An enum whose values are not JSON."""

    RED = (1, 2)
    BLUE = object()


@dataclass(frozen=True)
class Leaf:
    """A dataclass whose field holds anything."""

    value: object
    other: object = None

    @cached_property
    def costly(self):
        """Return a value that is computed, not stored."""
        return object()


@dataclass(frozen=True)
class Branch(Leaf):
    """A subclass with an additional field."""

    leaves: tuple = ()


CODEC = Codec([Colour, Leaf, Branch])

floats = st.floats() | st.sampled_from([-0.0, np.inf, -np.inf, np.nan, 5e-324])
integers = st.integers(1 - 2**63, 2**63 - 1)
dtypes = (
    hnp.boolean_dtypes()
    | hnp.integer_dtypes()
    | hnp.floating_dtypes(sizes=(16, 32, 64))
    | hnp.complex_number_dtypes(sizes=(64, 128))
)
plain_arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
arrays = plain_arrays | plain_arrays.map(np.asfortranarray) | plain_arrays.map(np.transpose)
scalars = hnp.arrays(dtypes, ()).map(lambda array: array[()])
leaves = (
    st.none()
    | st.booleans()
    | integers
    | st.text()
    | floats
    | st.sampled_from(Colour)
    | arrays
    | scalars
)
hashable = (
    st.text() | integers | st.booleans() | st.sampled_from(Colour) | st.tuples(st.text(), integers)
)


def nested(children):
    """Draw containers and dataclasses of these values."""
    lists = st.lists(children, max_size=4)
    return (
        lists
        | lists.map(tuple)
        | st.dictionaries(hashable, children, max_size=3)
        | st.builds(Leaf, children, children)
        | st.builds(Branch, children, leaves=lists.map(tuple))
        | children.map(lambda child: (child, child))
    )


values = st.recursive(leaves, nested, max_leaves=12)


@given(values)
def test_decoded_values_are_bit_identical(value):
    """Types, bits, memory order and shared arrays survive JSON."""
    tree, stored = CODEC.encode(value)
    text = json.dumps(tree)
    assert_same(value, CODEC.decode(json.loads(text), stored))


class Strange(Leaf):
    """A class that is not in the list, although its parent is."""


@pytest.mark.parametrize(
    "value",
    [object(), Strange(1), 2**63, {1, 2}, b"bytes", np.array(["text"]), np.array([object()]), int, lambda: 0,
     np.datetime64("2026-01-01"), np.ma.masked_array([1.0])],
)  # fmt: skip
def test_values_that_cannot_be_stored_are_refused(value):
    with pytest.raises(TypeError, match="cannot be stored"):
        CODEC.encode(Leaf(0, (1, value)))


@pytest.mark.parametrize(
    "tree",
    [
        {"object": "Strange", "fields": {"value": 1, "other": 2}}, {"object": "Leaf", "fields": {"value": 1}},
        {"object": "Leaf", "fields": {"value": 1, "other": 2, "more": 3}}, {"object": "Leaf", "fields": 3},
        {"object": "Leaf"}, {"object": "Colour", "fields": {}}, {"object": ["Leaf"], "fields": {}},
        {"object": "Branch", "fields": {"value": 1, "other": 2, "leaves": 3}}, {"enum": "Phase", "member": "ROWS"},
        {"enum": "Colour", "member": "GREEN"}, {"enum": "Leaf", "member": "value"}, {"array": 7}, {"array": "x"},
        {"scalar": "O", "bytes": "00" * 8}, {"scalar": "<f8", "bytes": "00"}, 2**63, {},
        {"tuple": [{"pickle": "gASVAAAA"}]},
    ],
)  # fmt: skip
def test_invalid_trees_in_a_file_are_refused(tree, tmp_path):
    """The error names the location."""
    write_group({"value": tree}, [], str(tmp_path / "c"), "partirvm-thing", 1)
    with pytest.raises(FormatError, match=rf"{tmp_path}/c: the thing: cannot be read"):
        CODEC.read(str(tmp_path / "c"), "partirvm-thing", 1)


@dataclass(frozen=True)
class Typed:
    """Fields of many types."""

    number: int
    share: float | None
    words: tuple[str, ...]
    pair: tuple[int, float]
    table: dict[str, list[int]]
    array: NDArray[np.float64]
    colour: Colour
    leaf: Leaf


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", 1.5), ("number", True), ("share", "x"), ("words", ("a", 1)), ("words", ["a"]), ("pair", (1,)),
     ("table", {"a": [1.5]}), ("table", {1: [1]}), ("array", 3.0), ("colour", "RED"), ("leaf", None)],
)  # fmt: skip
def test_a_field_whose_type_differs_from_its_annotation_is_refused(field, value):
    """The error names the class."""
    codec = Codec([Colour, Leaf, Typed])
    good = Typed(1, 0.5, ("a", "b"), (1, 2), {"a": [1]}, np.zeros(2), Colour.RED, Leaf(1))
    assert_same(good, codec.decode(*codec.encode(good)))
    with pytest.raises(ValueError, match="the fields of Typed are not those"):
        codec.decode(*codec.encode(replace(good, **{field: value})))


def test_arrays_of_every_size_are_read_to_the_bit(place):
    """They have any shape and memory order, and cross the bounds of parts."""
    rng = default_rng(0)
    big = rng.normal(size=(300, 200))
    value = {
        "big": big, "columns": np.asfortranarray(big), "many": tuple(rng.normal(size=k) for k in range(300)),
        "cube": np.asfortranarray(rng.normal(size=(40, 30, 20))), "mask": rng.random(90_000) > 0.5,
        "empty": np.zeros((0, 3)), "swapped": np.arange(20_000, dtype=">i4"), "nan": np.full(10_000, np.nan),
    }  # fmt: skip
    checkpoint.codec().write(value, place, checkpoint.KIND, checkpoint.FORMAT, part_bytes=100_000)
    assert_same(value, load_checkpoint(place))


def test_anything_but_a_checkpoint_is_refused(place):
    """There is nothing, another group, a newer format, or an unknown class; the error names the
    location."""
    with pytest.raises(MissingDataError, match="no checkpoint here"):
        load_checkpoint(f"{place}/nothing")
    codec.write_group({}, [], f"{place}/other", "partirvm-thing", 1)
    with pytest.raises(FormatError, match=r"other: this is not a partirvm checkpoint"):
        load_checkpoint(f"{place}/other")
    save_checkpoint((1,), f"{place}/mine")
    with pytest.raises(ExistsError, match="already exists and is not overwritten"):
        save_checkpoint((2,), f"{place}/mine")
    assert load_checkpoint(f"{place}/mine") == (1,)
    strange = {"value": {"object": "Path", "fields": {}}}
    unknown = r"the checkpoint: cannot be read .*'Path'"
    cases = (
        (strange, 0, unknown),
        ({}, 0, "cannot be read"),
        (strange, 99, "format 99.*use the version"),
    )
    for number, (tree, newer, message) in enumerate(cases):
        codec.write_group(
            tree, [], f"{place}/{number}", checkpoint.KIND, newer or checkpoint.FORMAT
        )
        with pytest.raises(PartirvmError, match=message):
            load_checkpoint(f"{place}/{number}")
