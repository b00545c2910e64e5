"""RVM* for large data: predictions with an extra basis function at each test row (``core.augment``), tile by tile.

The products of the extra columns with the columns of the model need a pass over the training rows. Each pass serves as
many test rows as memory allows, from a part of a large tile or from several small tiles. All passes together need N·n·M
products for N training rows, n test rows and M columns. The test rows of a tile are cut into pieces of
``EXTRA_COLUMNS`` rows, the last one with copies of a row: products of another shape may be rounded differently. So the
bits of a row do not depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.blas_threads import one_blas_thread
from partirvm.core.augment import ExtraColumns
from partirvm.core.moments import Moments
from partirvm.core.reduction import TreeSum
from partirvm.core.residuals import LEVELS, Scores
from partirvm.data import ZarrSource, require_target
from partirvm.data.source import Source, Tile
from partirvm.errors import ChangedDataError, DataError, MemoryLimitError, UsageError
from partirvm.execution import Executor, executor_for
from partirvm.execution.tasks import Progress
from partirvm.jobs.places import changes, current_request, difference, latest
from partirvm.jobs.store import JobStore
from partirvm.kernels import NoKernel
from partirvm.kernels.base import padded
from partirvm.likelihoods.gaussian_passes import AugmentPass
from partirvm.model import FAR, AnyModel, Model
from partirvm.model.augmented import augmented_moments, extra_design
from partirvm.planning.memory import ALLOWANCE, DataShape, augment_bytes, augment_rows
from partirvm.planning.units import format_bytes, parse_bytes
from partirvm.setup.parameters import checked_moments
from partirvm.types import EXTRA_COLUMNS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MAX_ROWS = 16 * EXTRA_COLUMNS
"""Maximum number of test rows per pass. With more test rows the time per row hardly decreases."""


def training_source(store: JobStore, data: str) -> ZarrSource:
    """Open ``data``, which must equal the DATA of a job's fit. Raises ``ChangedDataError`` for other data."""
    source, spec = ZarrSource(data), store.asked()
    what = difference(source, latest(store.events(), spec["fingerprint"]))
    if what is not None:
        raise ChangedDataError(
            f"{data}: these are not the DATA that {store.location} was fitted to ({what}): augment with "
            f"{spec['data']} or a copy of these DATA"
        )
    return source


@dataclass(frozen=True)
class Augmented:
    """The predictions of one tile of n test rows. All arrays have shape (n,).

    ``rows`` are the row numbers before shuffling. ``mean`` is the mean of a new noisy target in the target's units, and
    ``variance`` its variance in units of ``unit``². ``near`` is the nearness, as in ``Model.moments``.
    """

    tile: Tile
    rows: Int
    mean: Float
    variance: Float
    near: Float
    unit: float

    @property
    def records(self) -> Float:
        """An array (n, 4): row number before shuffling, mean, standard deviation, and 1 for far rows."""
        return np.column_stack([self.rows, self.mean, np.sqrt(self.variance) * self.unit, self.near < FAR])


