"""A fit's spec is stored to the bit, and a resume makes no decision again."""

from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from same import assert_same
from watchers import Broken

from partirvm import ingest, jobs, open_job
from partirvm.core import Termination
from partirvm.data import ZarrSource, as_source
from partirvm.errors import FormatError
from partirvm.execution import LocalExecutor
from partirvm.fit import Watcher
from partirvm.jobs import (
    Checkpoint,
    JobState,
    JobStore,
    Status,
    advice_of,
    create,
    fold,
    load_checkpoint,
    observed,
    save_checkpoint,
)
from partirvm.jobs.state import TRANSITIONS
from partirvm.options import Request
from partirvm.resolve.resolve import continued, resolve
from partirvm.types import Columns

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

REQUEST = Request(
    gamma=0.5, partition_size=20, strategy="working-set", max_rounds=2, selection="random", seed=3
)

FITS = {
    "numbers": {},
    "priors": {
        "alpha_prior": (1e-3, 1e-3),
        "noise_prior": (1e-3, 0.0),
        "fixed_alpha": {"bias": 1e-6},
    },
    "a basis, several kernels": {"basis": "linear", "gamma_multiples": (1.0, 8.0)},
    "no kernel": {
        "kernel": "none",
        "gamma": "learn",
        "basis": "linear",
        "partition_size": "auto",
        "max_rounds": None,
    },
    "a size that is measured": {"partition_size": "auto"},
    "a kernel that is learned": {"gamma": "learn"},
    "split-merge, a sample": {"strategy": "split-merge", "fit_rows": "sample", "max_rounds": None},
    "several targets": {"targets": 2},
    "classes": {"classes": 3, "class_weight": "balanced"},
}


def source(targets=1, classes=0, n=150):
    rng = default_rng(0)
    X = rng.normal(size=(n, 2))
    y = np.stack([np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n) for _ in range(targets)], axis=1)
    if not classes:
        return as_source(X, y[:, 0] if targets == 1 else y, tile_rows=64)
    columns = Columns(("a", "b"), "kind", {}, tuple(range(classes)))
    return as_source(
        X, np.digitize(y[:, 0], [-0.5, 0.5][: classes - 1]), tile_rows=64, columns=columns
    )


@pytest.mark.parametrize("options", FITS.values(), ids=FITS)
def test_a_stored_spec_is_bit_identical(options, tmp_path):
    """Class codes are the exception; "auto" options are already resolved in it."""
    options = dict(options)
    rows = source(options.pop("targets", 1), options.pop("classes", 0))
    executor = LocalExecutor(1)
    spec = resolve(rows, replace(REQUEST, **options), executor)
    executor.close()
    save_checkpoint(Checkpoint(spec, None, 0), str(tmp_path / "s"))
    stored = load_checkpoint(str(tmp_path / "s")).spec
    assert stored.problem.codes is None
    assert b'"|i1"' not in (tmp_path / "s" / "000000").read_bytes()
    assert_same(spec, replace(stored, problem=replace(stored.problem, codes=spec.problem.codes)))
    request = spec.request
    for name in ("strategy", "selection", "fit_rows", "partition_size"):
        assert getattr(request, name) != "auto"
    assert isinstance(request.moderate, bool)
    assert isinstance(request.sample_rows, int)


@pytest.mark.parametrize(
    ("resolved", "options"),
    [
        ("local", {"residual": "local"}),
        ("none", {"residual": "auto"}),  # 150 rows are too few
        ("none", {"residual": "auto", "noise": 0.01}),
        ("none", {"residual": "auto", "classes": 3}),
        ("none", {"residual": "none"}),
    ],
)
def test_a_spec_records_whether_local_residuals_are_tried(resolved, options):
    options = dict(options)
    rows = source(classes=options.pop("classes", 0))
    executor = LocalExecutor(1)
    spec = resolve(rows, replace(REQUEST, **options), executor)
    executor.close()
    assert spec.options.residual == resolved
    assert (spec.plan.residuals is None) == (resolved == "none")


