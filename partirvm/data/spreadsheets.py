"""Sheets of Excel and OpenDocument files as CSV text, which is then read like any text file."""

import csv
import datetime
import io
import zipfile
from collections.abc import Collection, Iterator
from typing import Any

from partirvm.errors import DataError, MemoryLimitError, UsageError
from partirvm.quoting import format_bytes, listed

SHEET_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

MOST_BYTES = 256 << 20
"""Maximum size in bytes of a spreadsheet, unpacked, since it is read whole."""

CELL_BYTES = 4
"""Bytes of memory that the cells take for each byte of the unpacked file: measured for 600,000
numbers of five decimals."""

FIRST_ROWS = 50
"""Number of rows in which the names of columns are searched for."""


class SheetText:
    """The CSV text of a sheet, as a file to read.

    Attributes:
        held: approximate number of bytes that its cells take
    """

    def __init__(self, file: Any, path: str, known: Collection[str] = ()) -> None:
        """Open the sheet that holds the ``known`` names of columns, or else the first one with
        cells.

        Args:
            file: open file, which can seek
            path: path of the file in messages
            known: names of columns
        """
        content = file.read()
        self.held = CELL_BYTES * _unpacked(content)
        self._text = _text_of(_sheet(content, path, known))
        self._buffer = b""

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; none at the end."""
        parts = [self._buffer]
        length = len(self._buffer)
        while length < size and (part := next(self._text, b"")):
            parts.append(part)
            length += len(part)
        text = b"".join(parts)
        self._buffer = text[size:]
        return text[:size]


def _sheet(content: bytes, path: str, known: Collection[str]) -> Any:
    """Return a sheet of a workbook (``SheetText``)."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise UsageError(
            f"{path}: a spreadsheet needs the package python-calamine: "
            "`pip install 'partirvm[spreadsheet]'`, or save it as CSV"
        ) from error
    size = _unpacked(content)
    if size > MOST_BYTES:
        raise MemoryLimitError(
            f"{path}: this spreadsheet has {format_bytes(size)} unpacked and would be read whole, "
            f"at most {format_bytes(MOST_BYTES)}: save it as CSV, which is read in blocks"
        )
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(content))
        sheets = [workbook.get_sheet_by_name(name) for name in workbook.sheet_names]
    except CalamineError as error:
        raise DataError(f"{path}: cannot be read as a spreadsheet: {error}") from error
    filled = [sheet for sheet in sheets if sheet.height]
    if not filled:
        raise DataError(f"{path}: all sheets are empty: {listed(workbook.sheet_names)}")
    return max(filled, key=lambda sheet: _n_known(sheet, known))


def _unpacked(content: bytes) -> int:
    """Return the size of a file, or of the files in an archive."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return len(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(member.file_size for member in archive.infolist())


def _n_known(sheet: Any, known: Collection[str]) -> int:
    """Return how many of the known names a row near the top of a sheet holds."""
    rows = sheet.to_python(nrows=FIRST_ROWS)
    return max((len({str(cell).strip() for cell in row} & set(known)) for row in rows), default=0)


def _text_of(sheet: Any) -> Iterator[bytes]:
    """Yield the rows of a sheet as lines of CSV; rows without a cell are left out."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for row in sheet.iter_rows():
        cells = list(map(cell_text, row))
        if any(cells):
            writer.writerow(cells)
            yield line.getvalue().encode()
            line.seek(0)
            line.truncate()


def cell_text(value: Any) -> str:
    """Return the text of a cell: whole numbers without a point, dates and times in ISO format.

    >>> cell_text(3.0), cell_text(0.1), cell_text(datetime.datetime(2023, 1, 31)), cell_text(True)
    ('3', '0.1', '2023-01-31', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time()
        return value.date().isoformat() if midnight else value.isoformat(" ")
    if isinstance(value, datetime.timedelta):
        return str(datetime.timedelta(0) + value)
    return str(value).strip()