@dataclass(frozen=True)
class Augmenting:
    """A regression model with its training rows, for predictions with extra basis functions.

    ``variance`` is the variance of the scaled targets. ``origin`` (d,) is the mean of the training rows in the kernel's
    coordinates. ``max_rows`` is the maximum number of test rows per pass.
    """

    model: Model
    training: Source
    executor: Executor
    variance: float
    origin: Float
    max_rows: int

    @classmethod
    def of(
        cls,
        model: Model,
        training: Source,
        executor: Executor,
        tile_rows: int,
        memory_limit: int | str = "auto",
        *,
        grown: bool = False,
    ) -> Augmenting:
        """Check the training rows and compute the maximum number of test rows per pass.

        The caller has checked the features of the rows. ``tile_rows`` is the number of rows in a tile of test rows.
        ``memory_limit`` limits the memory of each process, as in a fit. If the model was updated (``grown``), its
        scaling is that of its first rows, and the mean of the target is not checked.

        Raises ``UsageError`` for a model with several targets or without a kernel, ``DataError`` for rows other than
        the training rows, and ``MemoryLimitError`` if a single piece of test rows exceeds the limit.
        """
        require_augmentable(model)
        require_target(training)
        moments = checked_moments(training, executor, lambda: None)
        _check_rows(model, moments, grown=grown)
        scaling = model.design.scaling
        variance = float(moments.targets.variance_over(scaling.t_scale)[0])
        max_rows = _max_rows(model, training, executor, tile_rows, memory_limit)
        return cls(model, training, executor, variance, scaling.inputs(moments.inputs.mean), max_rows)

    def tiles(self, source: Source, numbers: Sequence[int], progress: Progress | None = None) -> Iterator[Augmented]:
        """Yield the predictions of these tiles of a source, in order.

        ``progress`` is called with the number of tiles of training rows that are done, and their total over all passes.
        The executor reads the test tiles and runs the passes; all other computations run in this process.
        """
        rows = {number: min(source.tile_rows, source.n_rows - number * source.tile_rows) for number in numbers}
        runs = [numbers[some] for some in together(list(rows.values()), self.max_rows)]
        passes = [together([EXTRA_COLUMNS for n in run for _ in pieces(rows[n])], self.max_rows) for run in runs]
        total, done = sum(map(len, passes)) * self.training.n_tiles, 0
        unit = float(self.model.design.scaling.t_unit[0])
        for run, of_run in zip(runs, passes, strict=True):
            read = [found for _, found in self.executor.map(read_tile, source, run, None)]
            inputs = [tile.X[piece.start : piece.stop] for tile, _ in read for piece in pieces(len(tile.X))]
            found: list[tuple[Float, Float, Float]] = []
            for some in of_run:
                found += self._pieces(inputs[some], progress, done, total)
                done += self.training.n_tiles
            mean, variance, near = (np.concatenate(parts) for parts in zip(*found, strict=True))
            cuts = np.cumsum([0, *(len(tile.X) for tile, _ in read)])
            for (tile, numbered), first, end in zip(read, cuts[:-1], cuts[1:], strict=True):
                yield Augmented(tile, numbered, mean[first:end], variance[first:end], near[first:end], unit)

    def _pieces(
        self, inputs: Sequence[Float], progress: Progress | None, before: int, total: int
    ) -> list[tuple[Float, Float, Float]]:
        """Return mean, variance and nearness of each piece of test rows, from one pass over the training rows."""

        def report(done: int, of: int) -> None:
            if progress is not None:
                progress(before + done, total)

        design = self.model.design
        with one_blas_thread():
            extras = tuple(extra_design(self.model, padded(X, EXTRA_COLUMNS), self.origin) for X in inputs)
            pass_ = AugmentPass(design, self.model.mean, extras)
            extra: ExtraColumns = self.executor.run([pass_], self.training, report)[0]
            starts = np.cumsum([0, *(each.n_columns for each in extras[:-1])])
            return [
                augmented_moments(self.model, X, extra[first : first + len(X)], self.variance)
                for X, first in zip(inputs, starts, strict=True)
            ]


def augmented_rows(
    model: Model,
    source: Source,
    training: Source,
    client: Any = None,
    memory_limit: int | str = "auto",
    *,
    grown: bool = False,
) -> tuple[Float, Float]:
    """Return mean and standard deviation (n,) of the rows of a source, predicted with an extra column for each row.

    The rows are in their order before shuffling. Raises as ``Augmenting.of`` does.
    """
    with closing(executor_for(client)) as executor:
        augmenting = Augmenting.of(model, training, executor, source.tile_rows, memory_limit, grown=grown)
        found = np.concatenate([predicted.records for predicted in augmenting.tiles(source, range(source.n_tiles))])
    _, mean, std, _ = found[np.argsort(found[:, 0])].T
    return mean, std


def augmenting_of(
    store: JobStore, model: AnyModel, training: ZarrSource, executor: Executor, source: Source
) -> Augmenting:
    """Return an ``Augmenting`` of a job's model and its DATA, with the memory limit of the job.

    Raises ``UsageError`` for a classification model; other exceptions are those of ``Augmenting.of``.
    """
    if not isinstance(model, Model):
        raise UsageError(f"{store.location} holds a classifier, but augment supports regression only: omit augment")
    events = store.events()
    limit = current_request(store.asked(), changes(events)).memory_limit
    grown = any("fingerprint" in event for event in events)
    return Augmenting.of(model, training, executor, source.tile_rows, limit, grown=grown)


