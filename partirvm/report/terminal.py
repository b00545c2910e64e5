"""Text on its way to a terminal: what people, files and other processes wrote must not steer it."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters but for tabs and line feeds, and those that turn the direction of writing."""


def printable(text: str) -> str:
    r"""The text with its control characters escaped, as Python writes them.

    >>> printable("a reason\x1b[2J, and\r another\n")
    'a reason\\x1b[2J, and\\r another\n'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
