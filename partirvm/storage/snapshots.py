"""Numbered groups: the models, specs and checkpoints of a job. Readers use the newest complete group of a series.

    models/000002-000007/group.json     epoch and number (``storage.codec``)

A group is written under a new name, its ``group.json`` last, exclusively. ``about`` in this object contains the name of
the group and the token of the lease of the writer, so that a group in the wrong place is found. The greatest group that
its writer wrote while it held the lease (``storage.lease``) is the current one.

At least two groups are kept: other processes may still read the previous one, the last one may be damaged, and a
process that is losing its lease may count its own as the last.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from partirvm.errors import FormatError, MissingDataError, StorageError
from partirvm.storage.address import storing
from partirvm.storage.codec import HEAD
from partirvm.storage.folder import Folder
from partirvm.storage.lease import Lease, claims, limits, valid
from partirvm.storage.records import read_json

KEPT = 2
"""Default number of complete groups that are kept."""

Position: TypeAlias = tuple[int, int]
"""Epoch and number of a group; the greater position is newer."""


@dataclass(frozen=True)
class Snapshot:
    """A complete group. ``about`` is None if ``group.json`` is damaged or that of another group."""

    name: str
    position: Position
    about: dict[str, Any] | None


class Snapshots:
    """The groups of one series. The last ``kept`` complete groups are kept."""

    def __init__(self, folder: Folder, series: str, kept: int = KEPT) -> None:
        self.series = series
        self._folder, self._kept = folder, kept

    def publish(
        self,
        write: Callable[[str, dict[str, Any]], object],
        about: dict[str, Any] | None = None,
        lease: Lease | None = None,
    ) -> str:
        """Call ``write`` with a new place and the complete ``about`` of its group, and return the name of the group.

        Raises ``LeaseLostError`` if another process took the lease, and ``StorageError`` if the group cannot be
        written. After an error everything written is removed, and the previous group stays current.
        """

        def check() -> None:
            if lease is not None:
                lease.check()

        numbers = [number for _, number in map(_position, self._folder.list(self.series))]
        position = (0 if lease is None else lease.epoch), max(numbers, default=0) + 1
        name = self._name(position)
        own = {"time": time.time(), "name": name, "token": "" if lease is None else lease.token}
        try:
            with storing(self._folder.place(name)):
                check()
                write(self._folder.place(name), {**(about or {}), **own})
            check()
        except BaseException as error:
            if not self._folder.exists(f"{name}/{HEAD}"):
                with suppress(OSError):
                    self._folder.remove(name)
            if isinstance(error, OSError):
                with suppress(OSError):
                    check()  # the error may come from the new holder, which removes unfinished groups
            raise
        self._clear(position)
        return name

    def newest(self) -> Iterator[Snapshot]:
        """Yield all complete groups, newest first, including damaged ones."""
        positions = self._positions()
        known = claims(self._folder) if positions else {}
        tokens = {0: "", **{epoch: claim["token"] for epoch, claim in known.items()}}
        for position in reversed(positions):
            name, about = self._name(position), None
            try:
                found = read_json(self._folder.at(name), HEAD, {"about": {}})["about"]
                if (found.get("name"), found.get("token")) == (name, tokens.get(position[0])):
                    about = found
            except MissingDataError:
                continue  # the group was removed meanwhile, because newer groups exist
            except FormatError:
                pass
            yield Snapshot(name, position, about)

    def current(self) -> str | None:
        """Return the name of the current group, or None if there is no group yet."""
        positions = self._positions()
        return self._name(positions[-1]) if positions else None

    def mark(self) -> Position:
        """Return the position of the newest group; (0, 0) if the series is empty."""
        return max(self._positions(), default=(0, 0))

    def _positions(self) -> list[Position]:
        """Return the positions of all valid groups in increasing order."""
        found = [_position(name) for name in self._folder.list(self.series)]
        marks = limits(self._folder, self.series) if found else []
        whole = [each for each in found if any(each) and self._folder.exists(f"{self._name(each)}/{HEAD}")]
        return sorted(position for position in whole if valid(position[0], position, marks))

    def _clear(self, position: Position) -> None:
        """Remove all groups before this position, except the last ``kept`` groups, as far as possible."""
        stays = {*self._positions()[-self._kept :], (0, 0)}
        with suppress(OSError, StorageError):
            for older in map(_position, self._folder.list(self.series)):
                if older < position and older not in stays:
                    self._folder.remove(f"{self._name(older)}/{HEAD}")
                    self._folder.remove(self._name(older))

    def _name(self, position: Position) -> str:
        return f"{self.series}/{position[0]:06d}-{position[1]:06d}"


def _position(name: str) -> Position:
    """Return epoch and number of the name of a group; (0, 0) for other names."""
    match = re.fullmatch(r"(\d{6,})-(\d{6,})", name)
    return (int(match[1]), int(match[2])) if match else (0, 0)
