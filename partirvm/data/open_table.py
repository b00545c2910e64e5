"""Selection of the reader for the source of an ingest."""

from __future__ import annotations

import os
from typing import Any

from partirvm.data.readers import FrameReader, PairReader, Reader
from partirvm.errors import DataError, UsageError
from partirvm.frames import is_frame, pandas_column, pandas_frame


def open_reader(source: Any) -> Reader:
    """Return the reader for a path, an fsspec URL, a data frame, or a tuple (X, y) or (X, y, weights); y may be None.

    Raises ``DataError``, ``MissingDataError`` or ``UsageError`` for a source that cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        return open_table(os.fspath(source))
    if isinstance(source, (tuple, list)) and len(source) in (2, 3):
        X, y, *weights = pandas_frame(source[0]), *map(pandas_column, source[1:])
        return (FrameReader.of_parts if is_frame(X) else PairReader)(X, y, *weights)
    source = pandas_frame(source, "the source")
    if is_frame(source):
        return FrameReader(source)
    raise UsageError(
        f"cannot ingest a {type(source).__name__}: pass a file, a folder, a data frame of pandas, polars or Dask, or a "
        "tuple (X, y) of arrays; for rows to predict pass (X, None) and like=…"
    )


def open_table(url: str) -> Reader:
    """Return the reader for a file, a folder or a glob of files of one kind.

    Raises ``MissingDataError`` or ``DataError``.
    """
    from partirvm.data.tables import CSV_ENDINGS, ENDINGS, CsvReader, ParquetReader, find_files

    files = find_files(url)
    endings = {next(ending for ending in ENDINGS if path.lower().endswith(ending)) for _, path in files}
    kinds = {"csv" if ending in CSV_ENDINGS else "npz" if ending == ".npz" else "parquet" for ending in endings}
    if len(kinds) > 1:
        raise DataError(
            f"{url} holds files of several kinds ({', '.join(sorted(endings))}): select one kind, as in *.csv."
        )
    kind = kinds.pop()
    if kind == "npz":
        from partirvm.data.npz import NpzReader

        if len(files) > 1:
            raise DataError(f"{url} holds {len(files)} .npz files: ingest one .npz file at a time.")
        return NpzReader(*files[0])
    return (CsvReader if kind == "csv" else ParquetReader)(url, files)
