"""The layout of a table in a text file: encoding, separator, lines before the header, names of the
columns, and totals or remarks after the last row.

Everything is decided from the first megabyte of a file, and from its last lines, by functions of
text alone.
"""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from partirvm.errors import DataError, UsageError
from partirvm.quoting import counted, listed, quoted

HEAD = 1 << 20
"""Number of bytes at the beginning of a file from which its layout is detected."""

SAMPLE = 200
"""Number of lines from which the separator and the kinds of the columns are detected."""

MOST_ROWS = 1000
"""Maximum number of rows from which the header is detected."""

MOST_TITLES = 50
"""Maximum number of lines before the header that are recognised."""

MOST_TOTALS = 10
"""Maximum number of totals and remarks after the last row that are recognised."""

BLANKS = " "
"""The separator of a file whose fields are separated by any number of blanks and tabs."""

SEPARATORS = ";\t|,"
"""Separators of single characters; with equal evidence, the first one is chosen."""

GAPS = frozenset(["", "?", "-", "--", ".", "*", "na", "n/a", "nan", "null", "none", "#n/a"])
"""Cells, in small letters, that say nothing about the kind of a column."""

TOTAL = re.compile(
    r"\W*(grand|sub)?[ -]?(totals?|sum|summe|gesamt\w*|insgesamt|somme|totale?s?|totaal|suma|razem"
    r"|average|mean|mittelwert|durchschnitt|moyenne)\b",
    re.IGNORECASE,
)
"""The beginning of a row that sums up the rows above it."""

REMARK = re.compile(r"\*|\(|notes?\b|sources?\b|quellen?\b|hinweis|anmerkung|.*:", re.IGNORECASE)
"""The beginning of a remark below a table."""


@dataclass(frozen=True)
class FileOptions:
    """How a file is read, as far as the user says so.

    Attributes:
        skip_rows: lines to leave out before the header and after the last row; None to find them
        header: True if the first row holds the names of the columns, False if there are no names;
            None to find out
        skip_bad_rows: True to leave out rows with the wrong number of fields
        known: names that the user or the training data give to columns
        labels: labels of the training data, such as NA, which are no missing values in new files
    """

    skip_rows: tuple[int, int] | None = None
    header: bool | None = None
    skip_bad_rows: bool = False
    known: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        known: Collection[str] = (),
        labels: Collection[str] = (),
    ) -> "FileOptions":
        """Return the options of ``ingest`` that concern the reading of files."""
        return cls(
            _skipped(options.get("skip_rows")),
            options.get("header"),
            bool(options.get("skip_bad_rows")),
            frozenset(known),
            frozenset(labels),
        )


def spelled(skip_rows: int | str | Sequence[int]) -> str:
    """Return numbers of lines to leave out as text.

    >>> spelled(0), spelled((3, 1)), spelled("3,1")
    ('0', '3,1', '3,1')
    """
    if isinstance(skip_rows, int | str):
        return str(skip_rows)
    return ",".join(map(str, skip_rows))


def _skipped(text: str | None) -> tuple[int, int] | None:
    """Return the numbers of lines to leave out at the beginning and at the end of a file."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*(?:,\s*(\d+)\s*)?", text)
    if match is None:
        raise UsageError(
            f"skip_rows is {text!r}: pass the number of lines before the header, such as 3, or "
            "that and the number of rows after the last one, such as 3,1"
        )
    return int(match[1]), int(match[2] or 0)


@dataclass(frozen=True)
class Row:
    """A row of a text file: its ``cells``, the line on which it begins and the line after it (both
    from 0)."""

    cells: list[str]
    line: int
    after: int


@dataclass(frozen=True)
class Layout:
    """The layout of a table in a text file.

    Attributes:
        encoding: encoding of the text, as Arrow and Python name it
        separator: character between fields, or ``BLANKS``
        padded: True if separators are followed by blanks that belong to no field
        n_lines: number of lines before the first row of values
        titles: number of lines before the header, or before the first row of values
        names: names of all columns, without duplicates
        header: True if the names are in the file
        copies: names in the file of columns that were renamed, because another one has this name
        empty: columns without a name and without values, which are left out
        total: True if rows after the last one may be totals
        notes: remarks on what was found
    """

    encoding: str
    separator: str
    padded: bool
    n_lines: int
    titles: int
    names: tuple[str, ...]
    header: bool = True
    copies: Mapping[str, str] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()
    total: bool = True
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that may have values."""
        return tuple(name for name in self.names if name not in self.empty)

    @property
    def parsed_separator(self) -> str:
        """The separator after blanks were replaced."""
        return "\t" if self.separator == BLANKS else self.separator


