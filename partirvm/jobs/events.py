"""The events of a job: one numbered JSON object each, created exclusively, never changed.

    JOB/events/000001.json    {"event": "queued", "time": 1785600000.0, "epoch": 0, ...}

``event`` is the kind, ``time`` seconds since 1970, ``epoch`` that of the writer's lease (0 without one), ``digest`` a
hash of all the rest: an event of which a bit was changed is an error that names it. Two writers never get the same
number. An event of a writer who had lost its lease is left out (``storage.lease``).

On a store that cannot link, a process killed in the middle leaves an object cut short at the end. It is ignored there:
it may also be one that is just being written. The next writer says in its own event that it ``skips`` that number, and
one that is cut short is an error anywhere else, as is a number that is missing.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from typing import Any

from partirvm.errors import FormatError, MissingDataError
from partirvm.storage.folder import Folder, storing, to_json
from partirvm.storage.lease import Lease, limits, valid

Event = dict[str, Any]

ROW = "events"

END = b"\n}"
"""Last bytes of every event, and of none that is cut short: all that is nested in it is indented."""


class EventLog:
    """Appends to and reads the events in a job's folder."""

    row = ROW

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
        with storing(f"{self._folder.location}/{ROW}"):
            number = self._create(stamped)
        if lease is not None:
            lease.check()
        return number

    def read(self) -> list[Event]:
        """All events that count, in order.

        Raises ``FormatError`` for a damaged event, ``MissingDataError`` for a number that is missing; both name it.
        """
        found = self._objects()
        marks = limits(self._folder, ROW) if found else []
        return [event for number, event in found if valid(event.get("epoch", 0), (0, number), marks)]

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
                self._folder.create(_name(number), event_bytes({**event, "skips": skips} if skips else event))
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
                if not self._folder.exists(_name(number)):
                    raise MissingDataError(f"{self._folder.location}: {_name(number)} is missing: an event was lost")
                raise FormatError(f"{self._folder.location}/{_name(number)}: damaged, this event is no JSON object")
        return [(number, event) for number, event in found.items() if event is not None]

    def _object(self, number: int) -> Event | None:
        """The event of this number, None if there is none or it is cut short. Raises ``FormatError`` if damaged."""
        try:
            data = self._folder.read(_name(number))
        except FileNotFoundError:
            return None
        if not data.endswith(END):
            return None
        try:
            event = json.loads(data)
            if event.pop("digest") == _digest(event):
                return dict(event)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise FormatError(
            f"{self._folder.location}/{_name(number)}: damaged, this event is not what was written: restore the file"
        )

    def _numbers(self) -> list[int]:
        found = (re.fullmatch(r"(\d{6,})\.json", name) for name in self._folder.list(ROW))
        return sorted(int(match[1]) for match in found if match)


def event_bytes(event: Event) -> bytes:
    """An event as it is stored."""
    plain = json.loads(json.dumps(event))
    return to_json({**plain, "digest": _digest(plain)})


def _digest(event: Event) -> str:
    return hashlib.blake2b(json.dumps(event, sort_keys=True).encode(), digest_size=8).hexdigest()


def _name(number: int) -> str:
    return f"{ROW}/{number:06d}.json"
