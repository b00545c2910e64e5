"""RVM* at scale: predictions with an extra basis function at each test row (``core.augment``), tile by tile.

What an extra column has to do with the training rows takes a pass over these. A pass serves as many test rows as memory
allows, of a large tile or of several small ones; in all N·n·M products for N training rows, n test rows and M columns.
Test rows go through in pieces of ``EXTRA_COLUMNS`` that end with their tile, so that no bit depends on what else is in
a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.backends import Executor, executor_for
from partirvm.backends.base import Progress
from partirvm.backends.threads import one_blas_thread
from partirvm.core.augment import ExtraColumns
from partirvm.core.moments import Moments
from partirvm.core.reduction import TreeSum
from partirvm.core.residuals import Scores
from partirvm.data import ZarrSource, require_target
from partirvm.data.source import Source, Tile
from partirvm.errors import ChangedDataError, DataError, MemoryLimitError, UsageError
from partirvm.jobs.places import changes, current_request, difference, latest
from partirvm.jobs.store import JobStore
from partirvm.kernels import NoKernel
from partirvm.kernels.base import padded
from partirvm.likelihoods.gaussian_passes import AugmentPass
from partirvm.model import FAR, AnyModel, Model
from partirvm.model.augmented import augmented_moments, extra_design
from partirvm.planning.memory import ALLOWANCE, DataShape, augment_bytes, augment_rows
from partirvm.planning.units import format_bytes, parse_bytes
from partirvm.setup.refusals import checked_moments
from partirvm.types import EXTRA_COLUMNS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

PIECE_COLUMNS = EXTRA_COLUMNS // 2
"""A piece has so many columns, or twice as many, whatever rows it has: a row has its bits beside any others."""

MOST_ROWS = 8 * EXTRA_COLUMNS
"""Most test rows of a pass: with more, each takes hardly less time."""


def training_source(store: JobStore, data: str) -> ZarrSource:
    """The DATA of a job's fit. Raises ``ChangedDataError`` for any others, wherever they lie."""
    source, spec = ZarrSource(data), store.spec()
    what = difference(source, latest(store.events(), spec["fingerprint"]))
    if what is not None:
        raise ChangedDataError(
            f"{data}: these are not the DATA that {store.location} was fitted to ({what}): augment with "
            f"{spec['data']}, or with a copy of it"
        )
    return source


@dataclass(frozen=True)
class Augmented:
    """A tile of test rows: ``rows`` (n,) are their numbers before shuffling; mean and variance of a new noisy target.

    All (n,), in the target's units, the variance in the square of ``unit``; ``near`` is the nearness of
    ``Model.moments``.
    """

    tile: Tile
    rows: Int
    mean: Float
    variance: Float
    near: Float
    unit: float

    @property
    def records(self) -> Float:
        """An array (n, 4): number before shuffling, mean, standard deviation, whether the row is far away."""
        return np.column_stack([self.rows, self.mean, np.sqrt(self.variance) * self.unit, self.near < FAR])


@dataclass(frozen=True)
class Augmenting:
    """A model and the rows that trained it, ready to predict others.

    ``variance`` is that of the targets as the model sees them, ``origin`` (d,) the training rows' mean in the kernel's
    coordinates, ``most`` how many test rows a pass may serve.
    """

    model: Model
    training: Source
    executor: Executor
    variance: float
    origin: Float
    most: int

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
        """Check that the rows may be those that trained the model, and see how many test rows a pass may serve.

        Their features have been checked before. ``tile_rows`` are those of a tile of test rows; ``memory_limit``
        bounds each process, as in a fit. Of a model that has ``grown`` the scaling is that of its first rows.

        Raises ``UsageError`` for a model of several targets or without a kernel, ``DataError`` for other rows than the
        model's, ``MemoryLimitError`` if not even one piece can be served.
        """
        require_augmentable(model)
        require_target(training)
        moments = checked_moments(training, executor, lambda: None)
        _check_rows(model, moments, grown=grown)
        scaling = model.design.scaling
        variance = float(moments.targets.variance_over(scaling.t_scale)[0])
        most = _most_rows(model, training, executor, tile_rows, memory_limit)
        return cls(model, training, executor, variance, scaling.inputs(moments.inputs.mean), most)

    def tiles(self, source: Source, numbers: Sequence[int], progress: Progress | None = None) -> Iterator[Augmented]:
        """Predict these tiles of a source, in order; ``progress`` hears of tiles of the training rows, of all passes.

        Test tiles are read where tiles are read; what is left to do once the passes are made is done here.
        """
        rows = {number: min(source.tile_rows, source.n_rows - number * source.tile_rows) for number in numbers}
        runs = [numbers[some] for some in together(list(rows.values()), self.most)]
        passes = [together([width(len(piece)) for n in run for piece in pieces(rows[n])], self.most) for run in runs]
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
        """Mean, variance and nearness of each piece of test rows, by one pass over the training rows."""

        def report(done: int, of: int) -> None:
            if progress is not None:
                progress(before + done, total)

        design = self.model.design
        with one_blas_thread():
            extras = tuple(extra_design(self.model, padded(X, PIECE_COLUMNS), self.origin) for X in inputs)
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
    """Mean and standard deviation of each row of a source, (n,), in the order before shuffling, with an extra column.

    Raises as ``Augmenting.of`` does.
    """
    with closing(executor_for(client)) as executor:
        augmenting = Augmenting.of(model, training, executor, source.tile_rows, memory_limit, grown=grown)
        found = np.concatenate([predicted.records for predicted in augmenting.tiles(source, range(source.n_tiles))])
    _, mean, std, _ = found[np.argsort(found[:, 0])].T
    return mean, std


