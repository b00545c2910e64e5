"""Boosted trees beside a finished fit, and their share in its predictions (``core.stacking``).

Trees that learn without each of five folds predict the left-out rows of this fold, one fold after
another. With ``basis="auto"``, the work ends as soon as a clear gain has become unlikely, for most
fits after the first fold. The trees of all rows predict new rows.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.core.held_back import TREE_FOLDS, sampled_rows, tree_folds
from partirvm.core.stacking import FEWEST, LeftOutLogits, LeftOutNumbers, Mixture
from partirvm.data.folds import unfolded_source
from partirvm.fit.comparison import ComparedRows, left_out_predictors
from partirvm.fit.residual_rows import ResidualReader
from partirvm.kernels.trees import BoostedTrees
from partirvm.learning.boosting import (
    LEAST_ROWS,
    Forests,
    TaughtRows,
    boosting_of,
    tree_options,
)
from partirvm.learning.sample import gathered
from partirvm.local.tree_share import TreeShare
from partirvm.process import one_blas_thread
from partirvm.strategies.instructions import FitTrees, TreesFitted
from partirvm.types import Float, Int

AUTO = "auto"
"""Value of ``Options.trees`` with which the trees must be a clear gain."""

CLASS_ROWS = 5000
"""Maximum number of left-out rows that judge the trees of classes."""


@dataclass(frozen=True)
class JudgedRows:
    """Left-out rows for which trees without their fold predict.

    Attributes:
        X: raw inputs (m, d)
        weights: row weights (m,)
        folds: the fold of each row (m,)
        predictions: what the trees predict (m, C); NaN before
    """

    X: Float
    weights: Float
    folds: Int
    predictions: Float

    @classmethod
    def of(
        cls, left_out: LeftOutNumbers | LeftOutLogits, outputs: int, reader: ResidualReader
    ) -> "JudgedRows":
        """Read the inputs of left-out rows.

        Args:
            left_out: the rows
            outputs: number C of outputs of the trees
            reader: reads rows
        """
        unfolded = replace(reader, source=unfolded_source(reader.source))
        increasing, places = np.unique(left_out.rows, return_inverse=True)
        tile = unfolded.tile(increasing)
        groups = None if tile.groups is None else tile.groups[places]
        weights = np.ones(len(places)) if tile.weights is None else tile.weights[places]
        folds = tree_folds(left_out.rows, groups)
        predictions = np.full((len(places), outputs), np.nan)
        return cls(tile.X[places], weights, folds, predictions)

    def predict(self, fold: int, trees: BoostedTrees) -> None:
        """Predict the rows of a fold by trees that learned without it."""
        rows = self.folds == fold
        self.predictions[rows] = trees(self.X[rows])

    @property
    def predicted(self) -> Int:
        """Positions of the rows that trees have predicted."""
        return np.flatnonzero(~np.isnan(self.predictions[:, 0]))


def fit_trees(request: FitTrees, reader: ResidualReader) -> TreesFitted:
    """Learn boosted trees beside a fit, and their share in its predictions.

    Args:
        request: the fit and left-out rows
        reader: reads rows
    """
    options = request.options
    problem = request.problem
    source = unfolded_source(reader.source)
    n_rows = min(source.n_rows, options.tree_rows)
    if n_rows < LEAST_ROWS or not problem.target_variance:
        return without_trees(f"boosted trees need {LEAST_ROWS} rows, and a target that varies")
    sets = request.numbers or (left_out_logits(request, reader),)
    if len(sets[0].rows) < FEWEST:
        return without_trees(f"{FEWEST} left-out rows must judge boosted trees")
    rows = sampled_rows(source.n_rows, None, n_rows, shuffled=problem.shuffled)
    judged = [JudgedRows.of(left_out, _outputs(request), reader) for left_out in sets]
    with gathered(source, rows, reader.executor, reader.progress, reader.spent) as sample:
        taught = TaughtRows.of(sample, problem, source.columns)
    forests = Forests(
        taught,
        boosting_of(problem.n_classes),
        tree_options(taught, options.tree_rounds, options.seed),
        lambda: reader.progress((), 0, 0),
    )
    left_out = replace(sets[0], weights=judged[0].weights)
    mixture = judged_mixture(request, forests, left_out, judged)
    if mixture is None:
        return without_trees("they would not clearly lower the loss of left-out rows")
    trees = forests.forest(np.ones(len(taught.X), dtype=np.bool_))
    assert trees is not None
    mixed = left_out.mixed(judged[0].predictions, mixture.share)
    facts = {
        "share": mixture.mean_share,
        "gain": mixture.gain,
        "judged_rows": len(left_out.rows),
        "rows": len(taught.X),
        "rounds": forests.rounds,
        "reason": "",
    }
    return TreesFitted(
        TreeShare(trees, mixture.share, mixed.spreads()),
        tuple(rows_of_set.predictions for rows_of_set in judged),
        mixed if isinstance(mixed, LeftOutLogits) else None,
        facts,
    )


def judged_mixture(
    request: FitTrees,
    forests: Forests,
    left_out: LeftOutNumbers | LeftOutLogits,
    judged: list[JudgedRows],
) -> Mixture | None:
    """Predict left-out rows by trees without their folds, and return the best mixture; None if the
    trees get no share.

    Args:
        request: the fit
        forests: learns the trees
        left_out: the rows that judge
        judged: these rows and others that are predicted
    """
    is_auto = request.options.trees == AUTO
    for fold in range(TREE_FOLDS):
        if not any((rows.folds == fold).any() for rows in judged):
            continue
        trees = forests.forest(forests.rows.folds != fold)
        if trees is None:
            return None
        for rows in judged:
            rows.predict(fold, trees)
        known = judged[0].predicted
        mixture = left_out.take(known).mixture(judged[0].predictions[known])
        if is_auto and not mixture.may_pay:
            return None
    return mixture if mixture.mean_share > 0.0 and (mixture.pays or not is_auto) else None


def without_trees(reason: str) -> TreesFitted:
    """Return the answer for a fit without trees."""
    return TreesFitted(facts={"share": 0.0, "reason": f"no boosted trees: {reason}"})


def left_out_logits(request: FitTrees, reader: ResidualReader) -> LeftOutLogits:
    """Return the logits of a classification for rows that are left out in folds."""
    problem = request.problem
    source = reader.source
    most = min(source.n_rows, CLASS_ROWS)
    rows = ComparedRows.of(source, reader.executor, most, request.options.seed)
    rows = replace(rows, new=np.ones(len(rows.t), dtype=np.bool_))
    model: Any = problem.likelihood.model(
        request.design, request.fit, source.columns, request.options.moderate
    )
    beta = float(getattr(request.fit, "beta", 1.0))
    with one_blas_thread():
        predictors = left_out_predictors(model, beta, rows)
    return LeftOutLogits(
        rows=rows.numbers,
        codes=rows.y.astype(np.int64),
        logits=model.logits_of(predictors),
        weights=np.ones(len(rows.numbers)),
        link=model.likelihood,
        groups=rows.groups,
    )


def _outputs(request: FitTrees) -> int:
    """Return the number of outputs of the trees."""
    problem = request.problem
    if problem.n_classes:
        return 1 if problem.n_classes == 2 else problem.n_classes
    return problem.n_targets
