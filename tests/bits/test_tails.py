"""Kernels, predictions and fits have equal bits, whatever the number of rows of the last tile.

OpenBLAS's kernels for AVX-512 round the rows left over from pieces of 8 and 24 differently, so that
these tests need tails; ``test_core_types`` runs them with each kind of kernel.
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from by_default import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import Recorder, left
from kernel_cases import CASES as KERNELS
from kernel_cases import D
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from surfaces import bent_plane

from partirvm.core.predictive import products, quadratic_forms
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.execution.kernel_store import _stores
from partirvm.fit import Driver, Watcher
from partirvm.fit.run import run
from partirvm.kernels import Basis, Design, FunctionKernel, Gaussian
from partirvm.model import ClassModel, Model
from partirvm.options import Request
from partirvm.process import one_blas_thread
from partirvm.resolve.resolve import resolve
from partirvm.scaling import Scaling
from partirvm.types import Columns

pytestmark = pytest.mark.bits

TILE, LAST = 512, 384
"""Rows of a tile, and of the last tile without its tail: a few rows would all be rounded alike."""

TAILS = st.integers(1, 64)
ORIGIN = np.full(D, 0.1)
PRODUCT = FunctionKernel(lambda X, Z: X @ Z.T)
"""A user's kernel that is a product computed by BLAS."""


def values(kernel, X, Z):
    """Return k(x, z) for all points (n, d) and centres (m, d), column by column."""
    out = np.empty((len(Z), len(X))).T
    with one_blas_thread():
        kernel.prepare(Z, ORIGIN)(X, out)
    return out


