"""Boosted trees beside a finished fit, and their share in its predictions (``core.stacking``).

Trees that learn without each of five folds predict the rows of this fold. So does a refit without
the fold, at the learned kernel. The left-out errors of the fit itself are too small for a
comparison, since its α and vectors were chosen with all rows (a power plant, 2,000 rows: .233 by
leaving rows out, .252 by refits and by fits without the folds). Those of refits are too large, as
they lack a fifth of the rows, of which kernels gain more than trees (airfoil noise: the share by
refits alone raises the error of new rows from .180 to .188). A weighted mean of both judges.

With ``basis="auto"``, the work ends as soon as a clear gain has become unlikely, for most fits
after a few trees of the first fold. The trees of all rows predict new rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partirvm.core.held_back import sampled_rows, tree_folds
from partirvm.core.sampling import Purpose, draw_key, uniform
from partirvm.core.stacking import FEWEST, LEAST_SHARE, LeftOutClassLogits, LeftOutNumbers, Mixture
from partirvm.data.folds import unfolded_source
from partirvm.data.source import Tile
from partirvm.fit.comparison import ComparedRows, left_out_predictors
from partirvm.fit.left_out_refits import leave_one_out, residuals_of_rows
from partirvm.fit.residual_rows import ResidualReader
from partirvm.kernels.design import Design
from partirvm.kernels.trees import BoostedTrees
from partirvm.learning.basic_fit import basic_fit
from partirvm.learning.boosting import (
    LEAST_ROWS,
    Forests,
    TaughtRows,
    boosting_of,
    tree_options,
)
from partirvm.learning.sample import SampledRows, gathered
from partirvm.local.tree_share import ShareOfKnown, TreeShare
from partirvm.process import one_blas_thread
from partirvm.spec.problem import survivors
from partirvm.strategies.instructions import FitTrees, TreesFitted
from partirvm.types import Bool, Float, Int

AUTO = "auto"
"""Value of ``Options.trees`` with which the trees must be a clear gain."""

CLASS_ROWS = 5000
"""Maximum number of left-out rows that judge the trees of classes."""

REFIT_ROWS = 10_000
"""Maximum number of rows of a fit that is refitted: α and vectors chosen from more rows hardly
depend on those of a fold."""

LEAST_CANDIDATES = 100
"""Minimum number of candidates of a refit beside the vectors of the fit."""


@dataclass(frozen=True)
class JudgedRows:
    """Left-out rows that are predicted without their folds.

    Attributes:
        X: raw inputs (m, d)
        weights: row weights (m,)
        folds: the fold of each row (m,)
        by_trees: what trees predict (m, C); NaN before
        by_refits: what refits predict (m, C), in the model's units or as logits; NaN without refits
    """

    X: Float
    weights: Float
    folds: Int
    by_trees: Float
    by_refits: Float

    @classmethod
    def of(
        cls, left_out: LeftOutNumbers | LeftOutClassLogits, reader: ResidualReader
    ) -> "JudgedRows":
        """Read the inputs of left-out rows.

        Args:
            left_out: the rows
            reader: reads rows
        """
        unfolded = replace(reader, source=unfolded_source(reader.source))
        increasing, places = np.unique(left_out.rows, return_inverse=True)
        tile = unfolded.tile(increasing)
        groups = None if tile.groups is None else tile.groups[places]
        weights = np.ones(len(places)) if tile.weights is None else tile.weights[places]
        folds = tree_folds(left_out.rows, groups)
        by_trees, by_refits = np.full((2, len(places), left_out.outputs), np.nan)
        return cls(tile.X[places], weights, folds, by_trees, by_refits)

    def predict(self, fold: int, trees: BoostedTrees) -> None:
        """Predict the rows of a fold by trees that have not learned from it."""
        of_fold = self.folds == fold
        self.by_trees[of_fold] = trees(self.X[of_fold])

    @property
    def predicted(self) -> Int:
        """Positions of the rows that trees have predicted."""
        return np.flatnonzero(~np.isnan(self.by_trees[:, 0]))


@dataclass(frozen=True)
class FoldRefits:
    """Refits of a fit without one of the folds.

    Attributes:
        request: the fit
        reader: reads its rows
        sample: all rows
        folds: the fold of each row (n,)
    """

    request: FitTrees
    reader: ResidualReader
    sample: SampledRows
    folds: Int

    def predict(self, fold: int, judged: JudgedRows, rows: Int) -> None:
        """Predict the judged rows of a fold by a refit without it.

        Args:
            fold: number of the fold
            judged: the judged rows
            rows: their row numbers (m,)
        """
        places = np.flatnonzero(judged.folds == fold)
        model = self._model(np.flatnonzero(self.folds != fold))
        increasing, order = np.unique(rows[places], return_inverse=True)
        X = self.sample.rows.gather(increasing).X[order]
        judged.by_refits[places] = model.stacked_values(X)

    def _model(self, known: Int) -> Any:
        """Return the model of a refit to rows with these increasing numbers (n,)."""
        request = self.request
        sample = self.sample.only(known)
        problem = request.problem.of_rows(known)
        design = sample.candidates(problem, self._candidates(known))
        fit: Any = basic_fit(sample, problem, design, request.options).fit
        design = survivors(design, fit)
        likelihood = problem.likelihood
        if likelihood.has_ramp:
            fit = replace(fit, ramp=request.fit.ramp)
        moderate = request.options.moderate
        model: Any = likelihood.model(design, fit, self.reader.source.columns, moderate)
        if request.residuals is None:
            return model
        tile = sample.rows.gather(known)
        errors = left_out_errors(design, fit, tile)
        local = residuals_of_rows(request.residuals, request.design, tile, known, errors)
        return replace(model, residuals=local)

    def _candidates(self, known: Int) -> Int:
        """Return the numbers of the candidates of a refit to rows (n,): the vectors of the fit, and
        as many other rows as there is memory for."""
        vectors = np.intersect1d(self.request.design.rows, known)
        others = np.setdiff1d(known, vectors)
        draws = uniform(others, draw_key(3, Purpose.LEFT_OUT_ROWS))
        count = max(len(vectors), LEAST_CANDIDATES)
        most = self.request.options.max_columns
        if most is not None:
            count = max(min(count, most - self.request.design.n_columns), 0)
        return np.union1d(vectors, others[np.argsort(draws)[:count]])


def left_out_errors(design: Design, fit: Any, tile: Tile) -> Float:
    """Return the leave-one-out errors (n, T) of the rows of a fit, in the model's units."""
    block = design.block(tile.X)
    weights = np.ones(len(tile.X)) * tile.root_weights**2
    targets = design.scaling.targets(tile.t)
    current = fit.posterior
    betas = np.atleast_1d(fit.beta).tolist()
    errors = [
        leave_one_out(block @ target.root(), t - block @ target.mean, beta * weights)
        for target, t, beta in zip(current.targets or (current,), targets.T, betas, strict=True)
    ]
    return np.column_stack(errors)


