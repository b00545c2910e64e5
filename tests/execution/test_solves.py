"""Concurrent dense fits have the same bits as single fits, and can be interrupted."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from backend_cases import PASSES, bits, fit, long_fit

from partirvm.core import maximise
from partirvm.errors import NumericalError
from partirvm.execution import LocalExecutor, dask
from partirvm.execution.cluster import ClusterTimes
from partirvm.execution.dask import DaskExecutor
from partirvm.execution.local import solution
from partirvm.process import one_blas_thread
from partirvm.spec import DenseFit


@pytest.fixture(scope="module")
def solves():
    """Return fits of several sizes, with and without an offset; one ends at a limit."""
    limited = [fit(150, 7, vectors=75), fit(90, 8, steps=3)]
    return [fit(60 + 30 * seed, seed) for seed in range(6)] + limited


@pytest.fixture(scope="module")
def one_by_one(solves):
    """Return the end of each fit as bytes, when nothing else is running."""
    with one_blas_thread():
        return [bits(maximise(solve.start, solve.rule)) for solve in solves]


def ends(solutions):
    """Return fits and reasons as bytes."""
    return [bits((solution.fit, solution.reason)) for solution in solutions]


def test_concurrent_fits_have_the_same_bits_as_single_fits(executor, solves, one_by_one):
    """Results are in the given order, and the count reaches the number of fits."""
    calls = []
    solutions = executor.solve(solves, lambda done, total: calls.append((done, total)))
    assert ends(solutions) == one_by_one
    assert len({reason for _, reason in one_by_one}) == 3
    assert calls[-1] == (len(solves), len(solves))
    assert calls == sorted(calls)


def test_a_failing_fit_raises_the_error_of_maximise(executor, solves):
    """Numbers are not finite; the executor remains usable."""
    broken = solves[0].start.statistics
    broken = replace(broken, gram=np.full_like(broken.gram, np.nan))
    failing = replace(solves[0], start=replace(solves[0].start, statistics=broken))
    with pytest.raises(NumericalError):
        maximise(failing.start, failing.rule)
    with pytest.raises(NumericalError):
        executor.solve([solves[1], failing, solves[2]])
    assert len(executor.solve(solves[:2])) == 2


class Interruption(Exception):
    """Raised by a watcher."""


@dataclass(frozen=True)
class WatchedFit(DenseFit):
    """A fit in this process that notes its start and its steps."""

    fit: DenseFit
    starts: list
    steps: list

    def run(self, on_step):
        self.starts.append(self.fit)

        def listen(info):
            self.steps.append(info)
            on_step(info)

        return self.fit.run(listen)


class NotingExecutor(DaskExecutor):
    """An executor that notes the fits that it sends to workers."""

    def __init__(self, client, starts):
        super().__init__(client, ClusterTimes(poll=0.05))
        self.starts = starts

    def _submit(self, name, function, *arguments):
        self.starts.extend([function] * (function is solution))
        return super()._submit(name, function, *arguments)


def test_a_watcher_is_called_during_a_fit_and_may_end_it(executor, data, reference):
    """The first fit is not finished then; most of the others are never started."""
    assert ClusterTimes().poll <= 1
    calls = []
    starts = []
    fits = [long_fit(seed, steps=100) for seed in (1, 5)] * 6
    if isinstance(executor, LocalExecutor):
        assert executor.poll_seconds <= 1
        most = executor.threads
        runner = LocalExecutor(executor.threads, poll=0.05)
        fits = [WatchedFit(fit, starts, []) for fit in fits]
    else:
        most = executor._cluster.n_threads * dask.AHEAD
        runner = NotingExecutor(executor._client, starts)

    def progress(done, total):
        calls.append((done, total))
        if len(calls) == 2:
            raise Interruption

    with pytest.raises(Interruption):
        runner.solve(fits, progress)
    assert calls == [(0, 12)] * 2
    # fits on workers run to their end, those in this process are abandoned
    assert bits(runner.run([PASSES["residual"]], data)[0]) == bits(reference["residual"])
    assert 1 <= len(starts) <= most < 12
    runner.close()


def test_interrupted_fits_in_this_process_end_at_their_next_step():
    """This holds however long they would take."""
    runner = LocalExecutor(2, poll=0.05)
    steps = []
    fits = [WatchedFit(long_fit(seed, steps=10**6), [], steps) for seed in (1, 5)] * 2

    def progress(done, total):
        if steps:
            raise Interruption

    with pytest.raises(Interruption):
        runner.solve(fits, progress)
    before = len(steps)
    runner.close()
    assert len(steps) - before <= runner.threads
