"""Dense fits side by side: the bits of fits one by one, at the same time where workers allow, and
free to be left."""

from dataclasses import replace

import numpy as np
import pytest
from backend_cases import PASSES, bits, fit, long_fit

from partirvm.core.updates import maximise
from partirvm.errors import NumericalError
from partirvm.execution import LocalExecutor, dask, local
from partirvm.execution.local import solution
from partirvm.process import one_blas_thread


@pytest.fixture(scope="module")
def solves():
    """Fits of several sizes, with and without an offset; one ends at a limit."""
    return [fit(60 + 30 * seed, seed) for seed in range(6)] + [
        fit(150, 7, vectors=75),
        fit(90, 8, steps=3),
    ]


@pytest.fixture(scope="module")
def one_by_one(solves):
    """Where each fit ends, to the bit, when nothing else runs."""
    with one_blas_thread():
        return [bits(maximise(solve.start, solve.rule)) for solve in solves]


def ends(solutions):
    """Fits and reasons, to the bit."""
    return [bits((solution.fit, solution.reason)) for solution in solutions]


def test_fits_side_by_side_have_the_bits_of_fits_one_by_one(executor, solves, one_by_one):
    """In the order given, with a count that ends at all of them."""
    seen = []
    found = executor.solve(solves, lambda done, total: seen.append((done, total)))
    assert ends(found) == one_by_one
    assert len({reason for _, reason in one_by_one}) == 3
    assert seen[-1] == (len(solves), len(solves))
    assert seen == sorted(seen)


def test_a_fit_that_fails_says_so(executor, solves):
    """Numbers that are not finite: NumericalError, as from ``maximise`` itself; others still
    serve."""
    broken = solves[0].start.statistics
    broken = replace(broken, gram=np.full_like(broken.gram, np.nan))
    failing = replace(solves[0], start=replace(solves[0].start, statistics=broken))
    with pytest.raises(NumericalError):
        maximise(failing.start, failing.rule)
    with pytest.raises(NumericalError):
        executor.solve([solves[1], failing, solves[2]])
    assert len(executor.solve(solves[:2])) == 2


class Enough(Exception):
    """Raised by a watcher that has seen enough."""


@pytest.fixture
def begun(monkeypatch):
    """A function that gives an executor's fits: those begun here, or handed over to the cluster, so
    far."""
    found = []

    def of(executor):
        if isinstance(executor, LocalExecutor):
            really = local.solution
            monkeypatch.setattr(
                local,
                "solution",
                lambda *given, **kw: (found.append(given[0]), really(*given, **kw))[1],
            )
        else:
            submit = executor._submit

            def submitted(name, function, *arguments):
                found.extend([function] * (function is solution))
                return submit(name, function, *arguments)

            monkeypatch.setattr(executor, "_submit", submitted)
        return found

    return of


def test_a_watcher_hears_while_a_fit_runs_and_may_leave(
    executor, data, reference, begun, monkeypatch
):
    """Called before the first fit is done; its exception ends the call, and most of the work is
    never begun."""
    for module in (local, dask):
        assert module.POLL <= 1
        monkeypatch.setattr(module, "POLL", 0.05)
    calls, found = [], begun(executor)

    def progress(done, total):
        calls.append((done, total))
        if len(calls) == 2:
            raise Enough

    with pytest.raises(Enough):
        executor.solve([long_fit(seed, steps=25) for seed in (1, 5)] * 6, progress)
    assert calls == [(0, 12)] * 2
    # fits that run on workers come to their end, those in this process are left
    assert bits(executor.run([PASSES["residual"]], data)[0]) == bits(reference["residual"])
    threads = (
        executor.threads
        if isinstance(executor, LocalExecutor)
        else executor._cluster.n_threads * dask.AHEAD
    )
    assert 1 <= len(found) <= threads < 12


def test_fits_in_this_process_are_left_at_their_next_step(monkeypatch):
    """A fit of hours is over as soon as its watcher leaves: each thread does the step that it is
    at, and no other."""
    monkeypatch.setattr(local, "POLL", 0.05)
    runner = LocalExecutor(2)
    really = local.solution
    steps = []

    def counted(solve, on_step, **threads):
        def heard(info):
            steps.append(info)
            on_step(info)

        return really(solve, heard, **threads)

    monkeypatch.setattr(local, "solution", counted)

    def progress(done, total):
        if steps:
            raise Enough

    with pytest.raises(Enough):
        runner.solve([long_fit(seed, steps=10**6) for seed in (1, 5)] * 2, progress)
    before = len(steps)
    runner.close()
    assert len(steps) - before <= runner.threads
