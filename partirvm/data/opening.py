"""Opening of the files of a table: compressed files, archives of one file, and spreadsheets."""

import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from partirvm.data.spreadsheets import SHEET_ENDINGS, SheetText
from partirvm.errors import DataError
from partirvm.quoting import listed
from partirvm.storage import reading
from partirvm.storage.address import without_query

ADVICE = "check that the file is complete and that its extension matches its type"


@contextmanager
def opened(filesystem: Any, path: str, known: Collection[str] = ()) -> Iterator[Any]:
    """Open a file, possibly compressed, for reading. Errors are converted to partirvm errors that
    name the file.

    The only file of an archive is opened, and a spreadsheet is opened as CSV text. Arrow opens
    local files itself: its read-ahead thread for Python files can hang or abort a process at exit.

    Args:
        filesystem: file system of the file
        path: path of the file
        known: names of columns, by which a sheet is selected
    """
    import pyarrow as pa

    local = type(filesystem).__name__ == "LocalFileSystem"
    name = without_query(path).lower()
    compression = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}.get(name.rpartition(".")[2])
    with (
        reading(path, ADVICE, DataError),
        pa.OSFile(path, "rb") if local else filesystem.open(path, "rb") as file,
    ):
        if name.endswith(".zip"):
            with zipfile.ZipFile(file) as archive, archive.open(_only_file(archive, path)) as inner:
                yield inner
        elif name.endswith(SHEET_ENDINGS):
            yield SheetText(file, path, known)
        else:
            yield file if compression is None else pa.CompressedInputStream(file, compression)


def _only_file(archive: zipfile.ZipFile, path: str) -> str:
    """Return the name of the only file in an archive. Raises ``DataError`` if there are several."""
    names = [
        name
        for name in archive.namelist()
        if not name.endswith("/") and not name.startswith("__MACOSX/")
    ]
    if len(names) != 1:
        raise DataError(
            f"{path}: the archive holds {len(names)} files ({listed(names, 5)}): unpack it, and "
            "ingest the file or the folder"
        )
    return names[0]