def layout_of(head: bytes, place: str, options: FileOptions | None = None) -> Layout:
    """Return the layout of a file that begins with these bytes.

    >>> layout_of("Größe;Preis\\n1,5;2\\n".encode("cp1252"), "t.csv").notes
    ("cp1252 text, fields separated by ';'",)
    >>> layout = layout_of(b"Sales 2023\\n\\nitem,n\\nmilk,2\\nbread,3\\n", "t.csv")
    >>> layout.names, layout.titles, layout.n_lines
    (('item', 'n'), 2, 3)
    >>> layout_of(b"5.1 3.5 red\\n4.9 3.0 blue\\n4.7 3.1 red\\n", "t.data").names
    ('x1', 'x2', 'x3')
    """
    options = options or FileOptions()
    encoding, text = _decoded(head, place)
    separator = _separator_of(text)
    rows = list(islice(rows_of(text, separator), MOST_ROWS))
    if options.skip_rows is not None:
        rows = [row for row in rows if row.line >= options.skip_rows[0]]
    if not rows:
        raise DataError(f"{place}: cannot be read as CSV: the file has no rows")
    titles = 0 if options.skip_rows is None else options.skip_rows[0]
    if options.skip_rows is None:
        rows = rows[_first_row(rows, _width(rows)[0], options.known) :]
        titles = rows[0].line
    header = options.header
    if header is None:
        header = _has_header(rows[0], rows[1:], options.known)
    notes = _notes(encoding, separator, text, titles if options.skip_rows is None else 0)
    file = _Text(encoding, separator, _is_padded(text, separator), titles, notes)
    return _with_header(file, rows) if header else _without_header(file, rows)


@dataclass(frozen=True)
class _Text:
    """What is known of a file before its columns (``Layout``)."""

    encoding: str
    separator: str
    padded: bool
    titles: int
    notes: list[str]


def _with_header(file: _Text, rows: Sequence[Row]) -> Layout:
    """Return the layout of a file whose first row holds names."""
    values = [row.cells for row in rows[1:]]
    written = _written(rows[0].cells, values)
    names = unique_names(written)
    unnamed = [place for place, name in enumerate(written) if values and not name]
    empty = frozenset(names[place] for place in unnamed if not any(_cells(values, place)))
    pairs = zip(names, written, strict=True)
    return Layout(
        file.encoding,
        file.separator,
        file.padded,
        rows[0].after,
        file.titles,
        names,
        copies={name: before for name, before in pairs if before not in ("", name)},
        empty=empty,
        total=not any(map(_is_total, values[:-MOST_TOTALS])),
        notes=(*file.notes, *_renamed(written, names, empty)),
    )


def _without_header(file: _Text, rows: Sequence[Row]) -> Layout:
    """Return the layout of a file without names."""
    width = _width(rows)[0]
    note = (
        f"the first row is read as values: the columns are named x1 to x{width} (`--header` reads "
        "it as names)"
    )
    return Layout(
        file.encoding,
        file.separator,
        file.padded,
        file.titles,
        file.titles,
        unique_names([""] * width),
        header=False,
        total=not any(_is_total(row.cells) for row in rows[:-MOST_TOTALS]),
        notes=(*file.notes, note),
    )


def _decoded(head: bytes, place: str) -> tuple[str, str]:
    """Return the encoding and the text of the first bytes of a file, without the last line if it is
    not complete.

    A file is UTF-16 if it begins with a byte order mark, and Windows-1252 if it is not UTF-8.
    """
    encoding = "utf16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf8"
    if encoding == "utf8" and b"\0" in head:
        raise DataError(
            f"{place}: cannot be read as CSV: this is not text: check that its extension matches "
            "its type"
        )
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = head.decode("cp1252", errors="replace")
    text = io.StringIO(text.removeprefix("\ufeff"), newline=None).read()
    if len(head) >= HEAD and "\n" in text:
        text = text[: text.rindex("\n") + 1]
    return encoding, text


def rows_of(text: str, separator: str) -> Iterator[Row]:
    """Yield the rows of a text; blank lines are no rows."""
    lines = io.StringIO(text)
    if separator == BLANKS:
        for number, text_line in enumerate(lines):
            cells = [cell.strip('"') for cell in re.findall(r'"[^"]*"|\S+', text_line)]
            if cells:
                yield Row(cells, number, number + 1)
        return
    reader = csv.reader(lines, delimiter=separator)
    line = 0
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield Row(stripped, line, reader.line_num)
            line = reader.line_num
    except csv.Error:  # a field of more than 128 KiB
        pass


