"""Rows of the table of options: their checks, and the options that have no effect in a fit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar

from partirvm.options.constraints import Check

Group: TypeAlias = Literal["everyday", "kernel", "strategy", "noise and priors", "resources", "cluster"]

Asked = TypeVar("Asked")

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

    name: str
    default: Any
    check: Check
    help: str
    group: Group
    metavar: str | None
    applies: Mapping[str, Collection[str]]
    flag_name: str | None = None

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


def option(
    default: Any,
    check: Check,
    *,
    help: str,
    group: Group,
    metavar: str | None = None,
    applies: Mapping[str, Collection[str]] | None = None,
    flag_name: str | None = None,
) -> Any:
    """Return the field of a dataclass for this option; see ``Option``."""
    row = {"check": check, "help": help, "group": group, "metavar": metavar, "applies": applies or {}}
    row["flag_name"] = flag_name
    return field(default=default, metadata={"option": row})


def table_of(request: type) -> dict[str, Option]:
    """Return the options of a dataclass by name, in the order of the fields."""
    return {each.name: _row(each) for each in fields(request)}


def _row(of: Field[Any]) -> Option:
    return Option(name=of.name, default=of.default, **of.metadata["option"])


def checked(request: Asked, table: Mapping[str, Option]) -> Asked:
    """Return the request with all values checked. Raises ``UsageError`` that names the first invalid option."""
    found = {name: row.check(name, getattr(request, name)) for name, row in table.items()}
    return replace(request, **found)  # type: ignore[type-var]


def idle(request: Any, table: Mapping[str, Option], chosen: Mapping[str, Collection[str]]) -> list[str]:
    """Return the options that differ from their defaults but have no effect with the chosen words."""
    without = (row for row in table.values() if not row.has_effect(chosen))
    return [row.name for row in without if getattr(request, row.name) != row.default]
