"""Readers of files: CSV, Parquet and .npz, on this machine or behind an fsspec URL, streamed with small buffers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from partirvm.data.readers import Batch, Reader, rows_per_batch
from partirvm.errors import DataError, MissingDataError, UsageError

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = (*CSV_ENDINGS, *PARQUET_ENDINGS, ".npz")
BUFFER_BYTES = 1 << 20


def open_table(url: str) -> Reader:
    """The reader for a file, a folder or a glob of files of one kind. Raises ``MissingDataError`` or ``DataError``."""
    files = find_files(url)
    endings = {next(ending for ending in ENDINGS if path.lower().endswith(ending)) for _, path in files}
    kinds = {"csv" if ending in CSV_ENDINGS else "npz" if ending == ".npz" else "parquet" for ending in endings}
    if len(kinds) > 1:
        raise DataError(
            f"{url} holds files of several kinds ({', '.join(sorted(endings))}): name those of one, as in *.csv."
        )
    kind = kinds.pop()
    if kind == "npz":
        from partirvm.data.npz import NpzReader

        if len(files) > 1:
            raise DataError(f"{url} holds {len(files)} .npz files: ingest takes one.")
        return NpzReader(*files[0])
    return (CsvReader if kind == "csv" else ParquetReader)(url, files)


def find_files(url: str) -> list[tuple[Any, str]]:
    """Files that a path, folder, glob or fsspec URL means: pairs of file system and path, sorted by path.

    Of a folder, the files that ingest can read, however deep, except those whose path has a part beginning with ``.``
    or ``_``. Raises ``MissingDataError`` where there are none.
    """
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise UsageError(f"{url}: cannot open this address ({error}).") from error
    if filesystem.isfile(path):
        found = [path]
        if not path.lower().endswith(ENDINGS):
            raise DataError(f"{url}: ingest reads {', '.join(ENDINGS)}, and cannot tell what this is by its ending.")
    elif filesystem.isdir(path):
        below = path.rstrip("/")
        found = [file for file in filesystem.find(path) if not re.search(r"/[._]", file.removeprefix(below))]
    elif any(mark in path for mark in "*?["):
        found = list(filesystem.glob(path))
    else:
        raise MissingDataError(f"{url}: there is no such file or folder.")
    files = sorted(file for file in found if file.lower().endswith(ENDINGS))
    if not files:
        raise MissingDataError(f"{url}: there is no file here that ingest reads ({', '.join(ENDINGS)}).")
    return [(filesystem, file) for file in files]


def open_binary(filesystem: Any, path: str) -> BinaryIO:
    """Open a file for reading: a plain file where it is on this machine, so that Arrow need not go through fsspec."""
    if type(filesystem).__name__ == "LocalFileSystem":
        return open(path, "rb")  # noqa: PTH123 - the caller closes it
    return cast(BinaryIO, filesystem.open(path, "rb"))


class ParquetReader:
    """Parquet files of the same columns, read one row group after another without read-ahead."""

    features: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ()
    weights: str | None = None
    untyped = False

    def __init__(self, url: str, files: list[tuple[Any, str]]) -> None:
        self.name, self._files = url, files
        self.n_rows: int | None = 0
        for filesystem, path in files:
            with reading_file(path), open_binary(filesystem, path) as file:
                found, rows = _parquet_head(file)
            if path == files[0][1]:
                self.columns = found
            same_columns(url, self.columns, path, found, files[0][1])
            self.n_rows += rows

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Record batches of every file in turn."""
        import pyarrow.parquet as pq

        rows = rows_per_batch(batch_bytes, len(wanted))
        for filesystem, path in self._files:
            with reading_file(path), open_binary(filesystem, path) as file:
                parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES)
                for batch in parquet.iter_batches(batch_size=rows, columns=list(wanted), use_threads=False):
                    yield {name: batch.column(name) for name in wanted}


def _parquet_head(file: BinaryIO) -> tuple[tuple[str, ...], int]:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, pre_buffer=False)
    return tuple(parquet.schema_arrow.names), parquet.metadata.num_rows