def _width(rows: Sequence[Row]) -> tuple[int, float]:
    """Return the most frequent number of fields in a row, and the share of the rows that have
    it."""
    widths = Counter(len(row.cells) for row in rows)
    width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
    return width, count / len(rows)


def _separator_of(text: str) -> str:
    """Return the separator with which the most rows have equally many fields, and at least two."""
    lines = io.StringIO(text)
    sample = "".join(line for _, line in zip(range(SAMPLE), lines, strict=False))
    best = ","
    most = 0.0
    widths = dict[str, int]()
    for separator in SEPARATORS + BLANKS:
        rows = list(rows_of(sample, separator))
        width, share = _width(rows) if rows else (1, 0.0)
        widths[separator] = width
        aligned = separator == BLANKS and _is_aligned(sample)
        if separator == BLANKS and most >= 0.5 and not (best == "\t" and aligned):
            continue
        better = share > most or (share == most and aligned and width > widths[best])
        if width > 1 and better:
            best = separator
            most = share
    return best


def _is_aligned(text: str) -> bool:
    """Return True if most lines have several blanks between numbers."""
    lines = text.splitlines()
    aligned = sum(bool(re.search(r"\d\.? {2,}[-+.\d]", line)) for line in lines)
    return 2 * aligned > len(lines)


def _is_padded(text: str, separator: str) -> bool:
    """Return True if most separators are followed by a blank."""
    if separator in (BLANKS, "\t"):
        return False
    return 2 * text.count(f"{separator} ") > text.count(separator) > 0


def _first_row(rows: Sequence[Row], width: int, known: Collection[str]) -> int:
    """Return the position of the header or, without a header, of the first row of values.

    Args:
        rows: rows of the file
        width: number of fields of most rows
        known: names of columns; the row that holds the most of them is the header, which may lack
            the name of the row names
    """
    first_rows = rows[:MOST_TITLES]
    matches = [
        (sum(cell in known for cell in set(row.cells)), len(row.cells) in (width - 1, width))
        for row in first_rows
    ]
    best = matches.index(max(matches))
    if matches[best][0] and len(rows[best].cells) > 1:
        return best
    for place, row in enumerate(first_rows):
        if not _is_title(row.cells, rows[place + 1 :], width):
            return place
    return 0


def _is_title(cells: Sequence[str], later: Sequence[Row], width: int) -> bool:
    """Return True for a line before the header.

    A header may lack the name of the row names in the first column, as R writes it, and a line may
    be filled up with empty fields, as spreadsheets write it.
    """
    if width == 1 or not later:
        return False
    if cells[0].startswith("#") and later[0].cells[0].startswith("#"):
        return True
    if len(cells) == width:
        return bool(cells[0]) and 2 * sum(map(bool, cells)) <= width and not any(cells[1:])
    beside_names = len(cells) in (width - 1, width + 1) and len(later[0].cells) == width
    comment = cells[0].startswith("#")
    is_text = not any(map(is_value, cells))
    has_values = any(map(is_value, later[0].cells))
    return not (beside_names and is_text and has_values and (comment or len(cells) == width - 1))


def is_value(cell: str) -> bool:
    """Return True for a cell that looks like a number, a date or an amount with a unit.

    >>> list(map(is_value, ["-1.5e3", "$ 12", "12 kg", "2023-01-31", "x1", "1st floor", ""]))
    [True, True, True, True, False, False, False]
    """
    return bool(re.match(r"[^\w]*\d", cell)) and len(re.findall(r"[^\W\d_]", cell)) <= 3


def _cells(values: Sequence[Sequence[str]], place: int) -> list[str]:
    """Return the cells of a column, "" for rows that are too short."""
    return [cells[place] if place < len(cells) else "" for cells in values[:SAMPLE]]


def _has_header(first: Row, later: Sequence[Row], known: Collection[str]) -> bool:
    """Return False if the first row looks like the rows after it.

    Text above numbers is a name. Otherwise, numbers above numbers are values, unless they are in
    steps, such as years; and text above text is a value if it occurs again.
    """
    if not later or set(known) & set(first.cells) or len(first.cells) < len(later[0].cells):
        return True
    values = [row.cells for row in later]
    repeated = 0
    texts = 0
    numbers = list[str]()
    for place, cell in enumerate(first.cells):
        column = [text for text in _cells(values, place) if text.casefold() not in GAPS]
        if cell.casefold() in GAPS or not column:
            continue
        n_values = sum(map(is_value, column))
        if is_value(cell):
            numbers.append(cell)
        elif 5 * n_values >= 4 * len(column):
            return True
        else:
            texts += 1
            repeated += cell in column
    if numbers and _are_steps(numbers):
        return True
    if texts and not repeated and len(numbers) < texts:
        return True
    return not numbers and 2 * repeated < max(texts, 1)