def data(folder, n=150):
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2))
    ingest(
        (X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)),
        folder / "d.zarr",
        tile_rows=64,
    )
    return str(folder / "d.zarr")


def test_a_fit_resumes_from_its_spec_before_the_first_checkpoint(tmp_path, without_resolving):
    """A driver that dies in the first round leaves the spec."""
    place = data(tmp_path)
    complete = jobs.fit(place, str(tmp_path / "whole"), REQUEST)

    create(place, str(tmp_path / "job"), REQUEST, None, False)
    with pytest.raises(KeyboardInterrupt):
        jobs.run_job(str(tmp_path / "job"), watcher=Broken(0))
    store = JobStore(tmp_path / "job")
    assert store.restore().state is None
    without_resolving()
    job = open_job(tmp_path / "job").resume()
    assert job.wait(60) is Status.DONE
    assert job.model().digest() == complete.model.digest()


def test_a_fit_that_runs_out_of_time_leaves_no_spec(tmp_path):
    """The spec would lack the part that was not learned."""
    fit = jobs.fit(
        data(tmp_path), str(tmp_path / "job"), replace(REQUEST, gamma="learn", time_limit=1e-6)
    )
    assert fit.reason is Termination.TIME
    assert JobStore(tmp_path / "job").restore() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", some(["basic", "incremental", "working-set", "split-merge"], {"working-set"})
)
def test_an_interrupted_update_includes_rows_that_were_appended_later(tmp_path, strategy):
    """It left no checkpoint: the next one contains all rows at once."""
    digests = []
    rng = default_rng(5)
    parts = [
        (X, np.sin(2 * X[:, 0]) * X[:, 1])
        for X in (rng.uniform(-2, 2, size=(n, 2)) for n in (30, 40))
    ]

    class Interrupted(Watcher):
        def on_tiles(self, name, done, total):
            raise KeyboardInterrupt

    for broken in (False, True):
        folder = tmp_path / str(broken)
        folder.mkdir()
        place = data(folder)
        job = str(folder / "job")
        rounds = 2 if strategy in ("incremental", "working-set") else None
        jobs.fit(place, job, replace(REQUEST, strategy=strategy, max_rounds=rounds))
        ingest(parts[0], place, append=True)
        if broken:
            open_job(job).requeue(grown=True)
            with pytest.raises(KeyboardInterrupt):
                jobs.run_job(job, watcher=Interrupted())
            assert JobStore(job).restore().spec.problem.n_rows == 150
        ingest(parts[1], place, append=True)
        assert open_job(job).update().wait(60) is Status.DONE, open_job(job).state().reason
        spec = JobStore(job).restore().spec
        assert spec.problem.n_rows == 220
        assert [batch.stop for batch in spec.problem.batches] == [150, 220]
        assert ZarrSource(place).n_rows == 220
        digests.append(open_job(job).model().digest())
    assert digests[0] == digests[1]


def events_of(*kinds):
    """Return events of these kinds, a second apart."""
    return [
        {"event": kind, "time": float(second), "reason": f"r{second}"}
        for second, kind in enumerate(kinds)
    ]


PATHS = {
    Status.QUEUED: (),
    Status.RUNNING: ("running",),
    Status.ABORTED: ("running", "aborted"),
    Status.FAILED: ("failed",),
    Status.INTERRUPTED: ("running", "interrupted"),
    Status.DONE: ("running", "done"),
    Status.CANCELLED: ("cancelled",),
}


@pytest.mark.parametrize("before", PATHS, ids=str)
@pytest.mark.parametrize("after", PATHS)
def test_only_transitions_in_the_table_are_possible(before, after):
    """They have a time and a reason; others raise an error with the previous status."""
    events = events_of(*PATHS[before], after.value)
    if after in TRANSITIONS[before]:
        state = fold(events)
        last = len(events) - 1
        assert (state.status, state.since, state.reason) == (after, float(last), f"r{last}")
    else:
        with pytest.raises(FormatError, match=rf"'{after}' cannot follow '{before}'"):
            fold(events)


