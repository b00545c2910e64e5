"""Tables as people write them as data frames: fitted and predicted in Python, beside the same tables as files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.table_kinds import Table
from partirvm import ColumnOptions, RVMClassifier, RVMRegressor
from partirvm.errors import DataError

OPTIONS = {"gamma": 0.3, "max_rounds": 1, "memory_limit": "1GiB", "random_state": 0}
"""Options of the estimators; those of the command line in ``tables``."""


def pandas(columns: dict[str, list[str]]) -> Any:
    """Return columns of text as a data frame of pandas."""
    import pandas as pd

    return pd.DataFrame(columns)


def polars(columns: dict[str, list[str]]) -> Any:
    """Return columns of text as a data frame of polars."""
    import polars as pl

    return pl.DataFrame(columns)


def arrow(columns: dict[str, list[str]]) -> Any:
    """Return columns of text as an Arrow table."""
    import pyarrow as pa

    return pa.table(columns)


LIBRARIES: dict[str, Callable[[dict[str, list[str]]], Any]] = {
    "pandas": pandas,
    "polars": polars,
    "Arrow": arrow,
}


@dataclass(frozen=True)
class FramePredictions:
    """The predictions for a data frame.

    Attributes:
        values: predicted means (n, 1), or probabilities of the classes (n, K)
        options: the columns=… that an error offered, or ""
    """

    values: np.ndarray[Any, Any]
    options: str = ""


def features(table: Table) -> dict[str, list[str]]:
    """Return the columns of a table as written, without its target."""
    return {name: texts for name, texts in table.written.items() if name != table.target}


def target(table: Table) -> np.ndarray[Any, Any]:
    """Return the target as plain numbers or labels."""
    texts = np.array(table.plain[table.target])
    return texts if table.classes else texts.astype(float)


def fitted_and_predicted(
    train: Table, new: Table, library: str, columns: ColumnOptions | None = None
) -> np.ndarray[Any, Any]:
    """Return the predictions for the new rows.

    Args:
        train: rows of the fit
        new: rows to predict
        library: library of both data frames
        columns: how the columns are read
    """
    convert = LIBRARIES[library]
    rows = convert(features(train))
    later = convert(features(new))
    if train.classes:
        classifier = RVMClassifier(**OPTIONS, columns=columns).fit(rows, target(train))
        return np.asarray(classifier.predict_proba(later))
    regressor = RVMRegressor(**OPTIONS, residual="none", columns=columns).fit(rows, target(train))
    return np.asarray(regressor.predict(later)).reshape(len(new.plain[new.target]), 1)


def offered(error: str) -> str:
    """Return the option columns=… that an error offers, or ""."""
    found = re.findall(r"columns=(ColumnOptions\(.*\))$", error, re.MULTILINE)
    return str(found[-1]) if found else ""


def frame_predictions(train: Table, new: Table, library: str) -> FramePredictions:
    """Fit and predict data frames; an option that an error offers is used as it is pasted.

    Args:
        train: rows of the fit
        new: rows to predict
        library: library of both data frames
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return FramePredictions(fitted_and_predicted(train, new, library))
        except DataError as error:
            option = offered(str(error))
            if not option:
                raise
        columns = eval(option, {"ColumnOptions": ColumnOptions})
        return FramePredictions(fitted_and_predicted(train, new, library, columns), option)
