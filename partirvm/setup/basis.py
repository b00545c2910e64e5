"""From what a user asks of the basis to basis functions: names, callables, transformers, and lists of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.kernels import NoKernel
from partirvm.kernels.bases import (
    Basis,
    LinearBasis,
    LocalBasis,
    NamedBasis,
    Together,
    evaluated,
    title_of,
    unportable,
)
from partirvm.kernels.design import NONE
from partirvm.kernels.functions import named_function, require_path
from partirvm.options import Request
from partirvm.setup.categories import kinds
from partirvm.strategies.selection import random_rows
from partirvm.types import Columns, Scaling

PROBED = 16
"""Rows at which functions are counted."""

FITTED_ON = 20_000
"""Rows on which an unfitted transformer is fitted: all of them, or so many random ones."""

DRAW = 5
"""Sets the draw of these rows apart from other draws of the same seed."""


def checked_basis(given: Any) -> Any:
    """ "linear" or ``module:function``, a callable or a transformer as it is; of a list a tuple, of one alone itself.

    Raises ``UsageError`` for what is none of these. No module is imported.
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
            f"basis is {given!r}; known: {LinearBasis.name}, a function's 'module:function', a callable, a transformer "
            "of scikit-learn, or a list of such"
        )
    return given


def transforms(given: Any) -> bool:
    """Whether this is a transformer in scikit-learn's sense."""
    return hasattr(given, "transform") and hasattr(given, "fit")


def require_functions(parameters: Request) -> None:
    """Raise ``UsageError`` where there is neither a kernel nor a basis."""
    if parameters.kernel == NoKernel.name and parameters.basis is None:
        raise UsageError("kernel is none, and basis too: a model needs basis functions, such as basis='linear'")


def portable_basis(basis: Any) -> Any:
    """A checked basis as plain JSON: what a job or a cluster holds of it.

    Raises ``UsageError`` for one that only this process has.
    """
    if isinstance(basis, tuple):
        return list(map(portable_basis, basis))
    if basis is None or isinstance(basis, str):
        return basis
    raise UsageError(unportable(basis))


def resolve_basis(parameters: Request, source: Source, scaling: Scaling) -> Basis | None:
    """The basis functions of a checked basis, counted on the first rows; a transformer is fitted if it is not.

    They see inputs as the kernel does: standardised where the fit standardises. An unfitted transformer is cloned, and
    fitted on all training rows, or on ``FITTED_ON`` random ones that depend on the seed alone. Raises ``UsageError``
    for functions that cannot be had, or that return what cannot be columns.
    """
    if parameters.basis is None:
        return None
    points = scaling.inputs(source.tile(0).X[:PROBED])
    return _resolved(parameters.basis, points, parameters, source, scaling)


def _resolved(given: Any, points: Any, parameters: Request, source: Source, scaling: Scaling) -> Basis:
    if isinstance(given, tuple):
        return Together(tuple(_resolved(each, points, parameters, source, scaling) for each in given))
    if given == LinearBasis.name:
        return LinearBasis(source.n_features)
    if isinstance(given, str):
        return NamedBasis(given, _counted(named_function(given, "basis"), given, points))
    names: tuple[str, ...] = ()
    if transforms(given):
        transformer = fitted(given, parameters, source, scaling)
        given, names = transformer.transform, _names(transformer, source)
    size = _counted(given, title_of(given), points)
    return LocalBasis(given, size, names if len(names) == size else ())


def _counted(function: Any, title: str, points: Any) -> int:
    """How many functions there are. Raises ``UsageError`` if there are none."""
    count: int = evaluated(function, title, points).shape[1]
    if not count:
        raise UsageError(f"basis {title} has no column: it must return one at least")
    return count


def fitted(transformer: Any, parameters: Request, source: Source, scaling: Scaling) -> Any:
    """The transformer, if it has been fitted; else a clone of it, fitted on inputs as the model sees them."""
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(transformer)
        return transformer
    except NotFittedError:
        made = clone(transformer)
    rows = random_rows(source.n_rows, NONE, FITTED_ON, seed=parameters.seed, draw=DRAW, shuffled=source.shuffled)
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
    """What the transformer calls its columns, given the features' names; none if it does not tell."""
    for given in ((source.columns.features,), ()):
        with suppress(Exception):  # some tell none, others know other features
            return tuple(map(str, transformer.get_feature_names_out(*given)))
    return ()


def codes_seen(parameters: Request, columns: Columns) -> str:
    """The categorical columns whose codes the linear basis would take for numbers, as text; empty for none."""
    basis = parameters.basis
    if LinearBasis.name not in (basis if isinstance(basis, tuple) else (basis,)):
        return ""
    return ", ".join(columns.features[j] for j in kinds(columns)[1])
