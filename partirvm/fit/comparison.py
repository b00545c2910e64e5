"""Compare a finished fit with boosted trees, both on rows that taught neither.

The trees learn from four fifths of a sample of rows. The model's errors on the others are those of
a fit to the rest of the data at the same α and β (``core.left_out_together``), after local
residuals by their gain on left-out rows. Losses are squared errors, or minus log probabilities of
the classes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax
from threadpoolctl import threadpool_limits

from partirvm.core.left_out import counted_share
from partirvm.core.left_out_together import folds_of, left_out_together
from partirvm.core.link import LINKS, moderated, targets
from partirvm.core.sampling import Purpose, stream
from partirvm.data.source import Source
from partirvm.execution import Executor
from partirvm.learning.sample import gathered
from partirvm.model import Model
from partirvm.model.classifier import ClassModel
from partirvm.process import one_blas_thread
from partirvm.scaling.maps import unfolded_inputs
from partirvm.spec.history import Spent
from partirvm.types import COMPARED_ROWS, PANEL_ROWS, TREES, TREES_OF_CLASSES, Float, Int

MOST_BYTES = 1 << 23
"""Maximum number of bytes from which the trees learn."""

FEWEST_ROUNDS = 8
"""Minimum number of rounds of boosting."""

RATE = 8.0
"""Learning rate times the number of rounds; at most ``MOST_RATE`` in one round. On seven sets, 40
rounds at .2 reach the error of scikit-learn's 100 at .1 within 2.5 % in a third of the time."""

MOST_RATE = 0.4

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


