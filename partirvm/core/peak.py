"""Search for the maximum of a function of one variable, one evaluation at a time.

Steps of equal length follow the rising side until the function falls. The last point is the vertex of the parabola
through the best point and its neighbours. The state is immutable, so a fit can hold it between passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STEPS = 12
"""Maximum number of steps to one side."""


@dataclass(frozen=True)
class Peak:
    """A search with steps of length ``step`` from 0; ``values`` maps the multiples of ``step`` seen to the function.

    ``at`` is the point to evaluate next, in units of ``step``. With ``last`` it is the vertex, the result.

    >>> peak = Peak(step=1.0)
    >>> while not peak.last:
    ...     peak = peak.after(-((peak.x - 1.6) ** 2))
    >>> round(peak.x, 12)
    1.6
    """

    step: float
    at: float = 0.0
    values: tuple[tuple[int, float], ...] = ()
    last: bool = False

    @property
    def x(self) -> float:
        """The point to evaluate next."""
        return self.step * self.at

    def after(self, value: float) -> Peak:
        """Return the search after the function has been evaluated at ``x``."""
        values = dict(self.values) | {int(self.at): value}
        best = max(values, key=lambda k: values[k])
        left, right = values.get(best - 1), values.get(best + 1)
        found = replace(self, values=tuple(values.items()))
        if abs(best) < STEPS:
            if left is None:
                return replace(found, at=best - 1)
            if right is None:
                return replace(found, at=best + 1)
        bend = 0.0 if left is None or right is None else left + right - 2 * values[best]
        vertex = 0.0 if left is None or right is None or not bend < 0 else 0.5 * (left - right) / bend
        return replace(found, at=best + vertex, last=True)
