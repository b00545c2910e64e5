"""Foreign text in C and C++ source: string constants and comments, in ASCII that every standard
reads alike.

A compiler may replace trigraphs (``??/`` is a backslash), join lines that end with a backslash,
decode the file in any encoding, and extend a hexadecimal escape over the digits that follow it.
None of these can happen to the text written here: all but plain ASCII is written as octal escapes,
which end after three digits, and no two question marks are neighbours.
"""

import re
from collections.abc import Iterator

from partirvm.errors import UsageError
from partirvm.quoting import quoted

LITERAL = 500
"""Largest number of bytes in a string literal: C90 requires compilers to accept 509, C99 4,095."""

REMARK = 1000
"""Largest number of characters of a text in a comment."""

ESCAPED = {ord(character): f"\\{character}" for character in "\\\"?'"}
"""Characters that are preceded by a backslash, by their codes."""


def c_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of a C string. Raises ``UsageError`` for a NUL, which would end the
    string."""
    content = text.encode("utf-8", "surrogatepass")
    if b"\0" in content:
        raise UsageError(
            f"the label {quoted(text)} contains a NUL character, which ends a string in C: rename "
            "it before the fit, or export with to_onnx or to_numpy"
        )
    return content


def _characters(text: str) -> Iterator[str]:
    """Yield how each byte of a string is written in a constant."""
    for byte in c_bytes(text):
        plain = chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        yield ESCAPED.get(byte, plain)


def c_string(text: str) -> str:
    r"""Return a string literal for a text of at most ``LITERAL`` bytes.

    >>> print(c_string('a "b"??/'), c_string("é1"))
    "a \"b\"\?\?/" "\303\2511"
    """
    return f'"{"".join(_characters(text))}"'


def c_array(text: str) -> list[str]:
    """Return the character constants of a text of any length; the last one is the final zero."""
    return [*(f"'{character}'" for character in _characters(text)), "0"]


def is_short(text: str) -> bool:
    """Return True if every compiler accepts a literal of this text."""
    return len(c_bytes(text)) <= LITERAL


def c_comment(text: str) -> str:
    r"""Return text for a comment between ``/*`` and ``*/``: one line that cannot end it, nor start
    another one.

    >>> print(c_comment("km/h"), c_comment("*/ evil(); /*"), c_comment("a??/\n"), c_comment("\\"))
    "km/h" "* / evil(); / *" "a? ?/\n" "\"
    """
    if len(text) > REMARK:
        text = f"{text[:REMARK]} ({len(text):,} characters)"
    ascii_text = "".join(
        character if " " <= character <= "~" else ascii(character)[1:-1] for character in text
    )
    return '"' + re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", ascii_text) + '"'
