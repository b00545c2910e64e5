"""Check the types of dataclass fields that were read from a file. A checksum shows only that the file is whole."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from partirvm.storage.schema import MOST

declared = cache(get_type_hints)


def require_types(value: Any) -> Any:
    """Return a dataclass instance whose fields were read from a file.

    Raises ``TypeError`` if a field, also in other dataclasses inside it, has not its declared type. Only numbers,
    texts, None, arrays, tuples and unions of them are checked.
    """
    hints = declared(type(value))  # type: ignore[arg-type,unused-ignore]
    for each in fields(value):
        found, name = getattr(value, each.name), f"{type(value).__name__}.{each.name}"
        if not _has_type(found, hints[each.name]):
            raise TypeError(f"{name} is {type(found).__name__} {found!r:.40}, expected {each.type}")
        for part in found if isinstance(found, tuple) else (found,):
            if is_dataclass(part) and not isinstance(part, type):
                require_types(part)
    return value


PLAIN: dict[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (int, float, np.number),
    str: (str,),
    type(None): (type(None),),
    np.ndarray: (np.ndarray,),
}
"""The types of values that each declared type accepts; values of other declared types are not checked."""


def _has_type(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(value) == len(wanted) and all(map(_has_type, value, wanted))
    if isinstance(value, bool) and origin in (int, float):
        return False
    if isinstance(value, int) and abs(value) >= MOST:
        return origin not in PLAIN
    return origin not in PLAIN or isinstance(value, PLAIN[origin])
