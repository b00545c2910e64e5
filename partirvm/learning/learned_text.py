"""Describe kernels, and how a kernel was learned, in words for the plan and the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partirvm.core.rprop import groups, off
from partirvm.kernels import Directions, Family, Kernel, OnColumns, Product, Several, Sum, kernel_from_spec
from partirvm.learning.forms import DIRECTIONS
from partirvm.learning.sample import Entry
from partirvm.learning.search import axes_of

_VERDICTS = {
    None: "",
    True: " over all rows: kernel accepted",
    False: " over all rows: kernel rejected, the previous kernel is kept",
}
"""Result of the check of a kernel that was learned between rounds; None for a kernel learned before the fit."""

NAMED = 6
"""Maximum number of parameters named in a text; the others are only counted."""


def kernel_texts(features: Sequence[str]) -> Callable[[Entry], Entry]:
    """Return a function that gives the extra fields of a history entry: the text of a learned kernel."""
    return lambda entry: {"text": learned_text(entry, features)} if entry["kind"] == "kernel" else {}


def learned_text(entry: Entry, features: Sequence[str]) -> str:
    """Describe the learned kernel of a history entry in words, with the names of the features."""
    kernel, choice = kernel_from_spec(entry["kernel"]), entry["choice"] or {}
    names, values, entries = parameter_names(kernel, features), np.exp(kernel.logs), axes_of(kernel.parameters)
    switched = off(kernel.logs, groups(kernel.parameters)).tolist()
    order = np.argsort(-values, kind="stable").tolist()
    parameters = [f"{names[k]} {values[k]:.3g}" for k in order if k not in switched and not entries[k]]
    centres = "an exact process" if "gain" in choice else f"{entry['candidates']:,} centres"
    text = (
        f"{_family(choice)}{_form(entry, choice)}{described(kernel)}, {_first(parameters)}: from {entry['rows']:,} "
        f"rows × {centres}, {entry['iterations']:,} evaluations, evidence {entry['gain']:+,.1f} nats"
        f"{_VERDICTS[entry['taken']]}"
    )
    if not switched:
        return text
    which = _first([names[k].removeprefix("gamma of ") for k in sorted(switched)])
    return f"{text}; {'directions' if entries.any() else 'features'} switched off: {which}"


def _first(texts: list[str]) -> str:
    """List the first ``NAMED`` texts, and count the others."""
    more = f" and {len(texts) - NAMED:,} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more


def _family(choice: dict[str, Any]) -> str:
    """State the evidence of the chosen family against the best other one; empty if nothing was compared."""
    tried, chosen = choice.get("families", {}), choice.get("family")
    if len(tried) < 2:
        return ""
    other = max((name for name in tried if name != chosen), key=tried.__getitem__)
    return f"{chosen}, evidence {tried[chosen] - tried[other]:+,.1f} nats against {other}; "


def _form(entry: Entry, choice: dict[str, Any]) -> str:
    """State the chosen form of the kernel and the reason for it; empty if nothing was compared."""
    if "form" not in choice:
        return ""
    form, why = choice["form"], ""
    if "errors" in choice:
        errors, rows = choice["errors"], choice["rows"]
        error = "RMSE" if entry["train_rmse"] is not None else "log loss"
        (other,) = (name for name in errors if name != form)
        better = f"the gain of {other} is not significant" if errors[other] < errors[form] else "its error is smaller"
        why = f"{better}: {error} on {rows:,} held-out rows {errors[form]:.3g} against {errors[other]:.3g}"
    elif "gain" in choice:
        compared = f"{choice['gain']:+.3f} ± {choice['error']:.3f} nats on each of {choice['rows']:,} rows left out"
        why = f"directions change the log density by {compared}" if choice["rows"] else ""
    elif "directions" in choice:
        enough = "" if form == DIRECTIONS else ", too few for their number"
        why = f"directions change the evidence by {choice['directions']:+,.1f} nats{enough}"
    elif "rows" in choice:
        why = f"there are {choice['rows']:,} rows"
    return f"{form}, because {why}: " if why else f"{form}: "


def described(kernel: Kernel) -> str:
    """Describe the composition of a kernel in words.

    >>> from partirvm.kernels import Categorical, Gaussian
    >>> described(Product((OnColumns(Gaussian(0.5), (0, 1)), OnColumns(Categorical(1.0), (2,)))))
    'gaussian × categorical'
    """
    if isinstance(kernel, Several):
        return f"{len(kernel.kernels)} kernels ({', '.join(dict.fromkeys(map(described, kernel.kernels)))})"
    if isinstance(kernel, OnColumns):
        return described(kernel.kernel)
    if isinstance(kernel, Directions):
        return f"{kernel.kernel.name} along {len(kernel.axes)} directions"
    if isinstance(kernel, Product | Sum):
        sign = " × " if isinstance(kernel, Product) else " + "
        inner = (f"({described(part)})" if isinstance(part, Sum) else described(part) for part in kernel.parts)
        return sign.join(inner)
    return kernel.name


def parameter_names(kernel: Kernel, features: Sequence[str]) -> list[str]:
    """Name the parameters of a kernel; the gamma of a single feature contains the name of the feature.

    >>> from partirvm.kernels import Categorical, Gaussian
    >>> mixed = Product((OnColumns(Gaussian((0.5, 1.0)), (0, 1)), OnColumns(Categorical(1.0), (2,))))
    >>> parameter_names(mixed, ("miles", "hour", "zone"))
    ['gamma of miles', 'gamma of hour', 'gamma of zone']
    """
    names = _names(kernel, features)
    return names if len(set(names)) == len(names) else list(kernel.parameters)


def _names(kernel: Kernel, features: Sequence[str]) -> list[str]:
    if isinstance(kernel, Several):
        return [f"{name} ({k + 1})" for k, each in enumerate(kernel.kernels) for name in _names(each, features)]
    if isinstance(kernel, OnColumns):
        return _names(kernel.kernel, [features[j] for j in kernel.columns])
    if isinstance(kernel, Directions):
        directions = [f"direction {i + 1}" for i in range(len(kernel.axes))]
        own = _names(kernel.kernel, directions)
        return own + [f"{name} in {direction}" for direction in directions for name in features if kernel.free]
    if isinstance(kernel, Product | Sum):
        own = list(kernel.parameters[: len(kernel.parameters) - sum(len(part.parameters) for part in kernel.parts)])
        for part in kernel.parts:
            own += [f"{described(part)} gamma" if name == "gamma" else name for name in _names(part, features)]
        return own
    if isinstance(kernel, Family):
        each = [f"gamma of {name}" for name in features]
        several = dict(zip((f"gamma[{j}]" for j in range(len(features))), each, strict=True))
        called = {"gamma": each[0]} if len(features) == 1 else several
        return [called.get(name, name) for name in kernel.parameters]
    return list(kernel.parameters)
