"""Pieces of HTML. Every text is escaped here, where it enters; what is called markup is put in as it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from partirvm.quoting import printable


def text(value: Any) -> str:
    """A value as text.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    return escape(printable(str(value), keep="\n\t"))


def section(title: str, *markup: str) -> str:
    """A heading and what belongs to it; nothing where that is empty."""
    body = "\n".join(part for part in markup if part)
    return f"<section>\n<h2>{text(title)}</h2>\n{body}\n</section>" if body else ""


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they stand for, side by side."""
    rows = "\n".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs)
    return f'<dl class="facts">\n{rows}\n</dl>' if rows else ""


def figures(cells: Iterable[tuple[str, str, str]]) -> str:
    """Large figures: a name, the value, a remark."""
    boxes = "\n".join(
        f'<div><dt>{text(name)}</dt><dd class="value">{text(value)}</dd><dd class="note">{text(note)}</dd></div>'
        for name, value, note in cells
    )
    return f'<dl class="figures">\n{boxes}\n</dl>' if boxes else ""


def table(header: Sequence[str], rows: Iterable[str], kind: str = "figures-table") -> str:
    """A table of rows of markup, which scrolls where it is too wide."""
    titles = "".join(f'<th scope="col">{_unbroken(title)}</th>' for title in header)
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0"><table class="{text(kind)}">\n<thead><tr>{titles}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _unbroken(title: str) -> str:
    """A title as markup that breaks between words alone, not at a hyphen."""
    words = (f'<span class="word">{text(word)}</span>' if "-" in word else text(word) for word in title.split(" "))
    return " ".join(words)


def row(cells: Iterable[str], kind: str = "") -> str:
    """A row of a table."""
    opening = f'<tr class="{text(kind)}">' if kind else "<tr>"
    return opening + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>"


def details(summary: str, markup: str) -> str:
    """What is folded away under a line that opens it."""
    return f"<details>\n<summary>{text(summary)}</summary>\n{markup}\n</details>"
