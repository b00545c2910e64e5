"""Dates and times as numbers: elapsed days, and the position within the day, week and year."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from partirvm.data.problems import TIME
from partirvm.data.tables import is_text, numbers
from partirvm.types import Float

ORIGIN = "2000-01-01"
"""Day number 0, which begins at midnight UTC."""

CYCLES = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""The cycles and their periods in days."""


class Dates:
    """A column of dates, times of day or durations, and the cycles that its rows cover.

    A cycle matters if the rows span two periods and some rows are at most half a period apart;
    ``known`` cycles of other data are used instead. ``unit`` is the unit of the numbers. Dates with
    a time zone are converted to UTC. Strings are ISO dates or times, or have the strptime format
    ``form``.
    """

    def __init__(self, known: Sequence[str] | None = None, form: str | None = None) -> None:
        self._known = known
        self._first = np.inf
        self._last = -np.inf
        self._step = np.inf
        self.form = form
        self.unit = f"days since {ORIGIN}"

    def days(self, values: Any) -> Float:
        """Return an Arrow array of dates or strings as days (n,) since ``ORIGIN``, or since
        midnight for times of day.

        Raises ``ArrowInvalid`` for other strings, and ``ArrowNotImplementedError`` for other types.
        """
        import pyarrow as pa

        kind = pa.types
        origin = int(np.datetime64(ORIGIN, "us").astype(np.int64))
        if values.null_count == len(values):  # a CSV column without values counts as numeric
            values = pa.nulls(len(values))
        elif is_text(values.type):
            values = self._parsed(values)
        elif kind.is_integer(values.type) or kind.is_floating(values.type):
            raise pa.ArrowNotImplementedError(f"{values.type} is not a date type")
        if kind.is_time(values.type) or kind.is_duration(values.type):
            self._known = ()
            origin = 0
            self.unit = "days since midnight" if kind.is_time(values.type) else "days"
            values = values.cast(
                pa.time64("us") if kind.is_time(values.type) else pa.duration("us"), safe=False
            )
        ticks = values.cast(pa.timestamp("us"), safe=False) if origin else values
        days = (numbers(ticks.cast(pa.int64()).cast(pa.float64(), safe=False)) - origin) / 86_400e6
        distinct = np.unique(days[~np.isnan(days)])
        if len(distinct):
            self._first = min(self._first, distinct[0])
            self._last = max(self._last, distinct[-1])
            self._step = min(self._step, np.diff(distinct).min(initial=np.inf))
        return days

    def _parsed(self, texts: Any) -> Any:
        """Parse strings into an Arrow array of times of day, or of dates in UTC."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.form is not None:
            return pc.strptime(texts, format=self.form, unit="us")
        if re.fullmatch(TIME, texts.drop_null()[0].as_py()):
            return (
                pc.binary_join_element_wise("1970-01-01", texts, " ")
                .cast(pa.timestamp("us"))
                .cast(pa.time64("us"))
            )
        try:
            return texts.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            return texts.cast(pa.timestamp("us", "UTC"))

    @property
    def cycles(self) -> tuple[str, ...]:
        """The names of the cycles that matter."""
        if self._known is not None:
            return tuple(self._known)
        span = self._last - self._first
        return tuple(
            name
            for name, period in CYCLES.items()
            if span >= 2 * period and self._step <= period / 2
        )

    def expanded(self, days: Float) -> list[Float]:
        """Return the days (n,), and the sine and cosine of each cycle."""
        angles = [2 * np.pi / CYCLES[name] * days for name in self.cycles]
        return [days, *(wave(angle) for angle in angles for wave in (np.sin, np.cos))]
