"""Check a request as a whole and the data of a fit, before anything is written; convert a request to plain JSON.

``partirvm.options`` checks the single options.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from partirvm.core.moments import Moments
from partirvm.data import Source, require_target
from partirvm.errors import DataError, UsageError
from partirvm.execution import Executor
from partirvm.execution.tasks import MomentsPass
from partirvm.kernels import NoKernel
from partirvm.likelihoods import words_of
from partirvm.options import Request, check
from partirvm.options.constraints import Check
from partirvm.quoting import quoted
from partirvm.resolve.basis import checked_basis, portable_basis
from partirvm.resolve.kernel import checked_kernel, portable_kernel
from partirvm.resolve.measuring import Interrupted, check_aborted
from partirvm.strategies import STRATEGIES
from partirvm.strategies.fit_rows import grows


def check_parameters(parameters: Request) -> Request:
    """Check all options of a request and convert texts to numbers.

    The command line and the estimators call it once per request. Raises ``UsageError`` with the name of the invalid
    option.
    """
    p = replace(parameters, kernel=checked_kernel(parameters.kernel), basis=checked_basis(parameters.basis))
    if p.kernel == NoKernel.name and p.basis is None:
        raise UsageError(
            "kernel and basis are both none: a model needs a kernel, or basis functions such as basis='linear'"
        )
    p = check(p)
    Check("word", words_of(classes=True))("multi_class", p.multi_class)
    if isinstance(p.noise_variance, str):
        Check("word", ("a number > 0", *words_of(classes=False)))("noise_variance", p.noise_variance)
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


def checked_moments(source: Source, executor: Executor, interrupted: Interrupted) -> Moments:
    """Return the moments of all rows, either stored with the data or computed by a pass.

    Raises ``DataError`` for values that are not finite, and ``Stopped`` if an abort was requested.
    """
    moments: Moments = (
        source.moments or executor.run([MomentsPass()], source, lambda *done: check_aborted(interrupted))[0]
    )
    if moments.bad:
        assert moments.first_bad is not None
        row, column = moments.first_bad
        names = [*source.columns.features, *source.columns.target_names(source.n_targets), "the weights"]
        raise DataError(
            f"{moments.bad:,} values are NaN or infinite, the first in row {row:,}, column {quoted(names[column])}: "
            "remove or fill them before the fit"
        )
    if not moments.targets.n:
        raise DataError("no row has a weight above zero: there is nothing to fit")
    return moments


def check_noise_form(source: Source, parameters: Request) -> None:
    """Raise ``UsageError`` for local noise of several targets."""
    if source.n_targets > 1 and parameters.noise == "local":
        raise UsageError(
            f"noise='local' needs one target, but {source} has {source.n_targets}: fit each target separately, or "
            "leave noise='auto'"
        )


def check_sources(source: Source, held_out: Source | None) -> None:
    """Raise an error for data without a target, and for held-out data with other columns or another kind of target."""
    require_target(source)
    if held_out is None:
        return
    require_target(held_out)
    one, other = source.columns, held_out.columns
    if other.classes != one.classes:
        raise DataError(
            f"the target of the validation data is {_kind(held_out)}, the target of the training data {_kind(source)}: "
            "ingest the validation data again, with the training DATA as like= (`--like`)"
        )
    for found, wanted, what in (
        (held_out.n_features, source.n_features, "{} features"),
        (held_out.n_targets, source.n_targets, "{} targets"),
        (list(other.targets), list(one.targets or other.targets), "the targets {}"),
        (list(other.features), list(one.features), "the features {}"),
    ):
        if found and found != wanted:
            raise DataError(
                f"the validation data have {what.format(found)}, the training data {wanted}: both must have the same "
                "columns in the same order"
            )


def _kind(source: Source) -> str:
    classes = source.columns.classes
    return "a number" if classes is None else f"one of the classes {', '.join(map(str, classes))}"


def check_solver(parameters: Request, source: Source) -> None:
    """Raise ``UsageError`` for options that a solver of single-column steps does not support."""
    if parameters.solver != "fast":
        return
    with_priors = any(parameters.alpha_prior) or any(parameters.noise_prior) or parameters.fixed_alpha
    for present, what in (
        (source.columns.classes is not None, "classification"),
        (source.n_targets > 1, "several targets at once"),
        (with_priors, "alpha_prior, noise_prior and fixed_alpha"),
    ):
        if present:
            raise UsageError(f"solver 'fast' does not support {what}: it must be 'auto' or 'fixed-point'")
