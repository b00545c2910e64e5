"""Writing of records, in their final order, as the tiles of DATA or of rows that are appended to DATA."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.core.statistics import TreeSum
from partirvm.data.layout import DataAttributes, Publication, storing
from partirvm.data.source import Float
from partirvm.storage.records import checksum

Progress = Callable[[str, int, int | None], None]  # the phase, "read" or "write", rows done, and the total


def write_tiles(
    place: Publication,
    old: DataAttributes,
    before: Float,
    blocks: Iterable[Float],
    n_new: int,
    report: Progress,
) -> DataAttributes:
    """Divide records into tiles, and write the tiles as a group, two at a time. Return the attributes of all rows.

    A record contains a key, the number of the row, features, targets and weights. ``old`` are the attributes of the
    rows so far, and ``before`` the records of their last tile if it is not full, with which the group begins.
    ``blocks`` contain ``n_new`` new records in their final order.
    """
    R, n = old.tile_rows, len(before) + n_new
    first, n_tiles = old.n_rows // R, -(-n // R)
    moments, checksums, total = TreeSum(n_tiles), list[dict[str, str]](), np.zeros(1, np.uint64)
    pending: deque[Future[tuple[Moments, dict[str, str]]]] = deque()
    with storing("the data"):
        arrays = place.create_arrays(old.chunks, n)

    def settle() -> None:
        of_tile, of_arrays = pending.popleft().result()
        moments.add(len(checksums), of_tile)
        checksums.append(of_arrays)
        report("write", min(len(checksums) * R, n), n)

    with ThreadPoolExecutor(2) as pool:
        for number, records in enumerate(runs_of(chain([before], blocks), R)):
            if len(pending) == 3:
                settle()
            n_old = len(before) if number == 0 else 0
            pending.append(pool.submit(_write_tile, old, arrays, number, records, n_old))
            total += row_hashes(records[n_old:, 2:]).sum(dtype=np.uint64)
        while pending:
            settle()
    hashes = {name: tuple(each[name] for each in checksums) for name in arrays}
    return replace(
        old,
        n_rows=old.n_rows + n_new,
        moments=old.moments + moments.result(),
        hashes={name: (*old.hashes.get(name, ())[:first], *each) for name, each in hashes.items()},
        batches=(*old.batches, (n_new, f"{int(total[0]):016x}")),
        segments=(*(each for each in old.segments if each[0] < first), (first, place.name)),
    )


def _write_tile(
    old: DataAttributes, arrays: dict[str, Any], number: int, records: Float, n_old: int
) -> tuple[Moments, dict[str, str]]:
    """Write a tile. Return the moments of its rows after the first ``n_old``, and the checksums of its arrays."""
    start, stop = 2 + old.n_features, 2 + old.n_features + old.n_targets
    X, t = np.ascontiguousarray(records[:, 2:start]), np.ascontiguousarray(records[:, start:stop])
    weights = np.ascontiguousarray(records[:, -1]) if old.weighted else None
    y = t if old.n_targets > 1 else t.reshape(-1)
    parts: dict[str, Any] = {"X": X, "y": y, "weights": weights, "row": records[:, 1].astype(np.int64)}
    first = number * old.tile_rows
    with storing("the data"):
        for name, array in arrays.items():
            array[first : first + len(X)] = parts[name]
    moments = Moments.of(X[n_old:], t[n_old:], None if weights is None else weights[n_old:])
    return moments, {name: checksum(parts[name]) for name in arrays}


def runs_of(blocks: Iterable[Float], rows: int) -> Iterator[Float]:
    """Divide blocks of any length into separate arrays of ``rows`` rows; the last array may be shorter."""
    held: list[Float] = []
    count = 0
    for block in blocks:
        start = 0
        while count + len(block) - start >= rows:
            stop = start + rows - count
            yield np.concatenate([*held, block[start:stop]])
            held, count, start = [], 0, stop
        if start < len(block):
            held.append(block[start:].copy())
            count += len(block) - start
        del block  # free the memory before the next block is read
    if held:
        yield np.concatenate(held)


def row_hashes(rows: Float) -> NDArray[np.uint64]:
    """Return a hash of every row by splitmix64; their sum identifies the values of all rows, in any order."""
    bits = (rows + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    multipliers = np.random.default_rng(20230517).integers(0, 2**63, size=rows.shape[1], dtype=np.uint64)
    bits ^= bits >> np.uint64(32)
    mixed: NDArray[np.uint64] = bits @ (multipliers * np.uint64(2) + np.uint64(1))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
