"""Rows of the table of options: their checks, and when they have an effect."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from partirvm.options.constraints import Check

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