def fit_trees(request: FitTrees, reader: ResidualReader) -> TreesFitted:
    """Learn boosted trees beside a fit, and their share in its predictions.

    Args:
        request: the fit and left-out rows
        reader: reads rows
    """
    n_rows = min(reader.source.n_rows, request.options.tree_rows)
    if n_rows < LEAST_ROWS or not request.problem.target_variance:
        return TreesFitted.without(f"they need {LEAST_ROWS} rows, and a target that varies")
    sets = request.numbers or (left_out_logits(request, reader),)
    if len(sets[0].rows) < FEWEST:
        return TreesFitted.without(f"{FEWEST} left-out rows must judge them")
    forests = forests_of(request, reader, n_rows)
    judged = [JudgedRows.of(left_out, reader) for left_out in sets]
    mixture = judged_mixture(request, reader, forests, sets[0], judged)
    if mixture is None:
        return TreesFitted.without("they would not clearly lower the loss of left-out rows")
    trees = forests.forest(np.ones(len(forests.rows.X), dtype=np.bool_))
    assert trees is not None
    by_trees = tuple(rows.by_trees for rows in judged)
    judging = sets[0].judging(judged[0].by_refits, judged[0].weights)
    spreads = sets[0].mixed(by_trees[0], mixture.share).spreads()
    calibration = getattr(request.fit, "calibration", None)
    known = known_share(request, by_trees)
    return TreesFitted(
        TreeShare(trees, mixture.share, spreads, calibration, known),
        by_trees,
        judging.mixed(by_trees[0], mixture.share).scored_classes(),
        facts_of(mixture, len(sets[0].rows), forests),
    )


