"""Jobs: fits with a folder of their own, watched and controlled from any process that can read it.

``fit`` carries a job out here and now; ``submit`` starts one and returns; ``Job`` is a handle on one that is there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

from partirvm.core.termination import Termination
from partirvm.errors import JobFailedError, LeaseError, MissingDataError, UsageError
from partirvm.jobs.attempt import carry_out
from partirvm.jobs.ending import take_over
from partirvm.jobs.places import absolute, changes, places_of
from partirvm.jobs.resume import check_changes, requeue, requeue_grown
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel
from partirvm.setup.relevance import basis_functions_json, relevances

Place: TypeAlias = str | os.PathLike[str] | None
"""A path or URL, or None for the stored one."""

LOOK = 0.5
"""Seconds between two polls of a waiting caller."""

GRACE = 25.0
"""Seconds that a waiting caller gives a cluster to restart a lost driver: longer than the life of a lease."""

TRIES = 25
"""Retries when ending a job that another process is starting."""


def _moved(data: Place, validation: Place) -> dict[str, str]:
    """The new places that are not None, by name."""
    places = {"data": data, "validation": validation}
    return {name: absolute(os.fspath(place)) for name, place in places.items() if place is not None}


def address_of(client: Any) -> str:
    return str(client.scheduler.address)


def require_shared(*places: str) -> None:
    for place in places:
        if place.startswith("memory:"):
            raise UsageError(f"{place}: a cluster cannot read the memory of one process; use a folder or a URL")


def open_job(job: str | os.PathLike[str]) -> Job:
    """The job in this folder. Raises ``MissingDataError`` if there is none."""
    opened = Job(os.fspath(job))
    opened.store.spec()
    return opened


def jobs_in(folder: str) -> list[Job]:
    """All jobs directly inside a folder, by name. Raises ``MissingDataError`` if the folder is not there."""
    from partirvm.storage import open_folder

    place = open_folder(folder)
    if not place.exists():
        raise MissingDataError(f"{folder}: there is no such folder")
    found = (Job(f"{folder.rstrip('/')}/{name}") for name in place.list() if not name.startswith("."))
    return [job for job in found if job.store.there()]


class Job:
    """A handle on a job's folder. It holds no state: every answer is read from the folder."""

    def __init__(self, location: str, *, storage_options: dict[str, Any] | None = None) -> None:
        self.location = location.rstrip("/")
        self.store = JobStore(self.location, storage_options=storage_options)
        self._runner: _Runner | None = None

    def __repr__(self) -> str:
        return f"Job({self.location!r})"

    def state(self) -> JobState:
        """The state of the job, with its plan and history."""
        return self.store.state()

    def status(self) -> Status:
        """Queued, running, aborting, aborted, failed, interrupted, done or cancelled; a value with ``advice``."""
        status = self.state().status
        assert status is not None
        return status

    def progress(self) -> dict[str, Any]:
        """The progress as plain JSON: status, reason, seconds, and the last line of history."""
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
            "seconds": _seconds(state),
            "since": state.since,
        }

    def _advice(self, state: JobState, has_model: bool) -> str:
        """The meaning of the status, or of the reason of the end if the job is done."""
        status = state.status
        assert status is not None
        if status is Status.DONE and state.reason in Termination._value2member_map_:
            return Termination(state.reason).advice
        if status is Status.ABORTING and self.store.requested(state.attempt) == "cancel":
            return "The job ends after the current tile or iteration; its model will be discarded."
        if status is Status.ABORTED and not has_model:
            return "The job was aborted before it had a model: resume continues it."
        return status.advice

    def asked(self) -> dict[str, Any]:
        """The request as JSON: the parameters with the changes of resumes, and ``validation``."""
        spec, events = self.store.spec(), self.store.events()
        return {**spec["parameters"], **changes(events), "validation": places_of(events, spec)[1]}

    def follow(self, timeout: float | None = None) -> Iterator[JobState]:
        """Yield the state now and after each change, until no process works on the job.

        Raises ``TimeoutError`` after ``timeout`` seconds, ``JobFailedError`` if the thread of this process that should
        run it has ended before the job began. A job whose process is gone is interrupted and counts as ended; on a
        cluster only if no other process takes it over within ``GRACE`` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        last, gone = None, None
        while True:
            ended = self._runner is not None and self._runner.ended
            state = self.state()
            assert state.status is not None
            if state != last:
                yield state
            if ended and self._runner is not None:
                self._runner.require_begun(state)
            last, now = state, time.monotonic()
            lost = state.status is Status.INTERRUPTED and state.ended is None and bool(state.cluster)
            gone = (gone or now) if lost else None
            if state.status.final and (gone is None or now - gone > GRACE):
                return
            if end is not None and now >= end:
                raise TimeoutError(f"{self.location} is still {state.status} after {timeout:g} s")
            time.sleep(LOOK if end is None else min(LOOK, end - now))

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until no process works on the job and return its status. Raises as ``follow`` does."""
        *_, state = self.follow(timeout)
        assert state.status is not None
        return state.status

    def abort(self, reason: str = "") -> Status:
        """Ask the job to end and keep its model; return its status at once. A job that has ended is not changed."""
        return self._end("abort", reason)

    def cancel(self, reason: str = "") -> Status:
        """Ask the job to end and discard its model; return at once. Raises ``UsageError`` if it is done."""
        return self._end("cancel", reason)

    def resume(
        self,
        *,
        client: Any = None,
        data: Place = None,
        validation: Place = None,
        allow_code: bool = False,
        **changed: Any,
    ) -> Job:
        """Resume from the last checkpoint, in a thread of this process or on a cluster; return at once.

        ``data`` and ``validation`` are where its DATA and held-out DATA are now, if they were moved. ``changed`` may
        hold the names in ``setup.spec.LIMITS``; a time limit counts from the resume on. A job whose kernel or basis is
        a named function needs ``allow_code``, as only the fit that was just submitted may run it unasked. Raises
        ``UsageError`` without that and for other changes, ``DoneError`` where nothing is left to do,
        ``MissingDataError`` and ``ChangedDataError`` where its DATA are not there or not those that it was fitted to,
        ``LeaseError`` while another process is at work on it. It is left as it was then.
        """
        check_changes(changed)
        if client is None:
            self.start_here(self.requeue(data, validation, allow_code=allow_code, **changed), allow_code)
            return self
        from partirvm.backends.detached import ask

        require_shared(self.location)
        asked = absolute(self.location), address_of(client), changed, _moved(data, validation), allow_code
        self.start_there(client, ask(client, requeue, *asked), allow_code)
        return self

    def update(
        self,
        *,
        client: Any = None,
        max_rounds: int | None = None,
        data: Place = None,
        validation: Place = None,
        allow_code: bool = False,
    ) -> Job:
        """Update with rows appended to its DATA, in a thread of this process or on a cluster; return at once.

        An incremental step from where it ended (``strategies.growing``): statistics of its vectors over the new rows
        are added to those before, or a fit of classes moves to its mode over all rows; then rounds follow,
        ``max_rounds`` of them at most. The working set takes candidates among all rows that were none yet; any other
        strategy goes on as ``incremental``, with the new rows as the next partitions. Scaling, kernel and classes stay
        what they are; balanced class weights are those of all rows. ``data``, ``validation`` and ``allow_code`` are
        those of ``resume``. Raises ``UsageError`` where there are no new rows, or there is no fit yet for them to join,
        ``ChangedDataError`` if the rows before are not what they were, ``LeaseError`` while somebody is at work on it.
        """
        if client is None:
            self.start_here(self.requeue_grown(max_rounds, data, validation, allow_code=allow_code), allow_code)
            return self
        from partirvm.backends.detached import ask

        require_shared(self.location)
        place = absolute(self.location)
        asked = place, address_of(client), max_rounds, _moved(data, validation), allow_code
        self.start_there(client, ask(client, requeue_grown, *asked), allow_code)
        return self

    def requeue_grown(
        self,
        max_rounds: int | None = None,
        data: Place = None,
        validation: Place = None,
        *,
        allow_code: bool = False,
    ) -> JobState:
        """Queue the job again with the rows appended to its DATA, for ``carry_out``; raises as ``update`` does."""
        return requeue_grown(self.location, "", max_rounds, _moved(data, validation), allow_code)

    def requeue(
        self, data: Place = None, validation: Place = None, *, allow_code: bool = False, **changed: Any
    ) -> JobState:
        """Queue the job again, for ``carry_out``; raises as ``resume`` does."""
        return requeue(self.location, "", changed, _moved(data, validation), allow_code)

    def data(self) -> str:
        """The last known place of its DATA."""
        return places_of(self.store.events(), self.store.spec())[0]

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """The last saved model.

        Raises ``MissingDataError`` if there is none yet, ``UsageError`` if it was cancelled, or if its kernel or basis
        is a named function and ``allow_code`` is false.
        """
        try:
            return self.store.model(allow_code=allow_code)
        except MissingDataError:
            if self.status() is Status.CANCELLED:
                raise UsageError(f"{self.location} was cancelled: its model was discarded") from None
            raise

    def relevance(self) -> dict[str, float] | None:
        """Relevance of each feature by name, as a fraction of the largest: ``feature_relevance_`` of the model.

        None where there is no model yet, or its kernel tells nothing of single features. Raises as ``model``.
        """
        stored = self.store.decided(allow_code=True)  # to tell what is in it: nothing of it is imported
        if stored is None or not self.store.has_model():
            return None
        model = self._described()
        found = relevances(model.design.kernel, stored["input_variance"])
        return None if found is None else dict(zip(model.columns.features, found.tolist(), strict=True))

    def bases(self) -> list[dict[str, Any]]:
        """Relevance of the explicit basis functions as plain JSON: ``setup.relevance.basis_functions_json``.

        Empty where there are none, or no model yet. Raises as ``model``.
        """
        return basis_functions_json(self._described()) if self.store.has_model() else []

    def _described(self) -> AnyModel:
        """The model, without its code: it cannot be evaluated, only inspected."""
        return self.store.model(allow_code=True)

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
                raise UsageError(f"{self.location} is done, it cannot be cancelled: remove the folder to be rid of it")
            try:
                self._end_idle("aborted" if what == "abort" else "cancelled", reason)
            except LeaseError:  # somebody has just begun
                if attempt == TRIES - 1:
                    raise
                time.sleep(0.2)
        raise LeaseError(f"{self.location}: others begin and end this job again and again; try once more")

    def _end_idle(self, event: str, reason: str) -> None:
        """Record the end of a job that no process works on; do nothing if it has ended meanwhile."""
        lease = self.store.acquire()
        try:
            take_over(self.store)
            status = fold(self.store.events()).status
            allowed = {Status.QUEUED, Status.INTERRUPTED}
            if event == "cancelled":
                allowed |= {Status.ABORTED, Status.FAILED}
            if status in allowed:
                self.store.record({"event": event, "reason": reason or "no process was working on it"})
                if event == "cancelled":
                    self.store.forget()
        finally:
            lease.release()

    def start_here(self, state: JobState, allow_code: bool) -> None:
        self._runner = _Runner(absolute(self.location), state.attempt, allow_code)

    def start_there(self, client: Any, state: JobState, allow_code: bool) -> None:
        from partirvm.backends.detached import start

        place = absolute(self.location)
        key = f"partirvm-{place}-{state.attempt}-{int(1e3 * state.since)}"  # another one if the job is overwritten
        start(client, key, carry_out, place, attempt=state.attempt, allow_code=allow_code)


