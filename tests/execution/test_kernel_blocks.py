"""Stored kernel blocks have the same bits as evaluated ones, wherever they are stored.

Expected blocks come from ``Design.block``, after a test that its columns are independent.
"""

import shutil
import tempfile
from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest
from backend_cases import EXECUTORS, PASSES, N, bits, design, rows
from by_default import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from partirvm.errors import PartirvmError
from partirvm.execution import LocalExecutor, MomentsPass
from partirvm.execution.kernel_store import Keeping, fill_block, forget, independent, store_of
from partirvm.kernels import NONE, FunctionKernel, Gaussian
from partirvm.likelihoods import ErrorPass, GramPass, ResidualPass
from partirvm.process import one_blas_thread
from partirvm.types import BIAS, PANEL_ROWS

pytestmark = pytest.mark.bits

MANY = replace(design(np.arange(0, N, 90), bias=True), origin=np.array([0.2, 0.1, -0.3]))


STORES = "memory", "zarr"


@pytest.fixture(params=STORES)
def blocks(request, tmp_path):
    """Yield settings for runs of passes that may store 1 GiB; remove all blocks at the end."""
    folder = None if request.param == "memory" else str(tmp_path)
    yield (Keeping(f"test-{tmp_path}", 1 << 30, run, folder) for run in count())
    forget(f"test-{tmp_path}")


def pinned(pass_):
    """Return the pass with columns that do not depend on others, so that they can be stored."""
    changed = {
        k: replace(v, origin=MANY.origin) for k, v in vars(pass_).items() if hasattr(v, "origin")
    }
    return replace(pass_, **changed)


@settings(max_examples=examples(30), deadline=None)
@given(st.data(), st.integers(1, 300), st.sampled_from([1, 2, 37, 1000, PANEL_ROWS]))
def test_a_column_does_not_depend_on_other_columns(data, columns, height):
    """This holds for any subset in any order, for widths around a group of a product, and for short
    panels."""
    rng = default_rng(columns)
    d = data.draw(st.sampled_from([1, 3, 16, 130]))
    X = rng.normal(size=(height, d))
    Z = rng.normal(size=(columns, d))
    kernel = Gaussian((0.5 / d,))
    origin = rng.normal(size=d)
    subset = np.array(
        data.draw(st.lists(st.integers(0, columns - 1), min_size=1, max_size=70, unique=True))
    )
    with one_blas_thread():
        if not independent(kernel, d, height):
            pytest.skip("on this machine nothing is stored")
        block = np.empty((columns, height)).T
        part = np.empty((len(subset), height)).T
        kernel.prepare(Z, origin)(X, block)
        kernel.prepare(Z[subset], origin)(X, part)
    assert part.tobytes("F") == block[:, subset].tobytes("F")


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # tile
        st.booleans(),  # a new run
        st.lists(st.integers(0, len(MANY.centres) - 1), max_size=90, unique=True),
        st.booleans(),  # bias
        st.booleans(),  # a sample of the rows
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("disk", [False, True])
@settings(max_examples=examples(20), deadline=None)
@given(requests=REQUESTS, limit=st.sampled_from([0, 300_000, 1 << 30]))
def test_any_sequence_of_requests_gives_the_bits_of_the_design(disk, requests, limit):
    """There are subsets, new columns, other orders, several tiles and runs, with and without
    memory."""
    X = rows()[0]
    run = 0
    with tempfile.TemporaryDirectory() as folder, one_blas_thread():
        keeping = Keeping(folder, limit, folder=folder if disk else None)
        try:
            for tile, turn, columns, bias, sample in requests:
                run += turn
                request = MANY.take(
                    np.array(columns, dtype=np.int64), leading=np.full(int(bias), BIAS)
                )
                numbers = np.arange(tile * 500, tile * 500 + 500)[:: 3 if sample else 1]
                keeping = replace(keeping, run=run)
                out = np.empty((request.n_columns, len(numbers))).T
                fill_block(keeping, (tile, "sample" if sample else "", 0), request, X[numbers], out)
                assert out.tobytes("F") == request.block(X[numbers]).tobytes("F")
                if columns:
                    assert 0 <= store_of(keeping).used <= limit
        finally:
            forget(keeping.token)


