"""The role of every column of an ingested table: feature, target, weights, noise or groups."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from partirvm.data.row_groups import Groups
from partirvm.data.tables import Reader
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, quoted
from partirvm.types import Columns

MARKS = {"decimal": ".,", "thousands": ",. '_"}
"""Possible values of the options for the notation of numbers."""

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."
"""Advice for a table without a target."""


@dataclass(frozen=True)
class Roles:
    """The roles of columns, and how their values are read.

    Attributes:
        features: names of the features, in order
        targets: names of the targets
        weights: name of the column of weights or noise, or None
        categorical: features whose values are labels
        classes: True if the target is a class
        noisy: True if ``weights`` contains relative noise r, so that weights are 1/r²
        auto: True if text columns are categories
        missing: strings that stand for a missing value
        formats: date formats other than ISO, or orders of day, month and year, by column
        drop_missing_targets: True to leave out rows without a target
        numeric: columns of numbers, in which other texts are missing values
        decimal: decimal mark where the numbers of a column leave a choice, or ""
        thousands: thousands separator where the numbers of a column leave a choice, or ""
        groups: specification of the rows' groups, or None
    """

    features: tuple[str, ...]
    targets: tuple[str, ...] = ()
    weights: str | None = None
    categorical: tuple[str, ...] = ()
    classes: bool = False
    noisy: bool = False
    auto: bool = False
    missing: tuple[str, ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    drop_missing_targets: bool = False
    numeric: tuple[str, ...] = ()
    decimal: str = ""
    thousands: str = ""
    groups: Groups | None = None

    @property
    def read(self) -> tuple[str, ...]:
        """The names of all columns to read: those ``wanted``, and the columns of the groups."""
        names = () if self.groups is None else self.groups.columns
        return tuple(dict.fromkeys([*self.wanted, *names]))

    @property
    def record_width(self) -> int:
        """The number of values of a record: key, row number, the columns, and the group."""
        return 2 + len(self.wanted) + (self.groups is not None)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of the columns of a record: features, targets, weights."""
        return (*self.features, *self.targets, *filter(None, [self.weights]))

    @property
    def tile_width(self) -> int:
        """The number of values per row that determines the size of tiles."""
        return len(self.features) + max(len(self.targets) - 1, 0)


def assign_roles(table: Reader, like: Columns | None, options: Mapping[str, Any]) -> Roles:
    """Assign a role to every column from the ``ingest`` options. The target may be missing only
    with ``like``."""
    where = table.name
    weights = options["weights"] or table.weights
    noise = options["noise"]
    targets = _targets(table, like, options)
    classes = bool(targets) and (options["classes"] if like is None else like.classes is not None)
    if noise is not None and (weights is not None or classes):
        raise UsageError(
            f"{where}: the column {quoted(noise)} cannot be the noise (`--noise`): noise is for "
            "regression without weights, and gives the weights 1/noise²."
        )
    if classes and len(targets) > 1:
        raise UsageError(
            f"{where}: a classification has one target, but {listed(targets)} are {len(targets)}."
        )
    if not targets and like is None:
        raise UsageError(
            f"{where}: no target is named: pass y or target=… (`--target`). Its columns: "
            f"{listed(table.columns)}. {UNLABELLED}"
        )
    roles = Roles(
        features=(),
        targets=targets,
        weights=weights or noise,
        classes=classes,
        noisy=noise is not None,
        missing=tuple(options["missing"]),
        drop_missing_targets=options["drop_missing_targets"],
        numeric=tuple(options["numeric"]),
        decimal=options["decimal"] or "",
        thousands=options["thousands"] or "",
        groups=_groups(options["groups"]),
    )
    if like is None:
        roles = _with_new_features(roles, table, options)
        check_roles(roles, table, options["exclude"])
    else:
        roles = _with_features_like(roles, like, options)
        check_roles(roles, table)
    return roles


def _groups(groups: str | Groups | None) -> Groups | None:
    """Return the groups from the options."""
    return Groups.parsed(groups) if isinstance(groups, str) else groups


def feature_roles(table: Reader, options: Mapping[str, Any]) -> Roles:
    """Return the roles of a table whose columns are features, from the options of columns."""
    check_marks(options)
    roles = Roles(
        features=(),
        missing=tuple(options["missing"]),
        numeric=tuple(options["numeric"]),
        decimal=options["decimal"] or "",
        thousands=options["thousands"] or "",
    )
    roles = _with_new_features(roles, table, {"features": None, **options})
    check_roles(roles, table, options["exclude"])
    return roles


def check_marks(options: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for unknown marks of numbers."""
    for name, marks in MARKS.items():
        mark = options[name]
        if mark is not None and (len(mark) != 1 or mark not in marks):
            raise UsageError(f"{name} is {mark!r}: it must be one of {listed(marks, show=repr)}")


def _targets(table: Reader, like: Columns | None, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the targets from the options, from the data ``like`` if the table has them, or from
    the source."""
    target = options["target"]
    if isinstance(target, str) and target not in table.columns:
        target = [name.strip() for name in target.split(",")]
    elif isinstance(target, str):
        target = [target]
    if target:
        return tuple(map(str, target))
    if like is not None:
        learned = like.targets or (like.target,)
        if set(learned) <= set(table.columns) - set(options["exclude"]):
            return learned
    return table.targets


def _with_new_features(roles: Roles, table: Reader, options: Mapping[str, Any]) -> Roles:
    """Return the roles with the features of new data."""
    names = options["features"]
    if names is None:
        others = {*roles.targets, roles.weights}
        if roles.groups is not None and roles.groups.is_label:
            others.update(roles.groups.columns)
        names = [name for name in table.columns if name not in others]
    features = tuple(str(name) for name in names if name not in options["exclude"])
    labelled = [
        name
        for name in options["categorical"]
        if name in table.columns or name not in ("auto", "none")
    ]
    from_source = [name for name in table.categorical if name in features]
    return replace(
        roles,
        features=features,
        categorical=tuple(dict.fromkeys([*labelled, *from_source])),
        auto="auto" in options["categorical"] and "auto" not in labelled,
        formats=options["dates"] or {},
    )


def _with_features_like(roles: Roles, like: Columns, options: Mapping[str, Any]) -> Roles:
    """Return the roles with the features, categories and dates of the data ``like``."""
    names = like.given if options["features"] is None else options["features"]
    features = tuple(map(str, names))
    return replace(
        roles,
        features=features,
        categorical=tuple(name for name in like.categories if name in features),
        missing=(*like.missing, *roles.missing),
        formats={name: form for name, form in like.formats.items() if name in features},
    )


def check_roles(roles: Roles, table: Reader, exclude: Sequence[str] = ()) -> None:
    """Raise ``DataError`` for unknown or ambiguous names, and ``UsageError`` for names with two
    roles."""
    where = table.name
    counts = Counter(table.columns)
    uses = Counter(roles.wanted)
    for name in (*roles.read, *exclude, *roles.categorical, *roles.formats, *roles.numeric):
        if counts[name] != 1:
            has = "several columns" if counts[name] else "no column"
            hint = f" {UNLABELLED}" if name in roles.targets else ""
            raise DataError(
                f"{where} has {has} {quoted(name)}. Its columns: {listed(table.columns)}.{hint}"
            )
        if uses[name] > 1:
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
    for name in roles.numeric:
        if name in (*roles.categorical, *roles.formats) or (
            roles.classes and name in roles.targets
        ):
            raise UsageError(
                f"{where}: the column {quoted(name)} cannot contain both numbers (`--numeric`) and "
                "labels or dates."
            )
