"""The DATA format (versions of the attributes, and groups of arrays), and the source that reads the
rows.

    versions/000002.json      the name of the newest group
    rows-TOKEN/attributes     ``DataAttributes``, stored by ``storage.codec``
    rows-TOKEN/X              (n, d) float64, NaN for missing values, a Zarr (version 3) array with
                              one chunk per tile
    rows-TOKEN/y              (n,) or (n, T) float64; class codes 0 … K−1; absent in data for
                              prediction
    rows-TOKEN/weights        (n,) float64, optional: precision weights
    rows-TOKEN/groups         (n,) int64, optional: codes of the rows' groups (``data.row_groups``)
    rows-TOKEN/row            (n,) int64, if rows were shuffled: the number of the row in the
                              original order

An ingest writes a group of all rows. An append writes a group that begins at the first tile it
changes: only the last tile, if not full, is copied. ``segments`` says which group holds which
tiles. Published groups never change.

A group becomes visible with the next version, which exactly one process can create; the newest
version counts. So a writer that was killed or stalled for a long time does no damage: its group is
never read, and it cannot publish later. Each writer also holds the lease in the folder
``.NAME.lease`` next to the DATA, which is removed at the end.

Chunks are compressed (Blosc) and end with a CRC-32C checksum, so that no damaged chunk reaches the
decompressor. Readers use the attributes, which contain a checksum of each chunk; the Zarr array
metadata is for other programs.
"""

import re
import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from partirvm.core.moments import ColumnMoments, Moments
from partirvm.data.source import Source, hash_of, hash_tile
from partirvm.data.tables import file_table, ingesting, is_table
from partirvm.data.unseen import UnseenLevels
from partirvm.errors import ChangedDataError, DataError, FormatError, MissingDataError
from partirvm.quoting import counted, listed
from partirvm.storage import Folder, Where, open_folder, reading
from partirvm.storage.address import (
    QUERIES,
    absolute,
    address,
    allow_protocols,
    protocol_of,
    without_query,
)
from partirvm.storage.codec import Codec
from partirvm.storage.records import (
    checksum,
    digest,
    listed_numbers,
    numbered,
    read_blosc,
    read_json,
)
from partirvm.types import Columns, Int

KIND = "partirvm-data"
FORMAT = 12
VERSIONS = "versions"
GROUP = re.compile("rows-[0-9a-f]{32}")

NO_UNSEEN = UnseenLevels()
"""No rows with unseen labels."""

NO_MOMENTS = Moments.of(np.empty((0, 0)), np.empty((0, 0)))
"""The moments of no rows, which leave other moments unchanged in a sum."""


