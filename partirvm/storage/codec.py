"""The one schema of what partirvm stores: values as JSON and arrays, whose fields have the types of their annotations.

A value is a tree of dataclasses, enums, tuples, lists, dicts, arrays, NumPy scalars, numbers, texts and None. The JSON
has ``value``, ``objects`` (one entry for each dataclass instance, parts first) and ``arrays`` (dtype, shape, memory
order and position of each array). An instance or an array that occurs several times is stored once:

    ==================  ======================================================================
    None, bool, int,    unchanged
    float, str, list
    tuple               {"tuple": [...]}
    dict                {"dict": [[key, value], ...]} in the order of the dict
    enum                {"enum": "Phase", "member": "ROWS"}
    member of a         {"registry": "likelihood", "name": "gaussian"}
    registry
    dataclass           {"object": 5}; entry 5 of ``objects`` is ["Design", {field: value, ...}]
    NumPy scalar        {"scalar": "<f8", "bytes": "..."}
    array               {"array": 3}
    ==================  ======================================================================

Classes and enums are looked up by name in the list of a ``Codec``, so that a file cannot create objects of any other
class, and decoding runs no code from the file. A missing field, an unknown field and a field that has not its annotated
type are errors. The file is a sealed group (``storage.sealed``). An array of at least ``LARGE`` bytes is an array
``a0``, ``a1``, … of the group. The array ``packed`` holds all smaller arrays and the JSON, because a split-merge of
thousands of partitions has tens of thousands of small arrays. The memory order (C or Fortran) is kept, because BLAS may
round differently in the other order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import FormatError, PartirvmError
from partirvm.storage.records import MOST
from partirvm.storage.sealed import read_sealed, write_sealed

Array: TypeAlias = NDArray[Any]

KINDS = "?biufc"
"""Kinds of dtypes (``numpy.dtype.kind``) that can be stored: bool, integer, float and complex."""

LARGE = 1 << 16
"""Minimum size in bytes of an array that is stored separately in the group."""


class Codec:
    """Writes and reads values of these dataclasses and enums.

    ``registries`` hold objects that are stored as their ``name``, such as likelihoods. They may grow later.
    """

    def __init__(self, classes: Iterable[type], registries: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._classes = {each.__name__: each for each in classes}
        self._registries = registries or {}

    def write(
        self, value: Any, location: str, kind: str, version: int, *, storage_options: dict[str, Any] | None = None
    ) -> str:
        """Write a value to a new folder or URL, and return the digest of the group.

        Raises ``TypeError`` with the position of a part that cannot be stored, ``ExistsError`` if the location exists,
        and ``StorageError`` if it cannot be written.
        """
        return write_encoded(*self.encode(value), location, kind, version, storage_options=storage_options)

    def read(
        self,
        location: str,
        kind: str,
        version: int,
        *,
        seal: str | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> Any:
        """Return the value of a group. ``seal`` is the digest that the group must have.

        Raises as ``read_sealed`` does, and ``FormatError`` if the value cannot be decoded.
        """
        tree, arrays = read_encoded(location, kind, version, seal=seal, storage_options=storage_options)
        with _decoding(location, kind):
            return self.decode(tree, arrays)

    def encode(self, value: Any) -> tuple[dict[str, Any], list[Array]]:
        """Return the JSON, without the places of the arrays, and the arrays. Raises ``TypeError`` as ``write`` does."""
        objects, arrays, numbers = list[Any](), list[Array](), dict[int, tuple[int, Any]]()

        def entry(value: Any, where: str) -> list[Any]:
            parts = {each.name: encoded(getattr(value, each.name), f"{where}.{each.name}") for each in fields(value)}
            return [type(value).__name__, parts]

        def number(value: Any, where: str) -> int:
            """Return the position of an array or an object; ``numbers`` keeps it alive, so that its id stays unique."""
            if id(value) not in numbers:
                entries: list[Any] = arrays if isinstance(value, np.ndarray) else objects
                own = value if isinstance(value, np.ndarray) else entry(value, where)
                entries.append(own)
                numbers[id(value)] = len(entries) - 1, value
            return numbers[id(value)][0]

        def encoded(value: Any, where: str) -> Any:
            kind = type(value)
            if value is None or kind in (bool, float) or (kind is int and abs(value) < MOST):
                return value
            if isinstance(value, str):
                return str(value)
            if kind in (list, tuple):
                parts = [encoded(each, f"{where}[{k}]") for k, each in enumerate(value)]
                return parts if kind is list else {"tuple": parts}
            if kind is dict:
                return {"dict": [[encoded(k, where), encoded(v, f"{where}[{k!r}]")] for k, v in value.items()]}
            if kind is np.ndarray and value.dtype.kind in KINDS:
                return {"array": number(value, where)}
            if isinstance(value, np.generic) and value.dtype.kind in KINDS:
                return {"scalar": value.dtype.str, "bytes": value.tobytes().hex()}
            if self._classes.get(kind.__name__) is kind:
                if isinstance(value, Enum):
                    return {"enum": kind.__name__, "member": value.name}
                return {"object": number(value, where)}
            name = getattr(value, "name", None)
            for registry, members in self._registries.items():
                if isinstance(name, str) and type(members.get(name)) is kind:
                    return {"registry": registry, "name": name}
            raise TypeError(f"{where} is a {kind.__module__}.{kind.__qualname__}, which cannot be stored")

        return {"value": encoded(value, "value"), "objects": objects}, arrays

    def decode(self, tree: dict[str, Any], arrays: list[Array]) -> Any:
        """Return the value. Raises ``FormatError`` or a builtin error for JSON that was not encoded by this version."""
        objects: list[Any] = []

        def decoded(tree: Any) -> Any:
            if tree is None or type(tree) in (bool, float, str) or (type(tree) is int and abs(tree) < MOST):
                return tree
            if type(tree) is list:
                return list(map(decoded, tree))
            match tree:
                case {"tuple": values}:
                    return tuple(map(decoded, values))
                case {"dict": pairs}:
                    return {decoded(key): decoded(value) for key, value in pairs}
                case {"array": int(number)}:
                    return arrays[number]
                case {"object": int(number)}:
                    return objects[number]
                case {"scalar": dtype, "bytes": text}:
                    return np.frombuffer(bytes.fromhex(text), plain(dtype))[0]
                case {"enum": name, "member": member}:
                    return self._known(name)[member]
                case {"registry": registry, "name": name}:
                    return self._registries[registry][name]
            raise FormatError(f"found {tree!r:.80} in place of a value")

        for name, values in tree["objects"]:
            objects.append(self._instance(name, {field: decoded(value) for field, value in values.items()}))
        return decoded(tree["value"])

    def _instance(self, name: str, values: dict[str, Any]) -> Any:
        """Return an instance of a class with these fields, which have the types of their annotations."""
        kind = self._known(name)
        known = {each.name for each in fields(kind)}
        for field in (*values, *known):
            if (field in known) != (field in values):
                has = "lacks" if field in known else "has"
                raise FormatError(f"{name} {has} the field {field!r}: use the version of partirvm that wrote it")
        for field, hint in annotated(kind).items():
            if field in values and not has_type(values[field], hint):
                value = values[field]
                raise FormatError(f"{name}.{field} is {type(value).__name__} {value!r:.40}, expected {hint}")
        return kind(**values)

    def _known(self, name: str) -> Any:
        if name not in self._classes:
            raise FormatError(
                f"the class {name!r} is unknown to this version of partirvm: use the version that wrote it"
            )
        return self._classes[name]


annotated = cache(get_type_hints)

PLAIN: dict[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (int, float, np.number),
    type(None): (type(None),),
}
"""The types of values that each annotated type accepts."""


def has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has an annotated type.

    Type variables and ``Any`` accept all values, protocols that are not ``runtime_checkable`` all dataclass instances.

    >>> has_type((1, 2.5), tuple[float, ...]), has_type({"a": None}, dict[str, int]), has_type(True, int)
    (True, False, False)
    """
    origin, parts = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(has_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is Any or not isinstance(origin, type):
        return True
    if isinstance(value, bool) and origin in (int, float):
        return False
    if getattr(origin, "_is_protocol", False) and not getattr(origin, "_is_runtime_protocol", False):
        return is_dataclass(value)
    kinds: Any = PLAIN.get(origin, origin)
    if not isinstance(value, kinds):
        return False
    if origin is tuple and parts:
        wanted = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(value) == len(wanted) and all(map(has_type, value, wanted))
    if origin is list and parts:
        return all(has_type(each, parts[0]) for each in value)
    if origin is dict and parts:
        return all(has_type(key, parts[0]) and has_type(each, parts[1]) for key, each in value.items())
    return True


def plain(dtype: str) -> np.dtype[Any]:
    """Return the dtype of this name. Raises ``FormatError`` unless the dtype is numeric or bool."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind not in KINDS:
        raise FormatError(f"arrays of dtype {dtype!r} are never stored")
    return found


def write_encoded(
    tree: dict[str, Any],
    arrays: list[Array],
    location: str,
    kind: str,
    version: int,
    *,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Write the JSON and the arrays of an encoded value as a sealed group. Returns and raises as ``Codec.write``."""
    places, small, alone = list[list[Any]](), list[bytes](), dict[str, Array]()
    end = 0
    for number, array in enumerate(arrays):
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        packed = array.nbytes < LARGE
        places.append([array.dtype.str, list(array.shape), order, end if packed else None])
        if packed:
            small.append(array.tobytes(order="A"))
            end += array.nbytes
        else:
            alone[f"a{number}"] = array.T if order == "F" else array
    tail = json.dumps({**tree, "arrays": places}, separators=(",", ":")).encode()
    whole = np.frombuffer(b"".join([*small, tail]), np.uint8)
    about = {"tail": len(tail)}
    return write_sealed(location, kind, version, about, {**alone, "packed": whole}, storage_options=storage_options)


def read_encoded(
    location: str, kind: str, version: int, *, seal: str | None = None, storage_options: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[Array]]:
    """Return the JSON and the arrays that ``write_encoded`` wrote. Raises as ``Codec.read``."""
    about, stored = read_sealed(location, kind, version, seal=seal, storage_options=storage_options)
    with _decoding(location, kind):
        packed = stored["packed"].tobytes()
        tree = json.loads(packed[len(packed) - about["tail"] :])
        return tree, [_array(number, place, packed, stored) for number, place in enumerate(tree.pop("arrays"))]


def _array(number: int, place: list[Any], packed: bytes, stored: dict[str, Array]) -> Array:
    dtype, shape, order, offset = plain(place[0]), tuple(place[1]), place[2], place[3]
    if offset is None:
        array = stored[f"a{number}"].astype(dtype, copy=False)  # Zarr does not keep the byte order
        return array.T if order == "F" else array
    if not math.prod(shape):
        return np.zeros(shape, dtype, order=order)
    return np.frombuffer(packed, dtype, math.prod(shape), offset).copy().reshape(shape, order=order)


@contextmanager
def _decoding(location: str, kind: str) -> Iterator[None]:
    """Convert all errors of decoding to ``FormatError`` that names the place."""
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, PartirvmError) else f"{type(error).__name__}: {error}"
        raise FormatError(f"{location}: the {kind.removeprefix('partirvm-')} cannot be read: {text}") from error
