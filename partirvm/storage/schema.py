"""Schemas of JSON from files: a checksum shows that a file is whole, a schema that it has the fields that readers use.

A schema is a type (``float`` accepts integers too), a ``range`` of numbers, a frozenset of texts, ``None``, a tuple of
alternatives, a list with the schema of all entries (of two or more: of each entry), or a dict of fields. A field whose
name ends in ``?`` may be missing, and ``*`` stands for all fields.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any, TypeAlias

from partirvm.errors import FormatError

Schema: TypeAlias = Any

ANY: Schema = {}
"""The schema of all objects."""

MOST = 1 << 63
"""Integers of files are smaller in absolute value."""

TIME = range(1 << 37)
"""Seconds since 1970."""


def require(value: Any, schema: Schema, place: str) -> None:
    """Raise ``FormatError`` if the value has not this schema."""
    wrong = _mismatch(value, schema, "")
    if wrong:
        raise FormatError(f"{place}: damaged, not as partirvm writes it: {wrong}: restore the file")


def _mismatch(value: Any, schema: Schema, name: str) -> str:
    """Return what is wrong; an empty text if nothing is."""
    if isinstance(schema, tuple):
        found = [_mismatch(value, each, name) for each in schema]
        return "" if "" in found else found[0]
    if isinstance(schema, dict | list) and not isinstance(value, type(schema)):
        return f"{name or 'the whole'} is not {'an object' if isinstance(schema, dict) else 'a list'}"
    if isinstance(schema, dict):
        return next(filter(None, (_field(value, key, each, name) for key, each in schema.items())), "")
    if isinstance(schema, list) and len(schema) > 1 and len(value) != len(schema):
        return f"{name} has not {len(schema)} entries"
    if isinstance(schema, list):
        each = zip(value, cycle(schema), strict=False)
        return next(filter(None, (_mismatch(one, own, f"{name}[{k}]") for k, (one, own) in enumerate(each))), "")
    if schema is None:
        return f"{name} is not null" if value is not None else ""
    if isinstance(schema, frozenset):
        return "" if isinstance(value, str) and value in schema else f"{name} is not one of {', '.join(sorted(schema))}"
    if isinstance(schema, range):
        right = type(value) in (int, float) and schema.start <= value < schema.stop
        return "" if right else f"{name} is not between {schema.start:,} and {schema.stop:,}"
    right = schema is Any or type(value) is schema or (schema is float and type(value) is int)
    return "" if right and not (type(value) is int and abs(value) >= MOST) else f"{name} is not {schema.__name__}"


def _field(value: dict[str, Any], key: str, schema: Schema, name: str) -> str:
    own = key.removesuffix("?")
    if key == "*":
        return next(filter(None, (_mismatch(each, schema, f"{name}.{k}"[:80]) for k, each in value.items())), "")
    where = f"{name}.{own}".lstrip(".")
    if own not in value:
        return f"{where} is missing" if own == key else ""
    return _mismatch(value[own], schema, where)
