"""Warnings of a fit: about its data, and about limits that lower its accuracy."""

from __future__ import annotations

import warnings

import numpy as np

from partirvm.core.termination import Termination
from partirvm.errors import DataWarning, LimitWarning, NoiseFloorWarning, OverconfidenceWarning
from partirvm.jobs.driver import Outcome
from partirvm.quoting import listed, quoted
from partirvm.setup.partition_size import DENSE
from partirvm.setup.spec import FitSpec
from partirvm.types import Columns


def warn_of_data(spec: FitSpec, columns: Columns) -> None:
    if not spec.problem.target_variance:
        warnings.warn(
            f"the target {quoted(columns.target)} is constant: the model is its mean", DataWarning, stacklevel=3
        )
    constant = np.flatnonzero(spec.constant)
    if len(constant) and spec.counted > 1:
        names = listed(columns.features[column] for column in constant)
        warnings.warn(f"constant features are ignored: {names}", DataWarning, stacklevel=3)


def warn_of_outcome(outcome: Outcome, spec: FitSpec) -> None:
    last, classes = outcome.last, spec.problem.classifies
    if last is None or last.kind in ("part", "early"):
        return
    if last.floored:
        warnings.warn(
            "the noise estimate reached its floor: the data look noise-free to this kernel, or the model interpolates "
            "them; set noise_variance, widen the kernel, or check held-out errors",
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
    if last.duplicates:
        warnings.warn(
            f"{last.duplicates:,} candidates had the same inputs as another row and were left out as centres; their "
            f"{'classes' if classes else 'targets'} count",
            DataWarning,
            stacklevel=3,
        )
    if last.dropped:
        warnings.warn(
            f"{last.dropped:,} vectors were dropped at merges because of max_vectors or memory_limit: on these data "
            "fits prune fewer than half of their candidates; the working-set strategy adds only as many as fit",
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
            f"no relevance vector is left, the model predicts {'the class frequencies' if classes else 'the mean'}: "
            "the kernel does not fit these data; try another gamma",
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
    """Warn if a strategy with one fit of all rows exceeds ``max_vectors``, which it cannot keep."""
    strategy, most = spec.plan.strategy, spec.request.max_vectors
    vectors = outcome.last.vectors if outcome.last is not None and outcome.last.kind != "early" else 0
    if most is not None and vectors > most:
        warnings.warn(
            f"{vectors:,} vectors are more than max_vectors = {most:,}: {strategy} fits all rows as candidates at "
            "once; the other strategies keep this limit",
            LimitWarning,
            stacklevel=3,
        )
