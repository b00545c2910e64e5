"""RVM* for large data: predictions with an extra basis function at each test row
(``core.predictive``), computed tile by tile.

The extra function uses the model's first kernel; local residuals are not used. Each piece of
``EXTRA_COLUMNS`` test rows (a tile's last piece is padded with copies, so that bits do not depend
on other rows) takes a pass over the training rows: N·n·M products for N training rows, n test rows
and M columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from partirvm.core.diagnostics import STATED_LEVELS
from partirvm.core.local_quantiles import ends_at
from partirvm.core.predictive import augmentation
from partirvm.core.scores import Scores
from partirvm.data import ZarrSource
from partirvm.data.folds import folded
from partirvm.data.source import Source, require_like
from partirvm.errors import ChangedDataError, DataError, UsageError
from partirvm.execution import Executor
from partirvm.execution.local import Progress
from partirvm.jobs.request import difference
from partirvm.jobs.store import JobStore
from partirvm.kernels import NoKernel
from partirvm.kernels.base import padded
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import GramPass
from partirvm.model import FAR, Model
from partirvm.process import one_blas_thread
from partirvm.resolve.new_problem import checked_moments
from partirvm.scaling.maps import AS_IT_IS
from partirvm.types import EXTRA_COLUMNS, Float, Int


@dataclass(frozen=True)
class Augmenting:
    """A regression model and its training rows, for predictions with ``augment``.

    Attributes:
        model: fitted model
        training: the fit's rows
        executor: executor of the passes
        variance: variance of the training rows' scaled targets
        origin: mean (d,) of the training rows' scaled inputs
    """

    model: Model
    training: Source
    executor: Executor
    variance: float
    origin: Float

    @classmethod
    def of(cls, model: Model, training: Source, executor: Executor) -> "Augmenting":
        """Check the model and the training rows. Raises ``UsageError`` for a model with several
        targets or without a kernel."""
        model.require_one_target("predictions with augment")
        if isinstance(model.design.kernel, NoKernel) or model.design.scaling.target != AS_IT_IS:
            raise UsageError(
                "augment needs a kernel, and a target without a warp (warp_target='none'): omit "
                "augment"
            )
        # only the extra column carries the prior variance
        model = replace(model.sparse(), reach=0.0)
        require_like(training, model.columns, model.n_targets)
        training = training.with_weight_unit(model.design.scaling.weight_unit)
        moments = checked_moments(training, executor, lambda: None)
        rows = moments.targets.n
        # a constant target's model is fitted to no rows
        if rows != model.n_rows and moments.targets.deviation[0]:
            raise DataError(
                f"the fit had {model.n_rows:,} rows, but augment has {rows:,} rows: pass all of "
                "them"
            )
        scaling = model.design.scaling
        variance = float((moments.targets.variance / scaling.t_scale**2)[0])
        origin = scaling.inputs(moments.inputs.mean[None])[0]
        return cls(
            model, folded(training, scaling, model.design.functions), executor, variance, origin
        )

    def pieces(self, source: Source, progress: Progress | None = None) -> Iterator["Piece"]:
        """Yield predictions for all rows of a source in tile order. ``progress`` counts the tiles
        of all passes."""
        size = source.tile_rows
        training = self.training.n_tiles
        starts = list[tuple[int, int]]()
        for number in range(source.n_tiles):
            rows = min(size, source.n_rows - number * size)
            starts += [(number, start) for start in range(0, rows, EXTRA_COLUMNS)]
        for passes, (number, start) in enumerate(starts):

            def report(done: int, of: int, passes: int = passes) -> None:
                if progress is not None:
                    progress(passes * training + done, len(starts) * training)

            tile = source.tile(number)
            piece = slice(start, start + EXTRA_COLUMNS)
            numbers = source.original_rows(number)[piece]
            yield self._predicted(numbers, tile.X[piece], tile.t[piece], report)

    def scores(self, source: Source, progress: Progress | None = None) -> Scores:
        """Return the scores of the predictions for all rows of a source."""
        curves = self.model.multiples(STATED_LEVELS)
        scores = []
        for piece in self.pieces(source, progress):
            multiples = ends_at(curves, np.sqrt(piece.variance)[:, None])
            mean = piece.records[:, 1]
            scores.append(Scores.of(piece.t[:, 0], mean, piece.variance, multiples=multiples))
        return reduce(add, scores)

    @one_blas_thread()
    def _predicted(self, rows: Int, X: Float, t: Float, report: Progress) -> "Piece":
        """Return the predictions for a piece, computed in one pass over the training rows.

        Args:
            rows: row numbers before shuffling (n,)
            X: inputs (n, d)
            t: targets (n, T)
            report: function called with the number of training tiles done and the total
        """
        model = self.model
        design = model.design
        scaling = design.scaling
        square = float((scaling.t_scale**2)[0])
        kernel = design.kernels[0]
        beta = square / float(model.evidence_noise)
        points = padded(X, EXTRA_COLUMNS)
        # with an origin among the training rows, a distant test row cannot reduce the precision of
        # the others
        new = Design(
            kernel, scaling, points, np.arange(len(points)), bias=False, origin=self.origin
        )
        (extra,) = self.executor.run(
            [GramPass(design, new, model.mean[:, None], diagonal=True)], self.training, report
        )
        mean, spread, near = model.predictive.moments(X)
        added, beyond = augmentation(
            extra,
            design.block(X),
            kernel.diagonal(scaling.inputs(X)),
            model.root,
            beta,
            self.variance,
        )
        variance = spread + square * beyond
        return Piece(
            np.column_stack(
                [rows, mean + float(scaling.t_scale[0]) * added, np.sqrt(variance), near < FAR]
            ),
            t,
            variance,
        )


class Piece(NamedTuple):
    """Predictions for n rows.

    Attributes:
        records: row number before shuffling, mean of a new target, its standard deviation, and 1
            for rows far from all vectors, (n, 4)
        t: targets (n, T)
        variance: variance (n,) of a new target
    """

    records: Float
    t: Float
    variance: Float


def augmenting_of(store: JobStore, model: Any, data: str, executor: Executor) -> "Augmenting":
    """Return an ``Augmenting`` for a job's model and its DATA. Raises ``ChangedDataError`` if the
    DATA differ.

    Args:
        store: job
        model: the job's model, of any kind
        data: path or URL of the DATA to which the model was fitted
        executor: executor of the passes
    """
    if not model.augmentable:
        raise UsageError(
            f"{store.location} holds a classifier, but augment supports regression only: omit "
            "augment"
        )
    training = ZarrSource(data)
    state = store.folded()
    if what := difference(training, state.request["fingerprint"]):
        raise ChangedDataError(
            f"{data} is not the dataset that {store.location} was fitted to ({what}): pass "
            f"{state.request['data']}"
        )
    return Augmenting.of(model, training, executor)
