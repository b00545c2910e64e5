"""Compare a finished fit with boosted trees, both on rows that taught neither.

The trees learn from four fifths of a sample of rows. The model's errors on the others are those of
a fit to the rest of the data at the same α and β (``core.left_out_together``), after local
residuals by their gain on left-out rows. Losses are squared errors, or minus log probabilities of
the classes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import log_softmax, softmax
from threadpoolctl import threadpool_limits

from partirvm.core.groups import standard_error
from partirvm.core.held_back import compared_rows, folds_of, judging
from partirvm.core.left_out import counted_share
from partirvm.core.left_out_together import LeftOutTogether, left_out_together
from partirvm.core.link import LINKS, moderated, targets
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.kernels.group_columns import GroupColumns
from partirvm.learning.sample import gathered
from partirvm.model import Model
from partirvm.model.classifier import ClassModel
from partirvm.process import one_blas_thread
from partirvm.resolve.resolve import FitSpec
from partirvm.scaling.maps import unfolded_inputs
from partirvm.spec.entries import Spent
from partirvm.types import COMPARED_ROWS, PANEL_ROWS, TREES, TREES_OF_CLASSES, Bool, Float, Int

MOST_BYTES = 1 << 23
"""Maximum number of bytes from which the trees learn."""

FEWEST_ROUNDS = 8
"""Minimum number of rounds of boosting."""

RATE = 8.0
"""Learning rate times the number of rounds; at most ``MOST_RATE`` in one round. On seven sets, 40
rounds at .2 reach the error of scikit-learn's 100 at .1 within 2.5 % in a third of the time."""

MOST_RATE = 0.4

TREE_ADVICE = "basis='trees' adds such trees to the model, and usually helps; "
"""Advice to a model that is worse than boosted trees."""

BETTER = 1.1
"""Ratio by which the error of the trees must be lower for them to be named."""

STANDARD_ERRORS = 2.0
"""Number of standard errors by which it must be lower."""

USUAL = 0.99
"""Share of usual rows, those with the smallest losses, on which it must be lower by the ratio, too:
a few far targets may decide the mean squared error by chance."""

SUBSTITUTE_ROWS = 2048
"""Maximum number of rows that show which columns a fit without them would replace."""

LEAST_CURVATURE = 1e-6
"""Lower bound of the curvature of a log probability."""

LEAST_PROBABILITY = 1e-6
"""Lower bound of the probability of a class that the trees never saw."""


@dataclass(frozen=True)
class ComparedRows:
    """Rows of positive weight on which a model is compared with others.

    Attributes:
        X: inputs (n, d)
        t: targets or class codes (n, T)
        weights: row weights (n,), or None
        numbers: row numbers (n,)
        new: mask of the rows that are left out (n,)
        groups: groups of the rows (n,), or None
    """

    X: Float
    t: Float
    weights: Float | None
    numbers: Int
    new: Bool
    groups: Int | None = None

    @classmethod
    def of(cls, source: Source, executor: Executor, most: int, seed: int) -> Self:
        """Draw rows of a source.

        Args:
            source: the rows
            executor: reads them
            most: maximum number of rows
            seed: of the drawing
        """
        order = compared_rows(source.n_rows, most, seed)
        with gathered(source, order, executor, lambda *progress: None, Spent()) as sample:
            tile = sample.rows.gather(order)
        present = tile.present
        numbers = order[present]
        weights = None if tile.weights is None else tile.weights[present]
        groups = None if tile.groups is None else tile.groups[present]
        new = judging(numbers, groups)
        return cls(tile.X[present], tile.t[present], weights, numbers, new, groups)

    @property
    def y(self) -> Float:
        """The values (n,) of the first target."""
        return self.t[:, 0]

    @property
    def new_groups(self) -> Int | None:
        """The groups (m,) of the rows that are left out."""
        return None if self.groups is None else self.groups[self.new]

    @property
    def factors(self) -> Float:
        """The row weights (n,), by default one."""
        return np.ones(len(self.t)) if self.weights is None else self.weights