def stored_bytes():
    """Return the bytes stored by all fits in this process."""
    from partirvm.execution import kernel_store

    return sum(store.used for store in kernel_store._stores.values())


PINNED = [pass_ if isinstance(pass_, MomentsPass) else pinned(pass_) for pass_ in PASSES.values()]


@pytest.fixture(scope="module")
def evaluated(data):
    """Return statistics of these passes from one thread that stores nothing, as bytes."""
    single = LocalExecutor(1)
    yield bits(tuple(single.run(PINNED, data)))
    single.close()


@pytest.mark.parametrize("kind", ["data", pytest.param("memory", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("executor", "blocks"),
    some(product(EXECUTORS, STORES), {("three workers", "memory")}),
    indirect=True,
)
def test_stored_blocks_have_the_same_bits_on_every_executor(
    executor, request, evaluated, blocks, kind
):
    """Rows are on disk or in memory; the second run reads the blocks of the first."""
    source = request.getfixturevalue(kind)
    for _ in range(2):
        keeping = next(blocks)
        assert bits(tuple(executor.run(PINNED, source, None, keeping))) == evaluated
    local = isinstance(executor, LocalExecutor)
    assert stored_bytes() if local else all(executor._client.run(stored_bytes).values())
    executor.forget(keeping.token)


def test_columns_are_evaluated_once_while_they_are_used(data, blocks):
    """The passes are a Gram pass, one over the surviving columns, and one with new columns."""
    executor = LocalExecutor(2)
    evaluated = set()

    def value(X, Z):
        if len(np.unique(Z, axis=0)) > 1:  # ``independent`` evaluates one centre
            evaluated.update(row.tobytes() for row in Z)
        return np.exp(-((X[:, None] - Z) ** 2).sum(axis=2))

    many = replace(MANY, kernel=FunctionKernel(value))
    kept = many.take(np.arange(60))
    new = many.take(np.arange(60, 100), leading=NONE)
    survivors = many.take(np.arange(0, 100, 3))
    fresh = many.take(np.arange(150, 170), leading=NONE)
    for pass_, columns in (
        (GramPass(kept, new, np.zeros((61, 1))), 100),
        (ResidualPass(survivors, np.zeros((35, 1))), 0),
        (GramPass(survivors, fresh, np.zeros((35, 1))), 20),
    ):
        evaluated.clear()
        executor.run([pass_], data, None, next(blocks))
        assert len(evaluated) == columns
    executor.close()


@pytest.mark.parametrize("how", ["cut", "changed", "gone"])
def test_a_damaged_block_ends_the_pass(data, tmp_path, how):
    """A truncated, changed or missing chunk is an error because of its checksum."""
    executor = LocalExecutor(2)
    keeping = Keeping(how, 1 << 30, folder=str(tmp_path))
    pass_ = ErrorPass(MANY.take(np.arange(50)), np.ones((51, 1)), 10)
    executor.run([pass_], data, None, keeping)
    chunks = [path for path in tmp_path.glob("block-*/c/*/*") if path.is_file()]
    assert len(chunks) == 15
    content = bytearray(chunks[7].read_bytes())
    content[1000] ^= 1
    chunks[7].write_bytes(
        {"cut": content[: len(content) // 2], "changed": content, "gone": b""}[how]
    )
    if how == "gone":
        shutil.rmtree(chunks[7].parents[2])
    with pytest.raises(PartirvmError, match=rf"{tmp_path}/block-.*choose another kernel_store"):
        executor.run([pass_], data, None, replace(keeping, run=1))
    forget(how)
    executor.close()


def test_a_removed_folder_is_not_created_again(data, tmp_path):
    """This happens after the end of a fit, while one of its tasks may still be running."""
    executor = LocalExecutor(1)
    folder = tmp_path / "nowhere"
    pass_ = ResidualPass(MANY.take(np.arange(50)), np.ones((51, 1)))
    with pytest.raises(PartirvmError, match=f"{folder}"):
        executor.run([pass_], data, None, Keeping("nowhere", 1 << 30, folder=str(folder)))
    assert not folder.exists()
    executor.close()
