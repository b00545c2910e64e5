"""Tables that ingest reads in batches: the interface, and readers of CSV and Parquet files."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from partirvm.errors import DataError, MissingDataError
from partirvm.quoting import listed, named, quoted
from partirvm.storage import open_filesystem, reading

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
ENDINGS = (*CSV_ENDINGS, ".parquet", ".pq")

LEAST_BUFFER, MOST_BUFFER = 64 << 10, 1 << 20  # bytes of a Parquet column that are read at once
PAGE = 2 << 20  # bytes of a page with its dictionary: writers limit each to 1 MiB

Batch = Mapping[str, Any]  # Arrow arrays of one length by the names of their columns


@dataclass
class Reader:
    """A table to be ingested.

    ``batches`` is called with the wanted columns, those of them with labels, and the approximate bytes of a batch;
    beyond ``most_batch`` none is faster. ``targets``, ``weights`` and ``categorical`` (with levels, if known) are
    columns that the source defines. An ``untyped`` source does not tell labels that are numbers from text. ``held``
    returns the bytes that reading given columns needs beside the batches.
    """

    name: str
    columns: tuple[str, ...]
    batches: Callable[[Sequence[str], frozenset[str], int], Iterator[Batch]]
    n_rows: int | None = None
    targets: tuple[str, ...] = ()
    weights: str | None = None
    categorical: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    untyped: bool = False
    held: Callable[[Sequence[str]], int] = lambda wanted: 0
    most_batch: int = 64 << 20


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Return the number of rows of float64 that fit into ``batch_bytes``, at least 64."""
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def numbers(values: Any) -> np.ndarray[Any, Any]:
    """Convert a numeric Arrow array to a NumPy array; missing values of floats become NaN."""
    # Arrow's to_numpy would import pandas (about 45 MiB)
    return np.from_dlpack(values.fill_null(float("nan")) if values.null_count else values)


def file_table(url: str) -> Reader:
    """Return the table of a file, or of the files of a folder or a glob, which are all CSV or all Parquet."""
    filesystem, path = open_filesystem(url)
    with reading(url):
        if any(mark in path for mark in "*?[") and not filesystem.exists(path):
            found = list(filesystem.glob(path))
        else:
            below = path.rstrip("/")
            found = [file for file in filesystem.find(path) if not re.search(r"/[._]", file.removeprefix(below))]
    files = sorted(file for file in found if file.lower().endswith(ENDINGS))
    if not files:
        raise MissingDataError(f"{url}: there is no file that ingest can read ({', '.join(ENDINGS)}, or one .npz).")
    n_csv = sum(file.lower().endswith(CSV_ENDINGS) for file in files)
    if 0 < n_csv < len(files):
        raise DataError(f"{url} holds files of CSV and of Parquet: select one kind.")
    return (csv_table if n_csv else parquet_table)(url, filesystem, files)


@contextmanager
def opened(filesystem: Any, path: str) -> Iterator[Any]:
    """Open a file for reading, one on this machine without fsspec. Errors in it become errors that name the file.

    Arrow opens local files itself: its thread that reads a Python file ahead hangs or aborts a process that ends.
    """
    import pyarrow as pa

    local = type(filesystem).__name__ == "LocalFileSystem"
    with (
        reading(path, "check that the file is complete and that its ending states its type", DataError),
        pa.OSFile(path, "rb") if local else filesystem.open(path, "rb") as file,
    ):
        yield file


