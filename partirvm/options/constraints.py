"""Rows of the table of options, and their checks, which return the value that a request stores.

The checks raise a ``UsageError`` that names the option, its value and the permitted values. The
checks also parse the flags.
"""

import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

from partirvm.errors import UsageError


@dataclass(frozen=True)
class Check:
    """The values that an option accepts.

    Attributes:
        kind: "any" (checked where resolved), "word", "switch" (True or False), "whole" and "real"
            (numbers), "numbers" (several real numbers), "by name" (a dict of positive numbers),
            "seconds" and "bytes" (a number, or a string such as ``1h`` or ``512MiB``).
        words: the words that are also accepted.
        optional: True if None is accepted.
        least: the minimum of a number.
        above: the exclusive minimum of a number.
        below: the exclusive maximum of a number.
        size: the exact number of ``numbers``; 0 for any.
    """

    kind: str
    words: tuple[str, ...] = ()
    optional: bool = False
    least: float | None = None
    above: float | None = None
    below: float | None = None
    size: int = 0

    def __call__(self, name: str, value: Any) -> Any:
        """Return the value that the request stores for the option ``name``."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        return _KEPT[self.kind](self, name, value)

    def refuse(self, name: str, value: Any, expected: str) -> UsageError:
        """Return the error for a value that must be ``expected``."""
        words = "".join(f" or {word!r}" for word in self.words)
        return UsageError(
            f"{name} is {value!r}: it must be {expected}{words}{near(value, self.words)}"
        )


MOST_NEIGHBOURS = 1000
"""Maximum number of rows whose errors correct a prediction; each prediction solves a system of this
size."""

ANY = Check("any")
SWITCH = Check("switch")
POSITIVE = Check("real", above=0.0)


def one_of(literal: Any) -> Check:
    """Return the check for a ``Literal`` type."""
    return Check("word", get_args(literal))


def near(value: Any, words: Iterable[str]) -> str:
    """Return a question that suggests the most similar word, or an empty string if none is
    similar."""
    similar = get_close_matches(str(value), list(words), n=1)
    return f"; did you mean {similar[0]!r}?" if similar else ""


_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1.0, "b": 1.0}
for _power, _prefix in enumerate("kmgt", start=1):
    _BYTES |= {
        f"{_prefix}ib": 1024.0**_power,
        _prefix: 1024.0**_power,
        f"{_prefix}b": 1000.0**_power,
    }


def parse_bytes(text: str | float, what: str = "memory limit") -> int:
    """Parse bytes from ``"512MiB"``, ``"2 GB"``, ``"1.5G"`` or a number. Raises ``UsageError`` for
    anything else.

    >>> parse_bytes("512MiB"), parse_bytes("2 kB"), parse_bytes(100)
    (536870912, 2000, 100)
    """
    return int(_quantity(text, _BYTES, what, "a size such as 512MiB or 2GB"))


def parse_duration(text: str | float, what: str = "time limit") -> float:
    """Parse seconds from ``"90"``, ``"15m"``, ``"1h"``, ``"2d"`` or a number. Raises ``UsageError``
    for anything else.

    >>> parse_duration("15m"), parse_duration("1.5h"), parse_duration(3)
    (900.0, 5400.0, 3.0)
    """
    return _quantity(text, _SECONDS, what, "a duration such as 90s, 15m or 1h")


def _quantity(text: str | float, units: dict[str, float], what: str, example: str) -> float:
    """Parse a positive number with a unit. Raises ``UsageError`` for anything else.

    Args:
        text: the number, with or without unit
        units: factor of each unit by its lower-case name, "" for none
        what: name of the quantity, for the message
        example: expected values, for the message
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", str(text).lower())
    if match is None or match[2] not in units or float(match[1]) <= 0:
        raise UsageError(f"{what} {text!r}: expected {example}")
    return float(match[1]) * units[match[2]]


def _word(check: Check, name: str, value: Any) -> Any:
    raise UsageError(
        f"{name} is {value!r}; known: {', '.join(check.words)}{near(value, check.words)}"
    )


def _switch(check: Check, name: str, value: Any) -> bool:
    plain = value.item() if getattr(value, "shape", None) == () else value
    if not isinstance(plain, numbers.Integral) or plain not in (0, 1):
        others = "".join(f", {word!r}" for word in check.words) + ", None" * check.optional
        raise UsageError(f"{name} is {value!r}; known: True, False{others}")
    return bool(plain)


def _number(check: Check, name: str, value: Any) -> Any:
    is_whole = check.kind == "whole"
    is_number = isinstance(value, numbers.Integral if is_whole else numbers.Real)
    is_valid = (
        is_number
        and not isinstance(value, bool)
        and math.isfinite(value)
        and (check.least is None or value >= check.least)
        and (check.above is None or value > check.above)
        and (check.below is None or value < check.below)
    )
    if not is_valid:
        limits = (("≥", check.least), (">", check.above), ("<", check.below))
        bounds = " and ".join(f"{sign} {bound:g}" for sign, bound in limits if bound is not None)
        raise check.refuse(name, value, f"a {'whole ' * is_whole}number {bounds}")
    return int(value) if is_whole else float(value)


def _numbers(check: Check, name: str, value: Any) -> tuple[float, ...]:
    single = (
        isinstance(value, str | Mapping)
        or not isinstance(value, Iterable)
        or getattr(value, "ndim", 1) != 1
    )
    checked = (
        ()
        if single
        else tuple(replace(check, kind="real")(f"each of {name}", number) for number in value)
    )
    if not checked or len(checked) != (check.size or len(checked)):
        raise check.refuse(name, value, f"{check.size or 'some'} numbers in a tuple")
    return checked


def _by_name(check: Check, name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise check.refuse(name, value, "None or a dict of names and numbers, {'bias': 1e-6}")
    return {key: POSITIVE(f"{name} of {key!r}", number) for key, number in value.items()}


_KEPT: dict[str, Callable[[Check, str, Any], Any]] = {
    "any": lambda check, name, value: value,
    "word": _word,
    "switch": _switch,
    **dict.fromkeys(("whole", "real"), _number),
    "numbers": _numbers,
    "by name": _by_name,
    "seconds": lambda check, name, value: parse_duration(value, name),
    "bytes": lambda check, name, value: parse_bytes(value, name),
}
"""Functions that return the value that the request stores, by the kind of the check."""

Group: TypeAlias = Literal[
    "everyday", "kernel", "strategy", "noise and priors", "resources", "cluster"
]


@dataclass(frozen=True)
class Option:
    """One option of a fit.

    Attributes:
        default: its default.
        check: the values that it accepts.
        group: its group in the help of the command line.
        metavar: the placeholder for the value in the flag's help.
        flag_name: the name in the flag, if it differs from ``name``.
        second_flag: a further flag with the same effect, or "".
        name: its name.
        help: the help text.
    """

    default: Any
    check: Check
    group: Group
    metavar: str | None = None
    flag_name: str | None = None
    second_flag: str = ""
    name: str = ""
    help: str = ""

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return "--" + (self.flag_name or self.name).replace("_", "-")

    @property
    def meaning(self) -> str:
        """The help text without its default."""
        return re.sub(r"\s*\[default: [^]]*\]$", "", self.help)


def option(group: Group, default: Any, check: Check = ANY, **more: Any) -> Any:
    """Return the dataclass field for this option; see ``Option``."""
    return field(default=default, metadata={"option": Option(default, check, group, **more)})
