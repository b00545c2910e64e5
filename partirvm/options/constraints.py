"""Checks of single options: called with a name and a value, they return what the request keeps.

Each raises ``UsageError`` that names the option, what was found and what it may be. The command line reads from the
same values how the text of a flag is parsed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, get_args

from partirvm.errors import UsageError
from partirvm.planning.units import parse_bytes, parse_duration

Check: TypeAlias = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Anything:
    """No check here: the valid values depend on other parts, such as the kernels."""

    def __call__(self, name: str, value: Any) -> Any:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True)
class OneOf:
    """Check that the value is one of the given words."""

    words: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.words:
            raise UsageError(f"{name} is {value!r}; known: {', '.join(self.words)}{near(value, self.words)}")
        return value


def near(value: Any, words: Iterable[str]) -> str:
    """Return a question that names the most similar word, empty if none is similar.

    >>> near("workingset", ("basic", "working-set")), near("x", ("basic", "working-set"))
    ("; did you mean 'working-set'?", '')
    """
    found = get_close_matches(str(value), list(words), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def one_of(literal: Any) -> OneOf:
    """Return the check that belongs to a ``Literal`` type."""
    return OneOf(get_args(literal))


@dataclass(frozen=True)
class Flag:
    """Check for True or False; also for None if ``optional``, and for the given words."""

    optional: bool = False
    words: tuple[str, ...] = ()

    def __call__(self, name: str, value: Any) -> Any:
        """Return True, False or the word."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        plain = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
        if not isinstance(plain, numbers.Integral) or plain not in (0, 1):
            others = "".join(f", {word!r}" for word in self.words) + ", None" * self.optional
            raise UsageError(f"{name} is {value!r}; known: True, False{others}")
        return bool(plain)


@dataclass(frozen=True)
class Whole:
    """Check for a whole number of at least ``least``; also for None if ``optional``, and for the given words."""

    least: int
    words: tuple[str, ...] = ()
    optional: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        """Return the number, the word or None."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < self.least:
            words = "".join(f" or {word!r}" for word in self.words)
            raise UsageError(f"{name} is {value!r}: it must be a whole number ≥ {self.least}{words}")
        return int(value)


@dataclass(frozen=True)
class Real:
    """Check for a finite number between bounds, or one of the given words, or None if it is ``optional``."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()
    optional: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        """Return the number or the word."""
        if (isinstance(value, str) and value in self.words) or (value is None and self.optional):
            return value
        right = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        right = right and (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        if not (right and (self.below is None or value < self.below)):
            limits = (("≥", self.least), (">", self.above), ("<", self.below))
            bounds = " and ".join(f"{sign} {bound:g}" for sign, bound in limits if bound is not None)
            words = "".join(f" or {word!r}" for word in self.words)
            raise UsageError(f"{name} is {value!r}: it must be a number {bounds}{words}")
        return float(value)


@dataclass(frozen=True)
class RealOrName:
    """Check for a number above a bound, or a name. The names are checked later, when the fit is resolved."""

    above: float

    def __call__(self, name: str, value: Any) -> Any:
        """Return the number or the name."""
        if isinstance(value, str) and value.isidentifier():
            return value
        return Real(above=self.above, words=("estimate",))(name, value)


@dataclass(frozen=True)
class Factors:
    """Check for different positive numbers; their order is kept."""

    def __call__(self, name: str, value: Any) -> tuple[float, ...]:
        """Return the numbers as a tuple."""
        found = listed(value)
        for factor in found:
            Real(above=0.0)(f"each of {name}", factor)
        if not found or len(set(found)) < len(found):
            raise UsageError(f"{name} is {value!r}: it must be different positive numbers, such as (1, 8, 64)")
        return tuple(map(float, found))


@dataclass(frozen=True)
class ShapeAndRate:
    """Check for the shape and rate of a Gamma density, both ≥ 0."""

    def __call__(self, name: str, value: Any) -> tuple[float, float]:
        """Return the two numbers."""
        found = listed(value)
        if len(found) != 2:
            raise UsageError(f"{name} is {value!r}: it must be two numbers, shape and rate, such as (0.0, 0.0)")
        for number in found:
            Real(least=0.0)(f"each of {name}", number)
        return float(found[0]), float(found[1])


@dataclass(frozen=True)
class PositiveByName:
    """Check for a dict of positive numbers by name, or None."""

    def __call__(self, name: str, value: Any) -> dict[str, float] | None:
        """Return the dict of names and numbers, or None."""
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise UsageError(f"{name} is {value!r}: it must be None or a dict of names and numbers, {{'bias': 1e-6}}")
        return {key: Real(above=0.0)(f"{name} of {key!r}", number) for key, number in value.items()}


@dataclass(frozen=True)
class Seconds:
    """Check for a number of seconds or a text such as ``1h``; None means no limit."""

    def __call__(self, name: str, value: Any) -> float | None:
        """Return the number of seconds."""
        return None if value is None else parse_duration(value, name)


@dataclass(frozen=True)
class Bytes:
    """Check for a number of bytes, a text such as ``512MiB``, or ``"auto"``."""

    def __call__(self, name: str, value: Any) -> Any:
        """Return the number of bytes."""
        return value if isinstance(value, str) and value == "auto" else parse_bytes(value, name)


def listed(value: Any) -> tuple[Any, ...]:
    """Return the items of a list, a tuple or a one-dimensional array; an empty list for anything else."""
    if getattr(value, "ndim", 1) != 1 or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return ()
    return tuple(value)
