"""Values stored as JSON and arrays in a folder: the format shared by models, specs and checkpoints.

A value is a tree of dataclasses, enums, tuples, lists, dicts, arrays, NumPy scalars, numbers,
strings and None. The JSON has ``value`` and ``arrays`` (dtype, shape and order, on which BLAS bits
depend), each array only once:

    None, bool, int, float, str, list    unchanged
    tuple, dict                          {"tuple": [...]}, {"dict": [[key, value], ...]}
    enum                                 {"enum": "Phase", "member": "ROWS"}
    dataclass                            {"object": "Design", "fields": {field: value, ...}}
    NumPy scalar, array                  {"scalar": "<f8", "bytes": "..."}, {"array": 3}

Classes and enums are looked up by name among the types that a ``Codec`` knows: decoding runs no
code from the file.

    GROUP/000000, …     the bytes of the JSON and of all arrays, one after the other, in parts of
                        ``PART`` bytes
    GROUP/NAME/…        optional: further content from the writer, such as copied rows
    GROUP/group.json    kind, format, the size of the JSON, the size and the hash of each part, and
                        ``about``

``group.json`` is written last: without it, a group is incomplete, and the next writer to this
location replaces it. Reading takes no more memory than the stored bytes plus a second copy of the
largest array.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any, TypeAlias, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ExistsError, FormatError, MissingDataError
from partirvm.storage.address import reading, storing
from partirvm.storage.folder import Folder, open_folder
from partirvm.storage.records import MOST, has_type, read_json, require, require_format, to_json

Array: TypeAlias = NDArray[Any]

KINDS = "?biufc"
"""Dtype kinds (``numpy.dtype.kind``) that can be stored: bool, integer, float and complex."""

PART = 1 << 23
"""Maximum size in bytes of a part of a group."""

HEAD = "group.json"
"""The object that makes a group complete."""

PART_NAME = re.compile(r"\d{6}")
"""Names of the parts of a group."""

TEMPORARY_NAME = re.compile(r"\.(\d{6}|group\.json)\.[0-9a-f]{32}\.part")
"""Names of files that become a part or the head."""

START = b'{"value":'
"""First bytes of the first part of each group."""

Beside: TypeAlias = tuple[str, Callable[[], object]]
"""The name of a folder in a group, and a function that writes it."""

HEAD_FIELDS = {"json": range(1 << 50), "parts": list[list[int | str]], "about": {}}

ADVICE = "restore it, or use the version of partirvm that wrote it"


class Codec:
    """Writes and reads values of the given dataclasses and enums, and of the types in their field
    annotations."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = dict[str, Any]()
        left = list[Any](classes)
        while left:
            hint = left.pop()
            left += get_args(hint)
            storable = is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, Enum))
            if storable and hint.__name__ not in self._classes:
                self._classes[hint.__name__] = hint
                left += get_type_hints(hint).values()

    def write(
        self,
        value: Any,
        location: str,
        kind: str,
        version: int,
        about: Any = None,
        copies: Beside | None = None,
        part_bytes: int = PART,
    ) -> None:
        """Write a value to a new folder or URL, replacing an unfinished group.

        Raises ``TypeError`` if it cannot be stored, ``ExistsError`` if the location is not empty,
        or ``StorageError``.

        Parameters
        ----------
        value : object
            The value to store.
        location : str
            The folder or URL.
        kind, version : str, int
            The kind of group and the version of its format.
        about : JSON value, optional
            Facts that can be read without the value.
        copies : (str, callable), optional
            The name of a folder in the group, and a function that writes it; it is complete if the
            group is.
        part_bytes : int
            The size of a part, at most ``PART``.
        """
        write_group(*self.encode(value), location, kind, version, about, copies, part_bytes)

    def read(self, location: str, kind: str, version: int) -> Any:
        """Return a group's value. Raises ``MissingDataError`` if it is damaged, ``FormatError`` for
        another kind of group."""
        with reading(f"{location}: the {kind.removeprefix('partirvm-')}", ADVICE):
            return self.decode(*read_group(location, kind, version))

    def encode(self, value: Any) -> tuple[dict[str, Any], list[Array]]:
        """Return the JSON, without array entries, and the arrays. Raises ``TypeError`` as ``write``
        does."""
        arrays = list[Array]()
        numbers = dict[int, int]()

        def encoded(value: Any) -> Any:
            kind = type(value)
            if _is_number(value):
                return value
            if isinstance(value, str):
                return str(value)
            if kind in (list, tuple):
                parts = list(map(encoded, value))
                return parts if kind is list else {"tuple": parts}
            if kind is dict:
                return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
            if kind is np.ndarray and value.dtype.kind in KINDS:
                # ``arrays`` keeps it alive, so that its id remains unique
                if id(value) not in numbers:
                    numbers[id(value)] = len(arrays)
                    arrays.append(value)
                return {"array": numbers[id(value)]}
            if isinstance(value, np.generic) and value.dtype.kind in KINDS:
                return {"scalar": value.dtype.str, "bytes": value.tobytes().hex()}
            if self._classes.get(kind.__name__) is kind:
                if isinstance(value, Enum):
                    return {"enum": kind.__name__, "member": value.name}
                names = [field.name for field in fields(value)]
                values = {name: encoded(getattr(value, name)) for name in names}
                return {"object": kind.__name__, "fields": values}
            raise TypeError(
                f"a {kind.__module__}.{kind.__qualname__} cannot be stored: {value!r:.80}"
            )

        return {"value": encoded(value)}, arrays

    def decode(self, tree: dict[str, Any], arrays: list[Array]) -> Any:
        """Return the value. Raises ``ValueError`` or another builtin error for data not encoded by
        this version."""

        def decoded(tree: Any) -> Any:
            if _is_number(tree) or type(tree) is str:
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
                case {"object": name, "fields": values}:
                    values_by_name = {field: decoded(value) for field, value in values.items()}
                    kind = self._classes[name]
                    hints = get_type_hints(self._classes[name])
                    names = {each.name for each in fields(kind)}
                    if values_by_name.keys() != names or not all(
                        has_type(values_by_name[field], hints[field]) for field in names
                    ):
                        raise ValueError(
                            f"the fields of {name} are not those that this version writes"
                        )
                    return kind(**values_by_name)
                case {"scalar": dtype, "bytes": text}:
                    return np.frombuffer(bytes.fromhex(text), plain(dtype))[0]
                case {"enum": name, "member": member}:
                    return self._classes[name][member]
            raise ValueError(f"expected an encoded value, found {tree!r:.80}")

        return decoded(tree["value"])


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, a bool or None, which JSON stores unchanged."""
    kind = type(value)
    return value is None or kind in (bool, float) or (kind is int and abs(value) < MOST)


def plain(dtype: str) -> np.dtype[Any]:
    """Return the dtype with this name. Raises ``ValueError`` unless it is numeric or bool."""
    named: np.dtype[Any] = np.dtype(dtype)
    if named.kind not in KINDS:
        raise ValueError(f"arrays of dtype {dtype!r} are never stored")
    return named


def write_group(
    tree: Any,
    arrays: list[Array],
    location: str,
    kind: str,
    version: int,
    about: Any = None,
    copies: Beside | None = None,
    part_bytes: int = PART,
) -> None:
    """Write an encoded value's JSON and arrays. An error leaves nothing behind; a killed process
    leaves an unfinished group.

    Parameters and errors are as for ``Codec.write``.

    Args:
        tree: the JSON of the value.
        arrays: its arrays.
        location: the folder or URL.
        kind: the kind of the group.
        version: the version of its format.
        about: facts about the writer, as plain JSON.
        copies: a name in the group, and a function that writes it.
        part_bytes: the size of a part, at most ``PART``.
    """
    folder = open_folder(location)
    parts = list[tuple[int, str]]()
    entries = [(array.dtype.str, array.shape, "F" if array.flags.fnc else "C") for array in arrays]
    text = json.dumps({**tree, "arrays": entries}, separators=(",", ":")).encode()
    flat = (array.ravel("F" if array.flags.fnc else "C") for array in arrays)
    with storing(location):
        _remove_unfinished(folder, "" if copies is None else copies[0])
        try:
            for part in _divided(chain([np.frombuffer(text, np.uint8)], flat), part_bytes):
                folder.write(f"{len(parts):06d}", part)
                parts.append((len(part), _hash(part)))
            if copies is not None:
                copies[1]()
                folder.flush(copies[0])
            head = {
                "kind": kind,
                "format": version,
                "json": len(text),
                "parts": parts,
                "about": about or {},
            }
            folder.create(HEAD, to_json(HEAD, head))
        except BaseException:
            with suppress(OSError):
                if not folder.exists(HEAD):  # another writer may have finished first
                    folder.remove()
            raise


def _remove_unfinished(folder: Folder, copies: str) -> None:
    """Remove the group that a killed writer left without its head. Raises ``ExistsError`` for
    anything else.

    The first part, which identifies the group, is removed last: this process may be killed, too.
    """
    if folder.empty():
        return
    names = folder.list()
    known = not folder.is_file() and all(
        name == copies or PART_NAME.fullmatch(name) for name in names
    )
    if known and names:
        known = names[0] == f"{0:06d}" and folder.read(names[0], len(START)) == START
    hidden = sorted({*folder.list(hidden=True)} - {*names})
    if not (known and all(map(TEMPORARY_NAME.fullmatch, hidden))):
        raise ExistsError(
            f"{folder.location} already exists and is not overwritten: choose another name"
        )
    for name in (*reversed(names), *hidden):
        folder.remove(name)


def read_group(location: str, kind: str, version: int) -> tuple[dict[str, Any], list[Array]]:
    """Return the JSON and the arrays that ``write_group`` wrote. Raises the errors of
    ``Codec.read`` or of a decoder."""
    folder = open_folder(location)
    what = kind.removeprefix("partirvm-")
    head = read_json(folder, HEAD, missing=f"no {what} here, or it is incomplete: ")
    if head.get("kind") != kind:
        raise FormatError(
            f"{location}: this is not a partirvm {what} (kind {head.get('kind')!r:.40})"
        )
    require_format(head.get("format"), version, location, what)
    require(head, HEAD_FIELDS, f"{location}/{HEAD}")
    following = _reader(folder, head["parts"], what)
    tree = json.loads(following(head["json"]).tobytes())
    arrays = list[Array]()
    for name, shape, order in tree.pop("arrays"):
        dtype = plain(name)
        arrays.append(
            following(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape, order=order)
        )
    return tree, arrays


def _divided(arrays: Iterable[Array], part_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of flat arrays in parts of ``part_bytes`` each."""
    part = bytearray()
    for array in arrays:
        remaining = array.view(np.uint8).data
        while len(part) + len(remaining) >= part_bytes:
            split = part_bytes - len(part)
            yield b"".join([part, remaining[:split]])
            part = bytearray()
            remaining = remaining[split:]
        part += remaining
    yield bytes(part)


def _reader(folder: Folder, parts: list[tuple[int, str]], what: str) -> Callable[[int], Array]:
    """Return a function that returns the next ``n_bytes`` of a group."""
    names = iter(enumerate(parts))
    held = bytearray()
    again = f"restore the file, or make the {what} again"

    def following(n_bytes: int) -> Array:
        while len(held) < n_bytes:
            number, (size, expected) = next(names, (len(parts), (0, "")))
            place = f"{folder.location}: part {number:06d} of the {what}"
            with reading(place, again, MissingDataError):
                part = folder.read(f"{number:06d}", min(size, PART) + 1)
            if (len(part), _hash(part)) != (size, expected):
                raise MissingDataError(
                    f"{place} is damaged: its bytes differ from those written: {again}"
                )
            held.extend(part)
        flat = np.empty(n_bytes, np.uint8)
        flat[:] = memoryview(held)[:n_bytes]
        del held[:n_bytes]
        return flat

    return following


def _hash(part: bytes | memoryview) -> str:
    return hashlib.blake2b(part, digest_size=16).hexdigest()
