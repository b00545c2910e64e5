"""Checks of data and options before anything is written: each raises an error for what cannot be fitted."""

from __future__ import annotations

from partirvm.backends import Executor
from partirvm.backends.tile_passes import MomentsPass
from partirvm.core.moments import Moments
from partirvm.core.solvers import SOLVERS
from partirvm.core.termination import Termination
from partirvm.data import Source, require_target
from partirvm.errors import DataError, UsageError
from partirvm.options import Request
from partirvm.quoting import quoted
from partirvm.setup.search import Interrupted, StoppedError


def look(interrupted: Interrupted) -> None:
    """Raise ``StoppedError`` if an abort was requested."""
    if interrupted() is Termination.ABORTED:
        raise StoppedError


def checked_moments(source: Source, executor: Executor, interrupted: Interrupted) -> Moments:
    """Moments of all rows, stored ones or from a pass.

    Raises ``DataError`` for values that are not finite, ``StoppedError`` if ``interrupted`` wants the end of the pass.
    """
    moments: Moments = source.moments or executor.run([MomentsPass()], source, lambda *done: look(interrupted))[0]
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
    """Raise ``UsageError`` for several targets with ``multi_output="independent"``: one fit has one set of vectors."""
    if source.n_targets > 1 and parameters.multi_output != "shared":
        raise UsageError(
            f"multi_output is {parameters.multi_output!r}, and {source} has {source.n_targets} targets: one fit gives "
            "them shared vectors ('shared'); for separate vectors ingest each target by itself, without the others "
            "among its features, or fit arrays with RVMRegressor"
        )


def check_sources(source: Source, held_out: Source | None) -> None:
    """Raise an error for data that cannot be fitted, and for held-out data of another kind."""
    require_target(source)
    if held_out is not None:
        _check_held_out(source, held_out)


def _check_held_out(source: Source, held_out: Source) -> None:
    require_target(held_out)
    if held_out.n_features != source.n_features:
        raise DataError(
            f"the validation data have {held_out.n_features} features, the training data {source.n_features}: they "
            "must have the same columns"
        )
    if held_out.n_targets != source.n_targets:
        raise DataError(
            f"the validation data have {held_out.n_targets} targets, the training data {source.n_targets}: they must "
            "have the same number"
        )
    if held_out.columns.targets and source.columns.targets not in ((), held_out.columns.targets):
        raise DataError(
            f"the validation data have the targets {list(held_out.columns.targets)}, the training data "
            f"{list(source.columns.targets)}: they must be the same, in the same order"
        )
    if held_out.columns.classes != source.columns.classes:
        raise DataError(
            f"the target of the validation data is {_kind(held_out)}, that of the training data {_kind(source)}: "
            "ingest the validation data with like= (`--like`) and the training DATA"
        )
    if held_out.columns.features != source.columns.features:
        raise DataError(
            f"the validation data have the features {list(held_out.columns.features)}, the training data "
            f"{list(source.columns.features)}: they must be the same, in the same order"
        )


def _kind(source: Source) -> str:
    classes = source.columns.classes
    return "a number" if classes is None else f"one of the classes {', '.join(map(str, classes))}"


def check_solver(parameters: Request, source: Source) -> None:
    """Raise ``UsageError`` if the solver acts on one column at a time and the request has what it does not support."""
    if not SOLVERS[parameters.solver].acts_alone:
        return
    believed = any(parameters.alpha_prior) or any(parameters.noise_prior) or parameters.fixed_alpha
    for there, what in (
        (source.n_targets > 1, "several targets at once"),
        (believed or parameters.updates == "em", "alpha_prior, noise_prior, fixed_alpha and updates='em'"),
    ):
        if there:
            others = " or ".join(repr(name) for name, solver in SOLVERS.items() if not solver.acts_alone)
            raise UsageError(f"solver {parameters.solver!r} does not support {what}: it must be {others}")
