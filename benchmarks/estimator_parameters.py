"""Conversion of flat option names to estimator parameters, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partirvm.kernels import WITH_GAMMA, Gaussian
from partirvm.options.table import TABLE
from partirvm.options.values import (
    AlphaPrior,
    Incremental,
    Noise,
    Radial,
    SplitMerge,
    Value,
    WorkingSet,
    options_of,
)

_PLACES: dict[str, tuple[tuple[type[Value], ...], type[Value] | None]] = {
    "strategy": ((SplitMerge, Incremental, WorkingSet), WorkingSet),
    "noise": ((Noise,), Noise),
    "kernel": ((*WITH_GAMMA.values(), Radial), Gaussian),
}
"""The classes of values of each option, and the class used if the option is not given."""


def grouped(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options of the option table to parameters of an estimator: the inverse of ``flat``.

    If no strategy or kernel is given, their options go into a working set or a Gaussian kernel. If
    the named strategy does not have an option, the option remains in the result under its flat
    name, which estimators do not accept.

    >>> grouped({"noise_prior": (1.0, 2.0), "max_iterations": 9, "fixed_alpha": {"bias": 1e-6}, "tol": 1e-9})
    {'max_iterations': 9, 'tol': 1e-09, 'noise': Noise(prior=(1.0, 2.0)), \
'alpha_prior': AlphaPrior(fixed={'bias': 1e-06})}
    """
    rest = dict(options)
    for place, (kinds, usual) in _PLACES.items():
        given = rest.get(place, "auto")
        kind = (
            usual if given == "auto" else next((each for each in kinds if each.name == given), None)
        )
        own = {} if kind is None else {option: name for name, option in options_of(kind).items()}
        if kind is not None and any(name in rest for name in own if name not in ("gamma", "noise")):
            rest[place] = kind(**{own[name]: rest.pop(name) for name in own if name in rest})
    if "fixed_alpha" in rest:
        shape, rate = rest.get("alpha_prior", TABLE["alpha_prior"].default)
        rest["alpha_prior"] = AlphaPrior(shape, rate, rest.pop("fixed_alpha"))
    return rest
