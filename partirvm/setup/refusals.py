"""Checks of data and options before anything is written; each check raises an error if a fit is impossible."""

from __future__ import annotations

from partirvm.backends import Executor
from partirvm.backends.tile_passes import MomentsPass
from partirvm.core.moments import Moments
from partirvm.core.solvers import SOLVERS
from partirvm.data import Source, require_target
from partirvm.errors import DataError, UsageError
from partirvm.options import Request
from partirvm.quoting import quoted
from partirvm.setup.timer import Interrupted, check_aborted


def checked_moments(source: Source, executor: Executor, interrupted: Interrupted) -> Moments:
    """Return the moments of all rows, either stored with the data or computed by a pass.

    Raises ``DataError`` for values that are not finite, and ``StoppedError`` if an abort was requested.
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


def check_multi_output(source: Source, parameters: Request) -> None:
    """Raise ``UsageError`` for options that several targets in one fit exclude.

    These are ``multi_output="independent"``, because targets share vectors, and ``noise="local"``.
    """
    if source.n_targets > 1 and parameters.multi_output != "shared":
        raise UsageError(
            f"multi_output is {parameters.multi_output!r}, but the {source.n_targets} targets of {source} share their "
            "vectors in one fit: use multi_output='shared', ingest and fit each target separately (without the other "
            "targets as features), or fit arrays with RVMRegressor"
        )
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
    if not SOLVERS[parameters.solver].acts_alone:
        return
    with_priors = any(parameters.alpha_prior) or any(parameters.noise_prior) or parameters.fixed_alpha
    for present, what in (
        (source.n_targets > 1, "several targets at once"),
        (with_priors, "alpha_prior, noise_prior and fixed_alpha"),
    ):
        if present:
            others = " or ".join(repr(name) for name, solver in SOLVERS.items() if not solver.acts_alone)
            raise UsageError(f"solver {parameters.solver!r} does not support {what}: it must be {others}")
