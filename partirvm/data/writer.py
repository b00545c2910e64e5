"""Writing of records, in their final order, as the tiles of DATA or of rows that are appended to DATA."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from partirvm.core.moments import ColumnMoments, Moments
from partirvm.core.reduction import TreeSum
from partirvm.data.encode import Encoder, Roles
from partirvm.data.external_sort import RowHashes
from partirvm.data.layout import DataAttributes, create_arrays, require_small
from partirvm.data.publish import Publication, storing
from partirvm.data.source import Float, tile_rows_for
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import DataError
from partirvm.storage.records import checksum

Progress = Callable[[str, int, int | None], None]


def tile_width(roles: Roles) -> int:
    """Return the number of values per row that decide the tile size: the features, and targets beyond the first."""
    return len(roles.features) + max(len(roles.targets) - 1, 0)


@dataclass(frozen=True)
class Extended:
    """DATA to which rows are appended: the opened source and its attributes. ``again`` accepts the same rows once more.

    The new group holds the last tile of the DATA, if it was not full, and the new rows.
    """

    source: ZarrSource
    attributes: DataAttributes
    again: bool

    def last_rows(self) -> Float:
        """Return the records of the last tile, if it is not full: key, row number, features, targets, weights."""
        last, rest = divmod(self.attributes.n_rows, self.attributes.tile_rows)
        tile, numbers = self.source.tile(last - (rest == 0)), self.source.original_rows(last - (rest == 0))
        parts = [numbers, numbers, tile.X, tile.t, *([] if tile.weights is None else [tile.weights])]
        return np.column_stack(parts)[:rest]


class TileWriter:
    """Divides records, in their final order, into tiles, and writes the tiles with moments and hashes."""

    def __init__(
        self,
        place: Publication,
        where: str,
        encoder: Encoder,
        seed: int | None,
        tile_rows: int | None,
        report: Progress,
        extended: Extended | None,
    ) -> None:
        roles = encoder.roles
        self._place, self._where, self._report, self._extended = place, where, report, extended
        self._remaps, self._n_new = encoder.remaps(), encoder.n_rows
        d, n_targets = len(roles.features), len(roles.targets)
        if extended is not None:
            self._old, self._before = extended.attributes, extended.last_rows()
        else:
            self._before = np.empty((0, 2 + len(roles.wanted)))
            self._old = DataAttributes(
                n_rows=0,
                n_features=d,
                tile_rows=tile_rows or tile_rows_for(encoder.n_rows, tile_width(roles)),
                columns=encoder.columns(),
                seed=seed,
                weighted=roles.weights is not None,
                moments=_moments(np.empty((0, d)), np.empty((0, n_targets)), None),
                hashes={},
                batches=(),
                segments=(),
                labelled=n_targets > 0,
            )
        self._n, R = len(self._before) + encoder.n_rows, self._old.tile_rows
        self._first, self._n_tiles = self._old.n_rows // R, -(-self._n // R)
        with storing("the data"):
            self._arrays = create_arrays(place.group, self._old.chunks, self._n)
        require_small(self._old.columns, self._first + self._n_tiles, len(self._arrays), where)
        self.hashes = RowHashes(self._n_new)

    def write(self, blocks: Iterator[Float]) -> DataAttributes:
        """Write all tiles, two at a time. Returns the attributes of the DATA group."""
        moments, R = TreeSum[Moments](self._n_tiles), self._old.tile_rows
        checksums: list[dict[str, str]] = []
        pending: deque[Future[tuple[Moments, dict[str, str]]]] = deque()

        def settle() -> None:
            of_tile, of_arrays = pending.popleft().result()
            moments.add(len(checksums), of_tile)
            checksums.append(of_arrays)
            self._report("write", min(len(checksums) * R, self._n), self._n)

        with ThreadPoolExecutor(2) as pool:
            for number, records in enumerate(runs_of(chain([self._before], blocks), R)):
                if len(pending) == 3:
                    settle()
                new = records[len(self._before) :] if number == 0 else records
                for place, remap in self._remaps.items():
                    new[:, 2 + place] = remap[new[:, 2 + place].astype(np.int64)]
                new[:, 1] += self._old.n_rows
                pending.append(pool.submit(self._write_tile, number, records, len(records) - len(new)))
                self.hashes.add(new[:, 2:])
            while pending:
                settle()
        return self._attributes(moments.result(), checksums)

    def _write_tile(self, number: int, records: Float, n_old: int) -> tuple[Moments, dict[str, str]]:
        """Write a tile. Returns the moments of its rows after the first ``n_old``, and the checksums of its arrays."""
        old = self._old
        start, stop = 2 + old.n_features, 2 + old.n_features + old.n_targets
        X = np.ascontiguousarray(records[:, 2:start])
        t = np.ascontiguousarray(records[:, start:stop])
        weights = np.ascontiguousarray(records[:, -1]) if old.weighted else None
        y = t if old.n_targets > 1 else t.reshape(-1)
        parts: dict[str, Any] = {"X": X, "y": y, "weights": weights, "row": records[:, 1].astype(np.int64)}
        first = number * old.tile_rows
        with storing("the data"):
            for name, array in self._arrays.items():
                array[first : first + len(X)] = parts[name]
        moments = _moments(X[n_old:], t[n_old:], None if weights is None else weights[n_old:])
        return moments, {name: checksum(parts[name]) for name in self._arrays}

    def _attributes(self, moments: Moments, checksums: list[dict[str, str]]) -> DataAttributes:
        hashes = {name: tuple(each[name] for each in checksums) for name in self._arrays}
        batch, old = (self._n_new, self.hashes.checksum), self._old
        if batch in old.batches and not (self._extended is not None and self._extended.again):
            number = old.batches.index(batch)
            raise DataError(
                f"{self._where}: these {self._n_new:,} rows were {'appended' if number else 'ingested'} already (batch "
                f"{number + 1} of {len(old.batches)}): to append them once more, pass again=True (`--again`)"
            )
        return replace(
            old,
            n_rows=old.n_rows + self._n_new,
            moments=old.moments + moments,
            hashes={name: (*old.hashes.get(name, ())[: self._first], *each) for name, each in hashes.items()},
            batches=(*old.batches, batch),
            segments=(*(each for each in old.segments if each[0] < self._first), (self._first, self._place.segment)),
            base=old.base or (old.to_json()["digest"] if old.batches else ""),
        )


def _moments(X: Float, t: Float, weights: Float | None) -> Moments:
    """Return the moments of rows of finite values. Without a target the target moments have no columns."""
    if t.shape[1]:
        return Moments.of(X, t, weights)
    inputs, none = ColumnMoments.of(X, weights), np.empty(0)
    return Moments(inputs, ColumnMoments(inputs.n, inputs.total, none, none, none, none))


def runs_of(blocks: Iterator[Float], rows: int) -> Iterator[Float]:
    """Divide blocks of any length into separate arrays of ``rows`` rows; the last array may be shorter.

    >>> [len(run) for run in runs_of(iter([np.zeros((5, 1)), np.zeros((2, 1))]), 3)]
    [3, 3, 1]
    """
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
