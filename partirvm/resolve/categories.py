"""Conversion of categorical levels to numbers before the kernel is learned."""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from partirvm.core.moments import Moments
from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.learning.embedding import FUNCTIONS, ROWS, SUMS, embedded
from partirvm.learning.level_variances import with_level_variances
from partirvm.learning.process_steps import evidence_of, searchable
from partirvm.learning.sample import SampledRows
from partirvm.planning.memory import FLOAT
from partirvm.resolve.kernel import chooses, has_plain_inputs, resolve_kernel
from partirvm.resolve.samples import OutOfTime, Samples
from partirvm.spec.problem import Problem
from partirvm.types import LEARNING_ROWS

MANY_LEVELS = 8
"""A categorical feature with more levels is converted to numbers: categorical kernels share no
information between levels. Used cars: the error is .205 with a kernel on four categories, .165 if
the one with 195 levels is converted."""

MOST_INDICATORS = 16
"""Maximum number of levels of a feature for which an indicator per level is tried."""


@dataclass(frozen=True)
class CategoryForm:
    """The categorical features to convert to numbers, by position, with their numbers of levels.

    Attributes:
        coordinates: features whose levels get coordinates.
        indicators: features that get an indicator of each level.
    """

    coordinates: dict[int, int]
    indicators: dict[int, int]


@dataclass(frozen=True)
class EmbeddedLevels:
    """A problem in which levels have become numbers.

    Attributes:
        problem: the problem.
        source: the rows, with their folds; the numbers in a row were learned without its fold.
        notes: notes on the conversion.
        noise: noise variance not explained by the level effects.
    """

    problem: Problem
    source: Source
    notes: tuple[str, ...] = ()
    noise: float = 0.0


def with_levels(samples: Samples, problem: Problem, moments: Moments) -> EmbeddedLevels:
    """Convert categorical levels to numbers if the kernel's form is to be chosen.

    Features with many levels are always converted; for other features, the evidence decides whether
    and how. The rows then have folds, separately for each embedded problem.

    Args:
        samples: supplies random rows
        problem: the problem with categorical levels
        moments: moments of the features, required by a kernel of given form
    """
    forms = level_forms(samples, problem)
    if not forms:
        return EmbeddedLevels(problem, samples.source)
    values = samples.machine.budget // (4 * FLOAT)
    rows = min(ROWS, samples.source.n_rows, values // (4 * FUNCTIONS * samples.shape.n_features))
    best = EmbeddedLevels(problem, samples.source)
    with suppress(OutOfTime), samples.take(problem, rows) as sample:
        candidates = [
            with_form(samples, sample, problem, moments, form, min(SUMS, values // 3))
            for form in forms
        ]
        best = candidates[0]
        if len(candidates) > 1:
            evidence = [evidence_of_levels(samples, levels.problem) for levels in candidates]
            best = candidates[int(np.argmax(evidence))]
    empty = best.problem.empty
    source = folded(samples.unfolded, empty.scaling, empty.functions)
    return replace(best, source=source)


def with_form(
    samples: Samples,
    sample: SampledRows,
    problem: Problem,
    moments: Moments,
    form: CategoryForm,
    sums: int,
) -> EmbeddedLevels:
    """Convert categorical levels to numbers of one form.

    Args:
        samples: supplies the request and the source
        sample: rows from which the numbers are learned
        problem: the problem with categorical levels
        moments: moments of the features, required by a kernel of given form
        form: which levels become coordinates and which become indicators
        sums: maximum number of elements in a feature's sums
    """
    columns = samples.source.columns
    embedding = embedded(
        sample, problem, columns, form.coordinates, samples.request.seed, sums, form.indicators
    )
    scaling = with_level_variances(sample, problem, columns, embedding.scaling, sums)
    kernel = resolve_kernel(samples.request, moments, columns, scaling)
    candidate = problem.with_scaling(scaling).with_kernel(kernel)
    return EmbeddedLevels(candidate, samples.source, embedding.notes, embedding.noise)


def level_forms(samples: Samples, problem: Problem) -> list[CategoryForm]:
    """Return the possible forms of categorical features; the evidence decides between several."""
    request = samples.request
    columns = samples.source.columns
    if not (chooses(request) and request.standardize and has_plain_inputs(request)):
        return []
    counts = {j: len(columns.categories.get(name, ())) for j, name in enumerate(columns.features)}
    several = {j: count for j, count in counts.items() if count > 2}
    many = {j: count for j, count in several.items() if count > MANY_LEVELS}
    few = {j: count for j, count in several.items() if count <= MOST_INDICATORS}
    if not few or not searchable(problem) or request.metric == "directions":
        return [CategoryForm(many, {})] if columns.categories else []
    without_few = {j: count for j, count in many.items() if j not in few}
    forms = [CategoryForm(many, {}), CategoryForm(without_few, few)]
    if several != many:
        forms.append(CategoryForm(several, {}))
    return forms


def evidence_of_levels(samples: Samples, problem: Problem) -> float:
    """Return the evidence of an exact process for a problem, on rows with the problem's folds."""
    empty = problem.empty
    source = folded(samples.unfolded, empty.scaling, empty.functions)
    folds = replace(samples, source=source)
    with folds.take(problem, min(LEARNING_ROWS, samples.source.n_rows)) as sample:
        return evidence_of(sample, problem, samples.request.seed)