def _are_steps(cells: Sequence[str]) -> bool:
    """Return True for whole numbers with equal distances, such as years or wavelengths."""
    if len(cells) < 2 or not all(re.fullmatch(r"\d+", cell) for cell in cells):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(cells)}
    return len(steps) == 1 and min(steps) > 0


def _written(cells: Sequence[str], values: Sequence[Sequence[str]]) -> list[str]:
    """Return the names in the header, "" for columns without one.

    The header may begin with ``#``, and it may be one field shorter than the rows: either the first
    column holds row names, or each row ends with a separator.
    """
    width = len(values[0]) if values else len(cells)
    names = list(cells)
    if names[0].startswith("#"):
        names[0] = names[0].lstrip("# ")
        names = names[1:] if not names[0] and len(names) == width + 1 else names
    if len(names) == width - 1:
        ends = any(_cells(values, width - 1))
        names = ["row", *names] if ends else [*names, ""]
    return names


def unique_names(written: Sequence[str]) -> tuple[str, ...]:
    """Return names without duplicates: a second ``w`` becomes ``w.1``, and a column without a name
    is called x and its number.

    >>> unique_names(["w", "w", "", "w.1"])
    ('w', 'w.2', 'x3', 'w.1')
    """
    taken = set(written)
    names = list[str]()
    seen = set[str]()
    for number, name in enumerate(written, 1):
        proposal = name or f"x{number}"
        copy = 0
        while proposal in seen or (copy and proposal in taken) or (not name and proposal in taken):
            copy += 1
            proposal = f"{name or f'x{number}'}.{copy}"
        names.append(proposal)
        seen.add(proposal)
    return tuple(names)


def _renamed(written: Sequence[str], names: Sequence[str], empty: Collection[str]) -> Iterator[str]:
    """Yield remarks on names that were made unique."""
    for name, count in Counter(written).items():
        copies = [unique for unique, before in zip(names, written, strict=True) if before == name]
        unnamed = [unique for unique in copies if unique not in empty]
        if name and count > 1:
            yield f"{count} columns are named {quoted(name)}: they are read as {listed(copies)}"
        elif not name and unnamed:
            yield f"{counted(len(unnamed), 'column')} without a name: read as {listed(unnamed)}"


def _notes(encoding: str, separator: str, text: str, titles: int) -> list[str]:
    """Return remarks on the encoding, the separator and the lines before the header.

    Args:
        encoding: encoding of the text
        separator: separator of the fields
        text: first lines of the file
        titles: number of lines before the header
    """
    notes = list[str]()
    if (encoding, separator) != ("utf8", ","):
        mark = "blanks" if separator == BLANKS else repr(separator)
        notes.append(f"{encoding} text, fields separated by {mark}")
    lines = [line.strip(f"{separator} ") for line in text.splitlines()[:titles]]
    shown = [line for line in lines if line]
    if shown:
        notes.append(
            f"{counted(titles, 'line')} before the header left out: {listed(shown, 2, quoted)}"
        )
    return notes


def _is_total(cells: Sequence[str]) -> bool:
    """Return True for a row whose first text is a word for a sum or a mean."""
    texts = [cell for cell in cells[:3] if cell]
    return bool(texts and TOTAL.match(texts[0]))


def n_totals(lines: Sequence[str], layout: Layout) -> int:
    """Return how many of the last lines of a file are totals or remarks.

    >>> layout = layout_of(b"item,n\\nmilk,2\\nbread,3\\n", "t.csv")
    >>> n_totals(["bread,3", "Total,5", "Source: own survey"], layout)
    2
    """
    count = 0
    if not layout.total:
        return 0
    for line in reversed(lines[-MOST_TOTALS:]):
        rows = list(rows_of(line, layout.parsed_separator))
        cells = rows[0].cells if rows else []
        if not (_is_total(cells) or _is_remark(cells, len(layout.names))):
            break
        count += 1
    return count


def _is_remark(cells: Sequence[str], width: int) -> bool:
    """Return True for a row of ``cells`` that is a remark below a table of ``width`` columns."""
    texts = [cell for cell in cells if cell]
    if not texts or is_value(texts[0]) or width == 1:
        return False
    if len(cells) < width and len(texts) == 1:
        return True
    return bool(REMARK.match(texts[0])) and (len(cells) != width or len(texts) == 1)
