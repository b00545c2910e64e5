"""Parse and format bytes, durations and counts."""

from __future__ import annotations

import re

from partirvm.errors import UsageError

_BYTES = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _BYTES[f"{_prefix}ib"] = _BYTES[_prefix] = 1024**_power
    _BYTES[f"{_prefix}b"] = 1000**_power

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def counted(number: int, noun: str) -> str:
    """Format a number with its noun in the singular or plural.

    >>> counted(1, "tile"), counted(1200, "row")
    ('1 tile', '1,200 rows')
    """
    return f"{number:,} {noun}" + "s" * (number != 1)


def parse_bytes(text: str | int | float, what: str = "memory limit") -> int:
    """Parse bytes from ``"512MiB"``, ``"2 GB"``, ``"1.5G"`` or a number. Raises ``UsageError`` for anything else.

    >>> parse_bytes("512MiB"), parse_bytes("2 kB"), parse_bytes(100)
    (536870912, 2000, 100)
    """
    return int(_parse(text, _BYTES, what, "a size such as 512MiB or 2GB"))


def parse_duration(text: str | int | float, what: str = "time limit") -> float:
    """Parse seconds from ``"90"``, ``"15m"``, ``"1h"``, ``"2d"`` or a number. Raises ``UsageError`` for anything else.

    >>> parse_duration("15m"), parse_duration("1.5h"), parse_duration(3)
    (900.0, 5400.0, 3.0)
    """
    return _parse(text, _SECONDS, what, "a duration such as 90s, 15m or 1h")


def _parse(text: str | int | float, units: dict[str, int] | dict[str, float], what: str, example: str) -> float:
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", str(text).lower())
    if match is None or match[2] not in units or float(match[1]) <= 0:
        raise UsageError(f"{what} {text!r}: expected {example}")
    return float(match[1]) * units[match[2]]


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
    """Format seconds as text.

    >>> format_duration(0.25), format_duration(75), format_duration(7300)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
