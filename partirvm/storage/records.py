"""Small JSON objects with a checksum, in numbered series, and the schemas of JSON from files.

A checksum shows that a file is whole, a schema that it has the fields that readers use. A schema is a type (``float``
accepts integers too), a ``range`` of numbers, a frozenset of texts, ``None``, a tuple of alternatives, a list with the
schema of all entries (of two or more: of each entry), or a dict of fields. A field whose name ends in ``?`` may be
missing, and ``*`` stands for all fields.
"""

from __future__ import annotations

import hashlib
import json
import re
from itertools import cycle
from typing import Any, TypeAlias, cast

from partirvm.errors import FormatError, MissingDataError
from partirvm.storage.address import reading
from partirvm.storage.folder import Folder

HEAD = 1 << 25
"""Maximum number of bytes of JSON."""

Schema: TypeAlias = Any

ANY: Schema = {}
"""The schema of all objects."""

MOST = 1 << 63
"""Integers of files are smaller in absolute value."""

TIME = range(1 << 37)
"""Seconds since 1970."""


def read_json(folder: Folder, name: str, schema: Schema = ANY) -> dict[str, Any]:
    """Read and verify a JSON object of this schema that was written by ``to_json`` for this name.

    Raises ``MissingDataError`` if the object does not exist, and ``FormatError`` if it is damaged, was written for
    another name, or has not the schema. Of an object that is too large only the first ``HEAD`` bytes are read.
    """
    place = f"{folder.location}/{name}"
    try:
        with reading(place):
            data = folder.read(name, HEAD)
    except MissingDataError as error:
        raise MissingDataError(f"{folder.location}: {name} is missing") from error
    try:
        value = json.loads(data)
        whole = value.pop("check") == digest(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"{place}: damaged, not an object of partirvm: restore or remove the file") from error
    if not whole:
        raise FormatError(f"{place}: damaged, its content does not match its checksum: restore the file")
    if (own := value.pop("object", None)) != name:
        raise FormatError(f"{place}: this file was moved or copied from {own}: restore or remove it")
    require(value, schema, place)
    return cast(dict[str, Any], value)


def to_json(name: str, value: dict[str, Any]) -> bytes:
    """Serialise a JSON object for storage under this name. ``check`` is a checksum of name and content."""
    named = {"object": name, **value}
    return json.dumps({**named, "check": digest(named)}, indent=1).encode()


def numbers(folder: Folder, series: str, first: int | None = None) -> list[int]:
    """Return the numbers of the objects ``000001.json``, ``000002.json``, … of a series, without gap.

    ``first`` is the first number, or None for the lowest that exists. Raises ``MissingDataError`` with the first
    missing number.
    """
    found = listed_numbers(folder, series)
    there = set(found)
    for number in range(found[0] if first is None else first, found[-1]) if found else ():
        if number not in there and not folder.exists(numbered(series, number)):  # a listing may miss a new object
            raise MissingDataError(
                f"{folder.location}: {numbered(series, number)} is missing, but {numbered(series, found[-1])} exists: "
                "restore the missing file, or remove the other if it was added by hand"
            )
        there.add(number)
    return sorted(there)


NUMBERED = re.compile(r"(?!0{6}\.)([0-9]{6}|[1-9][0-9]{6,})\.json")


def listed_numbers(folder: Folder, series: str) -> list[int]:
    """Return the numbers of the listed objects of a series in increasing order, with gaps."""
    return sorted(int(name[:-5]) for name in folder.list(series) if NUMBERED.fullmatch(name))


def numbered(series: str, number: int, suffix: str = "") -> str:
    """Return the name of an object of a series of numbered objects."""
    return f"{series}/{number:06d}{suffix}.json"


def digest(value: Any) -> str:
    """Return a hash of a JSON value; the hash does not depend on the order of keys."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


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
