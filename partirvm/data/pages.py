"""The memory that is needed to read columns of a Parquet row group, computed from its metadata and page headers.

Columns are read page by page. For each column the reader holds a page and the dictionary, each as stored and as
decompressed, and a file buffer. The metadata of a row group do not state page sizes, and some writers make pages as
large as the row group. Only the header before each page states the size; the header is a struct in Thrift's compact
encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

LEAST_BUFFER = 64 << 10
"""Minimum number of bytes that are read at once for a column."""

DICTIONARY = 2
"""The number of the page type "dictionary page"."""

HEAD = 4096
"""Maximum number of bytes of a page header without long text in its statistics."""


def columns_bytes(file: BinaryIO, group: Any, wanted: Sequence[str]) -> int:
    """Return the bytes needed to read columns of a row group (Arrow's metadata), in addition to the result.

    The function reads the header of the first page of every column. It reads all headers of the largest column, to
    estimate the largest page of all columns.
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
    """Yield type and decompressed bytes of every page of a column, up to the first header that cannot be read."""
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
    """Return type, decompressed bytes and stored bytes of the page after this header, and the length of the header.

    >>> _header(bytes.fromhex("1500 15d00f 15e007 2c 1564 1500 00 00 ff"))
    ((0, 1000, 496), 15)
    """
    fields, end = _struct(text, 0)
    return (fields[1], fields[2], fields[3]), end


def _struct(text: bytes, place: int) -> tuple[dict[int, int], int]:
    """Return the integers of a struct by field number, and the end of the struct. Raises ``IndexError`` if the text is
    too short.
    """
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
        elif kind not in (1, 2):  # booleans have no further bytes, and headers contain no other kinds
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