def test_events_determine_the_state_of_a_job():
    """Plan, history, times and attempts are compared after an interruption and a resume."""
    request = {"time": 1.0, "parameters": {"a": 1, "b": 2}, "data": "here"}
    events = [
        {"event": "running", "time": 2.0, "history": 0},
        {"event": "plan", "time": 2.5, "passes": 7},
        {"event": "worker joined", "time": 2.7},
        {"event": "fit", "time": 3.0, "number": 1},
        {"event": "fit", "time": 4.0, "number": 2},
        {"event": "running", "time": 9.5, "history": 1},
        {"event": "fit", "time": 10.0, "number": 2, "again": True},
        {"event": "done", "time": 11.0, "reason": "rounds"},
        {"event": "queued", "time": 20.0, "changes": {"b": 3}, "data": "there"},
        {"event": "running", "time": 21.0, "history": 2},
    ]
    done = fold(events[:8], request)
    assert (done.status, done.reason, done.attempt) == (Status.DONE, "rounds", 1)
    assert (done.queued, done.began, done.ended) == (1.0, 2.0, 11.0)
    assert done.plan["passes"] == 7
    assert [(line["number"], line.get("again")) for line in done.history] == [(1, None), (2, True)]
    resumed = fold(events, request)
    assert (resumed.status, resumed.attempt) == (Status.RUNNING, 2)
    assert (resumed.began, resumed.ended) == (2.0, None)
    assert len(resumed.history) == 2
    assert resumed.request == {"time": 1.0, "parameters": {"a": 1, "b": 3}, "data": "there"}
    for kinds in (("fit",), ("running", "done", "fit")):
        with pytest.raises(FormatError, match="'fit' cannot follow"):
            fold(events_of(*kinds))


def test_a_run_that_adds_nothing_keeps_the_last_fit():
    """A resume discards the last fit; one more history line replaces it."""
    lines = [{"event": "fit", "time": 0.0, "number": number} for number in (1, 2)]
    events = [
        *events_of("running"),
        *lines,
        *events_of("done", "queued"),
        {"event": "running", "time": 0.0, "history": 1},
    ]
    assert [len(fold(path).history) for path in (events, [*events, *events_of("aborted")])] == [
        1,
        2,
    ]
    late = fold([*events, {"event": "done", "time": 0.0, "reason": "time"}])
    assert advice_of(late).startswith("The last run added nothing. time_limit was reached")
    assert "nothing" not in advice_of(
        fold([*events, lines[1], {"event": "done", "time": 0.0, "reason": "time"}])
    )


@pytest.mark.parametrize(
    ("kinds", "held", "aborting", "status"),
    [
        ((), False, False, Status.QUEUED),
        (("running",), True, False, Status.RUNNING),
        (("running",), True, True, Status.ABORTING),
        (("running",), False, True, Status.INTERRUPTED),
        (("running", "done"), False, True, Status.DONE),
    ],
)
def test_the_observed_status_depends_on_lease_and_requests(kinds, held, aborting, status):
    requested = ("abort", "why") if aborting else None
    assert observed(fold(events_of(*kinds)), held=held, requested=requested).status is status
    assert fold([]) == JobState()


def test_the_spec_of_an_update_has_the_classes_of_all_rows():
    """Rows are appended to 150 rows; scaling and kernel stay."""
    X = default_rng(1).normal(size=(190, 2))
    codes = default_rng(2).integers(0, 3, 190)
    columns = Columns(("a", "b"), "kind", {}, ("u", "v", "w"))
    before, grown = (as_source(X[:n], codes[:n] * 1.0, columns=columns) for n in (150, 190))
    executor = LocalExecutor(1)
    spec = resolve(before, REQUEST, executor)
    later = continued(spec, grown, REQUEST, executor)
    executor.close()
    assert later.problem.n_rows == 190
    assert later.problem.codes.tolist() == codes.tolist()
    assert later.problem.empty.scaling is spec.problem.empty.scaling
