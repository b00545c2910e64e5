"""What a fit knows of the quality of its model, for the summary in words (``model.summary``).

Errors of numeric targets come from the rows that calibrate the noise, each left out of the fit
(``core.left_out``). Classes have no such rows in general; the last fit leaves out random rows in
folds (``fit.comparison``), at the same α. With validation data, their scores are used instead; a
fit without either has only the errors of its training rows.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.scores import ClassScores, ece_by_chance
from partirvm.data.source import Tile
from partirvm.kernels.jumps import Jumps
from partirvm.model import AnyModel
from partirvm.model.summary import FEW_ROWS_OF_LEVEL, Assessment, relevant
from partirvm.resolve.resolve import FitSpec
from partirvm.spec.entries import Record
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

FEWEST_COPIES = 5
"""Number of copies in a sample of rows below which their share of all rows is not estimated."""


def assessment_of(
    spec: FitSpec, model: AnyModel, record: Record, sample: Tile, outliers: str
) -> Assessment:
    """Return what is known of a model from its line of history.

    Args:
        spec: the specification of the fit
        model: the model
        record: its line of history
        sample: random rows of the data
        outliers: a sentence on a few targets that decide the fit, or ""
    """
    names = model.columns.features
    features = relevant(names, model.relevance)
    residuals = record.residuals or {}
    facts = Assessment(
        target=model.design.scaling.target.name(model.columns.target),
        rows="training",
        n_scored=record.rows,
        figures={},
        n_rows=spec.problem.n_rows,
        n_vectors=record.vectors,
        local_bytes=int(residuals.get("bytes", 0)),
        noise_varies=record.noise_vectors is not None,
        features=features,
        n_features=len(names),
        levels=_levels(model, features, spec.problem.n_rows),
        copies=share_of_copies(sample.X, sample.t, len(sample.X) / spec.problem.n_rows),
        outliers=outliers,
        kernel_rows=max((entry["rows"] for entry in spec.entries if entry["kernel"]), default=0),
        kernel_widths=_widths(model),
        jumps=jumps_of(model),
        tree_share=float((record.trees or {}).get("share", 0.0)),
        left_out_groups=_left_out_groups(model),
    )
    if spec.problem.likelihood.classifies:
        return _of_classes(facts, spec.problem, record, model.columns.classes or ())
    return _with_known_groups(_of_numbers(facts, spec.problem, record), model)


def jumps_of(model: AnyModel) -> tuple[tuple[str, float], ...]:
    """Return the names of the jumps of a numeric target, and the changes of the target, the largest
    first.

    A change is in the units of the target's standard deviation: for a warped target, those of its
    map.
    """
    design = model.design
    columns = design.columns_of(Jumps)
    if design.functions is None or not len(columns):
        return ()
    names = list(design.functions.names(model.columns.features))
    changes = (design.scaling.t_scale[0] * model.mean[columns]).tolist()
    numbers = design.active[columns - int(design.bias)].tolist()
    jumps = [(names[number], change) for number, change in zip(numbers, changes, strict=True)]
    return tuple(sorted(jumps, key=lambda jump: -abs(jump[1])))


def _left_out_groups(model: AnyModel) -> int:
    """Return the number of groups that were left out as a whole, or 0."""
    known = getattr(model, "known", None)
    return 0 if known is None else len(known.codes)


def _with_known_groups(facts: Assessment, model: AnyModel) -> Assessment:
    """Return the facts with the noise at rows of known groups, if that at new groups is known."""
    known = getattr(model, "known", None)
    if known is None or "noise_sd" not in facts.figures:
        return facts
    noise_sd = float(np.sqrt(known.noise_variance))
    return replace(facts, figures={**facts.figures, "noise_sd_of_known_groups": noise_sd})


def _of_numbers(facts: Assessment, problem: Problem, record: Record) -> Assessment:
    """Return the facts with the errors of numeric targets.

    Args:
        facts: the facts without errors
        problem: the problem of the fit
        record: the line of history
    """
    figures: dict[str, float] = {}
    # local residuals and boosted trees predict a part of the noise of the vectors
    if record.noise_sd is not None and not (facts.local_bytes or facts.tree_share):
        figures["noise_sd"] = float(record.noise_sd)
    tables = record.diagnostics
    scales = problem.empty.scaling.t_scale
    variances = scales**2 * np.broadcast_to(problem.variances, scales.shape)
    if len(tables) != len(scales):  # none, or only the first of many targets
        if record.train_rmse is not None:
            figures["rmse"] = record.train_rmse
            if len(scales) == 1 and variances[0]:
                figures |= _explained(np.array([record.train_rmse**2]), variances)
        return replace(facts, figures=figures)
    count = tables[0]["n"]
    squares = np.array([table["square"] for table in tables]) / count
    figures["rmse"] = float(np.sqrt(squares.mean()))
    figures["coverage_95"] = float(np.mean([table["inside"] for table in tables]) / count)
    if variances.all():
        figures |= _explained(squares, variances)
    rows = "left-out" if record.held_out_rmse is None else "held-out"
    return replace(facts, rows=rows, n_scored=count, figures=figures)


def _explained(squares: Float, variances: Float) -> dict[str, float]:
    """Return R², a mean over targets, and the standard deviation of the targets.

    Args:
        squares: mean squared errors (T,)
        variances: variances of the training targets (T,)
    """
    r2 = float(np.mean(1.0 - squares / variances))
    return {"r2": r2, "target_sd": float(np.sqrt(variances.mean()))}


def _of_classes(
    facts: Assessment, problem: Problem, record: Record, classes: tuple[Any, ...]
) -> Assessment:
    """Return the facts with the scores of held-out or training rows.

    Args:
        facts: the facts without scores
        problem: the problem of the fit
        record: the line of history
        classes: labels of the classes
    """
    counts = np.bincount(np.asarray(problem.codes), minlength=problem.n_classes)
    shares = counts / counts.sum()
    figures = {
        "largest_share": float(shares.max()),
        "log_loss_of_shares": float(-(shares[shares > 0] @ np.log(shares[shares > 0]))),
    }
    largest = str(classes[int(shares.argmax())])
    facts = replace(facts, figures=figures, largest_class=largest)
    if record.held_out_error is not None and record.held_out_log_loss is not None:
        figures |= {"accuracy": 1 - record.held_out_error, "log_loss": record.held_out_log_loss}
        if record.held_out_ece is not None:
            figures["ece"] = record.held_out_ece
        count = record.diagnostics[0]["n"] if record.diagnostics else 0
        return replace(facts, rows="held-out", n_scored=count, figures=figures)
    if record.train_error is not None and record.train_log_loss is not None:
        figures |= {"accuracy": 1 - record.train_error, "log_loss": record.train_log_loss}
    return replace(facts, figures=figures)


def with_left_out_classes(facts: Assessment, codes: Int, probabilities: Float) -> Assessment:
    """Return the facts with the scores of left-out rows.

    Args:
        facts: the facts of the fit
        codes: classes of the rows (n,)
        probabilities: their predicted probabilities (n, K)
    """
    scores = ClassScores.of(codes, probabilities).figures()
    figures = {name: float(scores[name]) for name in ("accuracy", "log_loss", "ece")}
    figures["ece_by_chance"] = ece_by_chance(probabilities.max(axis=1))
    return replace(
        facts, rows="left-out", n_scored=len(codes), figures={**facts.figures, **figures}
    )


def share_of_copies(X: Float, t: Float, fraction: float) -> float:
    """Return the share of rows that are exact copies of others; 0 if no column tells rows apart.

    A copy counts if the other row is in the sample, too, which has the probability ``fraction``.
    Where every column has few different values, equal rows are no sign of copies.

    Args:
        X: inputs of random rows (n, d)
        t: their targets (n, T)
        fraction: number of these rows ÷ number of all rows
    """
    rows = np.nan_to_num(np.column_stack([X, t]), nan=np.inf)
    different = np.unique(rows, axis=0)
    copies = len(rows) - len(different)
    is_fine = any(len(np.unique(column)) > len(different) / 2 for column in rows.T)
    if copies < FEWEST_COPIES or not is_fine:
        return 0.0
    return min(copies / len(rows) / min(fraction, 1.0), 1.0)


def _levels(model: AnyModel, features: tuple[str, ...], n_rows: int) -> tuple[tuple[str, int], ...]:
    """Return the relevant features with few rows per level, and their numbers of levels.

    Args:
        model: the model
        features: names of the relevant features
        n_rows: number of training rows
    """
    levels = {name: len(values) for name, values in model.columns.categories.items()}
    return tuple(
        (name, levels[name])
        for name in features
        if levels.get(name, 0) > n_rows / FEW_ROWS_OF_LEVEL
    )


def _widths(model: AnyModel) -> int:
    """Return the number of widths of a learned kernel: one, or one per input."""
    n_inputs = model.design.scaling.n_inputs
    relevances = model.design.kernel.relevances(n_inputs)
    if relevances is None or np.ptp(relevances) == 0.0:
        return 1
    return n_inputs
