"""Tables of a job's page as plain values, which the template converts to HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A row with its cell texts and CSS class. A row of class ``gap`` has one cell across the table."""

    cells: Sequence[str]
    style: str = ""


class Table(NamedTuple):
    """A table with column titles, rows and CSS class."""

    header: Sequence[str]
    rows: Sequence[Row]
    style: str = "figures-table"
