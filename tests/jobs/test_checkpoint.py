"""Checkpoints in files: the same bits back, and damage that is named."""

from __future__ import annotations

import numpy as np
import pytest
from same import assert_same

from partirvm.errors import ExistsError, FormatError, MissingDataError, PartirvmError
from partirvm.jobs import checkpoint
from partirvm.jobs.checkpoint import load_checkpoint, save_checkpoint
from partirvm.storage import codec


def test_arrays_of_every_size_come_back(place, monkeypatch):
    """Of any shape and order of memory, across the bounds of parts."""
    monkeypatch.setattr(codec, "PART", 100_000)
    rng = np.random.default_rng(0)
    big = rng.normal(size=(300, 200))
    value = {
        "big": big, "columns": np.asfortranarray(big), "many": tuple(rng.normal(size=k) for k in range(300)),
        "cube": np.asfortranarray(rng.normal(size=(40, 30, 20))), "mask": rng.random(90_000) > 0.5,
        "empty": np.zeros((0, 3)), "swapped": np.arange(20_000, dtype=">i4"), "nan": np.full(10_000, np.nan),
    }  # fmt: skip
    save_checkpoint(value, place)
    assert_same(value, load_checkpoint(place))


def test_what_is_no_checkpoint(place):
    """Nothing there, another group, a newer format, a strange class: an error that names the place."""
    with pytest.raises(MissingDataError, match="no checkpoint here"):
        load_checkpoint(f"{place}/nothing")
    codec.write_group({}, [], f"{place}/other", "partirvm-thing", 1)
    with pytest.raises(FormatError, match=r"other: this is not a partirvm checkpoint"):
        load_checkpoint(f"{place}/other")
    save_checkpoint((1,), f"{place}/mine")
    with pytest.raises(ExistsError, match="exists already and is never overwritten"):
        save_checkpoint((2,), f"{place}/mine")
    assert load_checkpoint(f"{place}/mine") == (1,)
    strange = {"value": {"object": "Path", "fields": {}}}
    unknown = r"the checkpoint: cannot be read .*'Path'"
    cases = (strange, 0, unknown), ({}, 0, "cannot be read"), (strange, 99, "format 99.*use the version")
    for number, (tree, newer, says) in enumerate(cases):
        codec.write_group(tree, [], f"{place}/{number}", checkpoint.KIND, newer or checkpoint.FORMAT)
        with pytest.raises(PartirvmError, match=says):
            load_checkpoint(f"{place}/{number}")
