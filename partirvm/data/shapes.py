"""The shapes of texts: each text with all its digits replaced by 9, such as "$9,999.99".

A column of written numbers or dates has few shapes, however many distinct texts it has. What a text
means is decided for each shape; the digits of all texts are converted at once.

>>> import pyarrow as pa
>>> texts = shaped(pa.array(["$1,250.00", "$9,999.99", None]))
>>> texts.shapes, texts.codes.tolist(), texts.digits.tolist()
(['$9,999.99'], [0, 0, -1], [125000, 999999, 0])
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.types import Int

DIGITS = bytes.maketrans(b"0123456789", b"9999999999")
"""Translation of texts to shapes."""

NOT_DIGITS = bytes(code for code in range(256) if not 48 <= code < 58)
"""The bytes that are deleted to leave the digits."""

MOST_DIGITS = 18
"""Maximum number of digits that an int64 can hold, whatever they are."""


@dataclass(frozen=True)
class ShapedTexts:
    """The shapes and digits of n texts.

    Attributes:
        shapes: distinct shapes, in order of occurrence
        codes: number of each text's shape, (n,); −1 for missing texts
        digits: the digits of each text as one integer, (n,); 0 without digits, or if there are more
            than ``MOST_DIGITS``
        texts: the texts as an Arrow array
    """

    shapes: list[str]
    codes: Int
    digits: Int
    texts: Any

    @property
    def missing(self) -> bool:
        """True if some text is missing."""
        return bool(self.texts.null_count)

    def rows_by_shape(self) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Yield each shape with the numbers of its rows."""
        order = np.argsort(self.codes.astype(np.int32), kind="stable")
        counts = np.bincount(self.codes + 1, minlength=len(self.shapes) + 1)
        ends = np.cumsum(counts)
        for code, shape in enumerate(self.shapes):
            yield shape, order[ends[code] : ends[code + 1]]


def count_digits(shape: str) -> int:
    """Return the number of digits in texts of a shape."""
    return shape.count("9")


def shaped(texts: Any) -> ShapedTexts:
    """Return the shapes and digits of an Arrow array of strings (n,)."""
    import pyarrow as pa

    validity, offsets, content = _buffers(texts)
    data = b"" if content is None else bytes(content)
    same_type = type(texts)
    shapes = same_type.from_buffers(
        len(texts), offsets, pa.py_buffer(data.translate(DIGITS)), validity
    )
    encoded = shapes.dictionary_encode()
    codes: Any = np.from_dlpack(filled(encoded.indices, -1))
    names = encoded.dictionary.to_pylist()
    return ShapedTexts(names, codes, _digits(data, codes, names), texts)


def arrow_numbers(numbers: NDArray[Any]) -> Any:
    """Return a contiguous NumPy array of numbers as an Arrow array, which shares its memory.
    ``pa.array`` would import pandas (46 MiB)."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def filled(values: Any, number: float) -> Any:
    """Return an Arrow array of numbers with a number in place of nulls. ``fill_null``
    would import pandas."""
    import pyarrow.compute as pc

    numbers = np.full(len(values), number, dtype=values.type.to_pandas_dtype())
    return pc.coalesce(values, arrow_numbers(numbers))


def _buffers(texts: Any) -> tuple[Any, Any, Any]:
    """Return the validity, offsets and content of an Arrow array of strings, without the content
    before and after its texts."""
    import pyarrow as pa

    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    validity, offsets, content = texts.buffers()
    start = texts.offset
    places = np.frombuffer(offsets, width, len(texts) + 1, start * np.dtype(width).itemsize)
    first = int(places[0])
    if start:
        valid: Any = np.from_dlpack(texts.is_valid().cast(pa.uint8()))
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if first or start:
        offsets = pa.py_buffer(np.ascontiguousarray(places - first))
    if content is not None:
        content = content.slice(first, int(places[-1]) - first)
    return validity, offsets, content


def _digits(data: bytes, codes: Int, shapes: list[str]) -> Int:
    """Return the digits of each text as one integer (n,).

    Args:
        data: bytes of all texts
        codes: number of each text's shape, (n,)
        shapes: distinct shapes
    """
    import pyarrow as pa

    counts = np.array([*map(count_digits, shapes), 0], dtype=np.int64)
    usable = (counts > 0) & (counts <= MOST_DIGITS)
    lengths = counts[codes]
    ends = np.zeros(len(codes) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    valid = np.packbits(usable[codes], bitorder="little")
    numerals = pa.LargeStringArray.from_buffers(
        len(codes),
        pa.py_buffer(ends),
        pa.py_buffer(data.translate(None, NOT_DIGITS)),
        pa.py_buffer(valid),
    )
    digits: Int = np.asarray(np.from_dlpack(filled(numerals.cast(pa.int64()), 0)), np.int64)
    return digits
