"""The role of every column of an ingested table, and the conversion of columns to float64 rows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from partirvm.data import problems
from partirvm.data.dates import Dates
from partirvm.data.labels import Levels
from partirvm.data.problems import Finding, OddCells, Values
from partirvm.data.tables import Batch, Reader, is_text, numbers
from partirvm.errors import DataError, UsageError
from partirvm.quoting import counted, listed, quoted
from partirvm.types import Columns, Float, cyclic

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."

MOST_LEVELS = 10_000
"""Maximum levels of a text column not named as categorical; in short tables, half the rows (at
least 20)."""

FIRST, TEXTS = 10_000, 12 << 20
"""Maximum number of rows from which the kind of a text column is recognised, and the size in bytes
of their batch."""


@dataclass(frozen=True)
class Roles:
    """The roles of columns. If ``noisy``, weights are 1/r² of a column r; with ``auto``, text
    columns are categories.

    ``missing`` are strings that stand for a missing value, and ``formats`` are date formats. With
    ``drop_missing_targets``, rows without a target are left out.
    """

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weights: str | None
    categorical: tuple[str, ...]
    classes: bool
    noisy: bool = False
    auto: bool = False
    missing: tuple[str, ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    drop_missing_targets: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the names of all columns to read: features, targets, weights."""
        return (*self.features, *self.targets, *filter(None, [self.weights]))


def assign_roles(table: Reader, like: Columns | None, asked: Mapping[str, Any]) -> Roles:
    """Assign a role to every column from the ``ingest`` options. Only data ``like`` others may lack
    a target."""
    where = table.name
    weights = asked["weights"] or table.weights
    noise = asked["noise"]
    target, features, exclude, categorical = (
        asked[name] for name in ("target", "features", "exclude", "categorical")
    )
    classes = asked["classes"]
    missing = asked["missing"]
    dates = asked["dates"] or {}
    if isinstance(target, str):
        target = (
            [target] if target in table.columns else [name.strip() for name in target.split(",")]
        )
    targets = tuple(map(str, target or ()))
    if like is not None:
        features = like.given if features is None else features
        categorical = tuple(like.categories)
        classes = like.classes is not None
        learned = like.targets or (like.target,)
        targets = targets or (learned if set(learned) <= set(table.columns) - set(exclude) else ())
        missing = (*like.missing, *missing)
        dates = like.formats
    targets = targets or table.targets
    classes = classes and bool(targets)
    if noise is not None and (weights is not None or classes):
        only = "noise is for regression without weights, and gives the weights 1/noise²."
        raise UsageError(
            f"{where}: the column {quoted(noise)} cannot be the noise (`--noise`): {only}"
        )
    if classes and len(targets) > 1:
        raise UsageError(
            f"{where}: a classification has one target, but {listed(targets)} are {len(targets)}."
        )
    if not targets and like is None:
        missing = "no target is named: pass y or target=… (`--target`)"
        raise UsageError(f"{where}: {missing}. Its columns: {listed(table.columns)}. {UNLABELLED}")
    own = weights or noise
    given = (
        [name for name in table.columns if name not in (*targets, own)]
        if features is None
        else features
    )
    features = tuple(str(name) for name in given if name not in exclude or like is not None)
    found = [name for name in table.categorical if name in features and like is None]
    chosen = [name for name in categorical if name in table.columns or name not in ("auto", "none")]
    coded = tuple(dict.fromkeys([*chosen, *found]))
    auto = "auto" in set(categorical) - set(chosen)
    without = asked["drop_missing_targets"]
    roles = Roles(
        features,
        targets,
        own,
        coded,
        classes,
        noise is not None,
        auto,
        tuple(missing),
        dates,
        without,
    )
    check_roles(roles, table, () if like is not None else exclude)
    return roles


