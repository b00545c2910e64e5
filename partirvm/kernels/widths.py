"""The base class of kernels with the width parameter ``gamma``: one number, or one number per feature."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import Described

Float = NDArray[np.float64]


MOST = 1e150
"""Largest gamma whose products with squared distances are finite."""


@dataclass(frozen=True)
class Widths(Described):
    """Base of kernels whose first parameter is gamma: one number for all features, or one number ≥ 0 per feature.

    A feature with gamma 0 is ignored. At least one gamma must be positive. Scalars, arrays and tuples are accepted.
    """

    gamma: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _checked(self.name, self.gamma))

    def widths(self, n_features: int) -> Float:
        """Return gamma of each feature, (n_features,). Raises ``UsageError`` if the number of gammas does not match."""
        if len(self.gamma) not in (1, n_features):
            raise UsageError(f"gamma has {len(self.gamma)} values but the data have {n_features} features")
        return np.broadcast_to(np.asarray(self.gamma, dtype=float), (n_features,))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names ``("gamma",)`` or ``("gamma[0]", ...)``."""
        return ("gamma",) if len(self.gamma) == 1 else tuple(f"gamma[{j}]" for j in range(len(self.gamma)))

    @property
    def logs(self) -> Float:
        """The logarithms of gamma; −∞ for a feature that is ignored."""
        return logs_of(self.gamma)

    def with_logs(self, logs: Float) -> Self:
        """Return the kernel with the given log gamma."""
        return replace(self, gamma=values_of(logs, len(self.gamma)))

    def relevances(self, n_features: int) -> Float | None:
        """Return the gamma of each feature, (n_features,)."""
        return self.widths(n_features).copy()

    def per_feature(self, n_features: int) -> Self:
        """Return the kernel with one gamma per feature."""
        return replace(self, gamma=tuple(self.widths(n_features).tolist()))

    def rescaled(self, factor: float) -> Self:
        """Return the kernel with every gamma multiplied by a factor."""
        return replace(self, gamma=tuple(factor * gamma for gamma in self.gamma))

    def shared(self, gradient: Float) -> Float:
        """Return the gradient in the log parameters, given the gradient in log gamma of each feature (d,)."""
        return gradient if len(self.gamma) > 1 else np.array([gradient.sum()])


def _checked(name: str, gamma: Any) -> tuple[float, ...]:
    given = [gamma] if isinstance(gamma, numbers.Real) else gamma
    try:
        values = np.array(given, dtype=float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or not (values <= MOST).all() or (values < 0).any() or not values.any():
        raise UsageError(
            f"gamma of the {name} kernel is {list(given) if np.iterable(given) else given!r}: it must be one positive "
            f"number, or one number ≥ 0 per feature with at least one positive, up to {MOST:g}"
        )
    return tuple(values.tolist())


def logs_of(values: tuple[float, ...]) -> Float:
    """Return natural logarithms, with −∞ for 0."""
    found = np.asarray(values, dtype=float)
    logs: Float = np.log(found, out=np.full(len(found), -np.inf), where=found > 0)
    return logs


def values_of(logs: Float, count: int) -> tuple[float, ...]:
    """Return the exponentials of ``count`` logarithms. Raises ``UsageError`` for another number of logarithms."""
    if len(logs) != count:
        raise UsageError(f"{len(logs)} logarithms for {count} parameters of a kernel")
    return tuple(np.exp(logs).tolist())
