"""Memory for reading the columns of a Parquet row group, computed from its metadata and page headers.

Columns are read page by page. For each column the reader holds a page as stored and as decompressed, the dictionary
likewise, and a file buffer. The metadata of a row group do not state page sizes, and some writers make pages as large
as the row group. The size is only in the header before each page, a struct in Thrift's compact encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

LEAST_BUFFER = 64 << 10
"""Minimum number of bytes read at once for a column."""

DICTIONARY = 2
"""Page type of a column's dictionary page."""

HEAD = 4096
"""Maximum bytes of a page header, unless its statistics contain long text."""


def columns_bytes(file: BinaryIO, group: Any, wanted: Sequence[str]) -> int:
    """Bytes needed to read the wanted columns of a row group (Arrow's metadata), in addition to the result.

    Reads the header of the first page of every column, and of all pages of the largest column, as an estimate for all.
    """
    chunks = [group.column(number) for number in range(group.num_columns)]
    chunks = [chunk for chunk in chunks if _root(chunk.path_in_schema, wanted)]
    if not chunks:
        return 0
    largest = max(chunks, key=lambda chunk: chunk.total_uncompressed_size)
    page = max((size for kind, size in _pages(file, largest) if kind != DICTIONARY), default=0)
    total = 0
    for chunk in chunks:
        kind, first = next(_pages(file, chunk), (DICTIONARY, 0))
        dictionary = first if kind == DICTIONARY else 0
        total += LEAST_BUFFER + 2 * (dictionary + max(first - dictionary, min(page, chunk.total_uncompressed_size)))
    return total


def _root(path: str, wanted: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in wanted)


def _pages(file: BinaryIO, chunk: Any) -> Iterator[tuple[int, int]]:
    """Type and decompressed bytes of every page of a column, up to the first header that cannot be read."""
    place: int = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        place = min(place, chunk.dictionary_page_offset)
    end = place + chunk.total_compressed_size
    while place < end:
        file.seek(place)
        try:
            (kind, size, stored), length = _header(file.read(HEAD))
        except (IndexError, KeyError, ValueError):
            return
        yield kind, max(size, stored)
        place += length + stored


def _header(text: bytes) -> tuple[tuple[int, int, int], int]:
    """Type, decompressed and stored bytes of the page after this header, and the length of the header.

    >>> _header(bytes.fromhex("1500 15d00f 15e007 2c 1564 1500 00 00 ff"))
    ((0, 1000, 496), 15)
    """
    fields, end = _struct(text, 0)
    return (fields[1], fields[2], fields[3]), end


def _struct(text: bytes, place: int) -> tuple[dict[int, int], int]:
    """The integers of a struct by field number, and its end. Raises ``IndexError`` if the text is too short."""
    fields: dict[int, int] = {}
    number = 0
    while head := text[place]:
        place += 1
        number += head >> 4
        if not head >> 4:
            number, place = _integer(text, place)
        kind = head & 15
        if kind in (4, 5, 6):
            fields[number], place = _integer(text, place)
        elif kind == 8:  # text
            length, place = _natural(text, place)
            place += length
        elif kind == 12:
            _, place = _struct(text, place)
        elif kind not in (1, 2):  # booleans have no further bytes; headers contain no other kinds
            raise ValueError(f"an unexpected field of type {kind}")
    return fields, place + 1


def _natural(text: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while text[place] & 128:
        value |= (text[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | text[place] << shift, place + 1


def _integer(text: bytes, place: int) -> tuple[int, int]:
    value, place = _natural(text, place)
    return (value >> 1) ^ -(value & 1), place
