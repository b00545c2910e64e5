"""Groups of arrays of which the newest whole one counts: models and checkpoints.

    models/000002-000007/          a group of arrays: epoch, number
    models/000002-000007.json      its pointer: the group is whole

A group is written under a fresh name, flushed, and then pointed to by an object that is created exclusively and never
replaced. The pointer of the greatest (epoch, number) tells which group to use; one that a process wrote after it had
lost its lease tells nothing (``storage.lease``).

Groups go, pointer first, once there are as many newer whole ones as are kept, two at least. The one before the last
stays for readers that are in the middle of it, in case the last is found damaged, and because a process that is just
losing its lease may take its own group for the last when it clears up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from partirvm.errors import FormatError, MissingDataError, StorageError
from partirvm.storage.folder import Folder, read_json, storing, to_json
from partirvm.storage.lease import Lease, limits, valid

KEPT = 2
"""Whole groups that stay unless told otherwise."""

Position: TypeAlias = tuple[int, int]
"""Epoch and number: greater is newer."""


@dataclass(frozen=True)
class Snapshot:
    """A whole group: its name in the folder, and what its pointer says about it; None if the pointer is damaged."""

    name: str
    position: Position
    about: dict[str, Any] | None


class Snapshots:
    """The groups below one name of a folder, of which the last ``kept`` whole ones stay."""

    def __init__(self, folder: Folder, row: str, kept: int = KEPT) -> None:
        self.row = row
        self._folder, self._kept = folder, kept

    def publish(
        self, write: Callable[[str], object], about: dict[str, Any] | None = None, lease: Lease | None = None
    ) -> str:
        """Let ``write`` fill a fresh place with a group, and make it the one to use. Returns its name.

        Raises ``LeaseLostError`` if the lease was taken by another process, ``StorageError`` if it cannot be written;
        nothing is left of it then, and the one before stays in use.
        """
        position = self._next(0 if lease is None else lease.epoch)
        name = self._name(position)
        try:
            with storing(self._folder.place(name)):
                if lease is not None:
                    lease.check()
                write(self._folder.place(name))
                self._folder.flush(name)
                if lease is not None:
                    lease.check()
                self._folder.create(f"{name}.json", to_json({"time": time.time(), **(about or {})}))
            if lease is not None:
                lease.check()
        except BaseException as error:
            if not self._folder.exists(f"{name}.json"):
                self._remove_unfinished(name)
            if lease is not None and isinstance(error, OSError):
                with suppress(OSError, IndexError):
                    lease.check()  # whoever took it over clears away what is unfinished: that is why it went wrong
            raise
        self._clear(position)
        return name

    def newest(self) -> Iterator[Snapshot]:
        """Every whole group, the one to use first; a pointer cut short by the death of its writer is passed on too."""
        for position in reversed(self._positions()):
            name, about = self._name(position), None
            try:
                about = read_json(self._folder, f"{name}.json")
            except MissingDataError:
                continue  # cleared meanwhile: there are newer ones
            except FormatError:
                pass
            yield Snapshot(name, position, about)

    def current(self) -> str | None:
        """Name of the group to use, None if there is none yet."""
        positions = self._positions()
        return self._name(positions[-1]) if positions else None

    def mark(self) -> Position:
        """Where the row has come to: (0, 0) if nothing is there."""
        return max(self._positions(), default=(0, 0))

    def _positions(self) -> list[Position]:
        """Positions of all valid pointers, the newest last."""
        names = self._folder.list(self.row)
        found = [(int(m[1]), int(m[2])) for name in names if (m := re.fullmatch(r"(\d{6,})-(\d{6,})\.json", name))]
        marks = limits(self._folder, self.row) if found else []
        return sorted(position for position in found if valid(position[0], position, marks))

    def _next(self, epoch: int) -> Position:
        """A position that no group and no remains of one have, beyond all."""
        numbers = (re.match(r"\d{6,}-(\d{6,})", name) for name in self._folder.list(self.row))
        return epoch, max((int(match[1]) for match in numbers if match), default=0) + 1

    def _clear(self, position: Position) -> None:
        """Remove all but the last few groups up to this one; what cannot be removed stays, and harms nobody."""
        stays = {self._name(each) for each in self._positions()[-self._kept :]}
        with suppress(OSError, StorageError):
            names = [f"{self.row}/{name}" for name in self._folder.list(self.row)]
            older = [name for name in names if name.removesuffix(".json") not in stays and self._older(name, position)]
            for name in sorted(older, key=lambda name: not name.endswith(".json")):
                self._folder.remove(name)

    def _older(self, name: str, position: Position) -> bool:
        match = re.match(r"(\d{6,})-(\d{6,})", name.rpartition("/")[2])
        return bool(match) and (int(match[1]), int(match[2])) < position  # type: ignore[index]

    def _remove_unfinished(self, name: str) -> None:
        """Remove a group whose writing failed; threads of Zarr may go on with other files of it for a moment."""
        for _ in range(10):
            with suppress(OSError):
                self._folder.remove(name)
            time.sleep(0.02)
            if not self._folder.exists(name):
                return

    def _name(self, position: Position) -> str:
        return f"{self.row}/{position[0]:06d}-{position[1]:06d}"
