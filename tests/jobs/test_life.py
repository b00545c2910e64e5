"""Random lives of a job, with kills and refused actions, against a model of what must hold."""

import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from exported import reader_in
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from life import (
    DISK,
    FIRST_ROWS,
    PROBE,
    Point,
    References,
    Stage,
    append,
    export,
    history_of,
    points_of,
    predictions,
    request,
    run,
    save,
    start,
    unchanged,
)
from surfaces import saddle

from partirvm import ingest, jobs, load_model, open_job
from partirvm.data import ZarrSource
from partirvm.errors import (
    ChangedDataError,
    DataError,
    DoneError,
    ExistsError,
    LeaseError,
    MissingDataError,
    UsageError,
)
from partirvm.fit import Watcher
from partirvm.jobs import Status
from partirvm.jobs.store import KEPT
from partirvm.storage import LeaseTimes, lease

sys.path.append(str(Path(__file__).parents[1] / "faults"))

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

MOST_BATCHES = 6
"""Appends end at 160 rows, so that fits stay fast."""

rounds = st.integers(1, 3)
kinds = st.sampled_from(["working-set", "incremental"])
disturbances = st.one_of(
    st.just(("none", 0)),
    st.tuples(st.just("queued"), st.just(0)),
    st.tuples(st.just("abort"), st.integers(0, 3)),
    st.tuples(st.just("append"), st.integers(0, 2)),
    st.tuples(st.just("kill"), st.integers(1, 110)),
)
"""What happens to a run, and after which line of history or at which change to a file."""


def points(most):
    """Return a strategy of kills at one of so many changes, or of no kill (0), equally often."""
    return st.one_of(st.just(0), st.integers(1, most))


@dataclass
class Expected:
    """The model of a job.

    Attributes:
        kind: name of its request in ``KINDS``
        stages: the fit and its updates; the last one is the next to run, or has run
        status: its status
        reason: the reason of its end, if it is done
        history: its lines of history
        digest: of its model, or None without a model
        points: its checkpoints with a fit
        updates: rounds of the last update, or 0
        tidy: False if a kill may have left hidden files
        clean: False if a kill may have left models or checkpoints that no event names
    """

    kind: str
    stages: tuple[Stage, ...]
    status: Status = Status.QUEUED
    reason: str = ""
    history: tuple = ()
    digest: str | None = None
    points: list[Point] = field(default_factory=list)
    updates: int = 0
    tidy: bool = True
    clean: bool = True

    @property
    def batches(self):
        """The batches of DATA of the last request."""
        return self.stages[-1].batches

    def resume_point(self, batches):
        """Return the last checkpoint that a fit of these batches continues, or None."""
        usable = (
            point
            for point in reversed(self.points[-KEPT["checkpoint"] :])
            if not point.final or len(point.stages[-1].batches) < len(batches)
        )
        return next(usable, None)


class Disturber(Watcher):
    """Acts while a job runs, after so many lines of history."""

    def __init__(self, after, act):
        self.left = after + 1
        self.act = act

    def on_plan(self, plan):
        self._count()

    def on_record(self, entry):
        self._count()

    def _count(self):
        self.left -= 1
        if self.left == 0:
            self.act()


