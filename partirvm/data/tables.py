"""Readers of CSV and Parquet files for ingest, and the interface of all readers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, cast

import numpy as np

from partirvm.core.moments import LARGEST, first_rounded, rounded
from partirvm.errors import DataError, MissingDataError
from partirvm.quoting import listed, named, quoted
from partirvm.storage import open_filesystem, reading

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = (*CSV_ENDINGS, *PARQUET_ENDINGS, ".npz")
LEAST_BUFFER = 64 << 10
"""Minimum number of bytes of a Parquet file that are read at once for a column."""

MOST_BUFFER = 1 << 20
"""Maximum number of bytes of a Parquet file that are read at once for a column; large enough for remote stores."""

PROBE_ROWS = 4096
"""Number of rows that are read at once to measure the memory that a Parquet column needs."""

MOST_PROBE = 64 << 20
"""Maximum number of bytes of a column of a row group that is read to measure its memory."""

WHOLE = r"^\s*[+-]?\d{16,308}\s*$"
"""A pattern of integers in CSV that float64 may round: 16 to 308 digits. Longer integers may be infinite."""

Batch = Mapping[str, Any]
"""Arrow arrays of one length by the names of their columns."""


class Reader:
    """A table to be ingested.

    ``features`` are the default feature columns; None stands for all columns except targets and weights. ``targets``,
    ``weights`` and ``categorical`` are the columns of these roles if the format defines the roles. An ``untyped``
    format does not distinguish numbers from text. ``memory_advice`` states how to read the source with less memory.
    Batches larger than ``most_batch`` bytes are not faster.
    """

    name: str
    columns: tuple[str, ...]
    features: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ()
    weights: str | None = None
    categorical: tuple[str, ...] = ()
    n_rows: int | None = None
    untyped: bool = False
    memory_advice: str = ""
    most_batch: int = 64 << 20

    def held(self, wanted: Sequence[str]) -> int:
        """Return the bytes needed to read the given columns, in addition to the batches."""
        return 0

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Stream the wanted columns in batches of about ``batch_bytes`` bytes. Columns in ``levels`` contain labels."""
        raise NotImplementedError


