"""Tables that ingest reads in batches: the interface, and readers for CSV and Parquet files."""

import codecs
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partirvm.errors import DataError, MissingDataError
from partirvm.quoting import listed
from partirvm.storage import open_filesystem, open_folder, reading
from partirvm.storage.address import QUERIES, protocol_of, without_query

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
ENDINGS = (*CSV_ENDINGS, ".parquet", ".pq")

LEAST_BUFFER = 64 << 10
"""Minimum bytes of a Parquet column to read at once."""

MOST_BUFFER = 1 << 20
"""Maximum bytes of a Parquet column to read at once."""

HEAD = 1 << 20
"""Number of bytes at the beginning of a CSV file from which its style is detected."""

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
        note: remark on the encoding of the files
        held: function that returns the bytes needed to read the wanted columns, in addition to the
            batches
        most_batch: batch size in bytes beyond which reading becomes no faster
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
    note: str = ""
    held: Callable[[Sequence[str]], int] = lambda wanted: 0
    most_batch: int = 64 << 20


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Return the number of float64 rows that fit into ``batch_bytes``, at least 64."""
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def numbers(values: Any) -> np.ndarray[Any, Any]:
    """Convert a numeric Arrow array to a NumPy array; missing floats become NaN."""
    # Arrow's to_numpy would import pandas (about 45 MiB)
    return np.from_dlpack(values.fill_null(float("nan")) if values.null_count else values)


def is_glob(url: str) -> bool:
    """Return True for an address with wildcards."""
    return any(mark in url for mark in "*?[")


def is_table(url: str) -> bool:
    """Return True for the name of a file or glob that ``ingest`` can read, or a folder of such
    files.

    >>> places = "trips.CSV.gz", "https://host/trips.parquet?id=1", "trips.zarr"
    >>> tuple(map(is_table, places))
    (True, True, False)
    """
    if without_query(url).lower().endswith((*ENDINGS, ".npz")):
        return True
    if protocol_of(url) in QUERIES:
        return False  # the location is a file, not a folder
    folder = open_folder(url)
    return "versions" not in folder.list() and not folder.is_file() and bool(_files(url)[1])


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


def file_table(url: str) -> Reader:
    """Return the table in a file, or in the files of a folder or glob, which must be all CSV or all
    Parquet."""
    filesystem, files, all_files = _files(url)
    if not files:
        kinds = f"ingest reads files that end in {', '.join(ENDINGS)}, and a single .npz file"
        if all_files:
            raise MissingDataError(
                f"{url}: no file here has a known extension: {kinds}: rename or convert the files."
            )
        raise MissingDataError(
            f"{url}: there is no such file or folder, or it is empty: check the path; {kinds}."
        )
    n_csv = sum(without_query(file).lower().endswith(CSV_ENDINGS) for file in files)
    if 0 < n_csv < len(files):
        raise DataError(f"{url} holds both CSV and Parquet files: select one kind.")
    return (csv_table if n_csv else parquet_table)(url, filesystem, files)


def _files(url: str) -> tuple[Any, list[str], list[str]]:
    """Return a file system, and the paths of the tables and of all files at an address, except
    hidden ones."""
    filesystem, path = open_filesystem(url)
    with reading(url):
        if protocol_of(url) in QUERIES:
            files = [path]  # a listing would search the file for links
        elif is_glob(path) and not filesystem.exists(path):
            files = list(filesystem.glob(path))
        else:
            folder = path.rstrip("/")
            files = [
                file
                for file in filesystem.find(path)
                if not re.search(r"/[._]", file.removeprefix(folder))
            ]
    tables = sorted(file for file in files if without_query(file).lower().endswith(ENDINGS))
    return filesystem, tables, files


@contextmanager
def opened(filesystem: Any, path: str) -> Iterator[Any]:
    """Open a file, possibly compressed, for reading. Errors are converted to partirvm errors that
    name the file.

    Arrow opens local files itself: its read-ahead thread for Python files can hang or abort a
    process at exit.
    """
    import pyarrow as pa

    local = type(filesystem).__name__ == "LocalFileSystem"
    ending = without_query(path).rpartition(".")[2].lower()
    compression = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}.get(ending)
    advice = "check that the file is complete and that its extension matches its type"
    with (
        reading(path, advice, DataError),
        pa.OSFile(path, "rb") if local else filesystem.open(path, "rb") as file,
    ):
        yield file if compression is None else pa.CompressedInputStream(file, compression)


def parquet_table(url: str, filesystem: Any, files: list[str]) -> Reader:
    """Return a table of Parquet files with equal columns. ``held`` assumes one page per column,
    plus one compressed page."""
    import pyarrow.parquet as pq

    columns = list[tuple[str, ...]]()
    largest = 0
    n_rows = 0
    for path in files:
        with opened(filesystem, path) as file:
            metadata = pq.ParquetFile(file, pre_buffer=False).metadata
            columns.append(tuple(metadata.schema.to_arrow_schema().names))
        n_rows += metadata.num_rows
        for k in range(metadata.num_row_groups):
            largest = max(largest, metadata.row_group(k).total_byte_size)

    def held(wanted: Sequence[str]) -> int:
        return len(wanted) * LEAST_BUFFER + min(largest, len(wanted) * PAGE) + PAGE

    def batches(wanted: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
        rows = rows_per_batch(batch_bytes, len(wanted))
        buffer = min(max(batch_bytes // len(wanted), LEAST_BUFFER), MOST_BUFFER)
        for path in files:
            with opened(filesystem, path) as file:
                parquet = pq.ParquetFile(
                    file, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
                )
                for batch in parquet.iter_batches(
                    batch_size=rows, columns=list(wanted), use_threads=False
                ):
                    yield {name: batch.column(name) for name in wanted}

    names = _same_columns(url, files, columns)
    return Reader(url, names, batches, n_rows, held=held, most_batch=4 << 20)


def csv_table(url: str, filesystem: Any, files: list[str]) -> Reader:
    """Return a table of CSV files with a header and equal columns. Cells are strings or missing
    values."""
    import pyarrow as pa
    from pyarrow import csv

    headers = list[list[str]]()
    styles = list[tuple[str, str]]()
    for path in files:
        with opened(filesystem, path) as file:
            styles.append(style_of(file.read(HEAD)))
        with _parsed(filesystem, path, styles[-1], HEAD, csv.ConvertOptions()) as stream:
            headers.append(stream.schema.names)

    def batches(wanted: Sequence[str], batch_bytes: int) -> Iterator[Batch]:
        # Arrow reads 32 blocks ahead, which take two thirds of a batch's memory
        for path, style, names in zip(files, styles, headers, strict=True):
            written = {name.strip(): name for name in names}
            texts = {written[name]: pa.string() for name in wanted}
            convert = csv.ConvertOptions(
                include_columns=list(texts),
                column_types=texts,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            with _parsed(
                filesystem, path, style, max(batch_bytes // 12, 1 << 16), convert
            ) as stream:
                for batch in stream:
                    yield {name: batch.column(written[name]) for name in wanted}

    encoding, delimiter = styles[0]
    note = ""
    if styles[0] != ("utf8", ","):
        note = f"{encoding} text, fields separated by {delimiter!r}"
    return Reader(
        url,
        _same_columns(url, files, [tuple(map(str.strip, names)) for names in headers]),
        batches,
        untyped=True,
        commas=delimiter == ";",
        note=note,
    )


def style_of(head: bytes) -> tuple[str, str]:
    """Return the encoding and delimiter of a CSV file that begins with these bytes.

    A file is UTF-16 if it begins with a byte order mark, and Windows-1252 if it is not UTF-8.
    Semicolons, tabs or bars are the delimiter if every row has the same number of them.

    >>> style_of("Größe;Preis\\n1,5;2\\n".encode("cp1252")), style_of(b"a,b\\n1,2\\n")
    (('cp1252', ';'), ('utf8', ','))
    """
    encoding = "utf16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf8"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = head.decode("cp1252", errors="replace")
    lines = re.sub('"[^"]*"', "", text).splitlines()[: 100 if len(head) < HEAD else -1][:100]
    counts = {mark: {line.count(mark) for line in lines if line.strip()} for mark in ";\t|"}
    for mark, per_line in counts.items():
        if len(per_line) == 1 and per_line != {0}:
            return encoding, mark
    return encoding, ","


@contextmanager
def _parsed(
    filesystem: Any, path: str, style: tuple[str, str], block_size: int, convert: Any
) -> Iterator[Any]:
    """Yield the record batches of a CSV file.

    Args:
        filesystem: file system of the file
        path: path of the file
        style: encoding and delimiter
        block_size: bytes of a batch
        convert: Arrow's options for the conversion of cells
    """
    import pyarrow as pa
    from pyarrow import csv

    read = csv.ReadOptions(use_threads=False, block_size=block_size, encoding=style[0])
    parse = csv.ParseOptions(delimiter=style[1])
    with opened(filesystem, path) as file:
        try:
            with csv.open_csv(
                file, read_options=read, parse_options=parse, convert_options=convert
            ) as stream:
                yield stream
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:

            def numbered(row: re.Match[str]) -> str:
                return f"row {int(row[1]) - 1:,} (row 1 follows the header)"

            cause = re.sub(r"Row #(\d+)", numbered, str(error))
            raise DataError(
                f"{path}: cannot be read as CSV: {cause}; it needs a header, equally many fields "
                "in each row, closed quotation marks and one encoding"
            ) from error


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