def augmented_scores(augmenting: Augmenting, source: Source, progress: Progress | None = None) -> Scores:
    """Return the scores of augmented predictions on all rows of a source."""
    total: TreeSum[Scores] = TreeSum(source.n_tiles)
    multiples = augmenting.model.multiples(LEVELS)
    for predicted in augmenting.tiles(source, range(source.n_tiles), progress):
        scores = Scores.of(predicted.tile.t[:, 0], predicted.mean, predicted.variance, predicted.unit, multiples)
        total.add(predicted.tile.number, scores)
    return total.result()


def read_tile(source: Source, number: int) -> tuple[Tile, Int]:
    """Return a tile and the row numbers of its rows before shuffling."""
    tile = source.tile(number)
    return tile, original_rows(source, tile)


def original_rows(source: Source, tile: Tile) -> Int:
    """Return the row numbers (rows,) of a tile's rows before shuffling."""
    if isinstance(source, ZarrSource):
        return source.original_rows(tile.number)
    return tile.start + np.arange(len(tile.X))


def pieces(rows: int) -> list[range]:
    """Cut the rows of a tile into pieces of ``EXTRA_COLUMNS`` rows; the last piece may be smaller.

    >>> pieces(300)
    [range(0, 120), range(120, 240), range(240, 300)]
    """
    return [range(start, min(start + EXTRA_COLUMNS, rows)) for start in range(0, rows, EXTRA_COLUMNS)]


def together(sizes: Sequence[int], limit: int) -> list[slice]:
    """Group consecutive items so that the sizes of a group sum to at most ``limit``, or the group has one item.

    >>> together([3, 1, 2, 9, 1], 4)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    runs: list[slice] = []
    first = held = 0
    for position, size in enumerate(sizes):
        if position > first and held + size > limit:
            runs.append(slice(first, position))
            first, held = position, 0
        held += size
    return [*runs, slice(first, len(sizes))] if sizes else []


def require_augmentable(model: Model) -> None:
    """Raise ``UsageError`` for a model with several targets or without a kernel."""
    if model.n_targets > 1:
        raise UsageError(
            "augment supports one target only: fit each target separately, with multi_output='independent' or by "
            "ingesting DATA with a single target"
        )
    if isinstance(model.design.kernel, NoKernel):
        raise UsageError("augment adds a kernel column at each row, but the model has no kernel: omit augment")


def _check_rows(model: Model, moments: Moments, *, grown: bool) -> None:
    """Raise ``DataError`` or ``ChangedDataError`` for rows that differ from the training rows of the model."""
    rows, deviation = moments.targets.n, float(moments.targets.deviation[0])
    if rows != model.n_rows and deviation:  # a model of a constant target was fitted to no rows
        raise DataError(
            f"the model was fitted to {model.n_rows:,} rows, but augment has {rows:,} rows: give all rows of the fit"
        )
    mean, expected = float(moments.targets.mean[0]), float(model.design.scaling.t_shift[0])
    if not grown and abs(mean - expected) > 1e-9 * deviation + 1e-12 * abs(expected):
        raise ChangedDataError(
            f"the mean of the target was {expected:.9g} in the fit, but is {mean:.9g} in the rows of augment: give the "
            "rows of the fit"
        )


def _max_rows(model: Model, training: Source, executor: Executor, tile_rows: int, memory_limit: int | str) -> int:
    """Return the maximum number of test rows per pass, and set the number of threads of the executor.

    The number of threads is the largest with which each thread has memory for a piece of test rows.
    """
    machine = executor.machine(None if memory_limit == "auto" else parse_bytes(memory_limit, "memory_limit"))
    shape = DataShape(training.n_rows, training.n_features, 1, training.tile_rows)
    columns, tested = model.design.n_columns, max(tile_rows, MAX_ROWS)
    budget = machine.limit - machine.base - ALLOWANCE
    least = 1 if executor.elastic else machine.threads
    for threads in range(machine.threads, least - 1, -1):
        max_rows = augment_rows(shape, columns, threads, budget, tested, MAX_ROWS)
        if max_rows:
            executor.use(threads)
            return max_rows
    need = machine.base + ALLOWANCE + augment_bytes(shape, columns, EXTRA_COLUMNS, least, tested)
    raise MemoryLimitError(
        f"augmenting {EXTRA_COLUMNS} test rows at a time with a model of {columns:,} columns needs "
        f"{format_bytes(need)} per process, including {format_bytes(machine.base)} of the process without data, but "
        f"the memory limit is {format_bytes(machine.limit)}: raise memory_limit, or predict without augment"
    )
