"""Base of the option values: their fields are options of the table, from which a request is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from partirvm.errors import UsageError
from partirvm.options.constraints import near
from partirvm.options.table import TABLE


def held(name: str) -> Any:
    """Return the field for the option of this name. The field may also hold an option value."""
    return field(default=TABLE[name].default, metadata={"option": name})


@dataclass(eq=False)
class Value:
    """Base of the values: fields that are options, and ``name``, what they are options of.

    ``of`` are the options that such a value may be given for.
    """

    name: ClassVar[str]
    of: ClassVar[tuple[str, ...]]

    def flat(self, given_for: str) -> dict[str, Any]:
        """The options that it stands for, by the names of the table, checked.

        Raises ``UsageError`` that names the value and its field for one that cannot be, and for an option that it is no
        value of.
        """
        self._require(given_for)
        found: dict[str, Any] = {given_for: self.name}
        for each in fields(self):
            name, value = each.metadata["option"], getattr(self, each.name)
            title = f"{type(self).__name__}.{each.name}"
            if isinstance(value, Value):
                value._require(name, title)
            own = value.flat(name) if isinstance(value, Value) else {name: TABLE[name].check(title, value)}
            _join(found, own, title)
        return found

    def _require(self, given_for: str, title: str = "") -> None:
        if given_for not in self.of:
            places = " or ".join(self.of)
            raise UsageError(f"{title or given_for} is {self!r}, which is a value of {places}")

    def __eq__(self, other: object) -> bool:
        """Return whether the other value has the same class and equal fields; an array equals a list of its numbers."""
        return type(self) is type(other) and all(
            _plain(getattr(self, each.name)) == _plain(getattr(other, each.name)) for each in fields(self)
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name; with ``deep`` also the fields of nested values, such as ``fit_rows__rows``."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        if deep:
            for name, value in list(found.items()):
                inner = value.get_params() if isinstance(value, Value) else {}
                found |= {f"{name}__{key}": each for key, each in inner.items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set fields by name. Raises ``UsageError`` (a ``ValueError``) for an unknown name."""
        known = [each.name for each in fields(self)]
        for key, value in params.items():
            name, nested, rest = key.partition("__")
            if name not in known:
                raise UsageError(
                    f"{type(self).__name__} has no {name!r}; known: {', '.join(known) or 'none'}{near(name, known)}"
                )
            if nested:
                inner = getattr(self, name)
                if not isinstance(inner, Value):
                    raise UsageError(f"{type(self).__name__}.{name} is {inner!r}, which has no {rest!r}: give a value")
                inner.set_params(**{rest: value})
            else:
                setattr(self, name, value)
        return self


def flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options that parameters of an estimator stand for, values among them, by the names of the table.

    Raises ``UsageError`` for a value that cannot be, and for an option that is given twice.

    >>> from partirvm.options.values import Gaussian, WorkingSet
    >>> found = flat({"strategy": WorkingSet(selection="gain"), "kernel": Gaussian(0.5), "gamma": "auto"})
    >>> [found[name] for name in ("strategy", "selection", "kernel", "gamma")]
    ['working-set', 'gain', 'gaussian', 0.5]
    """
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, type) and issubclass(value, Value):
            raise UsageError(f"{name} is the class {value.__name__}: give a value of it, {value.__name__}()")
        if isinstance(value, Value):
            _join(found, value.flat(name), name)
    for name, value in parameters.items():
        if isinstance(value, Value):
            continue
        if name in found and not _is_default(name, value):
            owner = next(each for each in parameters.values() if isinstance(each, Value) and name in vars(each))
            raise UsageError(
                f"{name} is {value!r}, and the value {owner!r} has its own: give it there, and leave {name} out"
            )
        found.setdefault(name, value)
    return found


def _join(found: dict[str, Any], own: Mapping[str, Any], title: str) -> None:
    """Add options that are not there yet. Raises ``UsageError`` if an option is there with another value."""
    for name, value in own.items():
        if name in found and not _is_default(name, value) and found[name] != value:
            if not _is_default(name, found[name]):
                raise UsageError(f"{title} has {name} {value!r}, and another value {found[name]!r}: give it once")
            found[name] = value
        found.setdefault(name, value)


def _plain(value: Any) -> Any:
    """Return a field for comparison: arrays, tuples and lists of numbers become lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple | list) else value


def _is_default(name: str, value: Any) -> bool:
    return isinstance(value, type(TABLE[name].default)) and bool(value == TABLE[name].default)
