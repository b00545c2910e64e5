"""Tables in text files of any layout (``data.layout``), which are read block by block."""

import codecs
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from partirvm.data.layout import (
    BLANKS,
    HEAD,
    MOST_TOTALS,
    FileOptions,
    Layout,
    layout_of,
    n_totals,
)
from partirvm.data.opening import opened
from partirvm.data.problems import Finding
from partirvm.errors import DataError
from partirvm.quoting import counted, listed, quoted

MOST_LINES = 20
"""Maximum number of bad rows whose line numbers are listed."""

MOST_BAD = 0.1
"""Maximum share of bad rows that ``skip_bad_rows`` may leave out: with more, the separator is
probably wrong."""

LEAST_BLOCK = 1 << 16
"""Minimum number of bytes that are read at once."""

MOST_OPEN = 16 << 20
"""Maximum number of bytes in quotation marks before they are taken for single marks."""


@dataclass
class BadRows:
    """Rows with the wrong number of fields.

    Attributes:
        n_rows: number of all rows
        count: number of bad rows
        places: line numbers (from 1) and numbers of fields of the first bad rows
    """

    n_rows: int = 0
    count: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[str, int]], block: bytes, line: int) -> None:
        """Add the bad rows of a block.

        Args:
            rows: text and number of fields of each bad row, in order
            block: lines of the block
            line: number of lines before the block
        """
        self.count += len(rows)
        position = 0
        for text, n_fields in rows[: MOST_LINES - len(self.places)]:
            row = text.encode() + b"\n"
            if position or not block.startswith(row):
                position = block.find(b"\n" + row, max(position - 1, 0)) + 1
            number = line + block.count(b"\n", 0, position) + 1
            self.places.append((number, n_fields))
            position += len(row)

    def __str__(self) -> str:
        lines = [f"line {line:,} ({counted(n, 'field')})" for line, n in self.places]
        more = ", …" if self.count > len(lines) else ""
        return listed(lines) + more


