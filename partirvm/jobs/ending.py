"""The ends of a job: by a request of a user, by an error, or by the death of its process."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import (
    ChangedDataError,
    ClusterError,
    LeaseError,
    MissingDataError,
    PartirvmError,
    StorageError,
)
from partirvm.jobs.driver import Entry
from partirvm.jobs.state import TRANSITIONS, JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel

POLL_SECONDS = 0.2
"""Seconds between two polls for requests to end the job."""

STAMPS = {"event", "time", "epoch", "skips", "model"}
"""Fields that the store adds to a line of history."""

GONE = "the process that ran it has ended without recording an end"
"""Reason of an interruption that another process records."""


@dataclass
class Requests:
    """A callable that polls for requests of users to end the job, at most every ``POLL_SECONDS`` seconds.

    The driver calls it between tiles and between dense iterations. The first request found is recorded as an
    ``aborting`` event with the reason that the user gave. A call raises ``LeaseLostError`` if another process has taken
    over the job.
    """

    store: JobStore
    attempt: int
    aborted: Callable[[], bool] | None = None
    request: str | None = None
    reason: str = ""
    _polled: float = field(default=-POLL_SECONDS)

    def __call__(self) -> Termination | None:
        """Return ``ABORTED`` after a request to end the job, otherwise None."""
        if self.request is None:
            self._poll()
        return None if self.request is None else Termination.ABORTED

    def _poll(self) -> None:
        if self.aborted is not None and self.aborted():
            self.request, self.reason = "abort", ""
        elif time.monotonic() - self._polled >= POLL_SECONDS:
            self._polled = time.monotonic()
            if self.store.lease is not None and self.store.lease.lost:
                self.store.lease.check()
            self.request = self.store.requested(self.attempt)
            if self.request is not None:
                self.reason = self.store.reason_of(self.request, self.attempt)[0]
        if self.request is not None:
            self.store.record({"event": "aborting", "reason": self.reason or f"{self.request} requested"})


def take_over(store: JobStore) -> None:
    """Record ``interrupted`` if the previous process died without recording an end. The caller holds the lease."""
    if fold(store.events()).status in {Status.RUNNING, Status.ABORTING}:
        store.record({"event": "interrupted", "reason": GONE})


@contextmanager
def ending(store: JobStore) -> Iterator[None]:
    """Record an exception that leaves the block as an event, if the job can still be written, and raise it again."""
    try:
        yield
    except BaseException as error:
        event: dict[str, Any] = {"event": "failed", "reason": f"{type(error).__name__}: {error}"}
        if isinstance(error, ClusterError) or (
            isinstance(error, ChangedDataError | MissingDataError) and _begun(store)
        ):
            event = {"event": "interrupted", "reason": str(error)}
        elif not isinstance(error, Exception):
            event = {"event": "interrupted", "reason": f"stopped at once ({type(error).__name__})"}
        elif not isinstance(error, PartirvmError):
            event["traceback"] = traceback.format_exc()
        with suppress(LeaseError, StorageError):
            if _may_record(store, event["event"]):
                store.record(event)
        raise


def _may_record(store: JobStore, kind: str) -> bool:
    """Return True if an end of this kind may follow. After an end it may not: the store recorded it, and the error is
    that its reply was lost.
    """
    return Status(kind) in TRANSITIONS[fold(store.events()).status]


def _begun(store: JobStore) -> bool:
    """Return True if the attempt has recorded ``running``: its checkpoint was found, so only DATA can be missing."""
    return fold(store.events()).status in {Status.RUNNING, Status.ABORTING}


def end_as_requested(store: JobStore, requests: Requests, model: AnyModel | None, seconds: float) -> AnyModel | None:
    """Record that the job was aborted or cancelled. Return the model, or None if the job was cancelled."""
    if store.requested(requests.attempt) == "cancel":
        store.record(
            {"event": "cancelled", "reason": store.reason_of("cancel", requests.attempt)[0] or "cancel requested"}
        )
        store.forget()
        return None
    advice = Termination.ABORTED.advice if model else "Aborted before a model was saved."
    store.record({"event": "aborted", "reason": requests.reason or advice, "seconds": seconds})
    return model


def history_of(state: JobState) -> list[Entry]:
    """Return the valid lines of history as the driver recorded them, without the fields of the store."""
    return [{key: event[key] for key in event.keys() - STAMPS} for event in state.history]


def last_lines(store: JobStore, history: list[Entry]) -> list[Entry]:
    """Return ``history``, or if it is empty the last recorded line, which belongs to the saved model.

    The history is empty if an update of a fit without rounds ends before its first line. A fit without rounds has a
    single line, the final one, and an update drops the final line from the history.
    """
    if history:
        return history
    last = [event for event in store.events() if event["event"] == "fit"][-1:]
    return [{key: event[key] for key in event.keys() - STAMPS} for event in last]


def kept_model(store: JobStore) -> AnyModel:
    """Return the model of earlier rounds. Its code may run, because the caller was permitted to run the job's code."""
    return store.model(allow_code=True)