@dataclass(frozen=True)
class DataAttributes:
    """The attributes of DATA, which have no rows before the first ingest.

    Attributes:
        columns: names and meaning of the columns; for rows without a target, these include the
            target and classes to predict
        tile_rows: rows per tile
        seed: shuffle seed, or None if the rows kept their order
        weighted: True if the rows have precision weights
        labelled: False for rows without a target, for prediction
        groups: specification of the rows' groups as text (``data.row_groups.Groups``), or None
        moments: moments of all rows
        n_rows: number of rows
        hashes: checksums of the chunks of each array
        batches: number of rows and a checksum of their values, for the ingest and each append
        segments: first tile and group name of each run of tiles
        has_known_noise: True if the weights were computed from a column of known noise
        unseen: rows with labels that are no categories of ``columns``, stored as missing labels
    """

    columns: Columns
    tile_rows: int
    seed: int | None
    weighted: bool
    labelled: bool
    groups: str | None = None
    moments: Moments = NO_MOMENTS
    n_rows: int = 0
    hashes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    batches: tuple[tuple[int, str], ...] = ()
    segments: tuple[tuple[int, str], ...] = ()
    has_known_noise: bool = False
    unseen: UnseenLevels = NO_UNSEEN

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.columns.features)

    @property
    def n_targets(self) -> int:
        """The number of targets; 0 if the rows have no target."""
        return max(len(self.columns.targets), 1) if self.labelled else 0

    @property
    def chunks(self) -> dict[str, tuple[int, ...]]:
        """The chunk shape of each array."""
        R = self.tile_rows
        T = self.n_targets
        shapes: dict[str, tuple[int, ...]] = {"X": (R, self.n_features)}
        if T:
            shapes["y"] = (R, T) if T > 1 else (R,)
        if self.weighted:
            shapes["weights"] = (R,)
        if self.groups is not None:
            shapes["groups"] = (R,)
        if self.seed is not None:
            shapes["row"] = (R,)
        return shapes

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the data as JSON; ``about`` is a hash of the facts that appended
        rows do not change."""
        names = ("X", "y", "weights", "groups")
        blocks = (self.hashes[name] for name in names if name in self.hashes)
        hashes = list(map(hash_of, zip(*blocks, strict=True)))
        fixed = (
            asdict(self.columns),
            self.tile_rows,
            self.seed,
            self.weighted,
            self.labelled,
            self.groups,
        )
        moments = [*vars(self.moments.inputs).values(), *vars(self.moments.targets).values()]
        return {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "hashes": hashes,
            "about": digest(fixed),
            "moments": digest(repr([np.asarray(value).tolist() for value in moments])),
        }

    def agree(self) -> bool:
        """Return whether the attributes are consistent with each other, which they may not be in a
        damaged file."""
        firsts = [first for first, _ in self.segments]
        n_tiles = -(-self.n_rows // max(self.tile_rows, 1))
        n_hashes = {name: len(hashes) for name, hashes in self.hashes.items()}
        moments = self.moments
        widths = ((moments.inputs, self.n_features), (moments.targets, self.n_targets))
        return (
            min(self.n_rows, self.tile_rows, self.n_features) > 0
            and n_hashes == dict.fromkeys(self.chunks, n_tiles)
            and all(_have_width(columns, width) for columns, width in widths)
            and firsts[:1] == [0]
            and firsts == sorted(set(firsts))
            and all(GROUP.fullmatch(name) for _, name in self.segments)
        )


def _have_width(moments: ColumnMoments, width: int) -> bool:
    """Return True if all arrays of the moments are numeric and have ``width`` columns."""
    arrays = (value for value in vars(moments).values() if isinstance(value, np.ndarray))
    return all(array.dtype in ("i8", "f8") and array.shape == (width,) for array in arrays)


CODEC = Codec([DataAttributes])


def open_data(url: str, group: str | None = None) -> tuple[Folder, DataAttributes]:
    """Return the folder of DATA, and its attributes: the newest, or as they were when ``group`` was
    the newest group."""
    folder = open_folder(url)
    if group is not None:
        return folder, attributes_of(folder, group)
    if protocol_of(url) in QUERIES and is_table(url):  # cannot be a folder
        raise MissingDataError(f"{url}: {_not_data(url)}")
    while True:
        numbers = listed_numbers(folder, VERSIONS)
        if not numbers:
            raise MissingDataError(f"{url}: {_not_data(url)}")
        try:
            pointer = read_json(folder, numbered(VERSIONS, numbers[-1]), {"group": str})
            return folder, attributes_of(folder, pointer["group"])
        except MissingDataError:
            if listed_numbers(folder, VERSIONS)[-1:] == numbers[-1:]:
                raise


def _not_data(url: str) -> str:
    """Return a message on the contents of a location without a dataset, and on what to do."""
    command = f"`partirvm ingest SOURCE {shlex.quote(url)}`"
    if is_table(url):
        return _not_ingested(url)
    folder = open_folder(url)
    if not folder.exists():
        return (
            "this is not a dataset, and nothing has this name: check the path, or create a "
            f"dataset with {command}"
        )
    if folder.is_file():
        return "this is a file, not a dataset: pass a folder that `partirvm ingest` made"
    names = folder.list()
    if all(map(GROUP.fullmatch, names)):
        return f"this is not a dataset, but an empty or an unfinished one: create it with {command}"
    return "this is not a dataset, but another folder: pass a folder that `partirvm ingest` made"


def _not_ingested(url: str) -> str:
    """Return a message on how to ingest a table, with its columns if its header can be read."""
    columns = ""
    try:
        if not without_query(url).lower().endswith(".npz"):
            columns = f", where COLUMN is one of: {listed(file_table(url).columns)}"
    except MissingDataError:
        return "this is not a dataset, and nothing has this name: check the path"
    except DataError:
        pass  # ingest reports the error
    return (
        f"this is a table, not a dataset: make a dataset of it first: `{ingesting(url)}`{columns}"
    )


def attributes_of(folder: Folder, group: str) -> DataAttributes:
    """Return the attributes of DATA as of this row group."""
    place = folder.place(f"{group if GROUP.fullmatch(group) else 'damaged'}/attributes")
    attributes: DataAttributes = CODEC.read(place, KIND, FORMAT)
    if not (
        isinstance(attributes, DataAttributes)
        and attributes.agree()
        and attributes.segments[-1][1] == group
    ):
        raise FormatError(
            f"{place}: the attributes contradict each other, or belong to another group: restore it"
        )
    return attributes


def dtype_of(name: str) -> str:
    """Return the dtype of a DATA array."""
    return "<i8" if name in ("row", "groups") else "<f8"


class ZarrSource(Source):
    """A source for DATA, on disk or at an fsspec URL. Each chunk is compared with its checksum when
    it is read.

    A pickled source contains the address and the name of its newest group, so that it excludes rows
    appended in the meantime. Raises ``MissingDataError`` if DATA or a chunk is missing or damaged,
    ``ChangedDataError`` if DATA or values differ from those ingested, and ``FormatError`` for
    another format.

    Attributes:
        url: address of the DATA
        name: name of the data in messages
        seed: shuffle seed, or None if the rows kept their order
        notes: remarks on the columns that ``ingest`` changed, by column
        left_out: number of rows that ``ingest`` left out
        rows_left_out: remarks on rows of files that ``ingest`` left out
        unseen: rows with labels that the DATA that ``like`` named do not have
    """

    def __init__(self, url: Where) -> None:
        self.url = address(url)
        self.notes = dict[str, str]()
        self.left_out = 0
        self.rows_left_out = list[str]()
        self.name = self.url
        self._opened: tuple[Folder, DataAttributes] | None = None
        self._group: str | None = None
        self._open()

    def _open(self) -> tuple[Folder, DataAttributes]:
        """Return the folder and the attributes."""
        if self._opened is None:
            folder, attributes = open_data(self.url, self._group)
            self.n_rows = attributes.n_rows
            self.n_features = attributes.n_features
            self.n_targets = attributes.n_targets
            self.tile_rows = attributes.tile_rows
            self.columns = attributes.columns
            self.moments = attributes.moments
            self.seed = attributes.seed
            self.weighted = attributes.weighted
            self.has_known_noise = attributes.has_known_noise
            self.unseen = attributes.unseen
            self.grouped = attributes.groups is not None
            self.shuffled = self.seed is not None and len(attributes.batches) == 1
            self._opened = (folder, attributes)
            self._group = attributes.segments[-1][1]
        return self._opened

    def _read(self, name: str, number: int) -> np.ndarray[Any, Any]:
        try:
            return self._chunk(name, number)
        except MissingDataError as error:
            if open_data(self.url)[1].segments[-1][1] == self._group:
                raise
            raise ChangedDataError(
                f"{self.url}: the data were replaced while in use: start a new fit"
            ) from error

    def _chunk(self, name: str, number: int) -> np.ndarray[Any, Any]:
        start, stop = self._span(number)
        folder, attributes = self._open()
        place = f"{self.url}: chunk {number} of the array {name!r}"
        advice = "restore it, or ingest the data again"
        shape = attributes.chunks[name]
        segments = reversed(attributes.segments)
        first, group = next(segment for segment in segments if segment[0] <= number)
        file = "/".join([group, name, "c", str(number - first), *["0"] * len(shape[1:])])
        with reading(place, advice, MissingDataError):
            rows = read_blosc(folder, file, shape, dtype_of(name))[: stop - start]
        if checksum(rows) != attributes.hashes[name][number]:
            raise ChangedDataError(f"{place} has values that differ from those ingested: {advice}")
        return rows

    def original_rows(self, number: int) -> Int:
        return super().original_rows(number) if self.seed is None else self._read("row", number)

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the data as recorded by ingest
        (``DataAttributes.fingerprint``)."""
        return self._open()[1].fingerprint()

    def has_grown(self, then: dict[str, Any]) -> bool:
        """Return True if the DATA consist of the rows of an earlier fingerprint followed by more
        rows."""
        full, n_last = divmod(then["n_rows"], self.tile_rows)
        hashes: list[str] = then["hashes"]
        now = self.fingerprint()
        if now["n_rows"] <= then["n_rows"] or now["about"] != then["about"]:
            return False
        if now["hashes"][:full] != hashes[:full]:
            return False
        return not n_last or hash_tile(self.tile(full).take(slice(n_last), 0)) == hashes[full]

    def verify(self) -> None:
        """Read all rows and their row numbers. Raises ``ChangedDataError`` or
        ``MissingDataError``."""
        for number in range(self.n_tiles):
            self.tile(number)
            self.original_rows(number)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "url": absolute(self.url), "_opened": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        allow_protocols(protocol_of(self.url))  # the pickling process was allowed to open it

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        shape = f"{self.n_rows:,} rows × {self.n_features} features"
        targets = counted(self.n_targets, "target") if self.has_target else "no target"
        return f"<DATA {self.url}: {shape}, {targets}>"