class Life(RuleBasedStateMachine):
    """The DATA, one job, a saved model and an export of it, and the model of all these."""

    def __init__(self, references, kill=DISK.kill):
        super().__init__()
        self.references = references
        self.kill = kill
        self.folder = Path(tempfile.mkdtemp(dir=references.folder))
        self.data = str(self.folder / "d.zarr")
        self.job = str(self.folder / "jobs" / "one")
        self.saved_place = str(self.folder / "saved")
        self.exported_place = self.folder / "model.npz"
        self.batches = (FIRST_ROWS,)
        self.expected = None
        self.saved = None
        self.exported = None
        ingest(saddle(FIRST_ROWS, seed=0), self.data, tile_rows=32)

    def teardown(self):
        shutil.rmtree(self.folder)

    # Rules: what a user does, and what happens to the process that runs it.

    @initialize(kind=kinds, rounds=rounds, disturbance=disturbances)
    def begin(self, kind, rounds, disturbance):
        """Fit the first job."""
        self.fit(kind, rounds, disturbance)

    @precondition(lambda self: self.expected is None)
    @rule(kind=kinds, rounds=rounds, disturbance=disturbances)
    def fit(self, kind, rounds, disturbance):
        """Fit a new job."""
        start(self.data, self.job, kind, rounds)
        self.expected = Expected(kind, (Stage(self.batches, rounds),))
        self.proceed(disturbance)

    @precondition(lambda self: self.expected)
    @rule(kind=kinds, rounds=rounds, point=points(40), disturbance=disturbances)
    def overwrite(self, kind, rounds, point, disturbance):
        """Replace the job; a kill leaves the old one, its request, none, or the new one."""
        new = Expected(kind, (Stage(self.batches, rounds),))
        old = self.expected
        began = open_job(self.job).store.spec()["time"]
        arguments = {"data": self.data, "job": self.job, "kind": kind, "rounds": rounds}
        if point and self.kill(self.folder, point, "start", arguments):
            self.expected = self.left_by_killed_overwrite(old, new, began)
            return
        if not point:
            start(**arguments)
        self.expected = new
        self.proceed(disturbance)

    @precondition(lambda self: self.expected)
    @rule(disturbance=disturbances)
    def run(self, disturbance):
        """Run the job; an ended one stays as it is."""
        if self.expected.status in (Status.QUEUED, Status.INTERRUPTED):
            self.proceed(disturbance)
            return
        with unchanged(self.folder):
            assert jobs.run_job(self.job, patience=0.0) is None

    @precondition(lambda self: self.expected)
    @rule(more=st.sampled_from([None, None, 0, 1, 2]), disturbance=disturbances)
    def resume(self, more, disturbance):
        """Queue the job again, with more rounds or as it was, and run it."""
        limit = None
        if more is not None:
            limit = open_job(self.job).asked()["max_rounds"] + more
        if refusal := self.refusal_of_resume(more):
            with self.refused(*refusal):
                open_job(self.job).requeue(max_rounds=limit)
            return
        assert open_job(self.job).requeue(max_rounds=limit).status is Status.QUEUED
        expected = self.expected
        expected.status = Status.QUEUED
        if limit is not None:
            expected.stages = (*expected.stages[:-1], replace(expected.stages[-1], limit=limit))
        self.proceed(disturbance)

    @precondition(lambda self: self.expected)
    @rule(
        rows=st.sampled_from([8, 20, 0]),
        rounds=st.sampled_from([None, 1, 2]),
        disturbance=disturbances,
    )
    def update(self, rows, rounds, disturbance):
        """Append rows, and add all appended rows to the fit."""
        if rows and len(self.batches) < MOST_BATCHES:
            self.append(rows, 0)
        if refusal := self.refusal_of_update():
            with self.refused(*refusal):
                open_job(self.job).requeue(grown=True, max_rounds=rounds)
            return
        expected = self.expected
        limit = expected.stages[0].limit or expected.stages[0].rounds
        further = rounds or expected.updates or limit
        point = expected.resume_point(self.batches)
        *earlier, last = point.stages
        last = replace(last, reached=None if point.final else point.lines)
        open_job(self.job).requeue(grown=True, max_rounds=rounds)
        expected.status = Status.QUEUED
        expected.updates = further
        expected.stages = (*earlier, last, Stage(self.batches, further))
        self.proceed(disturbance)

    @precondition(lambda self: self.expected)
    @rule(reason=st.sampled_from(["", "flat enough"]))
    def abort(self, reason):
        """Abort the job while no process runs it."""
        if self.expected.status in (Status.QUEUED, Status.INTERRUPTED):
            self.expected.status = Status.ABORTED
        assert open_job(self.job).abort(reason) is self.expected.status

    @precondition(lambda self: self.expected)
    @rule(really=st.integers(0, 3))
    def cancel(self, really):
        """Discard the model of the job, unless it is done."""
        expected = self.expected
        if expected.status is Status.DONE:
            with self.refused(UsageError, "delete the folder"):
                open_job(self.job).cancel()
        elif not really:
            assert open_job(self.job).cancel() is Status.CANCELLED
            expected.status = Status.CANCELLED
            expected.digest = None
            expected.points = []

    @precondition(lambda self: len(self.batches) < MOST_BATCHES)
    @rule(rows=st.sampled_from([8, 20]), point=points(40))
    def append(self, rows, point):
        """Append rows to DATA; after a kill, DATA have all of them or none."""
        grown = (*self.batches, rows)
        arguments = {"data": self.data, "number": len(self.batches), "rows": rows}
        if point and self.kill(self.folder, point, "append", arguments):
            if ZarrSource(self.data).n_rows == sum(grown):
                self.batches = grown
            return
        if not point:
            append(**arguments)
        self.batches = grown

    @rule(what=st.sampled_from(["append", "fit", "abort", "resume", "update"]))
    def refuse(self, what):
        """Refuse the last batch of rows once more, a fit to the place of the job, or any action
        without a job."""
        if what == "append":
            with self.refused(DataError, "appended already"):
                append(self.data, len(self.batches) - 1, self.batches[-1])
        elif self.expected is None:
            with self.refused(MissingDataError, "no job here"):
                getattr(open_job(self.job), what)()
        else:
            with self.refused(ExistsError, "already exists"):
                jobs.fit(self.data, self.job, request("incremental", 1))

    @rule(point=points(12))
    def save(self, point):
        """Save the model; a kill leaves a complete model or none."""
        arguments = {"job": self.job, "out": self.saved_place}
        if not self.has_model():
            with self.refused(MissingDataError, "no job|no model"):
                save(**arguments)
        elif self.saved is not None:
            with self.refused(ExistsError, "already exists"):
                save(**arguments)
        elif point and self.kill(self.folder, point, "save", arguments):
            if Path(self.saved_place, "group.json").exists():
                self.saved = self.expected.digest
        else:
            if not point:
                save(**arguments)
            self.saved = self.expected.digest

    @precondition(lambda self: self.saved)
    @rule()
    def delete_saved(self):
        """Delete the saved model."""
        shutil.rmtree(self.saved_place)
        self.saved = None

    @precondition(lambda self: self.has_model())
    @rule(point=points(6))
    def export(self, point):
        """Export the model; a kill leaves the old file or the new one."""
        arguments = {"job": self.job, "out": str(self.exported_place)}
        if load_model(self.job).residuals is not None:
            with self.refused(UsageError, "local residuals need the training rows"):
                export(**arguments)
            return
        means = load_model(self.job).predict(PROBE)
        if point and self.kill(self.folder, point, "export", arguments):
            if not (self.folder / "model_predict.py").exists():
                self.exported_place.unlink(missing_ok=True)
                self.exported = None
                return
            written = self.exported_means()
            assert any(
                before is not None and np.allclose(written, before, rtol=1e-9, atol=1e-9)
                for before in (self.exported, means)
            )
            self.exported = written
            return
        if not point:
            export(**arguments)
        self.exported = means

    @precondition(lambda self: self.has_model())
    @rule()
    def load(self):
        """The loaded model predicts as the undisturbed fit did in memory, bit by bit."""
        expected = self.expected
        if expected.status is Status.DONE:
            reference = self.references.undisturbed(expected.kind, expected.stages)
            assert predictions(load_model(self.job)) == reference.predictions

    @precondition(lambda self: self.expected)
    @rule(really=st.integers(0, 3))
    def delete(self, really):
        """Delete the job's folder."""
        if not really:
            shutil.rmtree(self.job)
            self.expected = None

    # What must hold after each rule.

    @invariant()
    def data_have_the_appended_rows(self):
        """All batches and nothing else, by the fingerprint of DATA that nothing disturbed."""
        undisturbed = ZarrSource(self.references.dataset(self.batches))
        assert ZarrSource(self.data).fingerprint() == undisturbed.fingerprint()

    @invariant()
    def the_job_is_as_expected(self):
        """Its status, history and model; no process holds its lease."""
        if self.expected is None:
            assert jobs.jobs_in(str(Path(self.job).parent)) == []
            with pytest.raises(MissingDataError):
                open_job(self.job)
            return
        (job,) = jobs.jobs_in(str(Path(self.job).parent))
        state = job.state()
        assert state.status is self.expected.status
        assert history_of(state) == self.expected.history
        holder = job.store.holder()
        assert holder is None or not holder.alive()
        assert job.store.has_model() is self.has_model()
        if self.has_model():
            assert job.model().digest() == self.expected.digest
        else:
            with pytest.raises(MissingDataError, match="no model yet, or was cancelled"):
                load_model(self.job)

    @invariant()
    def only_named_files_are_left(self):
        """Events name all models and checkpoints and no file is half-written, except after a
        kill."""
        if self.expected is None:
            return
        place = Path(self.job)
        parts = [path for path in place.glob("*/.*") if path.parent.name != "lease"]
        assert not (self.expected.tidy and parts)
        events = open_job(self.job).store.events() if self.expected.clean else []
        for kind in ("model", "checkpoint") if self.expected.clean else ():
            named = [event[kind] for event in events if kind in event][-KEPT[kind] :]
            if self.expected.status is Status.CANCELLED:
                named = []
            assert sorted(f"{kind}s/{path.name}" for path in place.glob(f"{kind}s/*")) == named

    @invariant()
    def copies_are_kept(self):
        """The saved model and the export do not change with the job."""
        if self.saved is not None:
            assert load_model(self.saved_place).digest() == self.saved
        if self.exported is not None:
            np.testing.assert_allclose(self.exported_means(), self.exported, 1e-9, 1e-9)

    # Parts of rules.

    def has_model(self):
        """Return True if the job must have a model."""
        return self.expected is not None and self.expected.digest is not None

    def exported_means(self):
        """Return the means that the exported file predicts."""
        return reader_in(self.folder)(self.exported_place)(PROBE)["mean"]

    @contextmanager
    def refused(self, error, message):
        """Assert that a block raises an error and changes nothing."""
        with unchanged(self.folder), pytest.raises(error, match=message):
            yield

    def refusal_of_resume(self, more):
        """Return the error and the message of a resume that must be refused, or None."""
        expected = self.expected
        if expected.status is Status.CANCELLED:
            return UsageError, "was cancelled"
        if expected.status is Status.DONE and expected.reason != "rounds":
            return DoneError, "would change nothing"
        if expected.status is Status.DONE and not more:
            return DoneError, "reached max_rounds"
        if expected.batches != self.batches:
            return ChangedDataError, "has changed since the job began"
        return None

    def refusal_of_update(self):
        """Return the error and the message of an update that must be refused, or None."""
        expected = self.expected
        if expected.status is Status.CANCELLED:
            return UsageError, "was cancelled"
        if expected.batches == self.batches:
            return UsageError, "has no rows that were appended"
        if expected.resume_point(self.batches) is None:
            return UsageError, "it has no fit to add new rows to"
        return None

    def left_by_killed_overwrite(self, old, new, began):
        """Return the model of what a killed overwrite left: the old job, the new one, or None.

        Args:
            old: the model of the old job
            new: the model of the new job
            began: the time in the old request
        """
        store = jobs.Job(self.job).store
        if not store.exists():
            return None
        left = old if store.spec()["time"] == began else new
        if left is old and (old.history or old.status is not Status.QUEUED) and not store.events():
            # the claim of the lease has made the events invalid: only the request is left
            assert store.state().status is Status.INTERRUPTED
            shutil.rmtree(self.job)
            return None
        left.tidy = left.clean = False
        if left.status is Status.QUEUED:
            left.status = store.state().status
            assert left.status in (Status.QUEUED, Status.INTERRUPTED)
        return left

    def proceed(self, disturbance):
        """Run the queued job with a disturbance, and compare it with the undisturbed one."""
        what, number = disturbance
        expected = self.expected
        if what == "queued":
            return
        if expected.batches != self.batches:
            with pytest.raises(ChangedDataError, match="has changed since the job began"):
                run(self.job)
            expected.status = Status.INTERRUPTED
            return
        reference = self.references.undisturbed(expected.kind, expected.stages)
        seen = len(open_job(self.job).store.events())
        point = expected.resume_point(expected.batches)
        kept = 0 if point is None else point.lines
        killed = what == "kill" and self.kill(self.folder, number, "run", {"job": self.job})
        if what != "kill":
            actions = {"abort": self.abort_running, "append": self.append_running}
            watcher = Disturber(number, actions.get(what, lambda: None))
            outcome = jobs.run_job(self.job, watcher=watcher, patience=0.0)
            if outcome.model is not None:
                assert predictions(outcome.model) == predictions(load_model(self.job))
        events = open_job(self.job).store.events()[seen:]
        if killed:
            self.expect_after_kill(events, reference)
        elif what == "abort" and number < len(reference.history):
            expected.status = Status.ABORTED
            if number > kept:
                self.expect_history(reference.history[:number], reference)
        else:
            expected.status = Status.DONE
            self.expect_history(reference.history, reference)
            expected.reason = reference.reason
            assert open_job(self.job).state().reason == reference.reason
        if events and events[0]["event"] == "running":
            assert events[0]["history"] == kept
        expected.points += points_of(events, expected.stages)

    def expect_history(self, history, reference):
        """Expect this history of an undisturbed job, with the model of its last line."""
        self.expected.history = history
        self.expected.digest = reference.histories[history]
        self.expected.clean = True

    def expect_after_kill(self, events, reference):
        """Expect a beginning of the undisturbed history, or what was there before the run."""
        expected = self.expected
        expected.tidy = False
        state = open_job(self.job).state()
        history = history_of(state)
        if history != expected.history:
            self.expect_history(history, reference)
        expected.clean = False
        names = [event["event"] for event in events]
        if "done" in names:
            expected.status = Status.DONE
            expected.reason = reference.reason
            assert history == reference.history
        elif "running" in names or expected.status is Status.INTERRUPTED:
            expected.status = Status.INTERRUPTED
        else:
            expected.status = state.status
            assert state.status in (Status.QUEUED, Status.INTERRUPTED)

    def abort_running(self):
        """Abort the running job by another handle; nothing else may change it."""
        with self.refused(LeaseError, "in use by"):
            open_job(self.job).requeue(max_rounds=9)
        with self.refused(LeaseError, "in use by"):
            start(self.data, self.job, "incremental", 1)
        assert open_job(self.job).abort("flat enough") is Status.ABORTING

    def append_running(self):
        """Append rows while the job runs, which goes on with the rows of before."""
        if len(self.batches) < MOST_BATCHES:
            append(self.data, len(self.batches), 8)
            self.batches = (*self.batches, 8)