def augmenting_of(
    store: JobStore, model: AnyModel, training: ZarrSource, executor: Executor, source: Source
) -> Augmenting:
    """A job's model and its DATA, to predict a source under the memory limit of the job.

    Raises ``UsageError`` for a model of classes, and as ``Augmenting.of`` does.
    """
    if not isinstance(model, Model):
        raise UsageError(f"{store.location}: augment is for regression, but this is a model of classes: leave it out")
    events = store.events()
    limit = current_request(store.spec(), changes(events)).memory_limit
    grown = any("fingerprint" in event for event in events)
    return Augmenting.of(model, training, executor, source.tile_rows, limit, grown=grown)


def augmented_scores(augmenting: Augmenting, source: Source, progress: Progress | None = None) -> Scores:
    """Scores of augmented predictions on all rows of a source."""
    total: TreeSum[Scores] = TreeSum(source.n_tiles)
    for predicted in augmenting.tiles(source, range(source.n_tiles), progress):
        scores = Scores.of(predicted.tile.t[:, 0], predicted.mean, predicted.variance, predicted.unit)
        total.add(predicted.tile.number, scores)
    return total.result()


def read_tile(source: Source, number: int) -> tuple[Tile, Int]:
    """A tile, and the numbers of its rows before shuffling."""
    tile = source.tile(number)
    return tile, original_rows(source, tile)


def original_rows(source: Source, tile: Tile) -> Int:
    """Numbers of a tile's rows before shuffling, (rows,)."""
    if isinstance(source, ZarrSource):
        return source.original_rows(tile.number)
    return tile.start + np.arange(len(tile.X))


def pieces(rows: int) -> list[range]:
    """Cut the rows of a tile into pieces.

    >>> pieces(600)
    [range(0, 240), range(240, 480), range(480, 600)]
    """
    return [range(start, min(start + EXTRA_COLUMNS, rows)) for start in range(0, rows, EXTRA_COLUMNS)]


def width(rows: int) -> int:
    """Columns of a piece of so many rows.

    >>> width(1), width(120), width(121)
    (120, 120, 240)
    """
    return rows + -rows % PIECE_COLUMNS


def together(sizes: Sequence[int], most: int) -> list[slice]:
    """Cut things of these sizes into runs that are no larger than ``most`` together, or of one thing.

    >>> together([3, 1, 2, 9, 1], 4)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    runs: list[slice] = []
    first = held = 0
    for position, size in enumerate(sizes):
        if position > first and held + size > most:
            runs.append(slice(first, position))
            first, held = position, 0
        held += size
    return [*runs, slice(first, len(sizes))] if sizes else []


def require_augmentable(model: Model) -> None:
    """Refuse a model to which no basis function of a kernel can be added. Raises ``UsageError``."""
    if model.n_targets > 1:
        raise UsageError(
            "augment is for one target: give each a fit of its own, with multi_output='independent', or of DATA by "
            "ingesting it by itself"
        )
    if isinstance(model.design.kernel, NoKernel):
        raise UsageError("augment adds a kernel's basis function at each row, and the model has no kernel: drop it")


def _check_rows(model: Model, moments: Moments, *, grown: bool) -> None:
    """Refuse rows that cannot be those that trained the model. Raises ``DataError``."""
    rows, deviation = moments.targets.n, float(moments.targets.deviation[0])
    if rows != model.n_rows and deviation:  # a constant target is not fitted to any
        raise DataError(
            f"the model was fitted to {model.n_rows:,} rows, but {rows:,} are given to augment it: give all rows "
            "of the fit (its last_rows must be 'full')"
        )
    mean, wanted = float(moments.targets.mean[0]), float(model.design.scaling.t_shift[0])
    if not grown and abs(mean - wanted) > 1e-9 * deviation + 1e-12 * abs(wanted):
        raise ChangedDataError(
            f"the mean of the target was {wanted:.9g} in the fit, but is {mean:.9g} in the rows given to augment the "
            "model: give the rows of the fit"
        )


def _most_rows(model: Model, training: Source, executor: Executor, tile_rows: int, memory_limit: int | str) -> int:
    """Test rows of a pass, with as many threads as have room for a piece each; takes these threads."""
    machine = executor.machine(None if memory_limit == "auto" else parse_bytes(memory_limit, "memory_limit"))
    shape = DataShape(training.n_rows, training.n_features, 1, training.tile_rows)
    columns, tested = model.design.n_columns, max(tile_rows, MOST_ROWS)
    budget = machine.limit - machine.base - ALLOWANCE
    least = 1 if executor.elastic else machine.threads
    for threads in range(machine.threads, least - 1, -1):
        most = augment_rows(shape, columns, threads, budget, tested, MOST_ROWS)
        if most:
            executor.use(threads)
            return most
    need = machine.base + ALLOWANCE + augment_bytes(shape, columns, EXTRA_COLUMNS, least, tested)
    raise MemoryLimitError(
        f"augmenting {EXTRA_COLUMNS} test rows at a time with a model of {columns:,} columns needs "
        f"{format_bytes(need)} per process ({format_bytes(machine.base)} of it the process itself), the memory limit "
        f"is {format_bytes(machine.limit)}: raise memory_limit, or predict without augment"
    )
