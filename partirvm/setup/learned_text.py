"""Describe a learned kernel in words, for the plan and the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partirvm.core.rprop import groups, off
from partirvm.kernels import kernel_from_spec
from partirvm.setup.categories import described, parameter_names
from partirvm.setup.kernel_search import axes_of
from partirvm.setup.metric import DIRECTIONS
from partirvm.setup.spent import Entry

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
    kernel = kernel_from_spec(entry["kernel"])
    names, values = parameter_names(kernel, features), np.exp(kernel.logs)
    entries = axes_of(kernel.parameters)
    order = np.argsort(-values, kind="stable")
    switched_off = set(off(kernel.logs, groups(kernel.parameters)).tolist())
    active = [k for k in order.tolist() if k not in switched_off and not entries[k]]
    parameters = ", ".join(f"{names[k]} {values[k]:.3g}" for k in active[:NAMED])
    more = f" and {len(active) - NAMED:,} more" if len(active) > NAMED else ""
    centres = "an exact process" if "gain" in (entry["choice"] or {}) else f"{entry['candidates']:,} centres"
    text = (
        f"{_reason(entry)}{described(kernel)}, {parameters}{more}: from {entry['rows']:,} rows × {centres}, "
        f"{entry['iterations']:,} evaluations, evidence {entry['gain']:+,.1f} nats{_VERDICTS[entry['taken']]}"
    )
    if not switched_off:
        return text
    switched = [names[k].removeprefix("gamma of ") for k in sorted(switched_off)]
    rest = f" and {len(switched) - NAMED:,} more" if len(switched) > NAMED else ""
    return f"{text}; {'directions' if entries.any() else 'features'} switched off: {', '.join(switched[:NAMED])}{rest}"


def _reason(entry: Entry) -> str:
    """State the chosen family and form of the kernel and the reason for them; empty if nothing was compared."""
    choice = entry["choice"]
    return "" if choice is None else _reason_of_family(choice) + _reason_of_form(entry, choice)


def _reason_of_family(choice: dict[str, Any]) -> str:
    """State the evidence of the chosen family against the best other one."""
    tried, chosen = choice.get("families", {}), choice.get("family")
    if len(tried) < 2:
        return ""
    other = max((name for name in tried if name != chosen), key=tried.__getitem__)
    return f"{chosen}, evidence {tried[chosen] - tried[other]:+,.1f} nats against {other}; "


def _reason_of_form(entry: Entry, choice: dict[str, Any]) -> str:
    """State the chosen form of the kernel and the reason for it."""
    if "form" not in choice:
        return ""
    form = choice["form"]
    if "gain" in choice:
        compared = f"{choice['gain']:+.3f} ± {choice['error']:.3f} nats on each of {choice['rows']:,} rows left out"
        return f"{form}, because directions change the log density by {compared}: " if choice["rows"] else f"{form}: "
    if "errors" in choice:
        error = "RMSE" if entry["train_rmse"] is not None else "log loss"
        errors, rows = choice["errors"], choice["rows"]
        other = min((name for name in errors if name != form), key=errors.__getitem__)
        if errors[other] < errors[form]:
            why = f"the gain of {other} is not significant"
            found = f"{errors[form]:.3g} against {errors[other]:.3g}"
            return f"{form}, because {why}: {error} on {rows:,} held-out rows {found}: "
        return f"{form}: {error} on {rows:,} held-out rows {errors[form]:.3g}, with {other} {errors[other]:.3g}: "
    if "directions" in choice:
        enough = "" if form == DIRECTIONS else ", too few for their number"
        return f"{form}, because directions change the evidence by {choice['directions']:+,.1f} nats{enough}: "
    return f"{form}, because there are {choice['rows']:,} rows: " if "rows" in choice else f"{form}: "