@dataclass(frozen=True)
class Comparison:
    """How losses of left-out rows are computed and described.

    Attributes:
        trees: name of the class of trees
        loss: name of the mean loss
        key: of the mean loss of the model in the result
        transformed: what could be transformed
        power: exponent that turns what is computed into a loss
        mean: returns the mean loss of rows
        of_trees: returns what trees that learn from inputs (n, d) of the other rows have
    """

    trees: str
    loss: str
    key: str
    transformed: str
    power: int
    mean: Callable[[Float], Any]
    of_trees: Callable[[Float, ComparedRows], Float]

    def described(
        self, own: Float, other: Float, tried: str, groups: Int | None = None
    ) -> dict[str, Any]:
        """Describe the errors or losses of the model and of the trees.

        Args:
            own: errors or losses of the model (n,)
            other: those of the trees (n,)
            tried: what else was tried
            groups: groups of the rows (n,), or None
        """
        loss = float(self.mean(own))
        by_trees = float(self.mean(other))
        better = is_lower(other**self.power, own**self.power, BETTER**self.power, groups)
        remarks = []
        if better:
            remarks.append(
                f"boosting (scikit-learn's {self.trees}) has {self.loss} of {by_trees:.3g} on "
                f"{len(own):,} left-out rows, this model {loss:.3g} (+{loss / by_trees - 1:.0%})"
                f"{tried}: {TREE_ADVICE}more vectors (effort='thorough', max_vectors), "
                f"transformed {self.transformed}, or declaring categories as such may help"
            )
        return {
            "rows": len(own),
            self.key: loss,
            "boosting": by_trees,
            "remarks": remarks,
        }


@dataclass(frozen=True)
class ScoredClasses:
    """What a model predicts for left-out rows with classes.

    Attributes:
        rows: the rows, of which those that are ``new`` are left out
        predictors: their linear predictors (n, C)
        losses: their log losses (n,)
    """

    rows: ComparedRows
    predictors: Float
    losses: Float

    @classmethod
    def of(
        cls, model: ClassModel, source: Source, executor: Executor, beta: float, spec: FitSpec
    ) -> Self:
        """Leave out the rows of the comparison with boosted trees or, without a comparison, at
        most ``COMPARED_ROWS[0]`` rows.

        Args:
            model: the model of the fit
            source: its rows
            executor: reads the rows
            beta: the noise precision of the posterior; ignored for a logistic link
            spec: the fit, whose seed draws the rows
        """
        if spec.plan.comparison is None:
            rows = ComparedRows.of(source, executor, COMPARED_ROWS[0], spec.request.seed)
            rows = replace(rows, new=np.ones(len(rows.t), dtype=np.bool_))
        else:
            rows = ComparedRows.of(source, executor, most_rows(source), spec.request.seed)
        with one_blas_thread():
            predictors = left_out_predictors(model, beta, rows)
        if model.known is not None:
            probabilities = model.probabilities_of(predictors, rows.X[rows.new])
            of_class = probabilities[np.arange(len(predictors)), rows.y[rows.new].astype(np.int64)]
            return cls(rows, predictors, -np.log(np.maximum(of_class, LEAST_PROBABILITY)))
        return cls(rows, predictors, _log_losses(model, predictors, rows.y[rows.new]))

    @property
    def codes(self) -> Int:
        """The classes (n,) of the left-out rows."""
        return self.rows.y[self.rows.new].astype(np.int64)

    def probabilities(self, model: ClassModel) -> Float:
        """Return the predicted probabilities (n, K) of the left-out rows."""
        if model.known is not None:
            return model.probabilities_of(self.predictors, self.rows.X[self.rows.new])
        if model.ramp is not None:
            return np.asarray(softmax(model.ramp.logits(self.predictors), axis=1))
        return np.asarray(LINKS[model.likelihood].probabilities(self.predictors))