def parquet_table(url: str, filesystem: Any, files: list[str]) -> Reader:
    """Return a table of Parquet files with equal columns. ``held`` assumes a page of each column, and one as stored."""
    import pyarrow.parquet as pq

    found, largest, n_rows = list[tuple[str, ...]](), 0, 0
    for path in files:
        with opened(filesystem, path) as file:
            metadata = pq.ParquetFile(file, pre_buffer=False).metadata
            found.append(tuple(metadata.schema.to_arrow_schema().names))
        n_rows += metadata.num_rows
        largest = max([largest, *(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))])

    def held(wanted: Sequence[str]) -> int:
        return len(wanted) * LEAST_BUFFER + min(largest, len(wanted) * PAGE) + PAGE

    def batches(wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        rows = rows_per_batch(batch_bytes, len(wanted))
        buffer = min(max(batch_bytes // len(wanted), LEAST_BUFFER), MOST_BUFFER)
        for path in files:
            with opened(filesystem, path) as file:
                parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True)
                for batch in parquet.iter_batches(batch_size=rows, columns=list(wanted), use_threads=False):
                    yield {name: batch.column(name) for name in wanted}

    return Reader(url, _same_columns(url, files, found), batches, n_rows, held=held, most_batch=4 << 20)


def csv_table(url: str, filesystem: Any, files: list[str]) -> Reader:
    """Return a table of CSV files with a header and equal columns. The first MiB of each file tells text, dates and
    booleans from numbers, which are parsed as float64.

    Arrow reads 32 blocks ahead, in two thirds of a batch's memory.
    """
    import pyarrow as pa
    from pyarrow import csv

    found, types = list[tuple[str, ...]](), dict[str, Any]()
    nulls = {"strings_can_be_null": True, "quoted_strings_can_be_null": False}
    read, convert = csv.ReadOptions(use_threads=False), csv.ConvertOptions(**nulls)
    for path in files:
        with _parsed(filesystem, path, (), read_options=read, convert_options=convert) as stream:
            found.append(tuple(stream.schema.names))
            types = {each.name: each.type for each in stream.schema if each.type != pa.null()} | types
    columns = _same_columns(url, files, found)

    def batches(wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        convert = csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pa.string() if name in levels else _parsed_type(types.get(name)) for name in wanted},
            **nulls,
        )
        read = csv.ReadOptions(use_threads=False, block_size=max(batch_bytes // 12, 1 << 16))
        for path, names in zip(files, found, strict=True):
            with _parsed(filesystem, path, names, read_options=read, convert_options=convert) as stream:
                for batch in stream:
                    yield {name: batch.column(name) for name in wanted}

    return Reader(url, columns, batches, untyped=True)


def _parsed_type(found: Any) -> Any:
    """Return the Arrow type as which a CSV column is parsed, from that of its first values, or None without any."""
    import pyarrow as pa

    if found in (pa.string(), pa.bool_()):
        return found
    if found is not None and pa.types.is_temporal(found):
        return pa.time64("us") if pa.types.is_time(found) else pa.timestamp("us", getattr(found, "tz", None))
    return pa.float64()


@contextmanager
def _parsed(filesystem: Any, path: str, columns: Sequence[str], **options: Any) -> Iterator[Any]:
    """Yield the record batches of a CSV file, which may be compressed. ``columns`` are those of the file, if known."""
    import pyarrow as pa
    from pyarrow import csv

    compression = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path[path.rfind(".") :].lower())
    with opened(filesystem, path) as file:
        plain: BinaryIO = file if compression is None else pa.CompressedInputStream(file, compression)
        try:
            with csv.open_csv(plain, **options) as stream:
                yield stream
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            if place := re.search(r"In CSV column #(\d+): (.*)", str(error), re.DOTALL):
                raise text_column(path, columns[int(place[1])], place[2][:100]) from error
            advice = "its text must be UTF-8, with a header, fields separated by commas, and closed quotation marks"
            raise DataError(f"{path}: cannot be read as CSV: {advice}. {error}") from error


def flag(name: str, *columns: str) -> str:
    """Return a flag with names of columns as it is written in a shell."""
    return f"`{name} {shlex.quote(','.join(map(named, columns)))}`"


def text_column(where: str, name: str, found: str, wanted: str = "numbers") -> DataError:
    """Return the error for a column of text, dates or nested values where numbers or dates are needed."""
    return DataError(
        f"{where}: the column {quoted(name)} holds text or other values, not {wanted}: {found}. Convert it, name it as "
        f"categorical ({flag('--categorical', 'auto', name)}), leave it out ({flag('--drop', name)}), or, for a class "
        "target, pass `--classes`."
    )


def _same_columns(url: str, files: Sequence[str], found: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the columns of the first file. Raises ``DataError`` for a file with other columns."""
    for path, names in zip(files, found, strict=True):
        if set(names) != set(found[0]):
            raise DataError(
                f"{url}: all files must have the same columns, but {path} and {files[0]} differ in "
                f"[{listed(sorted(set(names) ^ set(found[0])))}]."
            )
    return found[0]