def _seconds(state: JobState) -> float | None:
    """Seconds of work without the time between an end and a resume; None if the job has not begun.

    An end tells them; of a process that is gone they are known up to its last line of history.
    """
    if state.began is None:
        return None
    if state.status is not None and state.status.final and state.seconds is not None:
        return round(state.seconds, 3)
    before, at = 0.0, state.began
    if state.history:
        before, at = float(state.history[-1]["seconds"]), float(state.history[-1]["time"])
        if state.status is Status.INTERRUPTED:
            return round(before, 3)
    if state.status is Status.RUNNING:
        at = max(at, state.since)
    return round(before + max((state.ended or time.time()) - at, 0.0), 3)


class _Runner:
    """Runs an attempt at a job in a thread of its own. The job's events record how it ended, errors included.

    All but an error that keeps it from beginning: nothing can be written without the lease.
    """

    def __init__(self, job: str, attempt: int, allow_code: bool) -> None:
        self._job, self._attempt, self._allow_code = job, attempt, allow_code
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"partirvm {job}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def require_begun(self, state: JobState) -> None:
        """Raise ``JobFailedError`` if the job, seen after the end of the thread, still waits for it."""
        if state.status is Status.QUEUED and state.attempt == self._attempt:
            why = self._error or "its thread has ended"
            raise JobFailedError(f"{self._job} is queued, and could not be begun: {why}; resume tries again")

    def _run(self) -> None:
        try:
            carry_out(self._job, attempt=self._attempt, allow_code=self._allow_code)
        except Exception as error:
            self._error = error
