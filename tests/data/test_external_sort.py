"""The external sort equals ``numpy.argsort`` for any memory limit and any batches."""

import tempfile
from pathlib import Path

import numpy as np
from by_default import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.data.writer import ExternalSorter


def sort(keys, cuts, memory, high):
    """Return sorted records (key, arrival number) that were added in batches ending at ``cuts``."""
    records = np.column_stack([keys, np.arange(len(keys), dtype=float)])
    with tempfile.TemporaryDirectory() as folder:
        spill = Path(folder, "spill")
        with ExternalSorter(spill, 2, high=high) as sorter:
            for batch in np.split(records, sorted(cuts)):
                sorter.add(batch)
            assert sorter.n_records == len(keys)
            blocks = list(sorter.blocks(memory))
            assert not any(spill.iterdir()), "every file is deleted once it was read"
        assert not spill.exists()
    return np.concatenate([np.empty((0, 2)), *blocks])


KEYS = st.one_of(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(
        [0.0, 0.25, 0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1), np.nextafter(1, 0), 5e-324]
    ),
)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(KEYS, max_size=200),
    st.lists(st.integers(0, 200), max_size=5),
    st.sampled_from([1, 64, 1 << 20]),
    st.sampled_from([1.0, 3.0, 1e9]),
)
def test_the_external_sort_is_stable(keys, cuts, memory, high):
    values = np.minimum(np.array(keys, dtype=float) * high, np.nextafter(high, 0))
    blocks = sort(values, cuts, memory, high)
    assert_array_equal(blocks[:, 1], np.argsort(values, kind="stable"))
    assert_array_equal(blocks[:, 0], np.sort(values))


def test_sorted_blocks_fit_in_memory(tmp_path):
    keys = default_rng(1).random((50_000, 1))
    with ExternalSorter(tmp_path / "spill", 1) as sorter:
        sorter.add(keys)
        sizes = [block.nbytes for block in sorter.blocks(4096)]
    assert max(sizes) <= 4096
    assert sum(sizes) == keys.nbytes