def most_rows(source: Source) -> int:
    """Return the maximum number of rows of a comparison."""
    return min(COMPARED_ROWS[1], MOST_BYTES // (8 * source.n_features), source.n_rows)


def compared(
    model: Any,
    source: Source,
    executor: Executor,
    beta: float,
    entry: dict[str, Any],
    spec: FitSpec,
    *,
    searched: Sequence[int] = (),
    scored: ScoredClasses | None = None,
) -> dict[str, Any]:
    """Compare a model with boosted trees on left-out rows; return plain JSON, with a remark if the
    trees are better.

    model : the model of the fit
    source : its rows, with one target
    executor : reads the rows
    beta : the noise precision of the posterior; ignored for a logistic link
    entry : the line of history of the fit
    spec : the fit, whose seed draws the rows
    searched : numbers of rows on which the kernel search continued, for the remark
    scored : for classes, what the model predicts for these rows
    """
    comparison = COMPARISONS[spec.problem.likelihood.loss_name]
    if scored is None:
        rows = ComparedRows.of(source, executor, most_rows(source), spec.request.seed)
        with one_blas_thread():
            losses = _errors(model, beta, rows, spec.problem.empty.group_columns)
    else:
        rows = scored.rows
        losses = scored.losses
    trees = comparison.of_trees(unfolded_inputs(rows.X, model.design.scaling), rows)
    if (entry["residuals"] or {}).get("bytes") and model.known is None:
        losses = losses * (1.0 - entry["residuals"]["rmse_gain"])
    counts = " and ".join(f"{count:,}" for count in searched)
    tried = f", although the kernel search continued on {counts} rows" if searched else ""
    return comparison.described(losses, trees, tried, rows.new_groups)


def root_mean_square(errors: Float) -> float:
    """Return the root mean square of errors (n,)."""
    return float(np.sqrt(np.mean(errors**2)))


def is_lower(other: Float, own: Float, ratio: float, groups: Int | None = None) -> bool:
    """Return True if losses of the trees are significantly lower.

    Args:
        other: losses of the trees (n,)
        own: losses of the model (n,)
        ratio: ratio by which they must be lower, on the usual rows, too
        groups: groups of the rows (n,), or None
    """
    gain = own - other
    largest = np.maximum(own, other)
    usual = largest <= np.quantile(largest, USUAL)
    sure = gain.mean() > STANDARD_ERRORS * standard_error(gain, groups)
    return bool(sure and all(own[rows].sum() > ratio * other[rows].sum() for rows in (usual, ...)))


def _tree_options(n_outputs: int) -> dict[str, Any]:
    """Return the options of trees for this number of classes, or 1 for a numeric target."""
    rounds = TREES if n_outputs <= 2 else max(TREES_OF_CLASSES // n_outputs, FEWEST_ROUNDS)
    return {
        "max_iter": rounds,
        "learning_rate": min(RATE / rounds, MOST_RATE),
        "random_state": 0,
        "early_stopping": False,
    }


def _taught(trees: Any, X: Float, rows: ComparedRows) -> Any:
    """Return trees that have learned from inputs X (n, d) of the rows that are not left out; with
    weights, binning takes longer than the trees."""
    known = ~rows.new
    weights = () if rows.weights is None else (rows.weights[known],)
    # on a busy machine its threads spin: ten times the CPU seconds
    with threadpool_limits(1, "openmp"):
        return trees.fit(X[known], rows.y[known], *weights)


def _errors_of_trees(X: Float, rows: ComparedRows) -> Float:
    """Return the errors of trees on left-out rows with inputs X (n, d)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    regressor = _taught(HistGradientBoostingRegressor(**_tree_options(1)), X, rows)
    with threadpool_limits(1, "openmp"):
        return np.asarray(rows.y[rows.new] - regressor.predict(X[rows.new]))


def _losses_of_trees(X: Float, rows: ComparedRows) -> Float:
    """Return the log losses of trees on left-out rows with inputs X (n, d)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    y = rows.y[rows.new]
    classes = np.unique(rows.y[~rows.new])
    if len(classes) < 2:
        return np.where(y == classes[0], 0.0, -np.log(LEAST_PROBABILITY))
    classifier = HistGradientBoostingClassifier(**_tree_options(len(classes)))
    classifier = _taught(classifier, X, rows)
    with threadpool_limits(1, "openmp"):
        probabilities = classifier.predict_proba(X[rows.new])
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    known = classes[places] == y
    of_class = np.where(known, probabilities[np.arange(len(places)), places], 0.0)
    return -np.log(np.maximum(of_class, LEAST_PROBABILITY))


@dataclass(frozen=True)
class ComparedFold:
    """Left-out rows of one fold.

    Attributes:
        rows: (b,), their positions
        block: (b, M), of the design
        centres: place and columns of each row that is a centre
        nearest: (M,), the largest share of each column's peak at other rows
    """

    rows: Int
    block: Float
    centres: list[tuple[int, Int]]
    nearest: Float

    def left_out(
        self, residuals: Float, precisions: Float, mean: Float, root: Float
    ) -> LeftOutTogether:
        """Leave the rows out of the fit of one output.

        Args:
            residuals: (b,), of the fit to all rows
            precisions: (b,), of the rows
            mean: (M,), of the weights
            root: (M, M), of their covariance
        """
        return left_out_together(
            self.block, residuals[:, None], precisions, mean[:, None], root, self.centres
        )

    def left_out_with_effects(
        self, residuals: Float, precisions: Float, mean: Float, root: Float, effects: Float
    ) -> LeftOutTogether:
        """Leave the rows out of a fit whose noise includes effects of groups.

        They are multiplied by L⁻¹, with LLᵀ the covariance of the noise, which gives them the
        precision 1.

        Args:
            residuals: (b,), of the fit to all rows
            precisions: (b,), of the rows
            mean: (M,), of the weights
            root: (M, M), of their covariance
            effects: (b, b), covariance of the effects
        """
        factor = np.linalg.cholesky(np.diag(1.0 / precisions) + effects)
        white = solve_triangular(
            factor, np.column_stack([self.block, residuals]), lower=True, check_finite=False
        )
        fold = replace(self, block=white[:, :-1])
        left_out = fold.left_out(white[:, -1], np.ones(len(factor)), mean, root)
        shifts = np.einsum("ij,jkt->ikt", factor, left_out.shifts)
        return replace(left_out, shifts=shifts)

    def shift(self, left_out: LeftOutTogether, share: Float) -> Float:
        """Return the change of the prediction (b,) of each row, of which ``share`` (b,) is that
        without its own column."""
        with_centre, without_centre = left_out.shifts[:, :, 0].T
        return np.asarray(with_centre + share * (without_centre - with_centre))


def _folds(model: Any, rows: ComparedRows) -> Iterator[ComparedFold]:
    """Yield the folds of left-out rows of a model."""
    X = rows.X
    numbers = rows.numbers
    design = model.design
    new = np.flatnonzero(rows.new)
    peaks = np.concatenate([np.full(design.n_leading, np.inf), design.peaks()])
    nearest = np.zeros(design.n_columns)
    for start in range(0, min(len(X), SUBSTITUTE_ROWS), PANEL_ROWS):
        panel = slice(start, min(start + PANEL_ROWS, SUBSTITUTE_ROWS))
        block = np.abs(design.block(X[panel]))
        kernels = block[:, design.n_leading :]
        kernels[numbers[panel, None] == design.rows] = 0.0
        nearest = np.maximum(nearest, block.max(axis=0, initial=0.0) / np.abs(peaks))
    for places in folds_of(numbers[new], rows.new_groups):
        fold = new[places]
        centres = [
            (row, design.n_leading + np.flatnonzero(design.rows == numbers[fold[row]]))
            for row in np.flatnonzero(np.isin(numbers[fold], design.rows)).tolist()
        ]
        yield ComparedFold(fold, design.block(X[fold]), centres, nearest)


def _shift_of(
    fold: ComparedFold,
    model: Model,
    beta: float,
    rows: ComparedRows,
    columns: GroupColumns | None,
) -> Float:
    """Return the change (b,) of the predictions of a fold's rows, in the model's units, when these
    rows are left out.

    Args:
        fold: the fold
        model: a regression model
        beta: the noise precision of the posterior
        rows: the compared rows
        columns: the columns of groups of the fit, or None
    """
    X = rows.X[fold.rows]
    tempered = model.design.row_weights(X)
    precisions = beta * rows.factors[fold.rows] * (1.0 if tempered is None else tempered)
    targets_of_rows = model.design.scaling.targets(rows.y[fold.rows, None])[:, 0]
    residuals = targets_of_rows - fold.block @ model.mean
    if columns is None or rows.groups is None:
        left_out = fold.left_out(residuals, precisions, model.mean, model.root)
    else:
        effects = columns.covariance(model.design.features(X), rows.groups[fold.rows])
        left_out = fold.left_out_with_effects(
            residuals, precisions, model.mean, model.root, effects
        )
    return fold.shift(left_out, counted_share(left_out.owner, fold.nearest))


def _errors(model: Model, beta: float, rows: ComparedRows, columns: GroupColumns | None) -> Float:
    """Return the model's errors on left-out rows, in the target's units.

    Args:
        model: a regression model
        beta: the noise precision of the posterior
        rows: the compared rows
        columns: the columns of groups of the fit, or None
    """
    sparse = model.sparse()
    scaling = model.design.scaling
    errors = np.zeros(len(rows.y))
    for fold in _folds(model, rows):
        X = rows.X[fold.rows]
        y = rows.y[fold.rows]
        shift = _shift_of(fold, model, beta, rows, columns)
        mean, variance, _ = sparse.moments(X)
        predicted = scaling.target.moments(mean + scaling.t_scale[0] * shift, variance)[0]
        errors[fold.rows] = y - predicted
    return np.asarray(errors[rows.new])


def left_out_predictors(model: ClassModel, beta: float, rows: ComparedRows) -> Float:
    """Return the model's linear predictors (n, C) for left-out rows, given the noise precision of
    the posterior.

    A logistic link takes one Newton step from the fit to all rows to the fit without a fold, so
    that each row has the precision and residual of its working target.
    """
    predictors = np.zeros((len(rows.y), model.mean.shape[1]))
    for fold in _folds(model, rows):
        f = fold.block @ model.mean
        codes = rows.y[fold.rows]
        variances = np.zeros_like(f)
        residuals, precisions = _working_targets(model, beta, rows.factors[fold.rows], f, codes)
        for output in range(f.shape[1]):
            root = model.root[min(output, len(model.root) - 1)]
            left_out = fold.left_out(
                residuals[:, output], precisions[:, output], model.mean[:, output], root
            )
            share: Any = left_out.owner >= 0
            if model.ramp is not None:
                share = counted_share(left_out.owner, fold.nearest)
            f[:, output] += fold.shift(left_out, share)
            variances[:, output] = left_out.variances[:, 0]
        moderates = model.moderate and model.ramp is None
        predictors[fold.rows] = moderated(f, variances) if moderates else f
    return np.asarray(predictors[rows.new])


def _working_targets(
    model: ClassModel, beta: float, weights: Float, f: Float, codes: Float
) -> tuple[Float, Float]:
    """Return the residuals and precisions (n, C) of working targets.

    Args:
        model: the model
        beta: noise precision of the posterior; a logistic link has none
        weights: (n,), row weights
        f: (n, C), predictors
        codes: (n,), class codes
    """
    t = targets(codes, f.shape[1])
    if model.ramp is not None:
        return t - f, np.tile(beta * weights, (f.shape[1], 1)).T
    _, slope, curvature = LINKS[model.likelihood].derivatives(f, t)
    curvature = np.maximum(curvature, LEAST_CURVATURE)
    return slope / curvature, weights[:, None] * curvature


def _log_losses(model: ClassModel, f: Float, codes: Float) -> Float:
    """Return the log losses (n,) of moderated predictors f (n, C) of the classes with codes
    (n,)."""
    if model.ramp is not None:
        logs = log_softmax(model.ramp.logits(f), axis=1)
        return np.asarray(-logs[np.arange(len(f)), codes.astype(np.int64)])
    return np.asarray(-LINKS[model.likelihood].log_probability(f, codes))


COMPARISONS = {
    "RMSE": Comparison(
        trees="HistGradientBoostingRegressor",
        loss="an RMSE",
        key="rmse",
        transformed="features or target",
        power=2,
        mean=root_mean_square,
        of_trees=_errors_of_trees,
    ),
    "log loss": Comparison(
        trees="HistGradientBoostingClassifier",
        loss="a log loss",
        key="log_loss",
        transformed="features",
        power=1,
        mean=np.mean,
        of_trees=_losses_of_trees,
    ),
}
"""Comparisons by the name of the likelihood's loss."""
