"""The base of kernel families, which gamma determines. They are kernels, and values of the option kernel, too."""

import numbers
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from partirvm.errors import UsageError
from partirvm.kernels.base import Kernel, PreparedKernel
from partirvm.options.constraints import Check
from partirvm.options.values import Value, held
from partirvm.types import Float


@dataclass(frozen=True, repr=False)
class Family(Kernel, Value):
    """Base of the families. With numbers as gamma a family is a kernel; with a word it is only an option of a fit.

    ``form(kernel, centres, widths, origin)`` prepares the kernel; ``value`` and ``slope`` are its function, which may
    have further ``numbers``.
    """

    gamma: Any = held("gamma")
    multiples: Any = held("gamma_multiples", kw_only=True)
    metric: str = held("metric", kw_only=True)
    of: ClassVar[str] = "kernel"
    learned: ClassVar[str] = "gamma"
    decreasing: ClassVar[bool] = True
    form: ClassVar[type[Any]]
    numbers: ClassVar[dict[str, Check]] = {}

    def __post_init__(self) -> None:
        for name, check in self.numbers.items():
            object.__setattr__(self, name, check(f"{name} of the {self.name} kernel", getattr(self, name)))
        if not isinstance(self.gamma, str):
            object.__setattr__(self, "gamma", _checked(self.name, self.gamma))

    def with_numbers(self) -> Self:
        """Return the kernel itself. Raises ``UsageError`` if gamma is a word, or if it has options of an estimator."""
        if isinstance(self.gamma, str):
            raise UsageError(
                f"gamma of {self!r} must be numbers in a list, a sum or a product of kernels, such as "
                f"{type(self).__name__}(0.5)"
            )
        if (self.multiples, self.metric) != ((1.0,), "auto"):
            raise UsageError(f"{self!r} must have no multiples or metric here: only estimators have these")
        return self

    def flat(self, given_for: str) -> dict[str, Any]:
        """Return the options that the value stands for: with numbers as gamma the kernel itself, otherwise its name."""
        found = super().flat(given_for)
        if not isinstance(self.gamma, str):
            del found["gamma"]
            return {**found, given_for: replace(self, multiples=(1.0,), metric="auto")}
        if self.spec() != type(self)(self.gamma).spec():
            raise UsageError(f"{self!r} needs numbers as gamma, from which an estimator with gamma='learn' starts")
        return found

    def widths(self, n_features: int) -> Float:
        """Return gamma of each feature, (n_features,). Raises ``UsageError`` if the number of gammas does not match."""
        gamma = self.with_numbers().gamma
        if len(gamma) not in (1, n_features):
            raise UsageError(f"gamma has {len(gamma)} values but the data have {n_features} features")
        return np.broadcast_to(np.asarray(gamma, dtype=float), (n_features,))

    def prepare(self, centres: Float, origin: Float | None = None) -> PreparedKernel:
        return cast(PreparedKernel, self.form(self, centres, self.widths(centres.shape[1]), origin))

    def value(self, work: Float) -> None:
        """Replace −r², or the inner product, (g, n) by k."""
        raise NotImplementedError

    def slope(self, work: Float, values: Float) -> None:
        """Replace −r² (g, n) by ∂k/∂r², given the values k."""
        raise NotImplementedError

    def relevances(self, n_features: int) -> Float | None:
        return self.widths(n_features).copy()

    def per_feature(self, n_features: int) -> Self:
        return replace(self, gamma=tuple(self.widths(n_features).tolist()))

    def rescaled(self, factor: float) -> Self:
        return replace(self, gamma=tuple(factor * gamma for gamma in self.gamma))

    def shared(self, gradient: Float) -> Float:
        """Return the gradient in log gamma, given the gradient in log gamma of each feature (d,)."""
        return gradient if len(self.gamma) > 1 else np.array([gradient.sum()])


def _checked(name: str, gamma: Any) -> tuple[float, ...]:
    """Return gamma as numbers; a tuple of floats itself, as scikit-learn's clone demands."""
    values = as_numbers([gamma] if isinstance(gamma, numbers.Real) else gamma)
    if values.ndim != 1 or not (values <= 1e150).all() or (values < 0).any() or not values.any():
        raise UsageError(
            f"gamma of the {name} kernel is {gamma!r}: it must be one positive number, or one number ≥ 0 per feature "
            "with at least one positive, up to 1e150"
        )
    same = type(gamma) is tuple and all(type(each) is float for each in gamma)
    return gamma if same else tuple(values.tolist())


def as_numbers(given: Any) -> Float:
    """Return an array of floats; an empty one if the values are no numbers."""
    try:
        return np.array(given, dtype=float)
    except (TypeError, ValueError):
        return np.zeros(0)
