"""The events of a job: one numbered JSON object each, created exclusively, never changed.

    JOB/events/000001.json    {"event": "queued", "time": 1785600000.0, "epoch": 0, ...}

``event`` is the kind, ``time`` seconds since 1970, ``epoch`` that of the writer's lease (0 without one). Two writers
never get the same number. An event of a writer who had lost its lease is left out (``storage.lease``).

On a store that cannot link, a process killed in the middle leaves an object cut short at the end. It is ignored there:
it may also be one that is just being written. The next writer says in its own event that it ``skips`` that number.
Cut short anywhere else, or damaged, an object is an error, as is a number that is missing, or the claim of the lease
under which an event was written.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from partirvm.errors import CutShortError, FormatError, MissingDataError
from partirvm.storage.folder import Folder, read_json, storing, to_json
from partirvm.storage.lease import Lease, epochs, limits, valid

Event = dict[str, Any]

SERIES = "events"


class EventLog:
    """Appends to and reads the events in a job's folder."""

    series = SERIES

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._last: int | None = None
        """The number written last, as long as nobody else is known to have written."""

    def append(self, event: Event, lease: Lease | None = None) -> int:
        """Write an event, with the time unless it has one, and return its number.

        Raises ``LeaseLostError`` if the lease was taken by another process: the event may be there, but does not count.
        """
        if lease is not None:
            lease.check()
        stamped = {"event": event["event"], "time": time.time(), **event, "epoch": 0 if lease is None else lease.epoch}
        with storing(f"{self._folder.location}/{SERIES}"):
            number = self._create(stamped)
        if lease is not None:
            lease.check()
        return number

    def read(self) -> list[Event]:
        """All events that count, in order.

        Raises ``FormatError`` for a damaged event, ``MissingDataError`` for a number that is missing; both name it.
        """
        found = self._objects()
        marks = limits(self._folder, SERIES) if found else []
        events = [event for number, event in found if valid(event["epoch"], (0, number), marks)]
        lost = {event["epoch"] for event in events} - {0, *epochs(self._folder)} if events else ()
        if lost:
            raise MissingDataError(f"{self._folder.location}: the claim of epoch {min(lost)} is missing from lease/")
        return events

    def newest_model(self) -> str:
        """The newest model that an event names, "" if none does.

        Events that are missing or damaged are passed over: a model can be used whatever became of them. Models come in
        the order of the events that count, so none is read before the last of those that name one.
        """
        marks = limits(self._folder, SERIES)
        for number in reversed(self._numbers()):
            with suppress(MissingDataError, FormatError):
                event = read_json(self._folder, _name(number))
                if "model" in event and valid(event["epoch"], (0, number), marks):
                    return str(event["model"])
        return ""

    def mark(self) -> tuple[int, int]:
        """Where the row has come to. The epoch is left at 0: numbers alone are in the order of writing."""
        return 0, max(self._numbers(), default=0)

    def _create(self, event: Event) -> int:
        skips: list[int] = []
        if self._last is None:
            self._last, skips = self._end()
        while True:
            number = self._last + 1
            try:
                self._folder.create(_name(number), to_json({**event, "skips": skips} if skips else event))
            except FileExistsError:
                self._last, skips = self._end()
                continue
            self._last = number
            return number

    def _end(self) -> tuple[int, list[int]]:
        """The last number, and itself again if what is there cannot be read."""
        last = max(self._numbers(), default=0)
        return last, [last] if last and self._object(last) is None else []

    def _objects(self) -> list[tuple[int, Event]]:
        numbers = self._numbers()
        found = {number: self._object(number) for number in range(1, (numbers or [0])[-1] + 1)}
        skipped = {number for event in found.values() if event for number in event.get("skips", ())}
        for number, event in found.items():
            if event is None and number != numbers[-1] and number not in skipped:
                found[number] = read_json(self._folder, _name(number))  # says what is wrong with it
        return [(number, event) for number, event in found.items() if event is not None]

    def _object(self, number: int) -> Event | None:
        """The event of this number, None if there is none or it is cut short. Raises ``FormatError`` for damage."""
        try:
            return read_json(self._folder, _name(number))
        except (MissingDataError, CutShortError):
            return None

    def _numbers(self) -> list[int]:
        found = (re.fullmatch(r"(\d{6,})\.json", name) for name in self._folder.list(SERIES))
        return sorted(int(match[1]) for match in found if match)


def _name(number: int) -> str:
    return f"{SERIES}/{number:06d}.json"
