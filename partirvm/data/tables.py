"""Tables that ingest reads in batches: the interface, and readers for text files, spreadsheets and
Parquet files."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from partirvm.data.delimited import DelimitedFile, null_texts
from partirvm.data.layout import FileOptions
from partirvm.data.listing import ALL_ENDINGS, PARQUET, Listing, list_files, no_tables
from partirvm.data.opening import opened
from partirvm.data.problems import Finding
from partirvm.data.shapes import filled
from partirvm.errors import DataError, MissingDataError
from partirvm.quoting import listed
from partirvm.storage import open_folder
from partirvm.storage.address import QUERIES, protocol_of, without_query

LEAST_BUFFER = 64 << 10
"""Minimum bytes of a Parquet column to read at once."""

MOST_BUFFER = 1 << 20
"""Maximum bytes of a Parquet column to read at once."""

PAGE = 2 << 20
"""Maximum size in bytes of a Parquet page and its dictionary: writers limit each to 1 MiB."""

Batch = Mapping[str, Any]
"""Arrow arrays of equal length, by column name."""


@dataclass
class Reader:
    """A table to be ingested.

    Attributes:
        name: name of the table in messages
        columns: names of the columns
        batches: function that yields batches of the wanted columns, each of approximately a given
            number of bytes
        n_rows: number of rows, if known
        targets: targets that the source defines
        weights: column of weights that the source defines, or None
        categorical: categories that the source defines, with their levels if known
        untyped: True if all cells are strings, as in a CSV file
        commas: True if numbers in strings may have decimal commas
        remarks: function that returns what was found in the files, and which rows were left out
        rows_left_out: function that returns which rows were left out
        findings: function that returns the problems of the rows that were read last
        copies: names in the files of columns that were renamed, because another one has this name
        numbered: True if the columns have no names, and are called x1, x2, …
        held: function that returns the bytes needed to read the wanted columns, in addition to the
            batches
        most_batch: batch size in bytes beyond which reading becomes no faster
        ambiguous: texts that are missing values, except in columns that have them as labels
    """

    name: str
    columns: tuple[str, ...]
    batches: Callable[[Sequence[str], int], Iterator[Batch]]
    n_rows: int | None = None
    targets: tuple[str, ...] = ()
    weights: str | None = None
    categorical: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    untyped: bool = False
    commas: bool = False
    remarks: Callable[[], list[str]] = list
    rows_left_out: Callable[[], list[str]] = list
    findings: Callable[[], list[Finding]] = list
    copies: Mapping[str, str] = field(default_factory=dict)
    numbered: bool = False
    held: Callable[[Sequence[str]], int] = lambda wanted: 0
    most_batch: int = 64 << 20
    ambiguous: tuple[str, ...] = ()


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Return the number of float64 rows that fit into ``batch_bytes``, at least 64."""
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def numbers(values: Any) -> np.ndarray[Any, Any]:
    """Convert a numeric Arrow array to a NumPy array; missing floats become NaN."""
    # Arrow's to_numpy would import pandas (about 45 MiB)
    return np.from_dlpack(filled(values, np.nan) if values.null_count else values)


def is_table(url: str) -> bool:
    """Return True for the name of a file or glob that ``ingest`` can read, or a folder of such
    files.

    >>> places = "trips.CSV.gz", "https://host/trips.parquet?id=1", "trips.zarr"
    >>> tuple(map(is_table, places))
    (True, True, False)
    """
    if without_query(url).lower().endswith((*ALL_ENDINGS, ".npz")):
        return True
    if protocol_of(url) in QUERIES:
        return False  # the location is a file, not a folder
    folder = open_folder(url)
    return "versions" not in folder.list() and not folder.is_file() and bool(list_files(url).tables)


def ingesting(url: str, like: str = "") -> str:
    """Return the command that ingests a table, with the training dataset ``like`` or otherwise a
    placeholder for the target."""
    name = without_query(url).rstrip("/").rpartition("/")[2]
    stem = re.sub(r"[^\w-].*", "", name.lstrip(".")) or "data"
    command = f"partirvm ingest {shlex.quote(url)} {stem}.zarr"
    if name.lower().endswith(".npz"):
        return command
    return f"{command} --like {shlex.quote(like)}" if like else f"{command} --target COLUMN"