def known_share(request: FitTrees, by_trees: tuple[Float, ...]) -> ShareOfKnown | None:
    """Return the share for rows of known groups, or None without groups.

    Args:
        request: the fit and left-out rows
        by_trees: what trees predict for them
    """
    if len(request.numbers) < 2:
        return None
    fit: Any = request.fit
    of_rows = request.numbers[1]
    share = of_rows.mixture(by_trees[1]).share
    return ShareOfKnown(share, of_rows.mixed(by_trees[1], share).spreads(), fit.of_known_groups)


def forests_of(request: FitTrees, reader: ResidualReader, n_rows: int) -> Forests:
    """Return what learns the trees beside a fit from at most ``n_rows`` rows."""
    problem = request.problem
    options = request.options
    source = unfolded_source(reader.source)
    rows = sampled_rows(source.n_rows, None, n_rows, shuffled=problem.shuffled)
    with gathered(source, rows, reader.executor, reader.progress, reader.spent) as sample:
        taught = TaughtRows.of(sample, problem, source.columns)
    return Forests(
        taught,
        boosting_of(problem.n_classes),
        tree_options(taught, options.tree_rounds, options.seed),
        lambda: reader.progress((), 0, 0),
    )


def facts_of(mixture: Mixture, n_judged: int, forests: Forests) -> dict[str, Any]:
    """Return plain JSON for the history.

    Args:
        mixture: the share and its gain
        n_judged: number of rows that judged
        forests: learned the trees
    """
    return {
        "share": mixture.mean_share,
        "gain": mixture.gain,
        "standard_error": mixture.standard_error,
        "judged_rows": n_judged,
        "rows": len(forests.rows.X),
        "rounds": forests.rounds,
        "reason": "",
    }


def judged_mixture(
    request: FitTrees,
    reader: ResidualReader,
    forests: Forests,
    left_out: LeftOutNumbers | LeftOutClassLogits,
    judged: list[JudgedRows],
) -> Mixture | None:
    """Predict left-out rows without their folds, and return the best mixture; None if the trees get
    no share.

    Args:
        request: the fit
        reader: reads its rows
        forests: learns the trees
        left_out: the rows that judge
        judged: these rows and others that are predicted
    """
    is_auto = request.options.trees == AUTO
    mixture = None
    for fold, refits in _folds(request, reader, judged):
        if refits is not None:
            refits.predict(fold, judged[0], left_out.rows)
        known = forests.rows.folds != fold
        looks_early = is_auto and forests.rounds is None
        for trees in _looks(forests, known, early=looks_early):
            if trees is None:
                return None
            for rows in judged:
                rows.predict(fold, trees)
            mixture = _mixture(left_out, judged[0])
            if is_auto and not mixture.may_pay:
                return None
    if mixture is None or mixture.mean_share < LEAST_SHARE:
        return None
    return mixture if mixture.pays or not is_auto else None


def _looks(forests: Forests, known: Bool, *, early: bool) -> Iterator[BoostedTrees | None]:
    """Yield the trees that judge.

    Args:
        forests: learns the trees
        known: True for the rows that teach them (n,)
        early: True if few trees come before all
    """
    if early:
        yield forests.few(known)
    yield forests.forest(known)


def _mixture(left_out: LeftOutNumbers | LeftOutClassLogits, judged: JudgedRows) -> Mixture:
    """Return the best mixture for the rows that trees have predicted."""
    predicted = judged.predicted
    judging = left_out.take(predicted).judging(
        judged.by_refits[predicted], judged.weights[predicted]
    )
    return judging.mixture(judged.by_trees[predicted])


def _folds(
    request: FitTrees, reader: ResidualReader, judged: list[JudgedRows]
) -> Iterator[tuple[int, FoldRefits | None]]:
    """Yield the number of each fold with left-out rows, and the refits, or None if the fit is not
    refitted: with many rows, or for rows in groups."""
    folds = np.unique(np.concatenate([rows.folds for rows in judged])).tolist()
    source = reader.source
    if source.n_rows > REFIT_ROWS or request.problem.groups is not None:
        yield from ((fold, None) for fold in folds)
        return
    numbers = np.arange(source.n_rows)
    with gathered(source, None, reader.executor, reader.progress, reader.spent) as sample:
        refits = FoldRefits(request, reader, sample, tree_folds(numbers))
        for fold in folds:
            yield fold, refits


def left_out_logits(request: FitTrees, reader: ResidualReader) -> LeftOutClassLogits:
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
    return LeftOutClassLogits(
        rows=rows.numbers,
        codes=rows.y.astype(np.int64),
        logits=model.logits_of(predictors),
        weights=rows.factors,
        link=model.likelihood,
        groups=rows.groups,
    )
