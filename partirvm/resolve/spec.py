"""``FitSpec``: the complete, frozen specification of a fit, stored in the job folder.

``resolve.resolve`` makes a spec from a source and a request, and ``jobs.run`` runs the spec. A resume reads the stored
spec (``jobs.checkpoint``) and changes only the limits that the user may change (``with_limits``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.data import Source
from partirvm.data.arrays import ClassWeighted
from partirvm.options import Request
from partirvm.planning.cost import Rates
from partirvm.planning.memory import DataShape
from partirvm.planning.plan import STORE_FRACTION, KernelStore, Machine, Plan, choose, make_plan
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import candidate_search, rows_used
from partirvm.strategies.problem import Options, Problem

Float = NDArray[np.float64]

OPTION_LIMITS = ("max_rounds", "max_vectors", "effort")
"""Limits that are options of the strategies."""

LIMITS = (*OPTION_LIMITS, "time_limit", "memory_limit")
"""Options that a resume may change; any other change would give a different fit."""


@dataclass(frozen=True)
class FitSpec:
    """The specification of a fit that is ready to run.

    ``request`` is the request of the user with every "auto" that affects the model resolved. ``problem`` holds the
    kernel, learned or given. ``class_weights`` (K,) is None if ``class_weight`` is not used. ``input_variance`` (d,) is
    the variance of the scaled inputs, ``constant`` (d,) marks constant features, and ``counted`` is the number of rows
    of positive weight.

    ``measured`` are the history entries of kernel learning and of the heuristic's fit. ``notes`` are the notes of the
    plan that were found before planning.
    """

    request: Request
    problem: Problem
    options: Options
    plan: Plan
    class_weights: Float | None
    input_variance: Float
    constant: NDArray[np.bool_]
    counted: int
    measured: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def weigh(self, source: Source) -> Source:
        """Return the source with the class weights of the fit applied to its row weights."""
        return source if self.class_weights is None else ClassWeighted(source, self.class_weights)

    def with_codes(self, codes: NDArray[np.integer[Any]] | None) -> FitSpec:
        """Return the spec with class codes (N,), which are read from the source and not stored in the spec's file."""
        return replace(self, problem=replace(self.problem, codes=codes))

    def with_limits(self, asked: Request, machine: Machine, rates: Rates, *, elastic: bool) -> FitSpec:
        """Return the spec of the same fit with the ``LIMITS`` of ``asked``, planned for this machine.

        If the memory limit is unchanged, the maximum number of columns stays unchanged too. Otherwise a process with a
        slightly larger base memory would end the fit earlier than the previous process. Raises ``MemoryLimitError`` if
        the fit needs more memory than the limit.
        """
        request = replace(self.request, **{name: getattr(asked, name) for name in LIMITS})
        plan = planned(request, self.problem, self.plan.shape, machine, rates, elastic, joining=self.plan.joining)
        notes = self.notes + plan.notes
        plan = replace(plan, sparseness=self.plan.sparseness, learned=self.plan.learned, notes=notes)
        changed = {name: getattr(request, name) for name in OPTION_LIMITS}
        options = replace(self.options, **changed)
        if machine.limit != self.plan.machine.limit:
            options = replace(options, **memory_limits(plan))
        return replace(self, request=request, plan=plan, options=options)


def planned(
    request: Request,
    problem: Problem,
    shape: DataShape,
    machine: Machine,
    rates: Rates,
    elastic: bool,
    *,
    shrink_partition: bool = False,
    joining: int | None = None,
) -> Plan:
    """Plan a resolved request by arithmetic only. Raises ``MemoryLimitError`` as ``make_plan`` does."""
    schedule, used = STRATEGIES[request.strategy].schedule, rows_used(request, shape.n_rows)
    search = candidate_search(request, shape, shuffled=problem.shuffled)
    asked = {"held_out": problem.held_out, "shrink_threads": elastic, "shrink_partition": shrink_partition}
    plan = make_plan(shape, machine, rates, request, schedule, used, search, **asked, joining=joining)
    return replace(plan, kernel_store=_kernel_store(plan, rates, request))


def memory_limits(plan: Plan) -> dict[str, Any]:
    """Return the ``Options`` that depend on memory: limits of columns, of parallel fits, and of kernel learning."""
    return {
        "max_columns": plan.max_columns,
        "batch": plan.batch_elements,
        "learning_columns": plan.learning_columns,
    }


def _kernel_store(plan: Plan, rates: Rates, request: Request) -> KernelStore:
    """Choose where kernel blocks are kept: in memory or nowhere."""
    if not plan.shape.n_kernels:
        return KernelStore("none", 0, "there is no kernel")
    spare = plan.room(plan.columns)
    if request.kernel_store == request.memory_limit == "auto":
        spare = min(spare, int(STORE_FRACTION * plan.machine.limit))
    return choose(
        request.kernel_store,
        rates,
        plan.shape.n_rows,
        plan.columns,
        plan.machine.workers,
        spare,
        repeats=plan.shape.classes,
    )
