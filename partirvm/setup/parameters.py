"""Check a request as a whole, and convert it to plain JSON. ``partirvm.options`` checks the single options."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from partirvm.core.solvers import SOLVERS
from partirvm.errors import UsageError
from partirvm.likelihoods import words_of
from partirvm.options import Request, check
from partirvm.options.constraints import OneOf
from partirvm.setup.basis import checked_basis, portable_basis, require_functions
from partirvm.setup.kernel import checked_kernel, portable_kernel
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import grows


def check_parameters(parameters: Request) -> Request:
    """Check all options of a request and convert texts to numbers.

    The command line and the estimators call it once per request. Raises ``UsageError`` with the name of the invalid
    option.
    """
    p = replace(parameters, kernel=checked_kernel(parameters.kernel), basis=checked_basis(parameters.basis))
    require_functions(p)
    p = check(p)
    OneOf(("auto", *STRATEGIES))("strategy", p.strategy)
    OneOf(tuple(SOLVERS))("solver", p.solver)
    OneOf(words_of(classes=True))("multi_class", p.multi_class)
    if isinstance(p.noise_variance, str):
        OneOf(("a number > 0", *words_of(classes=False)))("noise_variance", p.noise_variance)
    _check_together(p)
    return p


def _check_together(p: Request) -> None:
    """Raise ``UsageError`` for options that exclude each other."""
    merges = p.strategy in STRATEGIES and STRATEGIES[p.strategy].schedule.merges
    if merges and grows(p.fit_rows):
        raise UsageError(
            f"fit_rows is {p.fit_rows!r}, but the fits of {p.strategy} run side by side: set fit_rows to 'full' or "
            "'sample', or use another strategy"
        )
    if merges and p.max_rounds is not None:
        raise UsageError(
            f"max_rounds is {p.max_rounds}, but {p.strategy} has no rounds: limit max_vectors, or use another strategy"
        )


def portable(parameters: Request) -> dict[str, Any]:
    """Convert checked parameters to plain JSON for a job or a cluster.

    Raises ``UsageError`` for a kernel or a basis that other processes cannot import.
    """
    kernel, basis = portable_kernel(parameters.kernel), portable_basis(parameters.basis)
    return asdict(replace(parameters, kernel=kernel, basis=basis))