@dataclass
class DelimitedFile:
    """A table in a text file or spreadsheet.

    Attributes:
        filesystem: file system of the file
        path: path of the file
        options: how the user wants the file to be read
        bad: rows with the wrong number of fields, as of the last reading
        held: bytes of memory that the file takes while it is read, in addition to the batches
        totals: rows after the last row of values, as of the last reading
    """

    filesystem: Any
    path: str
    options: FileOptions
    bad: BadRows = field(default_factory=BadRows)
    held: int = 0
    totals: tuple[str, ...] = ()

    @cached_property
    def layout(self) -> Layout:
        """The layout of the file."""
        with opened(self.filesystem, self.path, self.options.known) as file:
            self.held = getattr(file, "held", 0)
            return layout_of(_read_head(file), self.path, self.options)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.layout.columns

    def batches(self, wanted: Sequence[str], batch_bytes: int) -> Iterator[Any]:
        """Yield Arrow tables of strings with the wanted columns, read in blocks that make
        approximately ``batch_bytes`` bytes of records each."""
        layout = self.layout
        # two bytes of text make eight bytes of a record, and of strings with their offsets
        block_bytes = max(batch_bytes // 12, LEAST_BLOCK)
        self.bad = BadRows()
        self.totals = ()
        line = layout.n_lines
        with opened(self.filesystem, self.path, self.options.known) as file:
            lines = whole_lines(decoded_blocks(file, layout.encoding, block_bytes))
            body = self._without_ends(plain_blocks(lines, layout))
            for block in body:
                if block.strip():
                    yield self._parsed(block, line, wanted)
                line += block.count(b"\n")

    def _without_ends(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield blocks of lines without those before the first row and after the last row."""
        n_before = self.layout.n_lines
        skipped = self.options.skip_rows
        n_after = MOST_TOTALS if skipped is None else skipped[1]
        end = b""
        for block in blocks:
            n_lines = block.count(b"\n") if n_before else 0
            if n_before:
                block = block.split(b"\n", n_before)[-1] if n_lines >= n_before else b""
                n_before -= min(n_before, n_lines)
            block = end + block
            # blank lines may follow the last row
            cut = _last_lines(block, n_after) if n_after else len(block)
            end = block[cut:]
            yield block[:cut]
        last_lines = [line for line in end.decode(errors="replace").split("\n") if line.strip()]
        count = n_totals(last_lines, self.layout) if skipped is None else skipped[1]
        self.totals = tuple(last_lines[len(last_lines) - count :])
        yield end[: _last_lines(end, count)]

    def _parsed(self, block: bytes, line: int, wanted: Sequence[str]) -> Any:
        """Return the wanted columns of a block of whole lines as an Arrow table.

        Args:
            block: lines in UTF-8
            line: number of lines before the block
            wanted: names of columns
        """
        import pyarrow as pa
        from pyarrow import csv

        layout = self.layout
        bad_rows = list[tuple[str, int]]()

        def refuse(row: Any) -> str:
            bad_rows.append((row.text, row.actual_columns))
            return "skip"

        convert = csv.ConvertOptions(
            null_values=null_texts(self.options.labels),
            include_columns=list(wanted),
            column_types={name: pa.string() for name in wanted},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        try:
            table = csv.read_csv(
                pa.BufferReader(block),
                csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=layout.names
                ),
                csv.ParseOptions(
                    delimiter=layout.parsed_separator,
                    newlines_in_values=True,
                    invalid_row_handler=refuse,
                ),
                convert,
            )
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            raise DataError(
                f"{self.path}: cannot be read as CSV: {error} (after line {line:,}); it needs "
                "closed quotation marks and one encoding"
            ) from error
        self.bad.n_rows += len(table)
        self.bad.add(bad_rows, block, line)
        return table

    def findings(self) -> list[Finding]:
        """Return the problems of the rows that were read last."""
        findings = list[Finding]()
        bad = self.bad
        if bad.count and not self.options.skip_bad_rows:
            rows = counted(bad.count, "row")
            found = f"{rows} without {len(self.layout.names)} fields: {bad}"
            few = bad.count <= MOST_BAD * bad.n_rows
            skipping = {"skip_bad_rows": True} if few else {}
            advice = "check the separator, and which line is the header (--skip-rows)"
            findings.append(Finding(self.path, found, skipping, advice))
        if self.totals and self.options.skip_rows is None:
            titles = self.layout.titles
            verb = "row looks" if len(self.totals) == 1 else "rows look"
            texts = listed(self.totals, 2, quoted)
            found = f"the last {verb} like totals: {texts}; --skip-rows {titles} reads them"
            remedy = {"skip_rows": f"{titles},{len(self.totals)}"}
            findings.append(Finding(self.path, found, remedy))
        return findings

    def remarks(self) -> list[str]:
        """Return what was found in the file, and which rows were left out."""
        return [*self.layout.notes, *self.rows_left_out()]

    def rows_left_out(self) -> list[str]:
        """Return which rows were left out by the last reading."""
        remarks = list[str]()
        if self.bad.count:
            remarks.append(f"{counted(self.bad.count, 'bad row')} left out: {self.bad}")
        if self.totals:
            count = counted(len(self.totals), "row")
            remarks.append(f"{count} at the end left out: {listed(self.totals, 2, quoted)}")
        return remarks


def null_texts(labels: Collection[str] = ()) -> list[str]:
    """Return the texts that mark missing values in any column, without those that are labels.

    >>> "NA" in null_texts(), "NA" in null_texts(["NA"]), "" in null_texts()
    (True, False, True)
    """
    from pyarrow import csv

    return [text for text in csv.ConvertOptions().null_values if text not in labels]


def _read_head(file: Any) -> bytes:
    """Return the first megabyte of a file."""
    parts = list[bytes]()
    size = 0
    while size < HEAD and (part := file.read(HEAD - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def decoded_blocks(file: Any, encoding: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the blocks of a text file in UTF-8, with line feeds between lines, and without a byte
    order mark.

    Args:
        file: open file
        encoding: encoding of the file
        block_bytes: maximum number of bytes to read at once
    """
    decoder = None if encoding == "utf8" else codecs.getincrementaldecoder(encoding)()
    begins = True
    ends = b""  # a carriage return, which a line feed may follow
    while block := file.read(block_bytes):
        if decoder is not None:
            block = decoder.decode(block).encode()
        if begins:
            block = block.removeprefix(codecs.BOM_UTF8)
        begins = False
        if ends or b"\r" in block:
            block = ends + block
            ends = b"\r" if block.endswith(b"\r") else b""
            block = block.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield block
    if decoder is not None:
        decoder.decode(b"", final=True)


def whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks that end with the end of a line outside quotation marks."""
    part = b""
    for block in blocks:
        block = part + block
        cut = _end_of_lines(block)
        part = block[cut:]
        if cut:
            yield block[:cut]
    if part.strip():
        yield part + b"\n"


def _end_of_lines(block: bytes) -> int:
    """Return the end of the last line of a block that is not inside quotation marks, or 0."""
    cut = block.rfind(b"\n") + 1
    n_marks = block.count(b'"', 0, cut)
    outside = cut
    while outside and n_marks % 2:
        before = block.rfind(b"\n", 0, outside - 1) + 1
        n_marks -= block.count(b'"', before, outside)
        outside = before
    return cut if not outside and len(block) > MOST_OPEN else outside


def plain_blocks(blocks: Iterator[bytes], layout: Layout) -> Iterator[bytes]:
    """Yield blocks of lines whose fields are separated by one character, and whose rows without
    any value are blank lines."""
    separator = layout.parsed_separator.encode()
    n_separators = len(layout.names) - 1
    without_values = b"\n" + separator * n_separators + b"\n"
    line = re.compile(rb"^" + re.escape(separator) + rb"+$", re.MULTILINE)
    for block in blocks:
        if layout.separator == BLANKS:
            block = _single_tabs(block)
        elif layout.padded:
            block = _replaced(block, re.escape(separator) + rb" +", separator)
        if n_separators and without_values in block:
            block = line.sub(b"", block)
        yield block


def _single_tabs(block: bytes) -> bytes:
    """Return lines in which each run of blanks between fields is one tab."""
    block = re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", block)
    return _replaced(block, rb"[ \t]+", b"\t")


def _replaced(block: bytes, pattern: bytes, separator: bytes) -> bytes:
    """Return lines in which every match of a pattern outside quotation marks is a separator."""
    if b'"' not in block:
        return re.sub(pattern, separator, block)
    either = rb'("[^"]*")|' + pattern
    return re.sub(either, lambda match: match[1] or separator, block)


def _last_lines(block: bytes, count: int) -> int:
    """Return where the last ``count`` lines of a block that are not blank begin."""
    cut = len(block)
    while count and cut:
        before = block.rfind(b"\n", 0, cut - 1) + 1
        count -= bool(block[before:cut].strip())
        cut = before
    return cut
