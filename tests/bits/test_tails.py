"""Equal bits where the last tile has any number of rows: kernels, predictions, and fits that went through much.

OpenBLAS's kernels for AVX-512 round the rows left over from pieces of 8 and 24 in another way than the others, so that
these tests say something only with tails; ``test_core_types`` runs them with each kind of kernel that the machine has.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from by_default import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CASES as KERNELS
from kernel_cases import D

from partirvm import RVMRegressor
from partirvm.blas_threads import one_blas_thread
from partirvm.core.predictive import products, quadratic_forms
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.jobs.driver import Driver, MemoryJournal
from partirvm.jobs.run import run
from partirvm.kernels import FunctionKernel, Gaussian
from partirvm.kernels.bases import Basis, BasisPart
from partirvm.kernels.design import Design
from partirvm.model import ClassModel, Model
from partirvm.options import Request
from partirvm.planning.plan import Machine
from partirvm.setup.resolve import resolve
from partirvm.strategies import STRATEGIES
from partirvm.types import Columns, Scaling

pytestmark = pytest.mark.bits

TILE, LAST = 512, 384
"""Rows of a tile, and those of the last one without its tail: of few rows the kernels round all alike."""

TAILS = st.integers(1, 64)
ORIGIN = np.full(D, 0.1)
PRODUCT = FunctionKernel(lambda X, Z: X @ Z.T)
"""A user's kernel that is a product of BLAS itself."""


def values(kernel, X, Z):
    """All values k(x, z) of points (n, d) and centres (m, d), stored column by column."""
    out = np.empty((len(Z), len(X))).T
    with one_blas_thread():
        kernel.prepare(Z, ORIGIN)(X, out)
    return out