def compared(
    model: Any,
    source: Source,
    executor: Executor,
    beta: float,
    entry: dict[str, Any],
    seed: int,
    *,
    searched: Sequence[int] = (),
) -> dict[str, Any]:
    """Compare a model with boosted trees on left-out rows; return plain JSON, with a remark if the
    trees are better.

    model : the model of the fit
    source : its rows, with one target
    executor : reads the rows
    beta : the noise precision of the posterior; ignored for a logistic link
    entry : the line of history of the fit
    seed : draws the rows
    searched : numbers of rows on which the kernel search continued, for the remark
    """
    most = min(COMPARED_ROWS[1], MOST_BYTES // (8 * source.n_features), source.n_rows)
    order = np.sort(stream(seed, Purpose.COMPARED_ROWS).permutation(source.n_rows)[:most])
    with gathered(source, order, executor, lambda *progress: None, Spent()) as sample:
        rows = sample.rows.gather(order)
    weights = np.ones(most) if rows.weights is None else rows.weights
    present = np.flatnonzero(weights > 0)
    X = rows.X[present]
    y = rows.t[present, 0]
    numbers = order[present]
    weights = weights[present]
    new = np.arange(len(y)) % 5 == 0
    plain = unfolded_inputs(X, model.design.scaling)
    trees = _losses_of_trees(
        plain, y, None if rows.weights is None else weights, new, isinstance(model, ClassModel)
    )
    with one_blas_thread():
        if isinstance(model, ClassModel):
            own = _losses_of_classes(model, beta, X, y, weights, numbers, new)
            return _class_remarks(own, trees)
        own = _errors(model, beta, X, y, weights, numbers, new)
    if (entry["residuals"] or {}).get("bytes"):
        own = own * (1.0 - entry["residuals"]["rmse_gain"])
    return _number_remarks(own, trees, searched)


def _number_remarks(own: Float, other: Float, searched: Sequence[int]) -> dict[str, Any]:
    """Describe the errors (n,) of the model and of the trees; the kernel search continued on
    ``searched`` rows."""
    rmse, by_trees = (float(np.sqrt(np.mean(each**2))) for each in (own, other))
    rows = " and ".join(f"{count:,}" for count in searched)
    tried = f", although the kernel search continued on {rows} rows" if searched else ""
    remarks = [
        f"boosting (scikit-learn's HistGradientBoostingRegressor) has an RMSE of {by_trees:.3g} "
        f"on {len(own):,} left-out rows, this model {rmse:.3g} "
        f"(+{rmse / by_trees - 1:.0%}){tried}: more vectors (effort='thorough', max_vectors), "
        "transformed features or target, or declaring categories as such may help"
    ]
    return {
        "rows": len(own),
        "rmse": rmse,
        "boosting": by_trees,
        "remarks": remarks if is_better(other, own) else [],
    }


def _class_remarks(own: Float, other: Float) -> dict[str, Any]:
    """Describe the log losses (n,) of the model and of the trees."""
    loss = float(own.mean())
    by_trees = float(other.mean())
    remarks = [
        "boosting (scikit-learn's HistGradientBoostingClassifier) has a log loss of "
        f"{by_trees:.3g} on {len(own):,} left-out rows, this model {loss:.3g} "
        f"(+{loss / by_trees - 1:.0%}): more vectors (effort='thorough', max_vectors), "
        "transformed features, or declaring categories as such may help"
    ]
    found = {"rows": len(own), "log_loss": loss, "boosting": by_trees}
    return {**found, "remarks": remarks if is_lower(other, own, BETTER) else []}


def is_better(other: Float, own: Float) -> bool:
    """Return True if errors (n,) of the trees are significantly lower."""
    return is_lower(other**2, own**2, BETTER**2)


def is_lower(other: Float, own: Float, ratio: float) -> bool:
    """Return True if losses (n,) of the trees are significantly lower, by ``ratio`` also on the
    usual rows."""
    gain = own - other
    largest = np.maximum(own, other)
    usual = largest <= np.quantile(largest, USUAL)
    sure = gain.mean() > STANDARD_ERRORS * gain.std() / np.sqrt(len(gain))
    return bool(sure and all(own[rows].sum() > ratio * other[rows].sum() for rows in (usual, ...)))


def _losses_of_trees(X: Float, y: Float, weights: Float | None, new: Any, classes: bool) -> Float:
    """Return errors, or for classes log losses, on the rows ``new`` of trees that learn from the
    others.

    X : (n, d), inputs
    y : (n,), targets or class codes
    weights : (n,), or None; with weights, binning takes longer than the trees
    new : (n,), the mask of the rows that are left out
    classes : True if the targets are class codes
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    given = () if weights is None else (weights[~new],)
    outputs = len(np.unique(y[~new])) if classes else 1
    rounds = TREES if outputs <= 2 else max(TREES_OF_CLASSES // outputs, FEWEST_ROUNDS)
    how: dict[str, Any] = {"max_iter": rounds, "learning_rate": min(RATE / rounds, MOST_RATE)}
    how |= {"random_state": 0, "early_stopping": False}
    with threadpool_limits(
        1, "openmp"
    ):  # on a busy machine its threads spin: ten times the CPU seconds
        if not classes:
            regressor = HistGradientBoostingRegressor(**how).fit(X[~new], y[~new], *given)
            return np.asarray(y[new] - regressor.predict(X[new]))
        if outputs < 2:
            return np.where(y[new] == y[~new][0], 0.0, -np.log(LEAST_PROBABILITY))
        classifier = HistGradientBoostingClassifier(**how).fit(X[~new], y[~new], *given)
        probabilities = classifier.predict_proba(X[new])
    places = np.minimum(np.searchsorted(classifier.classes_, y[new]), outputs - 1)
    known = classifier.classes_[places] == y[new]
    own = np.where(known, probabilities[np.arange(len(places)), places], 0.0)
    return -np.log(np.maximum(own, LEAST_PROBABILITY))


def _folds(
    model: Any, X: Float, numbers: Int, new: Any
) -> Iterator[tuple[Int, Float, list[tuple[int, Int]], Float]]:
    """Yield the rows of each fold of ``new``, their design blocks, own columns, and ``nearest`` of
    the columns.

    model : the model of the fit
    X : (n, d), inputs
    numbers : (n,), their row numbers
    new : (n,), the mask of the rows that are left out
    """
    design = model.design
    rows = np.flatnonzero(new)
    peaks = np.concatenate([np.full(design.n_leading, np.inf), design.peaks()])
    nearest = np.zeros(design.n_columns)
    for start in range(0, min(len(X), SUBSTITUTE_ROWS), PANEL_ROWS):
        panel = slice(start, min(start + PANEL_ROWS, SUBSTITUTE_ROWS))
        block = np.abs(design.block(X[panel]))
        kernels = block[:, design.n_leading :]
        kernels[numbers[panel, None] == design.rows] = 0.0
        nearest = np.maximum(nearest, block.max(axis=0, initial=0.0) / np.abs(peaks))
    for places in folds_of(len(rows)):
        fold = rows[places]
        centres = np.flatnonzero(np.isin(numbers[fold], design.rows)).tolist()
        own = [
            (row, design.n_leading + np.flatnonzero(design.rows == numbers[fold[row]]))
            for row in centres
        ]
        yield fold, design.block(X[fold]), own, nearest


def _errors(
    model: Model, beta: float, X: Float, y: Float, weights: Float, numbers: Int, new: Any
) -> Float:
    """Return the model's errors on the rows ``new``, in the target's units.

    model : the model of the fit
    beta : the noise precision of the posterior
    X : (n, d), inputs
    y : (n,), targets
    weights : (n,), row weights
    numbers : (n,), row numbers
    new : (n,), the mask of the rows that are left out
    """
    sparse = model.sparse()
    scaling = model.design.scaling
    found = np.zeros(len(X))
    for fold, block, own, nearest in _folds(model, X, numbers, new):
        tempered = model.design.row_weights(X[fold])
        precisions = beta * weights[fold] * (1.0 if tempered is None else tempered)
        residuals = scaling.targets(y[fold, None]) - (block @ model.mean)[:, None]
        together = left_out_together(
            block, residuals, precisions, model.mean[:, None], model.root, own
        )
        share = counted_share(together.owner, nearest)
        shift = together.shifts[:, 0, 0] + share * (
            together.shifts[:, 1, 0] - together.shifts[:, 0, 0]
        )
        mean, variance, _ = sparse.moments(X[fold])
        found[fold] = (
            y[fold] - scaling.target.moments(mean + scaling.t_scale[0] * shift, variance)[0]
        )
    return np.asarray(found[new])


def _losses_of_classes(
    model: ClassModel, beta: float, X: Float, y: Float, weights: Float, numbers: Int, new: Any
) -> Float:
    """Return the model's log losses on left-out rows.

    A logistic link takes one Newton step from the fit to all rows to the fit without a fold, so
    that each row has the precision and residual of its working target.

    Args:
        model: the model of the fit
        beta: the noise precision of the posterior
        X: (n, d), inputs
        y: (n,), class codes
        weights: (n,), row weights
        numbers: (n,), row numbers
        new: (n,), the mask of the rows that are left out
    """
    losses = np.zeros(len(X))
    for fold, block, own, nearest in _folds(model, X, numbers, new):
        f = block @ model.mean
        variances = np.zeros_like(f)
        residuals, precisions = _working_targets(model, beta, weights[fold], f, y[fold])
        for output in range(f.shape[1]):
            together = left_out_together(
                block,
                residuals[:, output, None],
                precisions[:, output],
                model.mean[:, output, None],
                model.root[min(output, len(model.root) - 1)],
                own,
            )
            share: Any = together.owner >= 0
            if model.ramp is not None:
                share = counted_share(together.owner, nearest)
            with_centre, without_centre = together.shifts[:, :, 0].T
            f[:, output] += with_centre + share * (without_centre - with_centre)
            variances[:, output] = together.variances[:, 0]
        losses[fold] = _log_losses(model, f, variances, y[fold])
    return np.asarray(losses[new])


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


def _log_losses(model: ClassModel, f: Float, variances: Float, codes: Float) -> Float:
    """Return the log losses (n,) of predictors.

    Args:
        model: has the link, and says whether predictors are moderated
        f: (n, C), means of the predictors
        variances: (n, C), their variances
        codes: (n,), class codes
    """
    if model.ramp is not None:
        logs = log_softmax(model.ramp.logits(f), axis=1)
        return np.asarray(-logs[np.arange(len(f)), codes.astype(np.int64)])
    f = moderated(f, variances) if model.moderate else f
    return np.asarray(-LINKS[model.likelihood].log_probability(f, codes))
