"""``FitSpec``: the complete, frozen specification of a fit, stored in the job folder; and checks of a request.

``resolve.resolve`` makes a spec from a source and a request, and ``jobs.run`` runs the spec. A resume reads the stored
spec (``jobs.checkpoint``) and changes only the limits that the user may change.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.solvers import SOLVERS
from partirvm.data import Source
from partirvm.data.arrays import ClassWeighted
from partirvm.errors import UsageError
from partirvm.kernels import NoKernel
from partirvm.likelihoods import words_of
from partirvm.options import Request, check
from partirvm.options.constraints import Check
from partirvm.planning.plan import Plan
from partirvm.resolve.kernel import checked_basis, checked_kernel, plain
from partirvm.strategies.fit_rows import grows
from partirvm.strategies.problem import Options, Problem

LIMITS = ("max_rounds", "max_vectors", "effort", "time_limit", "memory_limit")
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
    class_weights: NDArray[np.float64] | None
    input_variance: NDArray[np.float64]
    constant: NDArray[np.bool_]
    counted: int
    measured: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def in_order(self) -> bool:
        """True if new rows become candidates in order, partition by partition: not in a working set."""
        return bool(self.problem.n_kernels) and not self.plan.schedule.selects

    def weigh(self, source: Source) -> Source:
        """Return the source with the class weights of the fit applied to its row weights."""
        return source if self.class_weights is None else ClassWeighted(source, self.class_weights)

    def with_codes(self, codes: NDArray[np.integer[Any]] | None) -> FitSpec:
        """Return the spec with class codes (N,), which are read from the source and not stored in the spec's file."""
        return replace(self, problem=replace(self.problem, codes=codes))


def check_parameters(request: Request) -> Request:
    """Check all options of a request and convert texts to numbers.

    The command line and the estimators call it once per request. Raises ``UsageError`` with the name of the invalid
    option.
    """
    p = check(replace(request, kernel=checked_kernel(request.kernel), basis=checked_basis(request.basis)))
    if p.kernel == NoKernel.name and p.basis is None:
        raise UsageError(
            "kernel and basis are both none: a model needs a kernel, or basis functions such as basis='linear'"
        )
    Check("word", tuple(SOLVERS))("solver", p.solver)
    Check("word", words_of(classes=True))("multi_class", p.multi_class)
    if isinstance(p.noise_variance, str):
        Check("word", ("a number > 0", *words_of(classes=False)))("noise_variance", p.noise_variance)
    if p.strategy == "split-merge" and (grows(p.fit_rows) or p.max_rounds is not None):
        raise UsageError(
            "strategy is 'split-merge', which has no rounds: leave max_rounds out, and set fit_rows to 'full' or "
            "'sample', or use another strategy"
        )
    return p


def portable(request: Request) -> dict[str, Any]:
    """Convert a checked request to plain JSON for a job or a cluster.

    Raises ``UsageError`` for a kernel or a basis that other processes cannot import.
    """
    return asdict(replace(request, kernel=plain(request.kernel, "kernel"), basis=plain(request.basis, "basis")))
