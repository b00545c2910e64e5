"""Leave groups of rows out of a classification: the instruction ``LeaveClassGroupsOut``.

The columns of a fit are chosen with all groups: a few vectors can be chosen so that they agree with
the effects of the groups, and then each group seems to be predicted from the others
(``core.left_out_process``). So folds of whole groups are left out of refits, with the fit's kernel
and new α, whose candidates are vectors of the fit and random rows. Each refit also leaves out a
fold of rows of the other groups, which stand in for further rows of known groups. With more rows
than the refits have, their columns are few compared with the rows of the fit, and its own left-out
rows (``fit.comparison``) stand in instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, cast

import numpy as np

from partirvm.core.class_groups import (
    ClassGroups,
    LeftOutLogits,
    class_groups,
    fitted_class_effects,
)
from partirvm.core.groups import GroupedRows
from partirvm.core.held_back import group_folds
from partirvm.core.sampling import Purpose, draw_key, uniform
from partirvm.data.source import Source, Tile
from partirvm.execution import Executor
from partirvm.fit.comparison import ComparedRows, left_out_predictors
from partirvm.fit.leave_groups_out import without_own_levels
from partirvm.learning.basic_fit import basic_fit
from partirvm.learning.sample import OnProgress, SampledRows, gathered
from partirvm.model.classifier import ClassModel
from partirvm.process import one_blas_thread
from partirvm.spec.entries import Spent
from partirvm.spec.problem import survivors
from partirvm.strategies.instructions import LeaveClassGroupsOut
from partirvm.types import Columns, Float, Int

FOLDS = 5
"""Number of refits."""

REFIT_ROWS = 2000
"""Approximate number of rows of the refits."""

ROWS_OF_GROUP = 10
"""Minimum number of rows of a group in the refits, if there are as many: with more groups than
``REFIT_ROWS`` allows, random groups are left out."""

MOST_VECTORS = 150
"""Maximum number of the fit's vectors that are candidates of a refit."""

LEAST_CANDIDATES = 50
"""Minimum number of random candidates of a refit; otherwise, as many as vectors."""

EFFECT_VALUES = 100_000
"""Maximum number of logits from which effects of known groups are estimated."""