class LocalLife(Life):
    """Lives whose fits also have local residuals, by which each takes twice as long."""

    @rule(rounds=rounds, disturbance=disturbances)
    def fit_local(self, rounds, disturbance):
        """Fit a new job with local residuals, after deleting an existing one."""
        if self.expected is not None:
            shutil.rmtree(self.job)
            self.expected = None
        start(self.data, self.job, "local", rounds)
        self.expected = Expected("local", (Stage(self.batches, rounds),))
        self.proceed(disturbance)


@pytest.fixture
def references(tmp_path, monkeypatch):
    """Undisturbed jobs; running ones poll at once for an abort."""
    monkeypatch.setattr(lease, "TIMES", LeaseTimes(beat=600.0, poll=0.0))
    return References(tmp_path)


@pytest.fixture
def kill_process(tmp_path):
    """A function that calls an action in another process, with SIGKILL at its n-th change."""
    from fault_processes import crash_action, forking

    said = tmp_path / "said"
    said.mkdir()
    with forking(said, "life", "jinja2") as forker:

        def kill(folder, point, action, arguments):
            child = forker.call(
                crash_action, action=action, folder=str(folder), point=point, arguments=arguments
            )
            child.wait()
            if child.out.exists():
                child.end()
            return not child.out.exists()

        yield kill


def lives(number, steps, **options):
    """Return settings of hypothesis for so many lives of so many steps."""
    return settings(
        max_examples=number,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
        **options,
    )


@pytest.mark.usefixtures("interruptions")
def test_200_random_steps_agree_with_the_model(references):
    """Kills are simulated in this process; a failure is reported without minutes of shrinking."""
    phases = (Phase.explicit, Phase.generate)
    run_state_machine_as_test(lambda: Life(references), settings=lives(8, 25, phases=phases))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_16000_random_steps_agree_with_the_model(references):
    """Other steps in each run; kills are simulated in this process."""
    options = {"derandomize": False, "print_blob": True}
    run_state_machine_as_test(lambda: LocalLife(references), settings=lives(320, 50, **options))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_4000_random_steps_with_killed_processes_agree_with_the_model(references, kill_process):
    """Other steps in each run; processes get SIGKILL."""
    options = {"derandomize": False, "print_blob": True}
    run_state_machine_as_test(
        lambda: Life(references, kill_process), settings=lives(80, 50, **options)
    )
