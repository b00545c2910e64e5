"""Encode values as JSON and arrays, and decode them with the same bits. Only registered classes can be decoded.

A value is a tree of frozen dataclasses, enums, tuples, lists, dicts, arrays, NumPy scalars, numbers, strings and None.
The JSON holds the tree. A separate list holds the arrays, and an array that occurs several times is stored once:

    ==================  ======================================================================
    None, bool, int,    unchanged
    str
    float               {"float": "0x1.8p+1"}; NaN with its bits, {"float": "nan:7ff8000000000000"}
    tuple, list         {"tuple": [...]}, {"list": [...]}
    dict                {"dict": [[key, value], ...]} in the order of the dict
    enum                {"enum": "Phase", "member": "ROWS"}
    dataclass           {"class": "Design", "fields": {...}}: the declared fields, without cached values
    NumPy scalar        {"scalar": "<f8", "bytes": "..."}
    array               {"array": 3}
    ==================  ======================================================================

A decoded value has the types, the bits and the shared arrays of the encoded value. Classes and enums are looked up by
name in a fixed list, so that a file cannot create objects of any other class. Unlike pickle, decoding never runs code
from the file. A missing field and an unknown field are errors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import FormatError

Array: TypeAlias = NDArray[Any]

KINDS = "?biufc"
"""Kinds of dtypes (``numpy.dtype.kind``) that can be stored: bool, integer, float and complex."""


class Codec:
    """Encodes and decodes values of the given dataclasses and enums."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes: dict[str, type] = {}
        self._enums: dict[str, type[Enum]] = {}
        for each in classes:
            if each.__name__ in self._classes or each.__name__ in self._enums:
                raise ValueError(f"two classes are called {each.__name__}")
            if issubclass(each, Enum):
                self._enums[each.__name__] = each
            elif is_dataclass(each):
                self._classes[each.__name__] = each
            else:
                raise TypeError(f"{each.__name__} is neither a dataclass nor an enum")

    def encode(self, value: Any) -> tuple[Any, list[Array]]:
        """Return the JSON and the arrays of a value.

        Raises ``TypeError`` with the position of a part that cannot be stored.
        """
        writer = _Encoder(self._classes, self._enums)
        return writer.encode(value, "value"), writer.arrays

    def decode(self, tree: Any, arrays: list[Array]) -> Any:
        """Return the value. Raises ``FormatError`` for damaged JSON and for classes unknown to this version."""
        try:
            return _Decoder(self._classes, self._enums, arrays).decode(tree)
        except FormatError:
            raise
        except Exception as error:
            raise FormatError(f"damaged: {type(error).__name__}: {error}") from error


class _Encoder:
    def __init__(self, classes: dict[str, type], enums: dict[str, type[Enum]]) -> None:
        self._classes, self._enums = classes, enums
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, where: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return {"float": _text(value)}
        if kind in (tuple, list):
            return {kind.__name__: [self.encode(each, f"{where}[{k}]") for k, each in enumerate(value)]}
        if kind is dict:
            return {"dict": [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]}
        if kind is np.ndarray and value.dtype.kind in KINDS:
            return {"array": self._number(value)}
        if isinstance(value, np.generic) and value.dtype.kind in KINDS:
            return {"scalar": value.dtype.str, "bytes": value.tobytes().hex()}
        if self._enums.get(kind.__name__) is kind:
            return {"enum": kind.__name__, "member": value.name}
        if self._classes.get(kind.__name__) is kind:
            found = {f.name: self.encode(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}
            return {"class": kind.__name__, "fields": found}
        raise TypeError(f"{where} is a {kind.__module__}.{kind.__qualname__}, which cannot be stored in a checkpoint")

    def _number(self, array: Array) -> int:
        """Return the position of an array in the list. The list keeps the array alive, so that its id stays unique."""
        number = self._numbers.setdefault(id(array), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(array)
        return number


class _Decoder:
    def __init__(self, classes: dict[str, type], enums: dict[str, type[Enum]], arrays: list[Array]) -> None:
        self._classes, self._enums, self._arrays = classes, enums, arrays

    def decode(self, tree: Any) -> Any:
        if not isinstance(tree, dict):
            if tree is None or type(tree) in (bool, int, str):
                return tree
            raise FormatError(f"damaged: found {tree!r} in place of a value")
        match tree:
            case {"float": text}:
                return _number(text)
            case {"tuple": values}:
                return tuple(map(self.decode, values))
            case {"list": values}:
                return list(map(self.decode, values))
            case {"dict": pairs}:
                return {self.decode(key): self.decode(value) for key, value in pairs}
            case {"array": number}:
                return self._arrays[number]
            case {"scalar": dtype, "bytes": text}:
                return np.frombuffer(bytes.fromhex(text), plain(dtype))[0]
            case {"enum": name, "member": member}:
                return _known(self._enums, name, "enum")[member]
            case {"class": name, "fields": values}:
                return self._instance(_known(self._classes, name, "class"), values)
        raise FormatError(f"damaged: found {sorted(tree)} in place of a value")

    def _instance(self, kind: type, values: dict[str, Any]) -> Any:
        known = {f.name for f in fields(kind)}
        for name in (*values, *known):
            if (name in known) != (name in values):
                has = "lacks" if name in known else "has"
                raise FormatError(
                    f"{kind.__name__} {has} the field {name!r}: use the version of partirvm that wrote it"
                )
        return kind(**{name: self.decode(value) for name, value in values.items()})


def plain(dtype: str) -> np.dtype[Any]:
    """Return the dtype of this name. Raises ``FormatError`` unless the dtype is numeric or bool."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind not in KINDS:
        raise FormatError(f"damaged: arrays of dtype {dtype!r} are never stored")
    return found


def _known(names: dict[str, Any], name: str, what: str) -> Any:
    if name not in names:
        raise FormatError(f"the {what} {name!r} is unknown to this version of partirvm: use the version that wrote it")
    return names[name]


def _text(value: float) -> str:
    return value.hex() if value == value else "nan:" + struct.pack(">d", value).hex()


def _number(text: str) -> float:
    if text.startswith("nan:"):
        (value,) = struct.unpack(">d", bytes.fromhex(text[4:]))
        return float(value)
    return float.fromhex(text)
