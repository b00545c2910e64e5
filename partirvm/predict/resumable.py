"""Keep the finished tiles of a prediction beside OUTPUT, so that an interrupted prediction can continue.

    .new.csv.lease/                      the process that predicts (storage.lease)
    .new.csv.partial/tiles-3f0c…/        a Zarr array with one chunk and checksum per tile, whose first row contains the
                                         number of the tile; its attributes are the identity of the prediction
    .new.csv.partial/output-9c…          OUTPUT while it is written, and rows being sorted; on this machine

The folder lies in the same store as OUTPUT. A process killed at any moment leaves all finished tiles. Tiles are not
flushed: after a power failure, damaged tiles are detected by their checksums and predicted again. The name of the array
contains a hash of its identity, and the names of all other files contain the token of their writer's lease. Therefore a
process that was frozen and has lost its lease cannot damage the files of its successor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data.publish import claimed
from partirvm.errors import ChangedDataError, MissingDataError
from partirvm.storage import reading, storing
from partirvm.storage.destination import Destination
from partirvm.storage.folder import Folder
from partirvm.storage.lease import Lease

Float = NDArray[np.float64]


def width(columns: Sized) -> int:
    """Return the number of values kept per row: row number before shuffling, the ``columns``, and the far flag."""
    return 2 + len(columns)


@contextmanager
def partial_prediction(output: Destination, identity: dict[str, Any], note: Callable[[str], None]) -> Iterator[Partial]:
    """Open the kept tiles of the prediction to ``output``, and remove them at the end of the ``with`` statement.

    ``identity`` is JSON that identifies the prediction. It contains ``n_rows``, ``tile_rows`` and ``columns``, the
    names of the values kept per row. Tiles with another identity are removed. ``note`` is called with a message if an
    interrupted prediction is continued or replaced. After an error the finished tiles are kept, and a note is added to
    the error; without finished tiles the folder is removed.

    Raises ``LeaseError`` if another process writes the same output, and ``StorageError`` if the folder cannot be
    written.
    """
    folder = output.beside(f".{output.name}.partial")
    with claimed(output.absolute) as lease, storing(folder.location), output.scratch(folder) as scratch:
        partial = None
        try:
            partial = Partial(folder, lease, identity, scratch)
            if partial.n_whole:
                note(f"continuing an interrupted prediction: {partial.count()} are done")
            elif partial.replaced:
                note("replacing an interrupted prediction of other data or another model")
            yield partial
        except BaseException as error:
            if partial is not None and partial.n_whole and not isinstance(error, ChangedDataError):
                error.add_note(
                    f"{partial.count()} are kept beside {output.location}: the same command continues from these tiles"
                )
            else:
                lease.check()
                folder.remove()
            raise
        folder.remove()


class Partial:
    """The tiles of a prediction that are finished so far.

    ``missing`` lists the tiles that were missing or damaged when the prediction was opened. ``n_tiles`` is the total
    number of tiles, and ``n_whole`` the number of finished tiles. ``width`` is the number of values kept per row.
    ``replaced`` is True if tiles of another prediction were removed.
    """

    def __init__(self, folder: Folder, lease: Lease, identity: dict[str, Any], scratch: Path) -> None:
        self._folder, self._lease, self._scratch = folder, lease, scratch
        self._n_rows, self._tile_rows = int(identity["n_rows"]), int(identity["tile_rows"])
        self.n_tiles = -(-self._n_rows // self._tile_rows)
        self.width = width(identity["columns"])
        text = json.dumps(identity, sort_keys=True)
        name = f"tiles-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        others = [found for found in folder.list() if found != name]
        for other in others:
            folder.remove(other)
        self.replaced = any(other.startswith("tiles-") for other in others)
        self._open(name, identity)
        self.missing = tuple(number for number in range(self.n_tiles) if not self._has(number))
        self.n_whole = self.n_tiles - len(self.missing)

    def keep(self, number: int, records: Float) -> None:
        """Store the predictions (rows, width) of a tile. Raises ``LeaseLostError`` if another process took over."""
        if self._lease.lost:
            self.check()
        chunk = np.full((self._tile_rows + 1, self.width), np.nan)
        chunk[0] = number
        chunk[1 : 1 + len(records)] = records
        with storing(self._folder.location):
            self._array[self._span(number)] = chunk
        self.n_whole += 1

    def tile(self, number: int) -> Float:
        """Return the predictions (rows, width) of a tile. Raises ``MissingDataError`` if missing or damaged."""
        place = f"{self._folder.location}: the stored prediction of tile {number}"
        with reading(place, "run the same command again", MissingDataError):
            chunk = np.asarray(self._array[self._span(number)])
        if (chunk[0] != number).any():
            raise MissingDataError(f"{place} is missing, or that of another tile: run the same command again")
        return chunk[1 : 1 + self._n_rows - number * self._tile_rows]

    def place(self, name: str) -> Path:
        """Return a local path with the token of this process's lease in its name, for a file such as ``output.csv``."""
        path = Path(name)
        return self._scratch / f"{path.stem}-{self._lease.token}{path.suffix}"

    def check(self) -> None:
        """Raise ``LeaseLostError`` if another process took over."""
        self._lease.check()

    def count(self) -> str:
        """Return the number of finished tiles as text, e.g. "3 of 4 tiles"."""
        return f"{self.n_whole:,} of {self.n_tiles:,} tiles"

    def _open(self, name: str, identity: dict[str, Any]) -> None:
        """Open the array of tiles. Its metadata are written anew, because those in the folder may choose any codec."""
        import zarr
        from zarr.codecs import Crc32cCodec

        from partirvm.storage.zarr_store import zarr_store

        self._folder.remove(f"{name}/zarr.json")
        self._array = zarr.create_array(
            zarr_store(self._folder.place(name)),
            shape=(
                self.n_tiles * (self._tile_rows + 1),
                self.width,
            ),  # a multiple of the chunk: a damaged chunk is overwritten without being read
            chunks=(self._tile_rows + 1, self.width),
            dtype="f8",
            compressors=[Crc32cCodec()],
            fill_value=np.nan,
            attributes=identity,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )

    def _has(self, number: int) -> bool:
        try:
            return len(self.tile(number)) > 0
        except (MissingDataError, OSError):
            return False

    def _span(self, number: int) -> slice:
        return slice(number * (self._tile_rows + 1), (number + 1) * (self._tile_rows + 1))