def leave_class_groups_out(
    request: LeaveClassGroupsOut,
    source: Source,
    executor: Executor,
    on_progress: OnProgress,
    spent: Spent,
) -> ClassGroups:
    """Return what a classification says of rows of new and of known groups.

    Args:
        request: the fit and the groups
        source: its rows
        executor: reads the rows
        on_progress: called before and while tiles are read, and between steps of the refits
        spent: accumulates the reading time in seconds
    """
    vectors = np.unique(request.design.rows)
    draws = uniform(vectors, draw_key(0, Purpose.LEFT_OUT_ROWS))
    vectors = np.sort(vectors[np.argsort(draws)[:MOST_VECTORS]])
    rows = np.union1d(refit_rows(request.groups), vectors)
    with gathered(source, rows, executor, on_progress, spent) as sample:
        refits = Refits.of(request, sample, source.columns, vectors)
        by_groups, by_rows = map(sum_of, zip(*map(refits.left_out, range(FOLDS)), strict=True))
    if len(request.groups.rows) > REFIT_ROWS:
        model = refits.model(request.design, request.fit)
        known = thinned(request.groups.rows, EFFECT_VALUES // model.mean.shape[1])
        with gathered(source, known, executor, on_progress, spent) as sample:
            tile = sample.rows.gather(known)
        by_rows = logits_without_rows(request, model, tile, known)
    return class_groups(request.groups.known, by_groups, fitted_class_effects(by_rows))


def sum_of(parts: Sequence[LeftOutLogits | None]) -> LeftOutLogits:
    """Return the rows of all parts."""
    return reduce(add, (part for part in parts if part is not None))


def refit_rows(groups: GroupedRows) -> Int:
    """Return the numbers of the rows of refits, in increasing order: those of all groups or, if
    there are many groups, of random ones."""
    codes, counts = np.unique(groups.codes, return_counts=True)
    most_groups = int(REFIT_ROWS / min(float(np.mean(counts)), ROWS_OF_GROUP))
    if len(codes) > most_groups:
        draws = uniform(codes, draw_key(2, Purpose.LEFT_OUT_ROWS))
        codes = codes[np.argsort(draws)[:most_groups]]
    return thinned(groups.rows[np.isin(groups.codes, codes)], REFIT_ROWS)


def thinned(rows: Int, most: int) -> Int:
    """Return at most this number of the rows (n,), evenly spread."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(np.int64))]


@dataclass(frozen=True)
class Refits:
    """Refits of a classification without some groups and rows.

    Attributes:
        request: the fit and the groups
        sample: the rows
        tile: the rows (n,)
        new: the rows as those of a new group, without levels that belong to one group
        group_folds: refit of which the row's group is left out, −1 for rows of weight 0 (n,)
        row_folds: refit of which the row is left out, another one (n,)
        columns: names of the columns
        vectors: numbers of rows whose columns are candidates (m,)
    """

    request: LeaveClassGroupsOut
    sample: SampledRows
    tile: Tile
    new: Tile
    group_folds: Int
    row_folds: Int
    columns: Columns
    vectors: Int

    @classmethod
    def of(
        cls, request: LeaveClassGroupsOut, sample: SampledRows, columns: Columns, vectors: Int
    ) -> "Refits":
        """Return the refits to a sample.

        Args:
            request: the fit and the groups
            sample: the rows
            columns: names of the columns
            vectors: numbers of rows whose columns are candidates (m,)
        """
        numbers = sample.rows.rows
        tile = sample.rows.gather(numbers)
        assert tile.groups is not None
        embedded = request.design.scaling.embedded
        new = replace(tile, X=without_own_levels(tile.X, tile.groups, embedded))
        present = np.flatnonzero(tile.root_weights > 0)
        of_groups = np.full(len(numbers), -1)
        for number, fold in enumerate(group_folds(tile.groups[present], FOLDS)):
            of_groups[present[fold]] = number
        draws = uniform(numbers, draw_key(4, Purpose.LEFT_OUT_ROWS))
        of_rows = (of_groups + 1 + np.floor((FOLDS - 1) * draws).astype(np.int64)) % FOLDS
        of_rows[of_groups < 0] = -1
        return cls(request, sample, tile, new, of_groups, of_rows, columns, vectors)

    def left_out(self, number: int) -> tuple[LeftOutLogits | None, LeftOutLogits | None]:
        """Return the logits at the rows of left-out groups, and at left-out rows of other groups,
        from a refit to the others."""
        request = self.request
        of_new = np.flatnonzero(self.group_folds == number)
        of_known = np.flatnonzero(self.row_folds == number)
        known = np.delete(self.sample.rows.rows, np.concatenate([of_new, of_known]))
        sample = self.sample.only(known)
        problem = request.problem.of_rows(known)
        design = sample.candidates(problem, self._candidates(known))
        fit = basic_fit(sample, problem, design, request.options).fit
        if problem.likelihood.has_ramp:
            fit = replace(fit, ramp=request.fit.ramp)
        model = self.model(survivors(design, fit), fit)
        return logits_at(model, self.new.take(of_new, 0)), logits_at(
            model, self.tile.take(of_known, 0)
        )

    def _candidates(self, known: Int) -> Int:
        """Return the numbers of the candidates of a refit to rows (n,), in increasing order."""
        vectors = np.intersect1d(self.vectors, known)
        if not len(self.vectors):
            return vectors
        others = np.setdiff1d(known, vectors)
        draws = uniform(others, draw_key(3, Purpose.LEFT_OUT_ROWS))
        count = max(len(vectors), LEAST_CANDIDATES)
        return np.union1d(vectors, others[np.argsort(draws)[:count]])

    def model(self, design: Any, fit: Any) -> ClassModel:
        """Return the model of a fit."""
        likelihood = self.request.problem.likelihood
        model = likelihood.model(design, fit, self.columns, self.request.options.moderate)
        return cast(ClassModel, model)


def logits_at(model: ClassModel, tile: Tile) -> LeftOutLogits | None:
    """Return the logits of a model at rows that it has not seen; None without rows, as in a refit
    for which no group is left."""
    if not len(tile.X):
        return None
    logits, _ = model.logits(tile.X)
    return left_out_logits(model, logits, tile)


def logits_without_rows(
    request: LeaveClassGroupsOut, model: ClassModel, tile: Tile, numbers: Int
) -> LeftOutLogits:
    """Return the logits at rows of positive weight that are left out by folds of rows, which leave
    rows of their groups in the fit.

    Args:
        request: the fit
        model: its model
        tile: the rows
        numbers: their numbers (n,)
    """
    present = tile.root_weights > 0
    numbers = numbers[present]
    tile = tile.take(np.flatnonzero(present), 0)
    is_new = np.ones(len(numbers), dtype=np.bool_)
    rows = ComparedRows(tile.X, tile.t, tile.weights, numbers, is_new)
    with one_blas_thread():
        f = left_out_predictors(model, float(getattr(request.fit, "beta", 1.0)), rows)
    return left_out_logits(model, model.logits_of(f), tile)


def left_out_logits(model: ClassModel, logits: Float, tile: Tile) -> LeftOutLogits:
    """Return logits (n, C) of a model at rows with what is known of these rows."""
    assert tile.groups is not None
    variances = model.level_variances(tile.X)
    return LeftOutLogits(
        logits,
        tile.t[:, 0],
        tile.root_weights**2,
        tile.groups,
        np.zeros((len(logits), 1)) if variances is None else variances,
    )
