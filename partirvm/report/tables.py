"""Tables of a job's page as plain values; the template turns them into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """Cell texts and the CSS class; a row of class ``gap`` has one cell across the table."""

    cells: Sequence[str]
    style: str = ""


class Table(NamedTuple):
    """Column titles, rows, and the CSS class."""

    header: Sequence[str]
    rows: Sequence[Row]
    style: str = "figures-table"
