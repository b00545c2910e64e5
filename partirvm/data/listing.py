"""The files of a table: a file, the files of a folder or glob, and columns in the names of
folders."""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from partirvm.data.spreadsheets import SHEET_ENDINGS
from partirvm.quoting import listed
from partirvm.storage import open_filesystem, reading
from partirvm.storage.address import QUERIES, protocol_of, without_query

COMPRESSED = ("", ".gz", ".bz2", ".zst", ".zip")
"""Endings of compressed text files and of archives of one text file."""

CSV_ENDINGS = tuple(f"{end}{packed}" for end in (".csv", ".tsv", ".tab") for packed in COMPRESSED)

TEXT_ENDINGS = (
    *(f"{end}{packed}" for end in (".txt", ".data", ".dat", ".test") for packed in COMPRESSED),
    ".zip",
)
"""Endings of text files that may be tables. In a folder with other tables, they are not read, since
they may be descriptions."""

PARQUET = (".parquet", ".pq")

ENDINGS = (*CSV_ENDINGS, *PARQUET, *SHEET_ENDINGS)

ALL_ENDINGS = (*ENDINGS, *TEXT_ENDINGS)

KINDS = (
    "ingest reads .csv, .tsv, .txt, .data and .dat (also packed as .gz, .bz2, .zst or .zip), "
    ".xlsx, .xls, .ods, .parquet and .npz files"
)

NUMBER = re.compile(r"-?(0|[1-9]\d{0,15})(\.\d+)?")
"""A number in the name of a folder; digits after a zero, such as 007, are a code."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a folder for rows without a value."""

MOST_NAMES = 3
"""Maximum number of existing names that are suggested for a missing file."""


def is_glob(url: str) -> bool:
    """Return True for an address with wildcards."""
    return any(mark in url for mark in "*?[")


@dataclass(frozen=True)
class Listing:
    """The files at an address, without hidden ones.

    Attributes:
        filesystem: file system of the files
        path: path that was listed
        tables: paths of the tables, sorted
        files: paths of all files
    """

    filesystem: Any
    path: str
    tables: list[str]
    files: list[str] = field(default_factory=list)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of columns whose values are in the names of the folders, as in
        ``year=2023/a.csv``."""
        first = partition_of(self.tables[0], self._root) if self.tables else {}
        return tuple(
            key
            for key in first
            if all(key in partition_of(path, self._root) for path in self.tables)
        )

    @property
    def _root(self) -> str:
        """The folder below which the names of folders are columns."""
        part = re.split(r"[*?\[]", self.path)[0]
        return part.rpartition("/")[0] if is_glob(self.path) else part

    def keys_beside(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the ``keys`` that are not among the columns of the files."""
        return tuple(key for key in self.keys if key not in columns)

    def partitions(self, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the values of the columns in the names of the folders, for each table.

        A column is a number if all of its values are numbers.

        Args:
            without: columns of the files, which replace those of the folders
        """
        keys = self.keys_beside(without)
        texts = [partition_of(path, self._root) for path in self.tables]
        values = {key: typed([row[key] for row in texts]) for key in keys}
        return [{key: values[key][place] for key in keys} for place in range(len(texts))]


def partition_of(path: str, root: str) -> dict[str, str | None]:
    """Return the columns in the names of the folders of a file below a root.

    >>> partition_of("in/year=2023/city=K%C3%B6ln/a.csv", "in")
    {'year': '2023', 'city': 'Köln'}
    """
    folders = path.removeprefix(root).split("/")[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder.strip("="))
    return {unquote(key): None if text == NO_VALUE else unquote(text) for key, _, text in pairs}


def typed(texts: list[str | None]) -> list[Any]:
    """Return an Arrow scalar for each text: numbers, if all texts are numbers."""
    import pyarrow as pa

    array = pa.array(texts, pa.string())
    plain = [text for text in texts if text is not None]
    if all(NUMBER.fullmatch(text) for text in plain):
        has_points = any("." in text for text in plain)
        return list(array.cast(pa.float64() if has_points else pa.int64()))
    return list(array)


def list_files(url: str) -> Listing:
    """Return the files at an address, except hidden ones."""
    filesystem, path = open_filesystem(url)
    with reading(url):
        if protocol_of(url) in QUERIES:
            files = [path]  # a listing would search the file for links
        elif is_glob(path) and not filesystem.exists(path):
            files = list(filesystem.glob(path))
        else:
            folder = path.rstrip("/")
            files = [
                file
                for file in filesystem.find(path)
                if not re.search(r"/[._]", file.removeprefix(folder))
            ]
    tables = [file for file in files if without_query(file).lower().endswith(ENDINGS)]
    if not tables:
        tables = [file for file in files if without_query(file).lower().endswith(ALL_ENDINGS)]
    return Listing(filesystem, path, sorted(tables), files)


def no_tables(url: str, listing: Listing) -> str:
    """Return the message for an address without tables."""
    filesystem = listing.filesystem
    if listing.files:
        return f"{url}: no file here has a known extension: {KINDS}: rename or convert the files."
    if is_glob(listing.path):
        return f"{url}: no file matches this pattern: check it; {KINDS}."
    if filesystem.exists(listing.path):
        return f"{url}: this folder holds no files: check the path; {KINDS}."
    folder, _, name = listing.path.rstrip("/").rpartition("/")
    if not filesystem.exists(folder):
        return f"{url}: this file does not exist, nor does its folder: check the path."
    names = [str(place).rpartition("/")[2] for place in filesystem.ls(folder, detail=False)]
    shown = [place for place in names if not place.startswith(".")]
    by_text = {place.casefold(): place for place in shown}
    near = difflib.get_close_matches(name.casefold(), by_text, MOST_NAMES)
    similar = [by_text[text] for text in near]
    hint = f" Similar names there: {listed(similar)}." if similar else f" It may be that {KINDS}."
    return f"{url}: this file or folder does not exist: check the path.{hint}"
