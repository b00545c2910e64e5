"""Dates and times as numbers: elapsed days, and the position within the day, week and year."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from partirvm.data.date_grammar import ORDERS, layout, read_dates
from partirvm.data.problems import TIME
from partirvm.data.shapes import ShapedTexts
from partirvm.data.tables import is_text, numbers
from partirvm.types import Bool, Float

ORIGIN = "2000-01-01"
"""Day number 0, which begins at midnight UTC."""

ORIGIN_TICKS = int(np.datetime64(ORIGIN, "us").astype(np.int64))
"""Microseconds from 1970 to ``ORIGIN``."""

CYCLES = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""The cycles and their periods in days."""


class Dates:
    """A column of dates, times of day or durations, and the cycles that its rows cover.

    A cycle matters if the rows span two periods and some rows are at most half a period apart;
    ``known`` cycles of other data are used instead. ``unit`` is the unit of the numbers. Dates with
    a time zone are converted to UTC. Strings are ISO dates or times, or have the strptime format
    ``form``; instead of a format, it may be an order of day, month and year for ``days_in``.
    """

    def __init__(self, known: Sequence[str] | None = None, form: str | None = None) -> None:
        self._known = known
        self._first = np.inf
        self._last = -np.inf
        self._step = np.inf
        self.order = form if form in ORDERS else ""
        self.form = None if self.order else form or None
        self.zones = set[bool]()
        self.unit = f"days since {ORIGIN}"

    def days(self, values: Any) -> Float:
        """Return an Arrow array of dates or strings as days (n,) since ``ORIGIN``, or since
        midnight for times of day.

        Raises ``ArrowInvalid`` for other strings, and ``ArrowNotImplementedError`` for other types.
        """
        import pyarrow as pa

        kind = pa.types
        origin = ORIGIN_TICKS
        if values.null_count == len(values):  # a CSV column without values counts as numeric
            values = pa.nulls(len(values))
        elif is_text(values.type):
            values = self.parsed(values)
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
        return self._with_range(
            (numbers(ticks.cast(pa.int64()).cast(pa.float64(), safe=False)) - origin) / 86_400e6
        )

    def days_in(self, texts: ShapedTexts) -> tuple[Float, Bool]:
        """Return dates or times in strings as days (n,), NaN for missing and other strings; and
        True for strings that are dates, times, blank or missing."""
        ticks, usable = read_dates(texts, self.order)
        layouts = [place for shape in texts.shapes if (place := layout(shape)) is not None]
        has_times = bool(layouts) and not any(place.is_date(self.order) for place in layouts)
        if has_times:
            self._known = ()
            self.unit = "days since midnight"
        elif not all(place.is_date(self.order) for place in layouts):
            times = [
                shape
                for shape in texts.shapes
                if (place := layout(shape)) and not place.is_date(self.order)
            ]
            codes = [texts.shapes.index(shape) for shape in times]
            usable &= ~np.isin(texts.codes, codes)
        self.zones |= {place.zone != "" for place in layouts if place.has_time}
        origin = 0 if has_times else ORIGIN_TICKS
        days = np.where(usable, (ticks - origin) / 86_400e6, np.nan)
        blank = np.array([not shape.strip() for shape in texts.shapes] + [True])
        return self._with_range(days), usable | blank[texts.codes]

    def _with_range(self, days: Float) -> Float:
        """Return days (n,) once their range has been recorded."""
        distinct = np.unique(days[~np.isnan(days)])
        if len(distinct):
            self._first = min(self._first, distinct[0])
            self._last = max(self._last, distinct[-1])
            self._step = min(self._step, np.diff(distinct).min(initial=np.inf))
        return days

    def parsed(self, texts: Any) -> Any:
        """Parse strings into an Arrow array of times of day, or of dates in UTC.

        Raises ``ArrowInvalid`` for other strings.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.form is not None:
            return pc.strptime(texts, format=self.form, unit="us")
        filled = texts.drop_null()
        if len(filled) and re.fullmatch(TIME, filled[0].as_py()):
            day, blank = (pa.scalar(text, texts.type) for text in ("1970-01-01", " "))
            moments = pc.binary_join_element_wise(day, texts, blank).cast(pa.timestamp("us"))
            return moments.cast(pa.time64("us"))
        try:
            moments = texts.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            moments = texts.cast(pa.timestamp("us", "UTC"))
        if pc.any(pc.greater(pc.utf8_length(texts), len(ORIGIN))).as_py():
            self.zones.add(moments.type.tz is not None)
        return moments

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
