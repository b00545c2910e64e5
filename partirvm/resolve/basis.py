"""Turn the option ``basis`` into basis functions: names, callables, transformers, and lists of these."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from partirvm.core.sampling import Purpose
from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.kernels.design import NONE
from partirvm.kernels.functions import LINEAR, Basis, BasisPart, evaluated, function_of, name_of, require_path, title_of
from partirvm.options import Request
from partirvm.resolve.kernel import coded_features
from partirvm.strategies.fit_rows import random_rows
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
        parts = (checked_basis(each) for each in given)
        found = tuple(each for part in parts for each in (part if isinstance(part, tuple) else (part,)))
        return found[0] if len(found) == 1 else found
    if given is None or (isinstance(given, str) and given == LINEAR):
        return given
    if isinstance(given, str) and ":" in given:
        require_path(given, "basis", "mypackage.physics:harmonics")
        return given
    if isinstance(given, str | type) or not (callable(given) or _transforms(given)):
        raise UsageError(
            f"basis is {given!r}; known: {LINEAR}, the path 'module:function' of a function, a callable, "
            "a transformer of scikit-learn, or a list of these"
        )
    return given


def _transforms(given: Any) -> bool:
    return hasattr(given, "transform") and hasattr(given, "fit")


def portable_basis(basis: Any) -> Any:
    """Convert a checked basis to plain JSON for a job or a cluster.

    Raises ``UsageError`` for a callable or a transformer, because other processes cannot import it by a path.
    """
    if isinstance(basis, tuple):
        return list(map(portable_basis, basis))
    return None if basis is None else name_of(basis, "basis")


def resolve_basis(parameters: Request, source: Source, scaling: Scaling) -> Basis | None:
    """Make the basis functions of a checked basis; count their columns on the first rows.

    The basis functions and the kernel receive the same inputs, which are standardised if ``standardize`` is set. An
    unfitted transformer is cloned and fitted on all training rows, or on ``FITTED_ON`` random rows if there are more.
    These rows depend on the seed only. Raises ``UsageError`` for a function that cannot be imported, and for return
    values that cannot be columns.
    """
    given = parameters.basis
    if given is None:
        return None
    points, parts = scaling.inputs(source.tile(0).X[:PROBED]), []
    for each in given if isinstance(given, tuple) else (given,):
        names: tuple[str, ...] = ()
        if isinstance(each, str) and each == LINEAR:
            parts.append(BasisPart(LINEAR, source.n_features))
            continue
        function = each
        if _transforms(each):
            transformer = _fitted(each, parameters, source, scaling)
            function, names = transformer.transform, _names(transformer, source)
        size: int = evaluated(function_of(function, "basis"), f"basis {title_of(function)}", points).shape[1]
        if not size:
            raise UsageError(f"basis {title_of(function)} returned no column: it must return at least one")
        parts.append(BasisPart(function, size, names if len(names) == size else ()))
    return Basis(tuple(parts))


def _fitted(transformer: Any, parameters: Request, source: Source, scaling: Scaling) -> Any:
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
    if LINEAR not in (basis if isinstance(basis, tuple) else (basis,)):
        return ""
    return coded_features(columns)
