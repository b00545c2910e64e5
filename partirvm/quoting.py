"""Formatting of values in messages: foreign values (cells, labels, column and file names), numbers
with their units, and dates.

Foreign values may be very long and may contain control characters that a terminal executes. Errors
and warnings pass their text through ``printable``, which also removes passwords and signatures from
addresses; ``quoted``, ``named`` and ``listed`` insert values from data and keep them short.
"""

import re
import textwrap
import time
from collections.abc import Callable, Iterable
from html import escape
from itertools import islice
from typing import Any

LONGEST_VALUE = 60  # maximum number of characters of a value in a message


LOGIN = re.compile(
    r"(?P<scheme>(?i:https?)://)"
    r"(?P<login>[^\s/?#'\"`<>]*|[^\s:/?#@\[]*:(?!\d{0,5}[/?#])[^\s@'\"`<>]*)@"
    r"|(?P<other>(?<![A-Za-z])(?!(?i:https?)://)[A-Za-z][\w+.-]*://)"
    r"(?P<pair>[^\s:/?@\['\"`<>]*:[^\s@'\"`<>]*)@"
)
"""A user name and password, or for HTTP also a token, in an address. The password may contain a
slash.

With HTTP, digits and a slash after a colon are a port and a path. Elsewhere, they begin a password
if an ``@`` follows: buckets have no ports, and revealing a secret does more harm than failing to
open a path with an ``@``.
"""

QUERY = re.compile(
    r"((?:https?://[^\s?#'\"`<>]*[?#])|(?:[A-Za-z][\w+.-]*://[^\s?'\"`<>]*\?(?=[\w.~%-]+=)))"
    r"(?!…)[^\s'\"`<>]*?(?=[:;,.)\]}]*(?:[\s'\"`<>]|$))"
)
"""The query of an address, up to any text that may follow it in a sentence. Except in HTTP
addresses, it needs a name."""


def without_credentials(text: str) -> str:
    """Return text without the user names, passwords and queries of any addresses in it.

    >>> message = "s3://key:se/cret@bucket/x: https://host/a.csv?X-Amz-Signature=1&b=2: no file"
    >>> without_credentials(message)
    's3://bucket/x: https://host/a.csv?…: no file'
    >>> without_credentials("http://host:80/a@b, abfs://container@account/x, s3://bucket/20?6.csv")
    'http://host:80/a@b, abfs://container@account/x, s3://bucket/20?6.csv'
    """
    if "://" not in text:
        return text
    return QUERY.sub(r"\1…", LOGIN.sub(r"\g<scheme>\g<other>", text))


def printable(text: str, keep: str = "") -> str:
    r"""Escape every character in the text that ``repr`` escapes, such as cursor controls, except
    ``keep``.

    >>> printable("a\x1b[2Jb\r\n"), printable("two\nlines", keep="\n"), printable("Straße")
    ('a\\x1b[2Jb\\r\\n', 'two\nlines', 'Straße')
    """
    text = without_credentials(text)
    if text.isprintable():
        return text
    return "".join(c if c in keep or c.isprintable() else repr(c)[1:-1] for c in text)


def message_text(text: str) -> str:
    """Return a message as one line that is safe to print on a terminal, without the middle of a
    very long message."""
    text = without_credentials(text)
    if len(text) > 2000:
        text = f"{text[:1000]} … ({len(text) - 2000:,} characters left out) … {text[-1000:]}"
    return printable(text)


def quoted(value: Any) -> str:
    r"""Return a value as shown by ``repr``, truncated if it is long.

    >>> quoted("red"), quoted(7), quoted("\x1b[31m")
    ("'red'", '7', "'\\x1b[31m'")
    >>> quoted("x" * 200_000)[50:]
    "xxxxxxxxxxx…' (200,000 characters)"
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, str):
        value = without_credentials(value)
    if isinstance(value, str | bytes) and len(value) > LONGEST_VALUE:
        shown = repr(value[:LONGEST_VALUE])
        return f"{shown[:-1]}…{shown[-1]} ({len(value):,} characters)"
    shown = repr(value)
    return (
        shown
        if len(shown) <= 2 * LONGEST_VALUE
        else f"{shown[: 2 * LONGEST_VALUE]}… ({len(shown):,} characters)"
    )


def named(name: Any) -> str:
    """Return a name without quotation marks, truncated if it is long."""
    text = without_credentials(str(name)) or "''"
    return printable(
        text
        if len(text) <= LONGEST_VALUE
        else f"{text[:LONGEST_VALUE]}… ({len(text):,} characters)"
    )


def listed(values: Iterable[Any], most: int = 20, show: Callable[[Any], str] = named) -> str:
    """Return at most ``most`` names separated by commas.

    >>> listed(["a", "b"]), listed("abcd", most=2)
    ('a, b', 'a, b, …')
    """
    texts = [show(value) for value in islice(values, most + 1)]
    return ", ".join([*texts[:most], *["…"] * (len(texts) > most)])


def html_table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Return facts as an HTML table of names and values, for notebooks."""
    escaped = ((escape(name), escape(printable(str(value)))) for name, value in rows)
    left = 'style="text-align:left"'  # notebooks right-align cells
    cells = (
        f'<tr><th scope="row" {left}>{name}</th><td {left}>{value}</td></tr>'
        for name, value in escaped
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(cells)}</tbody></table>"


def wrapped(text: str, width: int) -> str:
    """Break lines longer than ``width`` (0: none) at spaces, and align continuation lines with the
    value after a name.

    >>> print(wrapped("memory    about 255 MiB of 16.5 GiB", 24))
    memory    about 255 MiB
              of 16.5 GiB
    """
    lines = []
    for line in text.split("\n"):
        name = re.match(r" {6,}| *\S+( \S+)?  +", line)
        indent = " " * (name.end() if name and name.end() < width / 2 else 2)
        how: dict[str, Any] = {
            "subsequent_indent": indent,
            "break_long_words": False,
            "break_on_hyphens": False,
        }
        lines += (textwrap.wrap(line, width, **how) if 0 < width < len(line) else []) or [line]
    return "\n".join(lines)


def moment(seconds: float, *, utc: bool = False) -> str:
    """Format a point in time, in local time or UTC.

    >>> moment(1785600000.0, utc=True)
    '1 Aug 2026, 16:00 UTC'
    """
    at = time.gmtime(seconds) if utc else time.localtime(seconds)
    return time.strftime("%d %b %Y, %H:%M", at).lstrip("0") + (" UTC" if utc else "")


def counted(number: int, noun: str) -> str:
    """Format a number with its noun in the singular or plural.

    >>> counted(1, "tile"), counted(1200, "row"), counted(3, "class")
    ('1 tile', '1,200 rows', '3 classes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}" + plural * (number != 1)


def format_number(value: float) -> str:
    """Format a number with three digits, or without decimals from 1,000 up.

    >>> format_number(0.012345), format_number(8.0), format_number(12345.6), format_number(2e12)
    ('0.0123', '8.00', '12,346', '2.00e+12')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:#.3g}".rstrip(".")


def format_bytes(number: float) -> str:
    """Format bytes in binary units.

    >>> format_bytes(536870912), format_bytes(1500)
    ('512 MiB', '1.46 KiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.3g} {unit}" if number < 100 else f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds as text.

    >>> format_duration(0.25), format_duration(75), format_duration(7300)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
