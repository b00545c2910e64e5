"""Warnings of a fit: about its data, and about limits that lower its accuracy."""

from __future__ import annotations

import warnings

import numpy as np

from partirvm.core.termination import Termination
from partirvm.errors import AccuracyWarning, DataWarning, LimitWarning, NoiseFloorWarning, OverconfidenceWarning
from partirvm.jobs.driver import Outcome
from partirvm.learning.basic_fits import DENSE
from partirvm.quoting import listed, quoted
from partirvm.setup.spec import FitSpec
from partirvm.types import Columns


def warn_of_data(spec: FitSpec, columns: Columns) -> None:
    """Warn of a constant target and of constant features."""
    if not spec.problem.target_variance:
        warnings.warn(
            f"the target {quoted(columns.target)} is constant: the model is its mean", DataWarning, stacklevel=3
        )
    constant = np.flatnonzero(spec.constant)
    if len(constant) and spec.counted > 1:
        names = listed(columns.features[column] for column in constant)
        warnings.warn(f"constant features are ignored: {names}", DataWarning, stacklevel=3)


def warn_of_outcome(outcome: Outcome, spec: FitSpec) -> None:
    """Warn of problems with a finished fit, such as a noise estimate at its floor or a reached memory limit."""
    last, classes = outcome.last, spec.problem.classifies
    if last is None or last.kind in ("part", "early"):
        return
    if last.floored:
        warnings.warn(
            "the noise estimate reached its floor: the data are nearly noise-free, or the model interpolates the "
            "targets; set noise_variance, widen the kernel, or check held-out errors",
            NoiseFloorWarning,
            stacklevel=2,
        )
    if last.overconfident:
        assert last.overconfidence is not None
        warnings.warn(
            f"errors of rows left out are {last.overconfidence**0.5:,.1f} × the standard deviation by the evidence; "
            "the stated noise comes from these errors. The kernel is probably too narrow: try a lower gamma",
            OverconfidenceWarning,
            stacklevel=3,
        )
    for remark in outcome.remarks:
        warnings.warn(remark, AccuracyWarning, stacklevel=3)
    if last.duplicates:
        warnings.warn(
            f"{last.duplicates:,} candidates had the same inputs as another row: these candidates did not become "
            f"centres, but their {'classes' if classes else 'targets'} are used in the fit",
            DataWarning,
            stacklevel=3,
        )
    if last.dropped:
        warnings.warn(
            f"{last.dropped:,} vectors were dropped at merges because of max_vectors or memory_limit: fits of these "
            "data prune fewer than half of their candidates; raise the limit, or use the working-set strategy",
            LimitWarning,
            stacklevel=3,
        )
    sparseness = spec.plan.sparseness
    if sparseness is not None and sparseness.rho > DENSE:
        warnings.warn(
            f"{sparseness.rho:.0%} of {sparseness.rows:,} random rows became vectors: the kernel is probably too "
            "narrow; try a lower gamma",
            DataWarning,
            stacklevel=3,
        )
    if not last.vectors and spec.problem.target_variance and spec.problem.empty.functions is None:
        warnings.warn(
            "no relevance vector is left, so that the model predicts "
            f"{'the class frequencies' if classes else 'the mean'}: the kernel does not fit these data; try another "
            "gamma",
            DataWarning,
            stacklevel=3,
        )
    grave = {Termination.MEMORY, Termination.ITERATIONS}
    in_order = spec.plan.schedule.has_rounds and spec.plan.schedule.whole_partitions
    if in_order:
        grave.add(Termination.VECTORS)
    for reason in {outcome.reason, last.termination} & grave:
        advice = reason.advice
        if in_order and not (reason is Termination.ITERATIONS or spec.plan.joining):
            used = f"{last.number:,} of {spec.plan.partitions:,} partitions"
            advice += f" Only {used} became candidates; the working-set strategy selects from all rows."
        warnings.warn(advice, LimitWarning, stacklevel=3)


def warn_of_limits(outcome: Outcome, spec: FitSpec) -> None:
    """Warn if the model has more than ``max_vectors`` vectors. A single fit of all rows cannot keep this limit."""
    strategy, limit = spec.plan.strategy, spec.request.max_vectors
    vectors = outcome.last.vectors if outcome.last is not None and outcome.last.kind != "early" else 0
    if limit is not None and vectors > limit:
        warnings.warn(
            f"{vectors:,} vectors are more than max_vectors = {limit:,}: {strategy} fits all rows as candidates at "
            "once and cannot keep this limit; choose another strategy",
            LimitWarning,
            stacklevel=3,
        )
