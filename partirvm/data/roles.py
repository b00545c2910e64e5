"""The role of every column of a table that is ingested: feature, target, weights, label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partirvm.data.checks import unknown_column
from partirvm.data.source import Columns
from partirvm.data.tables import Reader, require_distinct
from partirvm.errors import DataError, UsageError
from partirvm.quoting import listed, quoted

UNLABELLED = "To predict rows without a target, pass the training DATA: like=… (`--like`)."

LONGEST_LABEL = 1000
"""Maximum number of characters of a label or of the name of a column."""


@dataclass(frozen=True)
class Roles:
    """The role of every column. ``levels`` are the columns that contain labels: categorical features and a class
    target.

    Rows for prediction have no ``targets``. ``classes`` is true for one class target, and false for no target or
    several targets. If ``noisy`` is true, the weights column contains relative noise r, and the weights are 1/r².
    """

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weights: str | None
    categorical: tuple[str, ...]
    classes: bool
    noisy: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the names of all columns to read: features, targets, weights."""
        return (*self.features, *self.targets, *([] if self.weights is None else [self.weights]))

    @property
    def levels(self) -> frozenset[str]:
        return frozenset([*self.categorical, *(self.targets if self.classes else ())])


def assign_roles(
    reader: Reader,
    *,
    target: str | Sequence[str] | None,
    features: Sequence[str] | None,
    categorical: Sequence[str],
    weights: str | None,
    noise: str | None,
    classes: bool,
    like: Columns | None,
) -> Roles:
    """Assign a role to every column. A target is required, except for data ``like`` others from a source without
    target.

    Raises ``DataError`` for an unknown name, and ``UsageError`` for conflicting roles.
    """
    targets, categorical = _named(target, reader), tuple(map(str, categorical))
    features = None if features is None else tuple(map(str, features))
    weights, noise = (None if name is None else str(name) for name in (weights, noise))
    require_distinct(reader.columns, reader.name)
    if like is not None:
        features = like.features if features is None else features
        categorical = tuple(like.categories)
        learned = like.targets or (like.target,)
        targets = targets or (learned if set(learned) <= set(reader.columns) else ())
        classes = like.classes is not None
    targets, weights = targets or reader.targets, weights or reader.weights
    classes = classes and bool(targets)
    if noise is not None and (weights is not None or classes):
        beside = "the target is a class" if weights is None else f"the weights {quoted(weights)} are given"
        raise UsageError(
            f"{reader.name}: the column {quoted(noise)} cannot be the noise (`--noise`), because {beside}: noise "
            "applies to regression and gives the weights 1/noise²; combine noise and weights in one column of weights."
        )
    if classes and len(targets) > 1:
        raise UsageError(
            f"{reader.name}: a classification has one target, but {listed(targets)} are {len(targets)}: ingest each "
            "target separately, and leave the others out with --features."
        )
    if not targets and like is None:
        if reader.features is not None:
            raise DataError(f"{reader.name}: there is no array y: pass target=… (`--target`). {UNLABELLED}")
        raise UsageError(
            f"{reader.name}: no target is named: pass target=… (`--target`). "
            f"Its columns: {listed(reader.columns)}. {UNLABELLED}"
        )
    for role, name in [*(("target", name) for name in targets), ("weights", weights), ("noise", noise)]:
        if name is not None and name not in reader.columns:
            error = unknown_column(name, role, reader.columns, reader.name)
            raise DataError(f"{error} {UNLABELLED}") if role == "target" else error
    weights, noisy = weights or noise, noise is not None
    if features is None:
        features = [name for name in reader.features or reader.columns if name not in (*targets, weights)]
    if like is None:
        found = (name for name in reader.categorical if name in features and name not in categorical)
        categorical = (*categorical, *found)
    roles = Roles(tuple(features), targets, weights, tuple(categorical), classes, noisy)
    _check_roles(roles, reader)
    return roles


def _named(target: Any, reader: Reader) -> tuple[str, ...]:
    """Return the names of the targets. A string that is not a column name may list several names, separated by commas.

    Data frames whose column names are integers also accept integers.
    """
    if isinstance(target, str) and target:
        return (target,) if target in reader.columns else tuple(name.strip() for name in target.split(","))
    return tuple(map(str, target or ())) if np.iterable(target) or target is None else (str(target),)


def _check_roles(roles: Roles, reader: Reader) -> None:
    where, columns = reader.name, set(reader.columns)
    for name in roles.wanted:
        if len(name) > LONGEST_LABEL:
            raise DataError(
                f"{where}: a column name has {len(name):,} characters, but names have at most "
                f"{LONGEST_LABEL:,}: rename the column {quoted(name)}."
            )
    for name in roles.features:
        if name not in columns:
            raise unknown_column(name, "feature", reader.columns, where)
        if name in (*roles.targets, roles.weights):
            role = "target" if name in roles.targets else "weights"
            raise UsageError(f"{where}: the column {quoted(name)} cannot be both a feature and the {role}.")
    for role, names in (("feature", roles.features), ("target", roles.targets)):
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise UsageError(f"the {role} {quoted(twice)} is named twice.")
    if roles.weights in roles.targets:
        raise UsageError(f"{where}: the column {quoted(roles.weights)} cannot be both the target and the weights.")
    if not roles.features:
        raise DataError(f"{where}: there is no feature column besides {listed(roles.wanted)}.")
    for name in roles.categorical:
        if name in roles.targets:
            raise UsageError(f"{where}: the target {quoted(name)} cannot be categorical: pass --classes for classes.")
        if name not in roles.features:
            raise unknown_column(name, "categorical", roles.features, f"{where} (features)")
