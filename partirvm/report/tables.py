"""Tables of a job's page as plain values; the template turns them into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """Texts of the cells and the CSS class; a row of class ``gap`` has one cell, as wide as the table."""

    cells: Sequence[str]
    style: str = ""


class Table(NamedTuple):
    """Titles of the columns, rows, and the CSS class."""

    header: Sequence[str]
    rows: Sequence[Row]
    style: str = "figures-table"
