"""Construct the kernel and the basis functions of a fit from the options ``kernel``, ``gamma`` and
``basis``.

A family never treats category codes as numbers. For numeric features x and categorical features c,
the kernel is

    k(x, z)·exp(−Σ_j gamma_j [c_j ≠ c'_j]),

so that gamma_j is subtracted from the exponent if the two rows have different levels of the feature
c_j.

Some rules need the variance of each column, which is half the mean squared difference between two
rows. For a categorical column with L equally frequent levels, it is half the probability that two
rows differ, v = (1 − 1/L)/2; with L = 2, it equals the variance of codes 0 and 1.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm import kernels
from partirvm.core.moments import Moments
from partirvm.data.source import Source
from partirvm.errors import UsageError
from partirvm.kernels import (
    Anova,
    Categorical,
    Family,
    FunctionKernel,
    Kernel,
    NoKernel,
    Several,
    kernel_from_spec,
)
from partirvm.kernels.functions import (
    LINEAR,
    TREES,
    Basis,
    evaluated,
    name_of,
    require_function,
)
from partirvm.options import Request
from partirvm.options.constraints import Check
from partirvm.scaling.maps import Scaling
from partirvm.spec.problem import NO_TREES
from partirvm.types import Columns, Float

BY_GAMMA: dict[str, type[Family]] = {**kernels.WITH_GAMMA, "auto": kernels.Gaussian}
"""Kernel families by their option values; "auto" is resolved if gamma is learned."""

AUTO = "auto"
"""Value of ``basis`` with which left-out rows decide about boosted trees."""

LEARN = ("learn-shared", "learn-per-feature")
RULES = ("learn", "scale", *LEARN)
"""String values of gamma; with a value in ``LEARN``, a kernel with numeric parameters is also
learned."""


def _is(value: Any, *words: str) -> bool:
    return isinstance(value, str) and value in words


def chooses(request: Request) -> bool:
    """Return whether gamma is "learn" for a family given by name, so that the kernel's form is
    chosen, too."""
    return _is(request.gamma, "learn") and _is(request.kernel, *BY_GAMMA)


def learns(request: Request) -> bool:
    """Return whether the request includes kernel learning."""
    return chooses(request) or _is(request.gamma, *LEARN)


def checked_kernel(given: Any) -> Any:
    """Return the option ``kernel`` as a name, ``module:function``, a kernel, or a tuple of these,
    without importing.

    None becomes "none". Raises ``UsageError`` for any other value.
    """
    if given is None:
        return NoKernel.name
    if isinstance(given, list | tuple) and given:
        checked = tuple(map(checked_kernel, given))
        if NoKernel.name in checked:
            raise UsageError(
                f"kernel is {given!r}: None cannot be part of a list; to use no kernel, set "
                "kernel=None"
            )
        return checked
    if isinstance(given, dict):
        return kernel_from_spec(given)
    if isinstance(given, Kernel):
        return given.with_numbers()
    name = given if isinstance(given, str) else ""
    if name in ("auto", NoKernel.name, *kernels.NAMES):
        return name
    if ":" in name:
        return FunctionKernel(name).function
    if name or isinstance(given, type) or not callable(given):
        others = (
            "'module:function', a value such as partirvm.kernels.Gaussian(0.5), or a list of "
            "these; None for none"
        )
        raise UsageError(f"kernel is {given!r}; known: auto, {', '.join(kernels.NAMES)}, {others}")
    return FunctionKernel(given)


def checked_basis(given: Any) -> Any:
    """Return ``basis`` as None, a string (not imported), a callable or a tuple of these, or raise
    ``UsageError``."""
    if isinstance(given, list | tuple) and given:
        if sum(_is(part, TREES) for part in given) > 1:
            raise UsageError(f"basis is {given!r}: name {TREES!r} once")
        if any(_is(part, AUTO) for part in given):
            raise UsageError(f"basis is {given!r}: {AUTO!r} cannot be part of a list")
        return tuple(map(checked_basis, given))
    if given is not None and not _is(given, LINEAR, TREES, AUTO):
        require_function(given, "basis")
    return given


def has_plain_inputs(request: Request) -> bool:
    """Return whether scaled inputs may be replaced by others: no basis function is a function of
    them (boosted trees see raw inputs)."""
    return request.basis is None or _is(request.basis, TREES, AUTO)


def portable(request: Request) -> dict[str, Any]:
    """Convert a checked request to JSON. Raises ``UsageError`` for a kernel or basis that cannot be
    imported."""

    def plain(given: Any) -> Any:
        return (
            kernel_from_spec(given.spec()).spec()
            if isinstance(given, Kernel)
            else name_of(given, "basis")
        )

    return dict(json.loads(json.dumps(vars(request), default=plain)))


def resolve_kernel(
    request: Request, moments: Moments, columns: Columns, scaling: Scaling
) -> Kernel:
    """Construct the kernel with numeric parameters or, for kernel learning, the initial kernel.

    A list of kernels, or several ``gamma_multiples``, give a ``Several``. Raises ``UsageError`` if
    gamma is invalid, has the wrong length or does not apply to the kernel, or if a function cannot
    be imported.

    Args:
        request: the options, of which kernel, gamma, gamma_multiples and standardize are used
        moments: moments of the inputs (d,), before scaling
        columns: names and categories of the d features
        scaling: the map from the d features to the scaled inputs
    """
    given = checked_kernel(request.kernel)
    factors = request.gamma_multiples
    several = given if isinstance(given, tuple) else (given,)
    named = [_is(each, *BY_GAMMA) for each in several]
    # A gamma that is not learned applies only to families in a list that are given by name.
    others = "learn" if any(named) and not learns(request) else request.gamma
    resolved = tuple(
        _named(BY_GAMMA[each], request, moments, columns, scaling)
        if own
        else _given(each, others, columns, scaling)
        for each, own in zip(several, named, strict=True)
    )
    if tuple(factors) != (1.0,):  # several kernels must differ and not be nested
        resolved = tuple(kernel.rescaled(factor) for kernel in resolved for factor in factors)
    return resolved[0] if len(resolved) == 1 else Several(resolved)


def _named(
    family: type[Family], request: Request, moments: Moments, columns: Columns, scaling: Scaling
) -> Kernel:
    """Return the kernel of a family with the requested gamma or, for a rule, 1/(d·var) for each
    kind of feature.

    Args:
        family: class of the kernel
        request: the options, of which gamma and standardize are used
        moments: moments of the inputs (d,), before scaling
        columns: names and categories of the d features
        scaling: the map from the d features to the scaled inputs
    """
    gamma = request.gamma
    d = len(columns.features)
    inputs = moments.inputs
    if not _is(gamma, *RULES):
        if isinstance(gamma, str):
            Check("word", (*RULES, "a positive number", "one number per feature"))("gamma", gamma)
        return _by_kind(family(gamma), columns, scaling)
    coded = {} if family is Categorical else _coded(columns, scaling)
    numeric = np.array([j for j in range(d) if j not in coded], dtype=np.int64)
    variances = [0.0, float(np.mean(list(coded.values()))) if coded else 0.0]
    if len(numeric) and request.standardize:
        variances[0] = float(np.mean(~inputs.constant[numeric]))
    elif len(numeric):
        variances[0] = float(np.mean(inputs.variance[numeric]) + np.var(inputs.mean[numeric]))
    # an ANOVA kernel compares one feature at a time, others compare all of them together
    compared = 1 if issubclass(family, Anova) else scaling.n_inputs
    scales = [1.0 / (compared * variance) if variance > 0 else 1.0 for variance in variances]
    each = tuple(scales[j in coded] for j in range(d))
    kernel = _by_kind(family(each), columns, scaling, shared=gamma != "learn-per-feature")
    return kernel.per_feature(scaling.n_inputs) if gamma == "learn-per-feature" else kernel


def _given(given: Any, gamma: Any, columns: Columns, scaling: Scaling) -> Kernel:
    """Construct a kernel that was given with its parameters, or has none.

    Args:
        given: the checked option: a name, ``module:function`` or a kernel
        gamma: the option, which only determines whether the parameters are learned
        columns: names and categories of the d features
        scaling: the map from the d features to the scaled inputs
    """
    learned = _is(gamma, *LEARN)
    if not (learned or _is(gamma, "learn")) or (learned and given == NoKernel.name):
        raise UsageError(
            f"gamma is {gamma!r}, but the kernel has its own parameters, or none: leave gamma out"
        )
    if given == NoKernel.name:
        return NoKernel()
    kernel: Kernel = given
    if isinstance(given, str):
        kernel = kernels.NAMES[given]() if given in kernels.NAMES else FunctionKernel(given)
    if isinstance(kernel, Family):
        kernel = _by_kind(kernel, columns, scaling)
    for each in kernel.kernels if isinstance(kernel, Several) else (kernel,):
        each.prepare(np.zeros((0, scaling.n_inputs)))
        if learned and not np.isfinite(each.logs).any():
            raise UsageError(
                f"gamma is {gamma!r}, but the kernel {each.name!r} has no parameters: leave gamma "
                "out"
            )
    return kernel.per_feature(scaling.n_inputs) if gamma == "learn-per-feature" else kernel


def _by_kind(family: Family, columns: Columns, scaling: Scaling, *, shared: bool = False) -> Kernel:
    """Return the product of a numeric and a categorical kernel, omitting factors whose gammas are
    all 0.

    Args:
        family: a kernel with one gamma or one per feature (d,)
        columns: names and categories of the d features
        scaling: the map from the d features to the scaled inputs
        shared: True to use a single gamma per kind of feature, taken from its first input
    """
    coded = _coded(columns, scaling)
    shared = shared or len(family.gamma) == 1
    gamma = family.widths(len(columns.features))[scaling.sources].tolist()
    if isinstance(family, Anova):
        return _anova(family, tuple(gamma[:1] if shared else gamma), list(coded), scaling)
    if isinstance(family, Categorical) or not coded:
        return replace(family, gamma=tuple(gamma[:1] if shared else gamma))
    numeric = [j for j in range(len(gamma)) if j not in coded]
    parts = []
    for kernel, inputs in ((family, numeric), (Categorical(1.0), list(coded))):
        gammas = tuple(gamma[j] for j in (inputs[:1] if shared else inputs))
        if any(gammas):
            parts.append(kernels.OnColumns(replace(kernel, gamma=gammas), tuple(inputs)))
    return parts[0] if len(parts) == 1 else kernels.Product(tuple(parts))


def _anova(kernel: Anova, gamma: tuple[float, ...], coded: list[int], scaling: Scaling) -> Anova:
    """Return an ANOVA kernel of features as a kernel of the scaled inputs.

    Args:
        kernel: the kernel with parameters of the d features
        gamma: one gamma, or one per input
        coded: positions of the inputs that hold codes of categories
        scaling: the map from the d features to the scaled inputs
    """
    shares = kernel.shares
    if len(shares) > 1:
        d = int(scaling.sources.max()) + 1
        shares = tuple(kernel.shares_of(d)[scaling.sources].tolist())
    known = [j for j in kernel.categorical if j not in scaling.embedded]
    return replace(kernel, gamma=gamma, shares=shares, categorical=tuple(sorted({*known, *coded})))


def _coded(columns: Columns, scaling: Scaling) -> dict[int, float]:
    """Return the variance v = (1 − 1/L)/2 of each categorical column whose L levels are stored as
    codes, by position."""
    levels = (
        (j, columns.categories.get(name))
        for j, name in enumerate(columns.features)
        if j not in scaling.embedded
    )
    return {j: 0.5 * (1 - 1 / max(len(found), 1)) for j, found in levels if found is not None}


def input_variance(columns: Columns, moments: Moments, scaling: Scaling) -> Float:
    """Compute the variance (d',) of the scaled inputs: 1 if they are standardised, and 0 for a
    constant feature."""
    variance = np.ones(scaling.n_inputs)
    d = len(columns.features)
    plain = np.ones(d, bool) if scaling.features is None else scaling.features.spreads == 0
    plain[scaling.embedded] = False
    variance[:d][plain] = moments.inputs.variance[plain] / scaling.x_scale[:d][plain] ** 2
    for j, found in _coded(columns, scaling).items():
        variance[j] = found
    return variance


def resolve_basis(request: Request, source: Source, scaling: Scaling) -> Basis | None:
    """Construct the basis functions; Python functions are evaluated on the first rows to count
    them.

    Raises ``UsageError`` for failed imports or wrong values.

    Args:
        request: the options, of which basis is used
        source: the rows
        scaling: the map from the d features to the scaled inputs
    """
    points = scaling.inputs(source.tile(0).X[:16])
    parts = list[tuple[Any, int]]()
    for part in basis_parts(request):
        if _is(part, LINEAR):
            parts.append((part, source.n_features))
        elif not _is(part, TREES, AUTO):
            parts.append((part, evaluated(part, "basis", points).shape[1]))
    return Basis(tuple(parts)) if parts else None


def basis_parts(request: Request) -> tuple[Any, ...]:
    """Return the parts of ``basis``."""
    given = request.basis
    if given is None:
        return ()
    return given if isinstance(given, tuple) else (given,)


def requested_trees(request: Request) -> str:
    """Return whether a fit has boosted trees: "none", "auto" or "trees"."""
    words = [part for part in basis_parts(request) if _is(part, TREES, AUTO)]
    return words[0] if words else NO_TREES
