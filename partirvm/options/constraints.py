"""Rows of the table of options, and their checks: called with a name and a value, they return what a request keeps.

Each check raises ``UsageError`` that names the option, what was found and what it may be. The command line reads from
the same values how the text of a flag is parsed.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from partirvm.errors import UsageError
from partirvm.planning.units import parse_bytes, parse_duration


@dataclass(frozen=True, kw_only=True)
class Check:
    """Base of the checks. The ``words``, and None if ``optional``, are valid, too."""

    words: tuple[str, ...] = ()
    optional: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        """Return what the request keeps of a value of the option ``name``."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        return self.kept(name, value)

    def kept(self, name: str, value: Any) -> Any:
        """Return a value that is not a word."""
        raise NotImplementedError

    def refuse(self, name: str, value: Any, expected: str) -> UsageError:
        """Return the error for a value that must be ``expected``."""
        words = "".join(f" or {word!r}" for word in self.words)
        return UsageError(f"{name} is {value!r}: it must be {expected}{words}")


class Anything(Check):
    """No check here: the valid values depend on other parts, such as the kernels."""

    def kept(self, name: str, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class OneOf(Check):
    """Check that the value is one of the given words."""

    words: tuple[str, ...]

    def kept(self, name: str, value: Any) -> Any:
        raise UsageError(f"{name} is {value!r}; known: {', '.join(self.words)}{near(value, self.words)}")


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


class Flag(Check):
    """Check for True or False."""

    def kept(self, name: str, value: Any) -> Any:
        plain = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
        if not isinstance(plain, numbers.Integral) or plain not in (0, 1):
            others = "".join(f", {word!r}" for word in self.words) + ", None" * self.optional
            raise UsageError(f"{name} is {value!r}; known: True, False{others}")
        return bool(plain)


@dataclass(frozen=True)
class Whole(Check):
    """Check for a whole number of at least ``least``."""

    least: int

    def kept(self, name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < self.least:
            raise self.refuse(name, value, f"a whole number ≥ {self.least}")
        return int(value)


@dataclass(frozen=True)
class Real(Check):
    """Check for a finite number between bounds; with ``names`` also for a name, which is checked later."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    names: bool = False

    def kept(self, name: str, value: Any) -> Any:
        if self.names and isinstance(value, str) and value.isidentifier():
            return value
        right = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        right = right and (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        if not (right and (self.below is None or value < self.below)):
            limits = (("≥", self.least), (">", self.above), ("<", self.below))
            bounds = " and ".join(f"{sign} {bound:g}" for sign, bound in limits if bound is not None)
            raise self.refuse(name, value, f"a number {bounds}")
        return float(value)


class Factors(Check):
    """Check for different positive numbers; their order is kept."""

    def kept(self, name: str, value: Any) -> tuple[float, ...]:
        found = tuple(Real(above=0.0)(f"each of {name}", factor) for factor in _listed(value))
        if not found or len(set(found)) < len(found):
            raise self.refuse(name, value, "different positive numbers, such as (1, 8, 64)")
        return found


class ShapeAndRate(Check):
    """Check for the shape and rate of a Gamma density, both ≥ 0."""

    def kept(self, name: str, value: Any) -> tuple[float, ...]:
        found = _listed(value)
        if len(found) != 2:
            raise self.refuse(name, value, "two numbers, shape and rate, such as (0.0, 0.0)")
        return tuple(Real(least=0.0)(f"each of {name}", number) for number in found)


class PositiveByName(Check):
    """Check for a dict of positive numbers by name."""

    def kept(self, name: str, value: Any) -> dict[str, float]:
        if not isinstance(value, Mapping):
            raise self.refuse(name, value, "None or a dict of names and numbers, {'bias': 1e-6}")
        return {key: Real(above=0.0)(f"{name} of {key!r}", number) for key, number in value.items()}


class Seconds(Check):
    """Check for a number of seconds or a text such as ``1h``."""

    def kept(self, name: str, value: Any) -> float:
        return parse_duration(value, name)


class Bytes(Check):
    """Check for a number of bytes or a text such as ``512MiB``."""

    def kept(self, name: str, value: Any) -> int:
        return parse_bytes(value, name)


def _listed(value: Any) -> tuple[Any, ...]:
    """Return the items of a list, a tuple or a one-dimensional array; an empty list for anything else."""
    if getattr(value, "ndim", 1) != 1 or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return ()
    return tuple(value)


Group: TypeAlias = Literal["everyday", "kernel", "strategy", "noise and priors", "resources", "cluster"]

NUMBERS, TWO_CLASSES, SEVERAL_CLASSES = "numbers", "two classes", "several classes"
"""Kinds of target for which an option has an effect."""

CLASSES = (TWO_CLASSES, SEVERAL_CLASSES)


@dataclass(frozen=True)
class Option:
    """One option of a fit.

    ``check`` raises ``UsageError`` for a value that cannot be, and returns what a request keeps; ``help`` is the text
    of its flag, ``metavar`` stands there for the value; ``applies`` says what has to be so for it to have an effect:
    of each key ("target", "strategy", "fit_rows", "kernel") the words that it applies to. ``flag_name`` replaces the
    name in the flag.
    """

    default: Any
    check: Check
    help: str
    group: Group
    metavar: str | None = None
    applies: Mapping[str, Collection[str]] = field(default_factory=dict)
    flag_name: str | None = None
    name: str = ""

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return "--" + (self.flag_name or self.name).replace("_", "-")

    @property
    def meaning(self) -> str:
        """The help without its default."""
        return re.sub(r"\s*\[default: [^]]*\]$", "", self.help)

    def has_effect(self, chosen: Mapping[str, Collection[str]]) -> bool:
        """Return whether the option has an effect with the chosen words; absent keys count as any word."""
        return all(set(words) & set(chosen.get(key, words)) for key, words in self.applies.items())


def option(group: Group, default: Any, check: Check, help: str, **more: Any) -> Any:
    """Return the field of a dataclass for this option; see ``Option``."""
    return field(default=default, metadata={"option": Option(default, check, help, group, **more)})


everyday, of_kernel, of_strategy = (partial(option, group) for group in ("everyday", "kernel", "strategy"))
of_noise, of_resources = (partial(option, group) for group in ("noise and priors", "resources"))
