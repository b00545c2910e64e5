"""Bitwise comparison of two values: types, bits, memory order, shared arrays."""

import struct
import tempfile
from dataclasses import fields, is_dataclass

import numpy as np

from partirvm.jobs import attached, load_checkpoint, save_checkpoint


def reread(checkpoint, problem, options):
    """Return this fit's checkpoint as it is read from a file, which has no class codes."""
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(checkpoint, f"{folder}/c")
        return attached(load_checkpoint(f"{folder}/c"), problem, options)


def assert_same(one, two, where="value", pairs=None):
    """Raise AssertionError at the first difference."""
    pairs = {} if pairs is None else pairs
    assert type(one) is type(two), where
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (two.dtype, two.shape), where
        assert one.tobytes() == two.tobytes(), where
        if one.flags.c_contiguous or one.flags.f_contiguous:
            for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS"):
                assert one.flags[flag] == two.flags[flag], f"{where}: {flag}"
        assert pairs.setdefault(id(one), id(two)) == id(two), f"{where}: one array has become two"
    elif isinstance(one, np.generic):
        assert one.dtype == two.dtype, where
        assert one.tobytes() == two.tobytes(), where
    elif isinstance(one, float):
        assert struct.pack(">d", one) == struct.pack(">d", two), where
    elif is_dataclass(one):
        for name in (field.name for field in fields(one)):
            assert_same(getattr(one, name), getattr(two, name), f"{where}.{name}", pairs)
    elif isinstance(one, tuple | list):
        assert len(one) == len(two), where
        for number, (left, right) in enumerate(zip(one, two, strict=True)):
            assert_same(left, right, f"{where}[{number}]", pairs)
    elif isinstance(one, dict):
        assert_same(tuple(one), tuple(two), where, pairs)
        for key in one:
            assert_same(one[key], two[key], f"{where}[{key!r}]", pairs)
    else:
        assert one == two, where