def check_roles(roles: Roles, table: Reader, exclude: Sequence[str] = ()) -> None:
    """Raise ``DataError`` for unknown or ambiguous names, and ``UsageError`` for names with two
    roles."""
    where = table.name
    found = Counter(table.columns)
    used = Counter(roles.wanted)
    for name in (*roles.wanted, *exclude, *roles.categorical, *roles.formats):
        if found[name] != 1:
            has = "several columns" if found[name] else "no column"
            hint = f" {UNLABELLED}" * (name in roles.targets)
            raise DataError(
                f"{where} has {has} {quoted(name)}. Its columns: {listed(table.columns)}.{hint}"
            )
        if used[name] > 1:
            raise UsageError(
                f"{where}: column {quoted(name)} can be only one of target, feature, weights and "
                "noise."
            )
    if not roles.features:
        raise DataError(f"{where}: there is no feature column besides {listed(roles.wanted)}.")
    for name in {*roles.categorical, *roles.formats}.difference(roles.features):
        use = "was left out (`--features`, `--exclude`): only features are categories or dates"
        if name in roles.targets:
            use = "is the target: for classes pass `--classes`"
        raise DataError(f"{where}: the column {quoted(name)} {use}.")


class Encoder:
    """Encodes batches as float64 records: features in order, then targets, then weights if there
    are any.

    If the table is to be ``stored``, text columns with too many labels are left out. Unusable
    values (``OddCells``) become NaN; ``findings`` reports them. ``notes`` says how a column was
    read, judging by its first rows.
    """

    def __init__(
        self, roles: Roles, table: Reader, like: Columns | None, *, stored: bool = False
    ) -> None:
        self.roles = roles
        self._table = table
        self._like = like
        self._stored = stored
        self.n_rows = 0
        self.dropped = 0
        self._row = 0
        self.notes = dict[str, str]()
        known: dict[str, Any] = dict(table.categorical if like is None else like.categories)
        if like is not None and roles.classes:
            known[roles.targets[0]] = like.classes
        self._asked = (*roles.categorical, *(roles.targets if roles.classes else ()))
        self.levels = {column: self._levels_of(column, known.get(column)) for column in self._asked}
        dates: Mapping[str, Any] = dict.fromkeys(roles.formats) if like is None else like.dates
        self.dates = {
            column: Dates(cycles, roles.formats.get(column)) for column, cycles in dates.items()
        }
        self._values = dict[str, Values]()
        self._odd = defaultdict[tuple[str, str], OddCells](OddCells)
        self._proposed, self._filled = list[Finding](), np.zeros(len(roles.wanted), bool)

    def _levels_of(self, column: str, known: Sequence[Any] | None = None) -> Levels:
        most = np.inf if column in self.roles.categorical else MOST_LEVELS
        where = f"{self._table.name}: the column"
        return Levels(
            f"{where} {quoted(column)}",
            known,
            self._table.untyped,
            column in self.roles.targets,
            most,
        )

    def records(self, seed: int | None, batch_bytes: int) -> Iterator[Float]:
        """Yield records (shuffle key, row number, features, targets, weights) in one buffer that
        all batches share."""
        rng = None if seed is None else np.random.default_rng(seed)
        space = np.empty((0, 2 + len(self.roles.wanted)))
        for batch in self._table.batches(self.roles.wanted, batch_bytes):
            start = self.n_rows
            n = len(batch[self.roles.features[0]])
            self._row = self.n_rows + self.dropped
            space = space if len(space) >= n else np.empty((n, space.shape[1]))
            if not self._row and self._like is None:
                # not the first batch, whose size depends on the available memory
                self._recognise(
                    next(self._table.batches(self.roles.wanted, TEXTS))
                    if self._table.untyped
                    else batch
                )
            for place, column in enumerate(self.roles.wanted, 2):
                codes = (
                    self.levels[column].codes
                    if column in self.levels
                    else partial(self._numbers, column)
                )
                space[:n, place] = codes(self._without_gaps(batch[column]))
                if column in self._values:
                    self._values[column].add(space[:n, place])
            records = self._checked(space[:n])
            self.n_rows += len(records)
            del batch  # free the memory before the next batch is read
            records[:, 1] = np.arange(start, self.n_rows)
            records[:, 0] = records[:, 1] if rng is None else rng.random(len(records))
            yield records

    def _recognise(self, batch: Batch) -> None:
        """Decide by the first rows which columns are dates, also as text, or, with ``auto``,
        categories."""
        import pyarrow as pa

        for column in [
            name
            for name in self.roles.features
            if name not in self.levels and name not in self.dates
        ]:
            values = self._without_gaps(batch[column][:FIRST])
            what = "numbers"
            if is_text(values.type):
                what = self._kind_of_text(column, values)
            elif pa.types.is_temporal(values.type) or pa.types.is_boolean(values.type):
                what = "dates" if pa.types.is_temporal(values.type) else "booleans"
            if what == "dates":
                self.dates.setdefault(column, Dates())
            elif what == "booleans":
                self.notes[column] = "true and false, as 1 and 0"
            elif what == "text" and self.roles.auto:
                self.levels[column] = self._levels_of(column)
            elif self._stored:
                self._values[column] = Values()

    def _kind_of_text(self, column: str, values: Any) -> str:
        """Return what the first strings of a column hold. A date format is noted, or proposed if it
        is ambiguous."""
        texts = self._plain(values).unique().drop_null().to_pylist()
        what, others = problems.recognised(texts)
        numeric = (
            self._table.untyped
            or others
            or self.roles.missing
            or any("." in text for text in texts)
        )
        if (others and not self._stored) or (what == "numbers" and texts and not numeric):
            return "text"
        forms = (
            problems.date_formats([text for text in texts if text not in others])
            if what == "dates"
            else []
        )
        if forms:
            self.dates[column], self.notes[column] = Dates(form=forms[0]), f"dates like {forms[0]}"
        if forms[1:]:
            either = "dates, day or month first: the day is assumed"
            self._proposed.append(Finding(column, either, {"dates": {column: forms[0]}}))
        return what

    def _plain(self, texts: Any) -> Any:
        """Return strings without surrounding spaces, and with decimal commas replaced by points."""
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(texts)
        if self._table.commas:
            texts = pc.replace_substring_regex(
                texts, r"^([+-]?\d*),(\d+)([eE][+-]?\d+)?$", r"\1.\2\3"
            )
        return texts

    def _without_gaps(self, values: Any, gaps: Iterable[str] = ()) -> Any:
        """Return plain values in which the strings that stand for gaps are missing values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values
        if not is_text(values.type) or not (gaps or self.roles.missing):
            return values
        found = pc.is_in(values, value_set=pa.array([*self.roles.missing, *gaps], values.type))
        return pc.if_else(found, None, values)

    def _numbers(self, column: str, values: Any) -> Float:
        """Return the numbers or days in an Arrow array. Unusable values become NaN and are
        recorded."""
        import pyarrow as pa

        dates = self.dates.get(column)
        for part in (values, None):
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
                values = self._usable(column, values, dates) if part is None else part
                if dates is not None:
                    return dates.days(values)
                if not pa.types.is_temporal(values.type):
                    return numbers(values.cast(pa.float64(), safe=False))
        self._odd[column, "type"].add(np.full(len(values), True), self._row, [str(values.type)])
        return np.full(len(values), np.nan)

    def _usable(self, column: str, texts: Any, dates: Dates | None) -> Any:
        """Return the strings that can be converted; others become missing, and are recorded unless
        they mark gaps."""
        import pyarrow.compute as pc

        if not is_text(texts.type):
            return texts
        texts = self._without_gaps(
            self._plain(texts), () if self._like is None else problems.MARKERS
        )
        if dates is None:
            for boolean, number in (("true", "1"), ("false", "0")):
                texts = pc.replace_substring_regex(texts, f"^(?i:{boolean})$", number)
        if dates is not None and dates.form is not None:
            usable = pc.is_valid(
                pc.strptime(texts, format=dates.form, unit="us", error_is_null=True)
            )
        else:
            pattern = problems.NUMBER if dates is None else problems.ISO
            usable = pc.fill_null(pc.match_substring_regex(texts, f"^({pattern})$"), False)
        odd = pc.and_not(pc.is_valid(texts), usable)
        if pc.any(odd).as_py():
            self._odd[column, "text"].add(
                odd.to_numpy(zero_copy_only=False), self._row, texts.filter(odd).to_pylist()
            )
        return pc.if_else(usable, texts, None)

    def _checked(self, records: Float) -> Float:
        """Return records with noise turned into weights and dropped rows removed. Unusable values
        are recorded."""
        into = records[:, 2:]
        first = len(self.roles.features)
        end = len(self.roles.features) + len(self.roles.targets)
        if "inf" in self.roles.missing:
            into[np.isinf(into)] = np.nan
        if self.roles.noisy:
            with np.errstate(all="ignore"):
                into[:, -1] = np.copysign(1.0 / into[:, -1] ** 2, into[:, -1])
        missing = np.isnan(into)
        into[missing] = np.nan  # equal bits give equal hashes of rows
        self._filled |= ~missing.all(axis=0)
        kept = np.array([not self.roles.drop_missing_targets]) | ~missing[:, first:end].any(axis=1)
        odd = {
            "infinite": np.isinf(into),
            "without": missing.copy(),
            "weights": np.zeros(into.shape, bool),
        }
        odd["without"][:, :first] = False
        if self.roles.weights is not None:
            odd["weights"][:, -1] = ~((into[:, -1] >= 0) & np.isfinite(into[:, -1]))
        for kind, cells in odd.items():
            for place in np.flatnonzero(cells[kept].any(axis=0)).tolist():
                self._odd[self.roles.wanted[place], kind].add(cells[:, place] & kept, self._row)
        self.dropped += int((~kept).sum())
        return records if kept.all() else records[kept]

    def findings(self) -> list[Finding]:
        """Return the problems of the columns, and proposals for them, in column order."""
        return [each for column in self.roles.wanted for each in self._findings_of(column)]

    def _findings_of(self, column: str) -> Iterator[Finding]:
        odd = {kind: cells for (name, kind), cells in self._odd.items() if name == column}
        target = column in self.roles.targets
        new = self._like is None
        levels = self.levels.get(column)
        gaps = {"drop_missing_targets": True} if target else {}
        exclude = {"exclude": (column,)} if column in self.roles.features and new else {}
        what = "dates" if column in self.dates else "numbers"
        if "text" in odd:
            some = gaps if "without" in odd and odd["without"].count > odd["text"].count else {}
            yield Finding(
                column,
                f"text, not {what}: {odd['text']}",
                self._instead_of(odd["text"], column, gaps, some),
            )
        if "type" in odd:
            yield Finding(
                column, f"{' '.join(odd['type'].texts)}, not {what}", exclude, "convert this column"
            )
        if column == self.roles.weights and "weights" in odd:
            yield Finding(column, f"no weight ≥ 0, or no noise > 0, in {odd['weights']}")
        elif "infinite" in odd:
            yield Finding(
                column, f"infinite values in {odd['infinite']}", {"missing": ("inf",), **gaps}
            )
        elif "without" in odd and not {"text", "type"} & odd.keys():
            yield Finding(column, f"no value in {odd['without']}", gaps)
        if not odd and exclude and not self._filled[self.roles.features.index(column)]:
            yield Finding(column, "no row has a value", exclude)
        elif column in self._many and column not in self.left_out:
            count = f"{self._many[column]:,} or more"
            advice = "take it as a number, without classes"
            yield Finding(
                column, f"{count} different labels, too many for a category", exclude, advice
            )
        elif (
            levels
            and new
            and (found := tuple(label for label in levels.found if label in problems.MARKERS))
        ):
            yield Finding(
                column,
                f"text, but {listed(found, show=quoted)}",
                {"missing": found, **gaps},
                fatal=False,
            )
        elif (
            not odd
            and column in self._values
            and (proposal := self._values[column].finding(column))
        ):
            yield proposal
        yield from (each for each in self._proposed if each.column == column)

    def _instead_of(
        self, text: OddCells, column: str, gaps: dict[str, Any], some: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the options that settle text in a numeric or date column: few strings are gaps,
        many are labels."""
        texts = tuple(text.texts)
        others = self.n_rows + self.dropped - text.count
        if len(texts) <= problems.FEW_TEXTS and problems.few(texts, text.count, others):
            return {"missing": texts, **gaps}
        if column in self.roles.targets:
            return (
                {"classes": True, **some}
                if self.roles.targets[1:] == () and self._like is None
                else {}
            )
        if self._like is not None or column == self.roles.weights or len(texts) == problems.KEPT:
            return {}
        return {"categorical": (*["auto"] * self.roles.auto, column)}

    @cached_property
    def _many(self) -> dict[str, int]:
        """The columns with too many labels, and their label counts."""
        found = {name: len(each.found) for name, each in self.levels.items()}
        half = self.n_rows / 2
        most = {
            name: np.inf if name in self._asked else max(half, problems.FEW_LEVELS)
            for name in found
        }
        return {name: n for name, n in found.items() if self.levels[name].full or n > most[name]}

    @cached_property
    def left_out(self) -> dict[str, int]:
        """The text columns that are left out, and their label counts."""
        return {
            name: n for name, n in self._many.items() if self._stored and name not in self._asked
        }

    @cached_property
    def final(self) -> dict[str, tuple[tuple[Any, ...], Float]]:
        """The labels and final codes (``Levels.final``) of each column."""
        return {
            column: each.final()
            for column, each in self.levels.items()
            if column not in self.left_out
        }

    def finished(self, records: Float, first: int) -> Float:
        """Return the changed records, with final codes and date cycles, and ``first`` added to the
        row numbers."""
        for place, column in enumerate(self.roles.wanted, 2):
            if column in self.final:
                records[:, place] = self.final[column][1][
                    np.nan_to_num(records[:, place], nan=-1).astype(np.int64)
                ]
        records[:, 1] += first
        if not self.dates and not self.left_out:
            return records
        places = [
            (name, place)
            for place, name in enumerate(self.roles.wanted, 2)
            if name not in self.left_out
        ]
        columns = [(name, records[:, place]) for name, place in places]
        expanded = (
            self.dates[name].expanded(each) if name in self.dates else [each]
            for name, each in columns
        )
        return np.column_stack([records[:, :2], *chain.from_iterable(expanded)])

    def columns(self) -> Columns:
        """Return names, categories, dates and classes; without a target column, with target and
        classes of ``like``."""
        final = {column: labels for column, (labels, _) in self.final.items()}
        names = [name for name in self.roles.features if name not in self.left_out]
        dates = {name: self.dates[name].cycles for name in names if name in self.dates}
        features = tuple(
            each for name in names for each in (name, *cyclic(name, dates.get(name, ())))
        )
        if not self.roles.targets:
            return replace(
                self._like or Columns(()), features=features, categories=final, dates=dates
            )
        formats = {name: form for name in dates if (form := self.dates[name].form) is not None}
        name = ", ".join(self.roles.targets)
        targets = self.roles.targets
        classes = final.pop(name) if self.roles.classes else None
        several = targets if targets[1:] else ()
        return Columns(features, name, final, classes, several, dates, formats, self.roles.missing)

    def described(self, missing: Float, settled: Sequence[Finding]) -> dict[str, str]:
        """Return remarks on columns and the file; ``settled`` were accepted, ``missing`` (d,) holds
        shares of rows."""
        columns = self.columns()
        texts = defaultdict[str, list[str]](list)
        told = [(each.column, f"{each.found} ({each.options})") for each in settled] + [
            *self.notes.items()
        ]
        told += [
            (each.column, f"{each.found}: perhaps `{each.options}`") for each in self.findings()
        ]
        for name, text in told:
            texts[name].append(text)
        for name, count in self.left_out.items():
            labels = (
                f"text of {count:,}{' or more' * self.levels[name].full} different values, left out"
            )
            category = Finding(name, labels, {"categorical": ("auto", name)})
            texts[name].append(f"{labels}: `{category.options}` takes it")
        for name, share in zip(columns.features, missing.tolist(), strict=True):
            if self._like is None and name in columns.categories:
                texts[name].append(
                    f"{counted(len(columns.categories[name]), 'level')} of a category"
                )
            if self._like is None and name in columns.dates:
                waves = [f"sine and cosine of the {cycle}" for cycle in columns.dates[name]]
                texts[name].append(", ".join([self.dates[name].unit, *waves]))
            if share and name in columns.given:
                texts[name].append(f"{share:.1%} of the rows have no value")
        if self.dropped and not texts[columns.target]:
            texts[columns.target].append(f"{counted(self.dropped, 'row')} without it left out")
        if self._table.note:
            texts[self._table.name].append(self._table.note)
        order = (self._table.name, *self._table.columns, columns.target)
        return {name: "; ".join(texts[name]) for name in dict.fromkeys(order) if name in texts}