def is_text(kind: Any) -> bool:
    """Return True for an Arrow text type."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def file_table(url: str, options: FileOptions | None = None) -> Reader:
    """Return the table in a file, or in the files of a folder or glob, which must be all text and
    spreadsheets or all Parquet."""
    options = options or FileOptions()
    listing = list_files(url)
    if not listing.tables:
        raise MissingDataError(no_tables(url, listing))
    n_parquet = sum(without_query(file).lower().endswith(PARQUET) for file in listing.tables)
    if 0 < n_parquet < len(listing.tables):
        raise DataError(f"{url} holds both Parquet and other files: select one kind.")
    if n_parquet:
        return parquet_table(url, listing)
    return text_table(url, listing, options)


def text_table(url: str, listing: Listing, options: FileOptions) -> Reader:
    """Return a table of text files and spreadsheets with equal columns. Cells are strings or
    missing values."""
    files = [DelimitedFile(listing.filesystem, path, options) for path in listing.tables]
    names = _same_columns(url, listing.tables, [file.columns for file in files])
    partitions = listing.partitions(without=names)

    def batches(wanted: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
        for file, partition in zip(files, partitions, strict=True):
            stored = _stored(wanted, partition) or file.columns[:1]
            for table in file.batches(stored, batch_bytes):
                columns = {name: _one_array(table.column(name)) for name in stored}
                yield _with_partition(columns, partition, len(table), wanted)

    return Reader(
        url,
        (*names, *listing.keys_beside(names)),
        batches,
        untyped=True,
        commas=files[0].layout.separator == ";",
        held=lambda wanted: max(file.held for file in files),
        remarks=lambda: _joined_remarks(files),
        rows_left_out=lambda: [text for file in files for text in file.rows_left_out()],
        findings=lambda: _joined_findings(url, files),
        copies=files[0].layout.copies,
        numbered=not files[0].layout.header,
        ambiguous=tuple(set(null_texts()) & options.labels),
    )


def _one_array(column: Any) -> Any:
    """Return a column of an Arrow table as one array."""
    array = column.combine_chunks()
    return array.chunk(0) if hasattr(array, "chunk") else array


def _joined_remarks(files: Sequence[DelimitedFile]) -> list[str]:
    """Return the remarks on all files; those of the first file and those that name other rows."""
    remarks = files[0].remarks()
    for file in files[1:]:
        remarks += [f"{file.path}: {text}" for text in file.remarks()[len(file.layout.notes) :]]
    return remarks


def _joined_findings(url: str, files: Sequence[DelimitedFile]) -> list[Finding]:
    """Return the problems of all files, the first one of each kind."""
    first = dict[str, Finding]()
    for file in files:
        for finding in file.findings():
            kind = " ".join(finding.remedy) or finding.advice
            place = finding.column if len(files) > 1 else url
            first.setdefault(kind, replace(finding, column=place))
    return list(first.values())


def _stored(wanted: Sequence[str], partition: Mapping[str, Any]) -> list[str]:
    """Return the wanted columns that are in the files, not in the names of their folders."""
    return [name for name in wanted if name not in partition]


def _with_partition(
    columns: Any, partition: Mapping[str, Any], n_rows: int, wanted: Sequence[str]
) -> Batch:
    """Return a batch with the columns of a file and of its folders.

    Args:
        columns: Arrow arrays (n_rows,) of the file by name, or a record batch
        partition: values of the columns in the names of the folders
        n_rows: number of rows
        wanted: names of all columns of the batch
    """
    import pyarrow as pa

    constants = {name: pa.repeat(value, n_rows) for name, value in partition.items()}
    return {name: constants[name] if name in constants else columns[name] for name in wanted}


def parquet_table(url: str, listing: Listing) -> Reader:
    """Return a table of Parquet files with equal columns. ``held`` assumes one page per column,
    plus one compressed page."""
    files = listing.tables
    sizes = [_parquet_size(listing.filesystem, path) for path in files]
    names = _same_columns(url, files, [size.columns for size in sizes])
    largest = max(size.largest for size in sizes)
    partitions = listing.partitions(without=names)

    def held(wanted: Sequence[str]) -> int:
        return len(wanted) * LEAST_BUFFER + min(largest, len(wanted) * PAGE) + PAGE

    def batches(wanted: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
        rows = rows_per_batch(batch_bytes, len(wanted))
        buffer = min(max(batch_bytes // len(wanted), LEAST_BUFFER), MOST_BUFFER)
        for path, partition in zip(files, partitions, strict=True):
            stored = _stored(wanted, partition) or [names[0]]
            with opened(listing.filesystem, path) as file:
                for batch in _parquet_batches(file, stored, rows, buffer):
                    yield _with_partition(batch, partition, batch.num_rows, wanted)

    return Reader(
        url,
        (*names, *listing.keys_beside(names)),
        batches,
        sum(size.n_rows for size in sizes),
        held=held,
        most_batch=4 << 20,
    )


class _ParquetSize(NamedTuple):
    """Names of the columns of a Parquet file, number of rows, and bytes of its largest group of
    rows."""

    columns: tuple[str, ...]
    n_rows: int
    largest: int


def _parquet_size(filesystem: Any, path: str) -> _ParquetSize:
    """Return the columns and sizes of a Parquet file."""
    import pyarrow.parquet as pq

    with opened(filesystem, path) as file:
        metadata = pq.ParquetFile(file, pre_buffer=False).metadata
        columns = tuple(metadata.schema.to_arrow_schema().names)
    groups = [metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups)]
    return _ParquetSize(columns, metadata.num_rows, max(groups, default=0))


def _parquet_batches(file: Any, columns: list[str], rows: int, buffer: int) -> Iterator[Any]:
    """Yield the record batches of an open Parquet file.

    Args:
        file: open file
        columns: names of the columns to read
        rows: maximum number of rows of a batch
        buffer: bytes of a column to read at once
    """
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(
        file, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
    )
    yield from parquet.iter_batches(batch_size=rows, columns=columns, use_threads=False)


def _same_columns(
    url: str, files: Sequence[str], columns: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the columns of the first file. Raises ``DataError`` if another file has different
    columns."""
    for path, names in zip(files, columns, strict=True):
        different = set(names) ^ set(columns[0])
        if different:
            raise DataError(
                f"{url}: all files must have the same columns, but {path} and {files[0]} differ in "
                f"[{listed(sorted(different))}]."
            )
    return columns[0]