def rows_per_batch(batch_bytes: int, n_columns: int) -> int:
    """Return the number of rows of float64 that fit into ``batch_bytes``, at least 64.

    >>> rows_per_batch(16 << 20, 16)
    131072
    """
    return max(batch_bytes // (8 * max(n_columns, 1)), 64)


def numbers(values: Any) -> np.ndarray[Any, Any]:
    """Convert a numeric Arrow array to a NumPy array. Missing values, which occur only in arrays of floats, become NaN.

    Arrow's ``to_numpy`` is not used, because this method imports pandas (about 45 MiB).

    >>> import pyarrow as pa
    >>> numbers(pa.array([1.5, None])).tolist(), numbers(pa.array([2, 3])[1:]).tolist()
    ([1.5, nan], [3])
    """
    return np.from_dlpack(values.fill_null(float("nan")) if values.null_count else values)


def open_table(url: str) -> Reader | tuple[Any, str]:
    """Return the reader for CSV or Parquet: a file, a folder or a glob of files of one kind; for an .npz file its file
    system and path.

    Raises ``MissingDataError`` or ``DataError``.
    """
    filesystem, path = open_filesystem(url)
    with reading(url):
        files = _files_of(filesystem, path, url)
    endings = {next(ending for ending in ENDINGS if file.lower().endswith(ending)) for file in files}
    kinds = {"csv" if ending in CSV_ENDINGS else "npz" if ending == ".npz" else "parquet" for ending in endings}
    if len(kinds) > 1:
        raise DataError(
            f"{url} holds files of several kinds ({', '.join(sorted(endings))}): select one kind, as in *.csv."
        )
    if kinds == {"npz"}:
        if len(files) > 1:
            raise DataError(f"{url} holds {len(files)} .npz files: ingest one .npz file at a time.")
        return filesystem, files[0]
    return (CsvReader if kinds == {"csv"} else ParquetReader)(url, filesystem, files)


def _files_of(filesystem: Any, path: str, url: str) -> list[str]:
    """Return the paths of a file, folder or glob, sorted.

    The files of a folder are all files below the folder that ingest can read, without paths that have a part beginning
    with ``.`` or ``_``. Raises ``MissingDataError`` if there are no files.
    """
    if filesystem.isfile(path):
        found = [path]
        if not path.lower().endswith(ENDINGS):
            raise DataError(f"{url}: the file type is unknown: ingest reads files ending in {', '.join(ENDINGS)}.")
    elif filesystem.isdir(path):
        below = path.rstrip("/")
        found = [file for file in filesystem.find(path) if not re.search(r"/[._]", file.removeprefix(below))]
    elif any(mark in path for mark in "*?["):
        found = list(filesystem.glob(path))
    else:
        raise MissingDataError(f"{url}: there is no such file or folder.")
    files = sorted(file for file in found if file.lower().endswith(ENDINGS))
    if not files:
        raise MissingDataError(f"{url}: there is no file that ingest can read here ({', '.join(ENDINGS)}).")
    return files


def open_binary(filesystem: Any, path: str) -> BinaryIO:
    """Open a file for reading. A local file is opened as a plain file, so that Arrow does not use fsspec."""
    if type(filesystem).__name__ == "LocalFileSystem":
        return open(path, "rb")  # noqa: PTH123 - the caller closes it
    return cast(BinaryIO, filesystem.open(path, "rb"))


def reading_file(path: str) -> AbstractContextManager[None]:
    """Convert errors of Arrow, a decompressor or a store to an error that names the file."""
    return reading(path, "check that the file is complete and that its ending states its type", DataError)


class ParquetReader(Reader):
    """A reader of Parquet files with equal columns. Row groups are read one after another without read-ahead."""

    most_batch = 4 << 20

    def __init__(self, url: str, filesystem: Any, files: list[str]) -> None:
        import pyarrow.parquet as pq

        self.name, self._filesystem, self._files, self.n_rows = url, filesystem, files, 0
        self._largest = (-1, files[0], 0)  # bytes, file and number of the largest row group
        for path in files:
            with reading_file(path), open_binary(filesystem, path) as file:
                parquet = pq.ParquetFile(file, pre_buffer=False)
                groups = [parquet.metadata.row_group(k).total_byte_size for k in range(parquet.num_row_groups)]
                found = tuple(parquet.schema_arrow.names)
            self.columns = found if path == files[0] else self.columns
            same_columns(url, self.columns, path, found, files[0])
            self.n_rows += parquet.metadata.num_rows
            self._largest = max(
                [self._largest, *((size, path, k) for k, size in enumerate(groups))], key=lambda x: x[0]
            )
        self.memory_advice = (
            ", take fewer columns (`--features`), or write the file with smaller row groups (the largest has "
            f"{max(self._largest[0], 0):,} bytes) and pages"
        )

    def held(self, wanted: Sequence[str]) -> int:
        """Return the bytes of pages, dictionaries and buffers of the given columns in the largest row group.

        The metadata of a file do not state the size of pages, and some writers make one page of a row group. Therefore
        the largest column is read once, to measure what Arrow allocates for it: the decompressed page and the
        dictionary. Every column counts this number, but no more than its bytes; one column at a time needs it twice,
        for the page as stored. If the largest column exceeds ``MOST_PROBE``, it is not read, and one page is assumed
        for every column.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        _, path, number = self._largest
        with reading_file(path), open_binary(self._filesystem, path) as file:
            parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=LEAST_BUFFER)
            if not parquet.num_row_groups:
                return 0
            group = parquet.metadata.row_group(number)
            sizes: dict[str, int] = {}
            for chunk in map(group.column, range(group.num_columns)):
                if any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in wanted):
                    sizes[chunk.path_in_schema] = int(chunk.total_uncompressed_size)
            largest, before, most = max(sizes, key=lambda name: sizes[name]), pa.total_allocated_bytes(), 0
            if sizes[largest] > MOST_PROBE:
                return sum(sizes.values()) + sizes[largest]
            for batch in parquet.iter_batches(PROBE_ROWS, row_groups=[number], columns=[largest], use_threads=False):
                most = max(most, int(pa.total_allocated_bytes() - before - batch.nbytes))
        return sum(LEAST_BUFFER + min(most, size) for size in sizes.values()) + most

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Yield the record batches of all files in order."""
        import pyarrow.parquet as pq

        rows = rows_per_batch(batch_bytes, len(wanted))
        buffer = min(max(batch_bytes // len(wanted), LEAST_BUFFER), MOST_BUFFER)
        for path in self._files:
            with reading_file(path), open_binary(self._filesystem, path) as file:
                parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True)
                for batch in parquet.iter_batches(batch_size=rows, columns=list(wanted), use_threads=False):
                    yield {name: batch.column(name) for name in wanted}


class CsvReader(Reader):
    """A reader of CSV files with a header and equal columns. The files are parsed block by block.

    Every wanted column that is not text is parsed as float64 from the first row on, so fractional values may occur
    anywhere in a column of integers. Empty fields, NA, NaN and null are missing values.
    """

    untyped = True

    def __init__(self, url: str, filesystem: Any, files: list[str]) -> None:
        self.name, self._filesystem, self._files = url, filesystem, files
        for path in files:
            found = self._head(path)
            self.columns = found if path == files[0] else self.columns
            same_columns(url, self.columns, path, found, files[0])

    def _head(self, path: str) -> tuple[str, ...]:
        import pyarrow as pa
        from pyarrow import csv

        with reading_file(path), open_binary(self._filesystem, path) as file:
            try:
                with csv.open_csv(_decompressed(file, path), csv.ReadOptions(use_threads=False)) as stream:
                    names = tuple(stream.schema.names)
            except UnicodeDecodeError as error:
                raise _no_utf8(path) from error
            except pa.ArrowInvalid as error:
                if "Empty CSV" in str(error):
                    raise DataError(f"{path}: the file is empty: it has no rows, and possibly no header.") from error
                raise _csv_error(error, path, ()) from error
        if any("\0" in name for name in names):
            raise _no_utf8(path)
        if len(names) == 1 and (other := re.search(r"[;\t|]", names[0])):
            raise DataError(f"{path}: fields seem to be separated by {other[0]!r}, but ingest reads commas only.")
        return names

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Yield the parsed blocks of all files in order.

        Raises ``DataError`` for integers that float64 cannot represent; the error is raised at the end of their file.
        Arrow reads 32 blocks ahead. These blocks take two thirds of the memory of a batch.
        """
        block_size = max(batch_bytes // 12, 1 << 16)
        plain = [name for name in wanted if name not in levels]
        for path in self._files:
            large: set[str] = set()
            for batch in self._blocks(path, wanted, levels, block_size):
                large |= {
                    name
                    for name in plain
                    if name not in large and (np.abs(numbers(batch.column(name))) >= LARGEST).any()
                }
                yield {name: batch.column(name) for name in wanted}
            if large:
                self._require_exact(path, large, block_size)

    def _blocks(self, path: str, wanted: Iterable[str], levels: Container[str], block_size: int) -> Iterator[Any]:
        """Yield record batches of one file: text for the columns in ``levels``, float64 for all other columns."""
        import pyarrow as pa
        from pyarrow import csv

        options = csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pa.string() if name in levels else pa.float64() for name in wanted},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(use_threads=False, block_size=block_size)
        with reading_file(path), open_binary(self._filesystem, path) as file:
            try:
                with csv.open_csv(_decompressed(file, path), read, convert_options=options) as stream:
                    yield from stream
            except pa.ArrowInvalid as error:
                raise _csv_error(error, path, self.columns) from error

    def _require_exact(self, path: str, names: set[str], block_size: int) -> None:
        """Read the given columns again as text, because only text distinguishes 9007199254740993 from the nearest
        float64.
        """
        import pyarrow.compute as pc

        start = 0
        for batch in self._blocks(path, names, names, block_size):
            for name in names:
                texts = batch.column(name)
                rows = numbers(pc.indices_nonzero(pc.match_substring_regex(texts, WHOLE)))
                first = first_rounded(np.array([int(texts[int(row)].as_py()) for row in rows], dtype=object))
                if first is not None:
                    row = int(rows[first[0]])
                    place = f"row {start + row:,} (counted from 0)"
                    raise rounded(path, name, place, texts[row].as_py(), ingested=True)
            start += len(batch)


def _decompressed(file: BinaryIO, path: str) -> Any:
    import pyarrow as pa

    compression = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path[path.rfind(".") :].lower())
    return file if compression is None else pa.CompressedInputStream(file, compression)


def _csv_error(error: Exception, path: str, columns: Sequence[str]) -> DataError:
    """Return the error for a field that Arrow could not parse, with the name of the column and advice."""
    text = str(error)
    if "straddl" in text:
        return DataError(f"{path}: a row is too long: check for an open quotation mark, or raise the memory limit.")
    place = re.search(r"column #(\d+)", text)
    value = re.search(r"invalid value '(.*)'", text, re.DOTALL)
    row = re.search(r"Row #(\d+)", text)
    if "invalid UTF8 data" in text or (place is None and "\0" in text):
        return _no_utf8(path)
    if place is None or value is None:
        return DataError(f"{path}: cannot be read as CSV ({text}): separate fields by commas, one row per line.")
    line = f" (line {row[1]})" if row else ""
    return text_column(path, columns[int(place[1])], f"{quoted(value[1])}{line}")


def _no_utf8(path: str) -> DataError:
    return DataError(
        f"{path}: the text is not UTF-8: convert it, for example with `iconv -f LATIN1 -t UTF-8` (-f UTF-16 for some "
        "spreadsheets)."
    )


def text_column(where: str, name: str, found: str) -> DataError:
    """Return the error for a column of text where numbers are needed."""
    return DataError(
        f"{where}: the column {quoted(name)} holds text, not numbers: {found}. Name it as categorical "
        f"(`--categorical {named(name)}`), omit the column with `--features`, or, for a class target, pass "
        "`--classes`."
    )


def require_distinct(names: Sequence[str], where: str) -> None:
    """Raise ``DataError`` for a duplicate column name."""
    twice = min((name for name, count in Counter(names).items() if count > 1), default=None)
    if twice is not None:
        raise DataError(f"{where}: the column name {quoted(twice)} occurs twice: rename one column.")


def same_columns(url: str, expected: Sequence[str], path: str, found: Sequence[str], first: str) -> None:
    """Raise ``DataError`` for a duplicate column name, or for a file whose columns differ from the first file."""
    require_distinct(found, path)
    if set(found) != set(expected):
        more, fewer = sorted(set(found) - set(expected)), sorted(set(expected) - set(found))
        said = [f"lacks {listed(fewer)}"] * bool(fewer) + [f"also has {listed(more)}"] * bool(more)
        raise DataError(
            f"{url}: {path} {' and '.join(said)}, compared with {first}. All files must have the same columns."
        )
