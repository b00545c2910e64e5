"""Turn the option ``basis`` into basis functions: names, callables, transformers, and lists of these."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from partirvm.core.sampling import Purpose
from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.kernels import NoKernel
from partirvm.kernels.bases import Basis, FunctionBasis, JoinedBasis, LinearBasis
from partirvm.kernels.design import NONE
from partirvm.kernels.functions import evaluated, function_of, require_path, title_of, unportable
from partirvm.options import Request
from partirvm.setup.kernel import coded_features
from partirvm.strategies.selection import random_rows
from partirvm.types import Columns, Scaling

PROBED = 16
"""Number of rows on which the basis is evaluated once, to count its columns."""

FITTED_ON = 20_000
"""Maximum number of rows on which an unfitted transformer is fitted; larger data are sampled at random."""


def checked_basis(given: Any) -> Any:
    """Check the type of the option ``basis``.

    "linear", ``module:function``, callables and transformers are returned unchanged. A list becomes a tuple, and a
    list of one becomes its only element. Raises ``UsageError`` for any other value. No module is imported.
    """
    if isinstance(given, list | tuple) and given:
        found = tuple(map(checked_basis, given))
        return found[0] if len(found) == 1 else found
    if given is None or (isinstance(given, str) and given == LinearBasis.name):
        return given
    if isinstance(given, str) and ":" in given:
        require_path(given, "basis", "mypackage.physics:harmonics")
        return given
    if isinstance(given, str | type) or not (callable(given) or transforms(given)):
        raise UsageError(
            f"basis is {given!r}; known: {LinearBasis.name}, the path 'module:function' of a function, a callable, "
            "a transformer of scikit-learn, or a list of these"
        )
    return given


def transforms(given: Any) -> bool:
    """True if the value has the methods of a scikit-learn transformer."""
    return hasattr(given, "transform") and hasattr(given, "fit")


def require_functions(parameters: Request) -> None:
    """Raise ``UsageError`` if the request has neither a kernel nor a basis."""
    if parameters.kernel == NoKernel.name and parameters.basis is None:
        raise UsageError(
            "kernel and basis are both none: a model needs a kernel, or basis functions such as basis='linear'"
        )


def portable_basis(basis: Any) -> Any:
    """Convert a checked basis to plain JSON for a job or a cluster.

    Raises ``UsageError`` for a callable or a transformer, because other processes cannot import it by a path.
    """
    if isinstance(basis, tuple):
        return list(map(portable_basis, basis))
    if basis is None or isinstance(basis, str):
        return basis
    raise UsageError(unportable(basis, "basis"))


def resolve_basis(parameters: Request, source: Source, scaling: Scaling) -> Basis | None:
    """Make the basis functions of a checked basis; count their columns on the first rows.

    The basis functions and the kernel receive the same inputs, which are standardised if ``standardize`` is set. An
    unfitted transformer is cloned and fitted on all training rows, or on ``FITTED_ON`` random rows if there are more.
    These rows depend on the seed only. Raises ``UsageError`` for a function that cannot be imported, and for return
    values that cannot be columns.
    """
    if parameters.basis is None:
        return None
    points = scaling.inputs(source.tile(0).X[:PROBED])
    return _resolved(parameters.basis, points, parameters, source, scaling)


def _resolved(given: Any, points: Any, parameters: Request, source: Source, scaling: Scaling) -> Basis:
    if isinstance(given, tuple):
        return JoinedBasis(tuple(_resolved(each, points, parameters, source, scaling) for each in given))
    if given == LinearBasis.name:
        return LinearBasis(source.n_features)
    names: tuple[str, ...] = ()
    if transforms(given):
        transformer = fitted(given, parameters, source, scaling)
        given, names = transformer.transform, _names(transformer, source)
    size: int = evaluated(function_of(given, "basis"), f"basis {title_of(given)}", points).shape[1]
    if not size:
        raise UsageError(f"basis {title_of(given)} returned no column: it must return at least one")
    return FunctionBasis(given, size, names if len(names) == size else ())


def fitted(transformer: Any, parameters: Request, source: Source, scaling: Scaling) -> Any:
    """Return a fitted transformer unchanged; otherwise return a clone, fitted on the scaled inputs."""
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(transformer)
        return transformer
    except NotFittedError:
        made = clone(transformer)
    rows = random_rows(
        source.n_rows,
        NONE,
        FITTED_ON,
        seed=parameters.seed,
        draw=0,
        shuffled=source.shuffled,
        purpose=Purpose.BASIS_ROWS,
    )
    weights = source.weights_of(rows)
    rows = rows if weights is None else rows[weights > 0]
    try:
        return made.fit(scaling.inputs(source.gather(rows)))
    except Exception as error:
        raise UsageError(
            f"basis {type(transformer).__name__} could not be fitted to {len(rows):,} rows: "
            f"{type(error).__name__}: {error}"
        ) from error


def _names(transformer: Any, source: Source) -> tuple[str, ...]:
    """Return the transformer's column names for the names of the features; empty if it has none."""
    for given in ((source.columns.features,), ()):
        with suppress(Exception):  # the method may be missing, or the transformer was fitted to other feature names
            return tuple(map(str, transformer.get_feature_names_out(*given)))
    return ()


def codes_in_linear_basis(parameters: Request, columns: Columns) -> str:
    """List the categorical columns whose codes the linear basis would treat as numbers; an empty text if none."""
    basis = parameters.basis
    if LinearBasis.name not in (basis if isinstance(basis, tuple) else (basis,)):
        return ""
    return coded_features(columns)
