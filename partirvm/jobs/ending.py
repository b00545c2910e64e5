"""How a job ends: because a user asks for it, by an error, or because its process is gone."""

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
from partirvm.jobs.state import JobState, Status, fold
from partirvm.jobs.store import JobStore
from partirvm.model import AnyModel

ASK = 0.2
"""Seconds between looks at what is asked of the job."""

STAMPS = {"event", "time", "epoch", "skips", "model"}
"""What the store adds to a line of history."""

GONE = "the process that was at work on it is gone"
"""Reason of an interruption that another process noticed."""


@dataclass
class Requests:
    """Asked between tiles and dense iterations: whether a user asked for its end. Looks every ``ASK`` seconds.

    The first time that it is so it becomes an event, with the reason that was given. Raises ``LeaseLostError`` once
    another process has taken the job over.
    """

    store: JobStore
    attempt: int
    aborted: Callable[[], bool] | None = None
    asked: str | None = None
    reason: str = ""
    _looked: float = field(default=-ASK)

    def __call__(self) -> Termination | None:
        """``ABORTED`` once a user asked for the end."""
        if self.asked is None:
            self._look()
        return None if self.asked is None else Termination.ABORTED

    def _look(self) -> None:
        if self.aborted is not None and self.aborted():
            self.asked, self.reason = "abort", ""
        elif time.monotonic() - self._looked >= ASK:
            self._looked = time.monotonic()
            if self.store.lease is not None and self.store.lease.lost:
                self.store.lease.check()
            self.asked = self.store.requested(self.attempt)
            if self.asked is not None:
                self.reason = self.store.why(self.asked, self.attempt)[0]
        if self.asked is not None:
            self.store.record({"event": "aborting", "reason": self.reason or f"{self.asked} requested"})


def take_over(store: JobStore) -> None:
    """Write down, with the lease in hand, that the process before this one is gone, if it left no end."""
    if fold(store.events()).status in {Status.RUNNING, Status.ABORTING}:
        store.record({"event": "interrupted", "reason": GONE})


@contextmanager
def ending(store: JobStore) -> Iterator[None]:
    """Whatever leaves the block by an exception gets written down, as far as that can still be done."""
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
            store.record(event)
        raise


def _begun(store: JobStore) -> bool:
    """Whether a checkpoint was found, if one was needed: what is missing then are DATA."""
    return fold(store.events()).status in {Status.RUNNING, Status.ABORTING}


def end_as_asked(store: JobStore, requests: Requests, model: AnyModel | None, seconds: float) -> AnyModel | None:
    """Record that a job was aborted or cancelled; return the model that it has then."""
    if store.requested(requests.attempt) == "cancel":
        store.record({"event": "cancelled", "reason": store.why("cancel", requests.attempt)[0] or "cancel requested"})
        store.forget()
        return None
    advice = Termination.ABORTED.advice if model else "Aborted before there was a model."
    store.record({"event": "aborted", "reason": requests.reason or advice, "seconds": seconds})
    return model


def history_of(state: JobState) -> list[Entry]:
    """The lines of history that stand, as the driver wrote them."""
    return [{key: event[key] for key in event.keys() - STAMPS} for event in state.history]


def last_told(store: JobStore, history: list[Entry]) -> list[Entry]:
    """Lines of history; of an update that broke off before its first one, the last before: that of the model.

    A fit without rounds has no other line than its last, which is no part of the history once other fits follow.
    """
    if history:
        return history
    last = [event for event in store.events() if event["event"] == "fit"][-1:]
    return [{key: event[key] for key in event.keys() - STAMPS} for event in last]


def kept_model(store: JobStore) -> AnyModel:
    """The model of earlier rounds; whoever works on the job was allowed its code."""
    return store.model(allow_code=True)