@pytest.mark.parametrize(
    "kernel",
    [*(case.kernel for case in KERNELS), PRODUCT],
    ids=[*(case.name for case in KERNELS), "product"],
)
@settings(max_examples=6)
@given(st.sampled_from([0, LAST]), TAILS, st.integers(1, 80))
def test_a_kernel_value_depends_only_on_its_point_and_centre(kernel, full, tail, columns):
    """Other points and centres, and their number, do not matter."""
    rng = default_rng(tail)
    X = rng.normal(size=(full + tail, D))
    Z = rng.normal(size=(columns, D))
    block = values(kernel, X, Z)
    rows = rng.permutation(len(X))
    centres = rng.permutation(columns)
    assert_array_equal(values(kernel, X[rows], Z[centres]), block[np.ix_(rows, centres)])
    assert_array_equal(values(kernel, X[-1:], Z[:1]), block[-1:, :1])
    assert_array_equal(
        values(kernel, X[:tail], Z[: columns // 2 + 1]), block[:tail, : columns // 2 + 1]
    )


@settings(max_examples=40)
@given(
    st.sampled_from([0, 192, 4032]), TAILS, st.integers(0, 640), st.sampled_from([None, 1, 2, 5])
)
def test_the_product_for_a_row_depends_only_on_the_row(full, tail, columns, targets):
    """For any number of columns; odd numbers and odd multiples of four are the hard ones."""
    rng = default_rng(columns)
    block = np.asfortranarray(rng.normal(size=(full + tail, columns)))
    weights = rng.normal(size=(columns,) if targets is None else (columns, targets))
    root = np.triu(rng.normal(size=(columns, columns)))
    rows = rng.permutation(len(block))
    with one_blas_thread():
        expected = block @ weights, ((block @ root) ** 2).sum(axis=1)
        for function, right, value in zip(
            (products, quadratic_forms), (weights, root), expected, strict=True
        ):
            product = function(block, right)
            assert_allclose(product, value, rtol=1e-10, atol=1e-10)
            assert_array_equal(function(np.asfortranarray(block[rows]), right), product[rows])
            assert_array_equal(function(np.asfortranarray(block[-1:]), right), product[-1:])


def model(columns, targets=1, classes=0):
    """Return a random model with a basis of a product; AVX-512 rounds M = 4 mod 8 differently."""
    rng = default_rng(columns)
    scaling = Scaling(np.full(D, 0.3), np.full(D, 1.7), np.zeros(targets), np.full(targets, 2.5))
    turn = rng.normal(size=(D, 3))
    design = Design(
        Gaussian((0.3, 0.2, 0.1)), scaling, rng.normal(size=(columns - 4, D)), np.arange(columns - 4), bias=True,
        functions=Basis(((lambda X: X @ turn, 3),)), active=np.arange(3),
    )  # fmt: skip
    root = np.triu(rng.normal(size=(max(targets, classes, 1), columns, columns)))
    if classes:
        names = Columns(tuple("abc"), classes=tuple("uvw"))
        mean = rng.normal(size=(columns, classes))
        return ClassModel(design, mean, root, np.ones(columns), 0.0, 9, names, "multinomial", True)
    mean = rng.normal(size=columns if targets == 1 else (columns, targets))
    noise = 0.3 if targets == 1 else np.full(targets, 0.3)
    root = root[0] if targets == 1 else root
    names = Columns(tuple("abc"))
    return Model(design, mean, root, np.ones(columns), 0.0, 9, names, noise, noise)


@pytest.mark.parametrize(
    "fitted",
    [model(300), model(41, targets=2), model(108, classes=3)],
    ids=["one", "two", "classes"],
)
@settings(max_examples=6)
@given(st.sampled_from([0, LAST, 1920, 2048]), TAILS)
def test_a_prediction_depends_only_on_its_row(fitted, full, tail):
    """Mean, variance and nearness are the same in any order of rows, and for any first rows."""
    rng = default_rng(tail)
    X = rng.normal(size=(full + tail, D))
    with one_blas_thread():
        moments = fitted.moments(X)
        for rows in (rng.permutation(len(X)), np.arange(tail), np.array([len(X) - 1])):
            for part, expected in zip(fitted.moments(X[rows]), moments, strict=True):
                assert_array_equal(part, expected[rows])


FITS = {
    "working-set": Request(gamma=0.4, strategy="working-set", partition_size=40, max_rounds=3),
    "incremental": Request(gamma=0.4, strategy="incremental", partition_size=150, max_rounds=3),
    "split-merge": Request(gamma=0.4, strategy="split-merge", partition_size=150),
    "several widths": Request(
        gamma=0.4, gamma_multiples=(1.0, 8.0), partition_size=40, max_rounds=2
    ),
    "learned": Request(gamma="learn-per-feature", partition_size=40, max_rounds=2),
    "two targets": Request(gamma=0.4, partition_size=40, max_rounds=2),
    "classes": Request(
        gamma=0.4, strategy="working-set", partition_size=40, max_rounds=2, tol=1e-3
    ),
}

BY_DEFAULT = {"working-set", "classes"}


def source(case, tail):
    """Return a full tile and one with a tail."""
    X, y = bent_plane(TILE + LAST + tail, seed=tail)
    if case == "two targets":
        y = np.column_stack([y, y**2])
    if case == "classes":
        y = np.searchsorted([-1.0, 1.0], y)
        names = Columns(("a", "b"), classes=(0, 1, 2))
        return ArraySource(X, y, tile_rows=TILE, columns=names)
    return ArraySource(X, y, tile_rows=TILE, columns=Columns(("a", "b")))


class StoredBlocks(Watcher):
    """Records the largest number of bytes of kernel blocks that this process stored."""

    most = 0

    def on_tiles(self, *_):
        self.most = max(self.most, *(store.used for store in _stores.values()), 0)


def run_of(case, rows, threads=1, resume=None, history=(), watcher=None, **changed):
    """Return the journal of a fit, or of one that continues from a checkpoint."""
    executor = LocalExecutor(threads)
    journal = Recorder()
    journal.history += history
    try:
        spec = resolve(rows, replace(FITS[case], memory_limit=4 << 30, **changed), executor)
        checkpoint = None if resume is None else pickle.loads(resume)
        run(Driver(executor, rows, watcher=watcher or Watcher()), spec, journal, checkpoint)
    finally:
        executor.close()
    return journal


@pytest.mark.parametrize("case", some(FITS, BY_DEFAULT))
@settings(max_examples=examples(2))
@given(TAILS)
def test_a_fit_has_the_same_bits_with_stores_threads_and_resumes(case, tail):
    """Kernel blocks are in memory, on disk or not stored; two threads; resumed fits."""
    rows = source(case, tail)
    watcher = StoredBlocks()
    complete = run_of(case, rows, kernel_store="memory", watcher=watcher)
    for threads, store in ((1, "none"), (2, "zarr")):
        other = run_of(case, rows, threads, kernel_store=store)
        assert left(other) == left(complete), (threads, store)
    assert watcher.most > 0
    assert complete.checkpoints
    for lines, stored, _ in complete.checkpoints[:: max(len(complete.checkpoints) // 3, 1)]:
        options = {"resume": stored, "history": complete.history[:lines]}
        resumed = run_of(case, rows, kernel_store="memory", **options)
        assert left(resumed) == left(complete)
