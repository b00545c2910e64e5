"""A fit whose data have gained rows: the spec with which it goes on (``strategies.growing``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from partirvm.backends import Executor
from partirvm.data import Source
from partirvm.options import Request
from partirvm.setup.kernel import learns
from partirvm.setup.resolve import resolve_known
from partirvm.setup.search import Interrupted
from partirvm.setup.spec import FitSpec, memory_limits
from partirvm.strategies.fit_rows import FIT_ROWS, automatic
from partirvm.strategies.growing import joined
from partirvm.strategies.incremental import Incremental


def in_order(spec: FitSpec) -> bool:
    """Whether new rows join in order, partition by partition: after all strategies but the working set.

    Without a kernel no row joins as a candidate.
    """
    return bool(spec.problem.n_kernels) and spec.plan.schedule.every_row_joins


def grow(
    spec: FitSpec,
    source: Source,
    asked: Request,
    executor: Executor,
    held_out: Source | None = None,
    interrupted: Interrupted = lambda: None,
    *,
    same_options: bool = True,
) -> FitSpec:
    """The spec of a fit that goes on over a source with new rows; ``asked`` is its request as it stands now.

    Scaling and kernel stay, and what was resolved before; without ``same_options`` all else is as ``asked``, and a
    partition is no larger than the new rows. Where new rows join in order the strategy is ``incremental``:
    after a fit of all rows at once a partition is as large as these were, after split-and-merge as its partitions, and
    no larger than the new rows; a likelihood that is "auto" is chosen for the new rows. A fit of all rows at once
    has known no limits, and takes them on. Raises as ``resolve`` does.
    """
    before, schedule, options = spec.problem, spec.plan.schedule, spec.options
    new, at_once = source.n_rows - before.n_rows, not schedule.has_rounds
    resolved: dict[str, Any] = {"strategy": schedule.name, "fit_rows": options.fit_rows}
    resolved["partition_size"] = size = options.partition_size
    if FIT_ROWS[options.fit_rows].sampled:
        resolved["sample_rows"] = options.sample_rows
    if not same_options:
        resolved["partition_size"] = min(size, new)
    elif schedule.selects:
        resolved["selection"] = options.selection
    if learns(asked):
        resolved |= {"kernel": before.empty.kernel, "gamma": "auto", "gamma_multiples": (1.0,), "gamma_prior": "flat"}
    if in_order(spec):
        size = min(size, new * before.n_kernels) if at_once else size
        resolved |= {"strategy": Incremental.name, "partition_size": size}
        if asked.fit_rows == "auto":
            resolved["fit_rows"] = automatic(Incremental.schedule, source.n_rows, size, before.n_kernels, new)
    request = replace(asked, **resolved)
    joining = new if in_order(spec) else None
    found = resolve_known(
        source, request, executor, before, held_out=held_out, interrupted=interrupted, joining=joining
    )
    if at_once:
        taken, options = found.options, replace(options, partition_size=before.n_rows * before.n_kernels)
    elif not same_options:
        taken = found.options
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
