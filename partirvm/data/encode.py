"""The role of every column of a table that is ingested, and the conversion of columns to rows of float64.

Numeric values are unchanged; categories and classes become codes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from partirvm.data.dates import ORIGIN, Dates
from partirvm.data.labels import Levels
from partirvm.data.tables import Batch, Reader, flag, numbers, text_column
from partirvm.errors import DataError, UsageError
from partirvm.quoting import counted, listed, named, quoted
from partirvm.types import Columns, Float, cyclic

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."

MOST_LEVELS, FEW_LEVELS = 10_000, 20
"""Greatest number of levels of a text column that is not named as categorical; at most half the rows, or so few."""


@dataclass(frozen=True)
class Roles:
    """The roles of columns. If ``noisy``, weights are 1/r² of the column's r; with ``auto`` text is categories, too."""

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weights: str | None
    categorical: tuple[str, ...]
    classes: bool
    noisy: bool = False
    auto: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the names of all columns to read: features, targets, weights."""
        return (*self.features, *self.targets, *filter(None, [self.weights]))


def assign_roles(
    table: Reader,
    *,
    target: str | Sequence[str] | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    weights: str | None,
    noise: str | None,
    classes: bool,
    like: Columns | None,
) -> Roles:
    """Assign a role to every column. A target is required, except for data ``like`` others."""
    where, weights = table.name, weights or table.weights
    if isinstance(target, str):
        target = [target] if target in table.columns else [name.strip() for name in target.split(",")]
    targets = tuple(map(str, target or ()))
    if like is not None:
        features = like.given if features is None else features
        categorical, classes = tuple(like.categories), like.classes is not None
        learned = like.targets or (like.target,)
        targets = targets or (learned if set(learned) <= set(table.columns) else ())
    targets = targets or table.targets
    classes = classes and bool(targets)
    if noise is not None and (weights is not None or classes):
        raise UsageError(
            f"{where}: the column {quoted(noise)} cannot be the noise (`--noise`): noise is for regression without "
            "weights, and gives the weights 1/noise²."
        )
    if classes and len(targets) > 1:
        raise UsageError(f"{where}: a classification has one target, but {listed(targets)} are {len(targets)}.")
    if not targets and like is None:
        raise UsageError(
            f"{where}: no target is named: pass y or target=… (`--target`). "
            f"Its columns: {listed(table.columns)}. {UNLABELLED}"
        )
    own = weights or noise
    if features is None:
        features = [name for name in table.columns if name not in (*targets, own, *drop)]
    features = tuple(map(str, features))
    found = [name for name in table.categorical if name in features and like is None]
    chosen = [name for name in categorical if name in table.columns or name not in ("auto", "none")]
    coded, auto = tuple(dict.fromkeys([*chosen, *found])), "auto" in set(categorical) - set(chosen)
    roles = Roles(features, targets, own, coded, classes, noise is not None, auto)
    check_roles(roles, table, drop)
    return roles


def check_roles(roles: Roles, table: Reader, drop: Sequence[str] = ()) -> None:
    """Raise ``DataError`` for unknown or ambiguous names, and ``UsageError`` for names with two roles."""
    where, found, used = table.name, Counter(table.columns), Counter(roles.wanted)
    for name in (*roles.wanted, *drop):
        if found[name] != 1:
            has, hint = "several columns" if found[name] else "no column", f" {UNLABELLED}" * (name in roles.targets)
            raise DataError(f"{where} has {has} {quoted(name)}. Its columns: {listed(table.columns)}.{hint}")
        if used[name] > 1:
            raise UsageError(f"{where}: column {quoted(name)} can be only one of target, feature, weights and noise.")
    if not roles.features:
        raise DataError(f"{where}: there is no feature column besides {listed(roles.wanted)}.")
    for name in set(roles.categorical) - set(roles.features):
        raise DataError(
            f"{where} has no feature {quoted(name)} (categorical): {listed(roles.features)}. For a class target pass "
            "--classes."
        )


class Encoder:
    """An encoder of batches as records of float64: features in order, then targets, then weights if there are any.

    ``drop_missing`` leaves out rows without target, ``drop_text`` columns of text with too many labels. ``notes``
    states what types of first rows made of a column, and what may be made of it; ``left_out`` that of columns left out.
    """

    def __init__(
        self, roles: Roles, table: Reader, like: Columns | None, *, drop_missing: bool = False, drop_text: bool = False
    ) -> None:
        self.roles, self._name, self._like, self._untyped = roles, table.name, like, table.untyped
        self.n_rows, self.dropped, self.notes, self._drop_missing = 0, 0, dict[str, str](), drop_missing
        self.left_out, self._drop_text = dict[str, str](), drop_text
        known: dict[str, Any] = dict(table.categorical if like is None else like.categories)
        if like is not None and roles.classes:
            known[roles.targets[0]] = like.classes
        coded = (*roles.categorical, *(roles.targets if roles.classes else ()))
        self.levels = {column: self._levels_of(column, known.get(column)) for column in coded}
        self.dates = {} if like is None else {column: Dates(cycles) for column, cycles in like.dates.items()}

    def _levels_of(self, column: str, known: Sequence[Any] | None = None) -> Levels:
        most = np.inf if column in self.roles.categorical else MOST_LEVELS
        return Levels(self._column(column), known, self._untyped, column in self.roles.targets, most)

    def _column(self, name: str | None) -> str:
        return f"{self._name}: the column {quoted(name)}"

    def records(self, table: Reader, seed: int | None, batch_bytes: int) -> Iterator[Float]:
        """Yield records: shuffle key, row number, features, targets, weights, in one memory for all batches."""
        rng = None if seed is None else np.random.default_rng(seed)
        space = np.empty((0, 2 + len(self.roles.wanted)))
        for batch in table.batches(self.roles.wanted, frozenset(self.levels), batch_bytes):
            start, n = self.n_rows, len(batch[self.roles.features[0]])
            space = space if len(space) >= n else np.empty((n, space.shape[1]))
            if not self.n_rows + self.dropped and self._like is None:
                self._recognise(batch)
            for place, column in enumerate(self.roles.wanted, 2):
                codes = self.levels[column].codes if column in self.levels else partial(self._numbers, column)
                space[:n, place] = codes(batch[column])
            records = self._checked(space[:n])
            self.n_rows += len(records)
            del batch  # free the memory before the next batch is read
            records[:, 1] = np.arange(start, self.n_rows)
            records[:, 0] = records[:, 1] if rng is None else rng.random(len(records))
            yield records

    def _recognise(self, batch: Batch) -> None:
        """Make dates, times and texts of ISO dates days, with ``auto`` text categories, by types of first rows."""
        import pyarrow as pa

        kind = pa.types
        for column in [name for name in self.roles.features if name not in self.levels]:
            own = batch[column].type
            if kind.is_temporal(own):
                self.dates[column] = Dates()
            elif kind.is_boolean(own):
                self.notes[column] = "true and false, as 1 and 0"
            elif kind.is_integer(own) or kind.is_floating(own):
                self._propose(column, self._numbers(column, batch[column]))
            elif self.roles.auto and (kind.is_string(own) or kind.is_large_string(own) or kind.is_dictionary(own)):
                try:
                    Dates().days(batch[column])
                    self.dates[column] = Dates()
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    self.levels[column] = self._levels_of(column)

    def _propose(self, column: str, values: Float) -> None:
        """Note that the first values of a column may be codes, or numbers of the rows."""
        distinct = np.unique(values[~np.isnan(values)])
        if len(values) < 20 or not (distinct == np.rint(distinct)).all():
            return
        if (np.diff(values) == 1).all():
            self.notes[column] = f"counts the rows: {flag('--drop', column)} leaves it out"
        elif 2 < len(distinct) <= len(values) / 10:
            self.notes[column] = f"few whole numbers: if they are codes, {flag('--categorical', 'auto', column)}"

    def _checked(self, records: Float) -> Float:
        """Return records with weights for noise, without rows to leave out; ``DataError`` for values of no use."""
        into, features = records[:, 2:], len(self.roles.features)
        if self.roles.noisy:
            with np.errstate(all="ignore"):
                into[:, -1] = np.copysign(1.0 / into[:, -1] ** 2, into[:, -1])
        missing = np.isnan(into)
        into[missing] = np.nan  # equal bits give equal hashes of rows
        wrong = ~np.isfinite(into)
        wrong[:, :features] &= ~missing[:, :features]
        if self.roles.weights is not None:
            wrong[:, -1] |= into[:, -1] < 0
        if self._drop_missing:
            kept = ~missing[:, features : features + len(self.roles.targets)].any(axis=1)
            records, wrong, self.dropped = records[kept], wrong[kept], self.dropped + int((~kept).sum())
        if wrong.any():
            row, place = np.argwhere(wrong)[0].tolist()
            rule = ", weights are at least 0, and noise is above 0" if self.roles.weights is not None else ""
            has = "infinite values" if place < features else "missing values or others that cannot be used"
            name = self.roles.wanted[place]
            target = "; rows without a target are left out by `--drop-missing-targets`" * (name in self.roles.targets)
            raise DataError(
                f"{self._column(name)} has {has}, the first in row "
                f"{self.n_rows + self.dropped + row:,} (counted from 0): values are finite numbers{rule}. Remove these "
                f"rows or replace the values first{target}."
            )
        return records

    def _numbers(self, column: str, values: Any) -> Float:
        import pyarrow as pa

        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        try:
            if column in self.dates:
                return self.dates[column].days(values)
            if pa.types.is_temporal(values.type):
                raise pa.ArrowNotImplementedError(f"{values.type} is no type of numbers")
            return numbers(values if pa.types.is_float64(values.type) else values.cast(pa.float64(), safe=False))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            wanted = "dates" if column in self.dates else "numbers"
            raise text_column(self._name, column, named(error), wanted) from error

    @cached_property
    def final(self) -> dict[str, tuple[tuple[Any, ...], Float]]:
        """The labels and final codes (``Levels.final``) of each column, or ``DataError`` if its labels are too many."""
        found = {name: len(each.found) for name, each in self.levels.items()}
        asked, half = (*self.roles.categorical, *self.roles.targets), max(self.n_rows / 2, FEW_LEVELS)
        many = [name for name in found if self.levels[name].full or (name not in asked and found[name] > half)]
        if self._drop_text and not set(many) & set(asked):
            text = "text of {:,} or more different values is no category, left out: {} takes it"
            self.left_out = {name: text.format(found[name], flag("--categorical", "auto", name)) for name in many}
        elif many:
            counts = listed(f"{named(name)} ({found[name]:,})" for name in many)
            raise DataError(
                f"{self._name}: too many different labels, so many at least: {counts}. Leave out free text and "
                f"numbers of rows ({flag('--drop', *many)}), name what is a category nevertheless "
                f"({flag('--categorical', 'auto', *many)}), or ingest a numeric target without --classes."
            )
        return {column: each.final() for column, each in self.levels.items() if column not in self.left_out}

    def finished(self, records: Float, first: int) -> Float:
        """Return the records, changed: with final codes, cycles of dates, and ``first`` added to the row numbers."""
        for place, column in enumerate(self.roles.wanted, 2):
            if column in self.final:
                records[:, place] = self.final[column][1][np.nan_to_num(records[:, place], nan=-1).astype(np.int64)]
        records[:, 1] += first
        if not self.dates and not self.left_out:
            return records
        places = [(name, place) for place, name in enumerate(self.roles.wanted, 2) if name not in self.left_out]
        columns = [(name, records[:, place]) for name, place in places]
        expanded = (self.dates[name].expanded(each) if name in self.dates else [each] for name, each in columns)
        return np.column_stack([records[:, :2], *chain.from_iterable(expanded)])

    def columns(self) -> Columns:
        """Return names, categories, dates and classes; without a target, the target and classes of ``like``."""
        final = {column: labels for column, (labels, _) in self.final.items()}
        names = [name for name in self.roles.features if name not in self.left_out]
        dates = {name: self.dates[name].cycles for name in names if name in self.dates}
        features = tuple(each for name in names for each in (name, *cyclic(name, dates.get(name, ()))))
        if not self.roles.targets:
            return replace(self._like or Columns(()), features=features, categories=final, dates=dates)
        name, targets = ", ".join(self.roles.targets), self.roles.targets
        classes = final.pop(name) if self.roles.classes else None
        return Columns(features, name, final, classes, targets if targets[1:] else (), dates)

    def described(self, missing: Float) -> dict[str, str]:
        """Return a text for each column that was changed, or may be; ``missing`` (d,) are the shares without values."""
        columns, found = self.columns(), self.left_out.copy()
        for name, share in zip(columns.features, missing.tolist(), strict=True):
            texts = [self.notes[name]] if name in self.notes else []
            if self._like is None and name in columns.categories:
                texts.append(f"{counted(len(columns.categories[name]), 'level')} of a category")
            if self._like is None and name in columns.dates:
                waves = [f"sine and cosine of the {cycle}" for cycle in columns.dates[name]]
                texts.append(", ".join([f"days since {ORIGIN}", *waves]))
            if share and name in columns.given:
                texts.append(f"{share:.1%} of the rows have no value")
            if texts:
                found[name] = "; ".join(texts)
        if self.dropped:
            found[columns.target] = f"{counted(self.dropped, 'row')} without it left out"
        return found
