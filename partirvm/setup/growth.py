"""Make the spec that continues a fit after rows were appended to its data (``strategies.appended``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.backends import Executor
from partirvm.data import Source
from partirvm.options import Request
from partirvm.setup.kernel import learns
from partirvm.setup.resolve import resolve
from partirvm.setup.spec import FitSpec, memory_limits
from partirvm.setup.timer import Interrupted
from partirvm.strategies.appended import joined
from partirvm.strategies.fit_rows import automatic, grows
from partirvm.strategies.incremental import IncrementalRounds


def in_order(spec: FitSpec) -> bool:
    """True if the new rows become candidates in order, partition by partition.

    This holds for all strategies but the working set, and only with a kernel: without a kernel there are no candidates.
    """
    return bool(spec.problem.n_kernels) and spec.plan.schedule.every_row_joins


def grow(
    spec: FitSpec,
    source: Source,
    asked: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
) -> FitSpec:
    """Make the spec that continues a fit on a source with new rows; ``asked`` is the current request.

    Scaling, kernel and all resolved options stay unchanged.

    If the new rows join in order (``in_order``), the strategy is ``incremental`` with the partition size of the
    earlier fit, and ``fit_rows="auto"`` is resolved for the new rows. After a fit of all rows at once, the partition
    size is at most the number of new rows. The limits of ``asked`` then apply, because the earlier fit had no limits.
    Raises the errors of ``resolve``.
    """
    before, schedule, options = spec.problem, spec.plan.schedule, spec.options
    new, at_once = source.n_rows - before.n_rows, not schedule.has_rounds
    # the statistics of the earlier fit refer to all rows, and only those of the new rows are needed
    fit_rows = "full" if grows(options.fit_rows) else options.fit_rows
    resolved: dict[str, Any] = {"strategy": schedule.name, "fit_rows": fit_rows}
    resolved["partition_size"] = size = options.partition_size
    if fit_rows == "sample":
        resolved["sample_rows"] = options.sample_rows
    if schedule.selects:
        resolved["selection"] = options.selection
    if learns(asked):
        resolved |= {
            "kernel": before.empty.kernel,
            "gamma": "auto",
            "gamma_multiples": (1.0,),
            "gamma_prior": "flat",
            "metric": "auto",
        }
    if in_order(spec):
        size = min(size, new * before.n_kernels) if at_once else size
        resolved |= {"strategy": IncrementalRounds.name, "partition_size": size}
        if asked.fit_rows == "auto":
            resolved["fit_rows"] = automatic(IncrementalRounds.schedule, source.n_rows, size, before.n_kernels, new)
    request = replace(asked, **resolved)
    joining = new if in_order(spec) else None
    found = resolve(source, request, executor, held_out, interrupted, known=before, joining=joining)
    if at_once:
        taken, options = found.options, replace(options, partition_size=before.n_rows * before.n_kernels)
    else:
        taken = replace(
            options,
            fit_rows=found.options.fit_rows,
            max_rounds=found.options.max_rounds,
            max_vectors=found.options.max_vectors,
        )
        if found.plan.machine.limit != spec.plan.machine.limit:
            taken = replace(taken, **memory_limits(found.plan))
    problem = joined(before, options, found.problem, taken.partition_size)
    return replace(found, problem=problem, options=replace(taken, centres=0), before=replace(spec, before=None))
