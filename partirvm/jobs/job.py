"""``Job`` is a handle on the folder of a fit. Any process that can read the folder can watch and control the job.

``fit`` runs a job in this process and returns its result. ``submit`` starts a job and returns a ``Job`` at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import JobFailedError, LeaseError, MissingDataError, UsageError
from partirvm.execution.cluster import address_of
from partirvm.jobs.attempt import run_job, take_over
from partirvm.jobs.events import FIELDS
from partirvm.jobs.places import Allowed, Place, Places, absolute, changes, moved, places_of, require_shared
from partirvm.jobs.resume import check_changes, requeue, requeue_grown
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel, ClassModel
from partirvm.quoting import html_table
from partirvm.resolve.relevance import basis_functions_json, directions_json, relevances
from partirvm.storage.records import require

POLL_SECONDS = 0.5
"""Seconds between two polls of a waiting caller."""

GRACE = 25.0
"""Seconds without a driver after which a waiting caller treats a job on a cluster as ended.

The value must exceed the expiry time of a lease.
"""

TRIES = 25
"""Retries when ending a job that another process is starting."""


def open_job(job: str | os.PathLike[str]) -> Job:
    """Return the job in this folder. Raises ``MissingDataError`` if there is no job.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from partirvm import RVMRegressor, ingest, open_job, submit
    >>> X = np.linspace(-5, 5, 300)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=300)
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingest((X, y), f"{folder.name}/rows.zarr")
    >>> model = RVMRegressor(gamma=2.0, strategy="working-set", partition_size=20, max_rounds=2)
    >>> _ = submit(model, f"{folder.name}/rows.zarr", f"{folder.name}/job").wait(timeout=60)
    >>> job = open_job(f"{folder.name}/job")  # in any process that can read the folder
    >>> job.progress()["status"]
    'done'
    >>> folder.cleanup()
    """
    opened = Job(os.fspath(job))
    opened.store.spec()
    return opened


def jobs_in(folder: str) -> list[Job]:
    """Return all jobs directly inside a folder, by name. Raises ``MissingDataError`` if there is no such folder."""
    from partirvm.storage import open_folder

    place = open_folder(folder)
    if not place.exists():
        raise MissingDataError(f"{folder}: there is no such folder")
    found = (Job(f"{folder.rstrip('/')}/{name}") for name in place.list() if not name.startswith("."))
    return [job for job in found if job.store.exists()]


class Job:
    """A handle on a job's folder. It holds no state: every answer is read from the folder."""

    def __init__(self, location: str) -> None:
        self.store = JobStore(location)
        self.location = self.store.location
        self._thread: _AttemptThread | None = None

    def __repr__(self) -> str:
        return f"Job({self.location!r})"

    def _repr_html_(self) -> str:
        """The status and the figures of the last fit, for a notebook."""
        facts = ((name.replace("_", " "), value) for name, value in self.progress().items() if value is not None)
        return html_table("Job", facts)

    def report(self) -> Any:
        """Return the report of the job: plan, curves, diagnostics, history. A notebook shows it, ``save`` writes it."""
        from partirvm.report.page import report_of  # reports read jobs, so this cannot be imported at the start

        return report_of(self)

    def state(self) -> JobState:
        """Return the state of the job, with its plan and history.

        Raises ``FormatError`` if an event lacks a field that readers use.
        """
        state = self.store.state()
        for event in (*state.history, *filter(None, [state.plan])):
            require(event, FIELDS[event["event"]], f"{self.location}: the event {event['event']!r}")
        return state

    def status(self) -> Status:
        """Return the status: queued, running, aborting, aborted, failed, interrupted, done or cancelled.

        Its ``advice`` is a sentence for the user.
        """
        status = self.store.state().status
        assert status is not None
        return status

    def progress(self) -> dict[str, Any]:
        """Return the progress as plain JSON: status, reason, seconds, and the last line of history."""
        state = self.state()
        assert state.status is not None
        last = state.history[-1] if state.history else {}
        keys = ["kind", "number", "level", "candidates", "vectors", "train_rmse", "held_out_rmse"]
        keys += ["train_log_loss", "train_error", "held_out_log_loss", "held_out_error", "log_evidence"]
        has_model = self.store.has_model()
        return {
            "job": self.location,
            "status": state.status.value,
            "reason": state.reason,
            "advice": self._advice(state, has_model),
            "attempt": state.attempt,
            "strategy": (state.plan or {}).get("strategy"),
            "fits": sum(entry["kind"] not in ("heuristic", "kernel") for entry in state.history),
            **{key: last.get(key) for key in keys},
            "model": has_model,
            "seconds": state.computing_seconds(),
            "since": state.since,
        }

    def _advice(self, state: JobState, has_model: bool) -> str:
        """Return the advice of the status, or of the reason of the end if the job is done."""
        status = state.status
        assert status is not None
        if status is Status.DONE and state.reason in Termination._value2member_map_:
            reference = state.history[-1].get("reference") if state.history else None
            return " ".join([Termination(state.reason).advice, *(reference or {}).get("remarks", ())])
        if status is Status.ABORTING and self.store.requested(state.attempt) == "cancel":
            return "The job ends after the current tile or iteration; its model will be discarded."
        if status is Status.ABORTED and not has_model:
            return "The job was aborted before it had a model: resume continues it."
        return status.advice

    def asked(self) -> dict[str, Any]:
        """Return the request as JSON: the parameters with the changes of all resumes, and ``validation``."""
        spec, events = self.store.asked(), self.store.events()
        return {**spec["parameters"], **changes(events), "validation": places_of(events, spec)[1]}

    def follow(self, timeout: float | None = None) -> Iterator[JobState]:
        """Yield the state now and after each change, until no process runs the job.

        A job whose process has died counts as ended, on a cluster if no other process takes over within ``GRACE``
        seconds. Raises ``TimeoutError`` after ``timeout`` seconds, and ``JobFailedError`` if the thread of this process
        that was to run the job ended before the job began.
        """
        end = None if timeout is None else time.monotonic() + timeout
        last, gone = None, None
        while True:
            ended = self._thread is not None and not self._thread.is_alive()
            state = self.state()
            assert state.status is not None
            if state != last:
                yield state
            if ended and self._thread is not None:
                self._thread.require_begun(state)
            last, now = state, time.monotonic()
            lost = state.status is Status.INTERRUPTED and state.ended is None and bool(state.cluster)
            gone = (gone or now) if lost else None
            if state.status.final and (gone is None or now - gone > GRACE):
                return
            if end is not None and now >= end:
                raise TimeoutError(f"{self.location} is still {state.status} after {timeout:g} s")
            time.sleep(POLL_SECONDS if end is None else min(POLL_SECONDS, end - now))

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until no process runs the job and return its status. Raises as ``follow`` does."""
        *_, state = self.follow(timeout)
        assert state.status is not None
        return state.status

    def abort(self, reason: str = "") -> Status:
        """Request the end of the job and keep its model. Return its status at once; an ended job is not changed."""
        return self._end("abort", reason)

    def cancel(self, reason: str = "") -> Status:
        """Request the end of the job and discard its model. Return its status at once.

        Raises ``UsageError`` if the job is done.
        """
        return self._end("cancel", reason)

    def resume(
        self,
        *,
        client: Any = None,
        data: Place = None,
        validation: Place = None,
        allow_code: bool = False,
        allow_data: Places = (),
        **changed: Any,
    ) -> Job:
        """Resume from the last checkpoint, in a thread of this process or on a cluster; return at once.

        ``data`` and ``validation`` are the new places of the DATA and the held-out DATA, if they were moved.
        ``changed`` holds new limits, by the names in ``resolve.spec.LIMITS``; a time limit counts from the resume on.
        ``allow_code`` permits running a kernel or basis that is a named function. A resume of a job with a named
        function requires ``allow_code``. ``allow_data`` names the places of DATA that the job may read from another
        store (host, bucket, or this machine) than its own; such a place, unless given here, must be named.

        Raises ``UsageError`` for other changes or without the required permission, ``DoneError`` if a resume would
        change nothing, ``MissingDataError`` if the DATA are missing, ``ChangedDataError`` if the DATA have changed, and
        ``LeaseError`` while another process runs the job. The job is not changed if an error is raised.
        """
        check_changes(changed)
        allowed = Allowed.of(allow_code, allow_data, data, validation)
        return self._again(client, allowed, requeue, changed, moved(data, validation), allowed)

    def update(
        self,
        *,
        client: Any = None,
        max_rounds: int | None = None,
        data: Place = None,
        validation: Place = None,
        allow_code: bool = False,
        allow_data: Places = (),
    ) -> Job:
        """Update with rows appended to the DATA, in a thread of this process or on a cluster; return at once.

        An update continues from the last checkpoint (``strategies.rounds``). Regression adds the statistics of the
        vectors over the new rows to the stored statistics; classification moves to the mode over all rows. Then at most
        ``max_rounds`` rounds follow. The working set selects candidates among all rows that have not been candidates.
        Any other strategy continues as ``incremental``, with the new rows as the next partitions. Scaling, kernel and
        classes do not change; balanced class weights are computed from all rows. ``data``, ``validation``,
        ``allow_code`` and ``allow_data`` are described in ``resume``.

        Raises ``UsageError`` if there are no new rows or no fit that new rows could join, ``ChangedDataError`` if the
        earlier rows have changed, and ``LeaseError`` while another process runs the job.
        """
        allowed = Allowed.of(allow_code, allow_data, data, validation)
        return self._again(client, allowed, requeue_grown, max_rounds, moved(data, validation), allowed)

    def _again(self, client: Any, allowed: Allowed, queue: Callable[..., JobState], *arguments: Any) -> Job:
        """Queue the job by ``queue(location, cluster, *arguments)``, on a worker if there is a client, and start it."""
        if client is None:
            state = queue(self.location, "", *arguments)
        else:
            from partirvm.execution.detached import ask

            require_shared(self.location)
            state = ask(client, queue, absolute(self.location), address_of(client), *arguments)
        self.start(state, allowed, client)
        return self

    def requeue_grown(
        self,
        max_rounds: int | None = None,
        data: Place = None,
        validation: Place = None,
        *,
        allowed: Allowed | None = None,
    ) -> JobState:
        """Queue an update with the rows appended to the DATA; ``run_job`` runs it. Raises as ``update`` does."""
        allowed = allowed or Allowed.of(False, (), data, validation)
        return requeue_grown(self.location, "", max_rounds, moved(data, validation), allowed)

    def requeue(
        self, data: Place = None, validation: Place = None, *, allowed: Allowed | None = None, **changed: Any
    ) -> JobState:
        """Queue the job again; ``run_job`` then runs it. Raises as ``resume`` does."""
        allowed = allowed or Allowed.of(False, (), data, validation)
        return requeue(self.location, "", changed, moved(data, validation), allowed)

    def data(self) -> str:
        """Return the last known place of the DATA."""
        return places_of(self.store.events(), self.store.spec())[0]

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the last saved model.

        Raises ``MissingDataError`` if no model has been saved. Raises ``UsageError`` if the job was cancelled, or if
        its kernel or basis is a named function and ``allow_code`` is false.
        """
        try:
            return self.store.model(allow_code=allow_code)
        except MissingDataError:
            if self.status() is Status.CANCELLED:
                raise UsageError(f"{self.location} was cancelled: its model was discarded; start a new job") from None
            raise

    def relevance(self) -> dict[str, float] | None:
        """Return the relevance of each feature by name, as a fraction of the largest (``feature_relevance_``).

        Returns None if there is no model yet, or if its kernel has no per-feature widths. Raises as ``model`` does.
        """
        model, spec = self._inspected(), self.store.fit_spec(allow_code=True)
        if model is None or spec is None:
            return None
        found = relevances(model.design.kernel, spec.input_variance)
        return None if found is None else dict(zip(model.columns.features, found.tolist(), strict=True))

    def directions(self) -> list[dict[str, Any]]:
        """Return ``share`` and ``loadings`` of the directions of the kernel, if any, as JSON."""
        model, spec = self._inspected(), self.store.fit_spec(allow_code=True)
        if model is None or spec is None:
            return []
        return directions_json(model.design.kernel, spec.input_variance, model.columns.features)

    def bases(self) -> list[dict[str, Any]]:
        """Return the relevance of the explicit basis functions, if any, as plain JSON (``resolve.relevance``)."""
        model = self._inspected()
        return [] if model is None else basis_functions_json(model)

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the targets, or the labels of the classes as text; empty without a model."""
        model = self._inspected()
        if model is None:
            return ()
        if isinstance(model, ClassModel):
            return tuple(map(str, model.classes))
        return model.columns.target_names(model.n_targets)

    def _inspected(self) -> AnyModel | None:
        """Return the model, if there is one, for inspection: no code is imported before it predicts."""
        return self.store.model(allow_code=True) if self.store.has_model() else None

    def _end(self, what: str, reason: str) -> Status:
        for attempt in range(TRIES):
            state = self.state()
            assert state.status is not None
            if state.status in {Status.RUNNING, Status.ABORTING}:
                self.store.request(what, state.attempt, reason)
                return Status.ABORTING
            if what == "abort" and state.status not in {Status.QUEUED, Status.INTERRUPTED}:
                return state.status
            if state.status is Status.CANCELLED:
                return state.status
            if state.status is Status.DONE:
                raise UsageError(f"{self.location} is done and cannot be cancelled: delete the folder to discard it")
            try:
                self._end_idle("aborted" if what == "abort" else "cancelled", reason)
            except LeaseError:  # another process has just started the job
                if attempt == TRIES - 1:
                    raise
                time.sleep(0.2)
        raise LeaseError(f"{self.location}: other processes start and end this job repeatedly: try again later")

    def _end_idle(self, event: str, reason: str) -> None:
        """Record the end of a job that no process runs. Do nothing if the job has ended in the meantime."""
        lease = self.store.acquire()
        try:
            take_over(self.store)
            status = fold(self.store.events()).status
            allowed = {Status.QUEUED, Status.INTERRUPTED}
            if event == "cancelled":
                allowed |= {Status.ABORTED, Status.FAILED}
            if status in allowed:
                self.store.record({"event": event, "reason": reason or "no process was running it"})
                if event == "cancelled":
                    self.store.forget()
        finally:
            lease.release()

    def start(self, state: JobState, allowed: Allowed, client: Any = None) -> None:
        """Run the queued attempt in a thread of this process, or on the cluster of ``client``."""
        place = absolute(self.location)
        if client is None:
            self._thread = _AttemptThread(place, state.attempt, allowed)
            self._thread.start()
            return
        from partirvm.execution.detached import start

        key = f"partirvm-{place}-{state.attempt}-{int(1e3 * state.since)}"  # unique even if the job is overwritten
        start(client, key, run_job, place, attempt=state.attempt, allowed=allowed)


class _AttemptThread(threading.Thread):
    """A thread that runs one attempt at a job. The job's events record how the attempt ends, including errors.

    An error before the attempt has the lease cannot be recorded in the job, so ``error`` keeps it.
    """

    def __init__(self, job: str, attempt: int, allowed: Allowed) -> None:
        super().__init__(name=f"partirvm {job}", daemon=True)
        self.job, self.attempt, self.allowed = job, attempt, allowed
        self.error: Exception | None = None

    def run(self) -> None:
        """Run the attempt."""
        try:
            run_job(self.job, attempt=self.attempt, allowed=self.allowed)
        except Exception as error:
            self.error = error

    def require_begun(self, state: JobState) -> None:
        """Raise ``JobFailedError`` if the job is still queued; the caller read ``state`` after the thread ended."""
        if state.status is Status.QUEUED and state.attempt == self.attempt:
            why = self.error or "its thread has ended"
            raise JobFailedError(f"{self.job} is queued and could not be started: {why}; resume the job to try again")
