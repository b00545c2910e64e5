"""A prediction under way: the tiles that are done are kept beside OUTPUT, so that an interrupted one can go on.

    .new.csv.partial/tiles-3f0c…/        a Zarr array, a chunk with a checksum per tile; its attributes say of what
    .new.csv.partial/lease/              who is at work on it (storage.lease)
    .new.csv.partial/spill-000002/       rows that the second who was at work on it puts in order
    .new.csv.partial/output-000002.csv   OUTPUT while it is written, by the same

A process that is killed at any instruction leaves every tile that was whole. Tiles need no flush: after a loss of power
the checksum tells what is damaged, and that is predicted again. The array's name holds a hash of its identity, and what
else is written the epoch of its writer: a process that was frozen, and taken for dead, can spoil nothing.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ChangedDataError, MissingDataError, StorageError
from partirvm.storage import reading, storing
from partirvm.storage.lease import Lease, acquire, epochs
from partirvm.storage.local_folder import LocalFolder

Float = NDArray[np.float64]


def width(columns: Sized) -> int:
    """Numbers kept of a row: its number before shuffling, those of the ``columns``, and whether it is far."""
    return 2 + len(columns)


@contextmanager
def partial_prediction(output: Path, identity: dict[str, Any], note: Callable[[str], None]) -> Iterator[Partial]:
    """Hold what there is of the prediction to ``output``, and remove it once the block has come to its end.

    ``identity`` is JSON that says of what the prediction is, with ``n_rows``, ``tile_rows`` and ``columns``, the names
    of the numbers kept of each row: tiles of another one are removed. ``note`` is told if the prediction goes on. Where
    the block is left by an error the tiles stay, and a note of the error says so; nothing stays if there are none.
    Raises ``LeaseError`` if another process predicts to the same output, ``StorageError`` if it cannot be written.
    """
    folder = LocalFolder(str(output), output.with_name(f".{output.name}.partial"))
    lease, partial = _acquire(folder), None
    try:
        with storing(folder.location):
            partial = Partial(folder, lease, identity)
        if partial.n_whole:
            note(f"going on with an interrupted prediction: {partial.count()} are there")
        elif partial.replaced:
            note("an interrupted prediction of other data or by another model is replaced")
        yield partial
        _remove(folder, lease)
    except BaseException as error:
        if epochs(folder)[-1:] != [lease.epoch]:
            lease.stop()  # all that is there is another process's
        elif partial is None or not partial.n_whole or isinstance(error, ChangedDataError):
            _remove(folder, lease)
        else:
            with suppress(StorageError):
                lease.release()
            error.add_note(f"{partial.count()} are kept beside {output}: the same command goes on with them")
        raise


class Partial:
    """Tiles of a prediction. ``missing`` are those that were not there, or damaged, when it was opened.

    ``n_tiles`` are to be there in the end, ``n_whole`` are now; ``width`` numbers are kept of a row; ``replaced`` says
    if there were others than these.
    """

    def __init__(self, folder: LocalFolder, lease: Lease, identity: dict[str, Any]) -> None:
        self._folder, self._lease = folder, lease
        self._n_rows, self._tile_rows = int(identity["n_rows"]), int(identity["tile_rows"])
        self.n_tiles = -(-self._n_rows // self._tile_rows)
        self.width = width(identity["columns"])
        text = json.dumps(identity, sort_keys=True)
        name = f"tiles-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        others = [found for found in folder.list() if found not in ("lease", name)]
        for other in others:
            folder.remove(other)
        self.replaced = any(other.startswith("tiles-") for other in others)
        self._open(name, identity)
        self.missing = tuple(number for number in range(self.n_tiles) if not self._has(number))
        self.n_whole = self.n_tiles - len(self.missing)

    def keep(self, number: int, records: Float) -> None:
        """Keep the predictions of a tile, (rows, width). Raises ``LeaseLostError`` if another process took over."""
        if self._lease.lost:
            self.check()
        chunk = np.full((self._tile_rows, self.width), np.nan)
        chunk[: len(records)] = records
        with storing(self._folder.location):
            self._array[self._span(number)] = chunk
        self.n_whole += 1

    def tile(self, number: int) -> Float:
        """The predictions of a tile, (rows, width). Raises ``MissingDataError`` if they are not there or damaged."""
        place = f"{self._folder.location}: what was kept of tile {number}"
        with reading(place, "run the same command again", MissingDataError):
            chunk = np.asarray(self._array[self._span(number)])
        if np.isnan(chunk[0, 0]):
            raise MissingDataError(f"{place} is missing: run the same command again")
        return chunk[: self._n_rows - number * self._tile_rows]

    def place(self, name: str) -> Path:
        """Where to put a file or folder that only this process knows of, such as ``output.csv``."""
        path = Path(name)
        return Path(self._folder.place(f"{path.stem}-{self._lease.epoch:06d}{path.suffix}"))

    def check(self) -> None:
        """Raise ``LeaseLostError`` if another process took over."""
        self._lease.check()

    def count(self) -> str:
        """How many tiles are there, for people."""
        return f"{self.n_whole:,} of {self.n_tiles:,} tiles"

    def _open(self, name: str, identity: dict[str, Any]) -> None:
        import zarr
        from zarr.codecs import Crc32cCodec

        place = self._folder.place(name)
        with suppress(OSError, KeyError, ValueError):
            self._array = zarr.open_array(place, mode="r+")
            if dict(self._array.attrs) == identity:
                return
        self._folder.remove(name)
        self._array = zarr.create_array(
            place,
            shape=(
                self.n_tiles * self._tile_rows,
                self.width,
            ),  # whole chunks: a damaged one is written over, never read
            chunks=(self._tile_rows, self.width),
            dtype="f8",
            compressors=[Crc32cCodec()],
            fill_value=np.nan,
            attributes=identity,
            config={"write_empty_chunks": True},
        )

    def _has(self, number: int) -> bool:
        try:
            return len(self.tile(number)) > 0
        except (MissingDataError, OSError):
            return False

    def _span(self, number: int) -> slice:
        return slice(number * self._tile_rows, (number + 1) * self._tile_rows)


def _acquire(folder: LocalFolder) -> Lease:
    """The lease of a partial prediction, which the one who has it takes away with all the rest in the end."""
    try:
        for _ in range(3):
            with suppress(MissingDataError):  # taken away while it was read
                return acquire(folder, dict)
        return acquire(folder, dict)
    except StorageError:
        for name in ("lease", ""):
            with suppress(OSError):
                Path(folder.place(name)).rmdir()  # unless there is something in it
        raise


def _remove(folder: LocalFolder, lease: Lease) -> None:
    """Remove all: the lease last and from under another name, as its next holder may already be waiting for it."""
    lease.stop()
    with suppress(OSError):
        for name in folder.list():
            if name != "lease":
                folder.remove(name)
        gone = folder.sibling(f"{Path(folder.place('')).name}-{uuid.uuid4().hex}")
        folder.rename(gone)
        gone.remove()