class CsvReader:
    """CSV files with a header and the same columns, parsed block by block.

    Every wanted column that is not text is parsed as float64 from its first value on, so a column of whole numbers may
    turn fractional anywhere. Empty fields, NA, NaN and null count as missing.
    """

    features: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ()
    weights: str | None = None
    untyped = True
    n_rows: int | None = None

    def __init__(self, url: str, files: list[tuple[Any, str]]) -> None:
        self.name, self._files = url, files
        for filesystem, path in files:
            with reading_file(path), open_binary(filesystem, path) as file:
                found = self._head(file, path)
            if path == files[0][1]:
                self.columns = found
            same_columns(url, self.columns, path, found, files[0][1])

    def _head(self, file: BinaryIO, path: str) -> tuple[str, ...]:
        import pyarrow as pa
        from pyarrow import csv

        try:
            with csv.open_csv(_decompressed(file, path), csv.ReadOptions(use_threads=False)) as stream:
                return tuple(stream.schema.names)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                raise DataError(f"{path}: the file is empty: it has neither a header nor rows.") from error
            raise

    def batches(self, wanted: Sequence[str], levels: frozenset[str], batch_bytes: int) -> Iterator[Batch]:
        """Parsed blocks of every file in turn."""
        import pyarrow as pa
        from pyarrow import csv

        options = csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pa.string() if name in levels else pa.float64() for name in wanted},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(use_threads=False, block_size=max(batch_bytes // 4, 1 << 16))
        for filesystem, path in self._files:
            with reading_file(path), open_binary(filesystem, path) as file:
                try:
                    with csv.open_csv(_decompressed(file, path), read, convert_options=options) as stream:
                        for batch in stream:
                            yield {name: batch.column(name) for name in wanted}
                except pa.ArrowInvalid as error:
                    raise _csv_error(error, path, self.columns) from error


def _decompressed(file: BinaryIO, path: str) -> Any:
    import pyarrow as pa

    compression = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path[path.rfind(".") :].lower())
    return file if compression is None else pa.CompressedInputStream(file, compression)


def _csv_error(error: Exception, path: str, columns: Sequence[str]) -> DataError:
    """What Arrow says about a field it could not parse, with the column's name and what to do."""
    text = str(error)
    place = re.search(r"column #(\d+)", text)
    value = re.search(r"invalid value '(.*)'", text, re.DOTALL)
    row = re.search(r"Row #(\d+)", text)
    if place is None or value is None:
        return DataError(f"{path}: cannot be read as CSV: {text}.")
    name = columns[int(place[1])]
    line = f" (line {row[1]})" if row else ""
    return text_column(path, name, f"{value[1]!r}{line}")


def text_column(where: str, name: str, found: str) -> DataError:
    """The error for text where numbers are needed."""
    return DataError(
        f"{where}: the column {name!r} holds text, not numbers: {found}. Name it as categorical "
        f"(`--categorical {name}`), leave it out with `--features`, or, for the target, say that it "
        "is a class (`--classes`)."
    )


def same_columns(url: str, expected: Sequence[str], path: str, found: Sequence[str], first: str) -> None:
    """Raise ``DataError`` for a name that occurs twice, or a file whose columns are not those of the first file."""
    twice = sorted({name for name in found if list(found).count(name) > 1})
    if twice:
        raise DataError(f"{path}: the column name {twice[0]!r} occurs twice: rename one of them.")
    if set(found) != set(expected):
        more, fewer = sorted(set(found) - set(expected)), sorted(set(expected) - set(found))
        said = [f"lacks {', '.join(fewer)}"] * bool(fewer) + [f"has {', '.join(more)} besides"] * bool(more)
        raise DataError(
            f"{url}: {path} {' and '.join(said)}, compared with {first}. All files must have the same columns."
        )


@contextmanager
def reading_file(path: str) -> Iterator[None]:
    """Turn what Arrow raises about a file into ``DataError`` or ``MissingDataError`` naming it."""
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: the file is not there any more.") from error
    except (pa.ArrowException, UnicodeDecodeError, EOFError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). Is the file whole, and of the kind its ending says?"
        ) from error