@pytest.mark.parametrize(
    "kernel", [*(case.kernel for case in KERNELS), PRODUCT], ids=[*(case.name for case in KERNELS), "product"]
)
@settings(max_examples=6)
@given(st.sampled_from([0, LAST]), TAILS, st.integers(1, 80))
def test_a_kernel_value_is_of_its_point_and_its_centre(kernel, whole, tail, columns):
    """Whatever points and centres stand before, beside and behind them, and however many."""
    rng = np.random.default_rng(tail)
    X, Z = rng.normal(size=(whole + tail, D)), rng.normal(size=(columns, D))
    block = values(kernel, X, Z)
    rows, some = rng.permutation(len(X)), rng.permutation(columns)
    np.testing.assert_array_equal(values(kernel, X[rows], Z[some]), block[np.ix_(rows, some)])
    np.testing.assert_array_equal(values(kernel, X[-1:], Z[:1]), block[-1:, :1])
    np.testing.assert_array_equal(values(kernel, X[:tail], Z[: columns // 2 + 1]), block[:tail, : columns // 2 + 1])


@settings(max_examples=40)
@given(st.sampled_from([0, 192, 4032]), TAILS, st.integers(0, 640), st.sampled_from([None, 1, 2, 5]))
def test_a_product_of_rows_is_of_each_row(whole, tail, columns, targets):
    """Any number of columns, of which odd numbers and odd multiples of four are the hard ones."""
    rng = np.random.default_rng(columns)
    block = np.asfortranarray(rng.normal(size=(whole + tail, columns)))
    weights = rng.normal(size=(columns,) if targets is None else (columns, targets))
    root = np.tril(rng.normal(size=(columns, columns)))
    rows = rng.permutation(len(block))
    with one_blas_thread():
        for function, right in ((products, weights), (quadratic_forms, root)):
            found = function(block, right)
            np.testing.assert_array_equal(function(np.asfortranarray(block[rows]), right), found[rows])
            np.testing.assert_array_equal(function(np.asfortranarray(block[-1:]), right), found[-1:])


def test_products_are_products():
    """Beside numpy's own, with no rows, no columns, one row, and rows beyond whole pieces."""
    rng = np.random.default_rng(1)
    for n, m in ((0, 3), (1, 3), (5, 0), (192, 7), (400, 7)):
        block, weights, root = rng.normal(size=(n, m)), rng.normal(size=(m, 2)), rng.normal(size=(m, m))
        np.testing.assert_allclose(products(block, weights), block @ weights, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(products(block, weights[:, 0]), block @ weights[:, 0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(quadratic_forms(block, root), ((block @ root) ** 2).sum(axis=1), rtol=1e-12)


def model(columns, targets=1, classes=0):
    """A model of any numbers, with a basis that is a product; M = 4 mod 8 is where AVX-512 rounds rows otherwise."""
    rng = np.random.default_rng(columns)
    scaling = Scaling(np.full(D, 0.3), np.full(D, 1.7), np.zeros(targets), np.full(targets, 2.5))
    turn = rng.normal(size=(D, 3))
    design = Design(
        Gaussian((0.3, 0.2, 0.1)), scaling, rng.normal(size=(columns - 4, D)), np.arange(columns - 4), bias=True,
        functions=Basis((BasisPart(lambda X: X @ turn, 3),)), active=np.arange(3),
    )  # fmt: skip
    root = np.tril(rng.normal(size=(max(targets, classes, 1), columns, columns)))
    if classes:
        names = Columns(tuple("abc"), classes=tuple("uvw"))
        mean = rng.normal(size=(columns, classes))
        return ClassModel(design, mean, root, np.ones(columns), 0.0, 9, names, "multinomial", True)
    mean = rng.normal(size=columns if targets == 1 else (columns, targets))
    noise = 0.3 if targets == 1 else np.full(targets, 0.3)
    return Model(
        design, mean, root[0] if targets == 1 else root, np.ones(columns), 0.0, 9, Columns(tuple("abc")), noise, noise
    )


@pytest.mark.parametrize(
    "made", [model(300), model(41, targets=2), model(108, classes=3)], ids=["one", "two", "classes"]
)
@settings(max_examples=6)
@given(st.sampled_from([0, LAST, 1920, 2048]), TAILS)
def test_a_row_is_predicted_alike_wherever_it_stands(made, whole, tail):
    """Mean, variance and nearness of rows in any order, of the first ones, and of one alone."""
    rng = np.random.default_rng(tail)
    X = rng.normal(size=(whole + tail, D))
    with one_blas_thread():
        found = made.moments(X)
        for rows in (rng.permutation(len(X)), np.arange(tail), np.array([len(X) - 1])):
            for part, all_of_it in zip(made.moments(X[rows]), found, strict=True):
                np.testing.assert_array_equal(part, all_of_it[rows])


@settings(max_examples=4)
@given(TAILS, st.sampled_from([0, 120, 240]))
def test_a_row_has_the_same_augmented_prediction_wherever_it_stands(tail, whole):
    """RVM*: in any order, and alone."""
    rng = np.random.default_rng(tail)
    X, new = rng.uniform(-3, 3, size=(600 + tail, 2)), rng.uniform(-3, 3, size=(whole + tail, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))
    fit = RVMRegressor(gamma=1.0, partition_size=30, max_rounds=1).fit(X, y)
    found = fit.predict(new, return_std=True, augment=(X, y))
    for rows in (rng.permutation(len(new)), np.array([len(new) - 1])):
        for part, all_of_it in zip(fit.predict(new[rows], return_std=True, augment=(X, y)), found, strict=True):
            np.testing.assert_array_equal(part, all_of_it[rows])


class Recorder(MemoryJournal):
    """Keeps every checkpoint as bytes, with the number of lines that were written before it."""

    def __init__(self):
        super().__init__()
        self.checkpoints = []

    def checkpoint(self, checkpoint):
        if checkpoint.end is None:
            self.checkpoints.append((len(self.history), pickle.dumps(checkpoint)))


FITS = {
    "working-set": Request(gamma=0.4, strategy="working-set", partition_size=40, max_rounds=3),
    "incremental": Request(gamma=0.4, strategy="incremental", partition_size=150),
    "split-merge": Request(gamma=0.4, strategy="split-merge", partition_size=150),
    "several widths": Request(gamma=0.4, gamma_multiples=(1.0, 8.0), partition_size=40, max_rounds=2),
    "learned": Request(gamma="learn-per-feature", partition_size=40, max_rounds=2),
    "two targets": Request(gamma=0.4, partition_size=40, max_rounds=2),
    "classes": Request(gamma=0.4, strategy="working-set", partition_size=40, max_rounds=2, tol=1e-3),
}

LONG, SLOW = ("learned", "several widths"), pytest.mark.slow


def source(case, tail):
    """One whole tile and one with a tail."""
    rng = np.random.default_rng(tail)
    X = rng.uniform(-3, 3, size=(TILE + LAST + tail, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=len(X))
    if case == "two targets":
        y = np.column_stack([y, y**2])
    if case == "classes":
        y, names = np.searchsorted([-1.0, 1.0], y), Columns(("a", "b"), classes=(0, 1, 2))
        return ArraySource(X, y, tile_rows=TILE, columns=names)
    return ArraySource(X, y, tile_rows=TILE, columns=Columns(("a", "b")))


def left(journal):
    """The model's bits, and what the history says of each fit."""
    model, facts = journal.model, ("log_evidence", "vectors", "held_out_rmse", "train_rmse", "train_log_loss")
    lines = [[repr(line.get(fact)) for fact in facts] for line in journal.history]
    return model.mean.tobytes(), model.design.labels.tobytes(), model.root.tobytes(), lines


class Limited(LocalExecutor):
    """In a process of 100 MiB with this limit."""

    limit = 4 << 30

    def machine(self, limit):
        return Machine(self.threads, 100 << 20, self.limit)


@contextmanager
def prepared_fit(case, rows, threads=1, limit=Limited.limit, **changed):
    """A fit that is ready to run, and its executor."""
    executor = Limited(threads)
    executor.limit = limit
    try:
        yield resolve(rows, replace(FITS[case], **changed), executor), executor
    finally:
        executor.close()


def fitted(case, rows, threads=1, limit=Limited.limit, **changed):
    """The journal of a whole fit."""
    with prepared_fit(case, rows, threads, limit, **changed) as (spec, executor):
        journal = Recorder()
        run(spec, rows, executor, journal)
        return journal


def kept(journal):
    """Elements of kernel blocks that passes found kept."""
    return sum(line.get("kernel_kept", 0) for line in journal.history)


def limit_for(case, rows, spare):
    """The memory limit that leaves so many bytes for kernel blocks."""
    with prepared_fit(case, rows, kernel_store="memory") as (spec, _):
        return Limited.limit - spec.plan.room(spec.plan.columns) + spare


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW if case in LONG else ()) for case in FITS])
@settings(max_examples=examples(2))
@given(TAILS)
def test_a_fit_has_the_same_bits_whatever_it_goes_through(case, tail):
    """Kernel blocks in memory, on disk and nowhere; two threads; a memory limit that leaves room for some blocks only;
    resumed from each checkpoint, where what a process had in memory is gone."""
    rows = source(case, tail)
    whole = fitted(case, rows, kernel_store="memory")
    for threads, changed in (
        (1, {"kernel_store": "none"}),
        (2, {"kernel_store": "zarr"}),
    ):
        assert left(fitted(case, rows, threads, **changed)) == left(whole), (threads, changed)
    if case != "learned":  # its plan says that fewer centres fit
        some = fitted(case, rows, limit=limit_for(case, rows, 60_000), kernel_store="memory")
        assert 0 < kept(some) < kept(whole)
        assert left(some) == left(whole)
    assert whole.checkpoints
    for lines, stored in whole.checkpoints[:: max(len(whole.checkpoints) // 3, 1)]:
        with prepared_fit(case, rows, kernel_store="memory") as (spec, executor):
            journal = MemoryJournal(history=whole.history[:lines])
            machine = STRATEGIES[spec.plan.strategy]()
            at = pickle.loads(stored)
            Driver(executor, rows).run(machine, spec.problem, spec.options, journal, resume=at)
        assert left(journal) == left(whole)
