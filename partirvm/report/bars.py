"""Horizontal bars as SVG: a name on the left, a bar, and its text on the right."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from partirvm.report.curves import CHARACTER, WIDE, WIDTH, text_width

PITCH, THICK = 21, 13
"""Spacing of bars and their thickness, in units of the view box."""

LETTERS = 18
"""Maximum number of characters of a name beside its bar. The tooltip has the full name."""


class Bar(NamedTuple):
    """A bar of length ``share`` in 0 … 1 with its name and the text at its end."""

    name: str
    share: float
    text: str


def draw_bars(title: str, bars: Sequence[Bar]) -> str:
    """Return the bars as SVG, whose label states the title and all texts."""
    names = [shortened(bar.name) for bar in bars]
    left = 8 + max(map(_name_width, names))
    room = WIDTH - left - max(max(text_width(bar.text) for bar in bars), text_width("0.000")) - 8
    label = escape(f"{title}. " + "; ".join(f"{bar.name}: {bar.text}" for bar in bars))
    parts = [f'<svg viewBox="0 0 {WIDTH} {PITCH * len(bars) + 4}" role="img" aria-label="{label}">']
    for row, (short, (name, share, text)) in enumerate(zip(names, bars, strict=True)):
        top, long = 4 + PITCH * row, max(room * share, 1.0)
        base = top + THICK - 2.5
        parts.append(f'<text class="tick" x="{left - 8:.1f}" y="{base:.1f}" text-anchor="end">{escape(short)}</text>')
        tip = f"<title>{escape(name)}: {escape(text)}</title>"
        parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{top}" width="{long:.1f}" height="{THICK}" rx="2">{tip}</rect>'
        )
        parts.append(f'<text class="tick" x="{left + long + 6:.1f}" y="{base:.1f}">{escape(text)}</text>')
    return "".join(parts) + "</svg>"


def shortened(name: str) -> str:
    """Return a name of at most ``LETTERS`` characters."""
    return name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"


def _name_width(name: str) -> float:
    """Return the approximate width of a name with wide letters."""
    return sum(1.15 * WIDE if one in "mwMW&<>@%" else CHARACTER for one in name)
