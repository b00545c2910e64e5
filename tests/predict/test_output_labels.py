"""Labels are written as they are: a reader of CSV gets back ``=1+1``, and no label loses or gains a character."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd

from partirvm.predict.output import Column, open_output
from partirvm.storage.destination import destination

LABELS = ("=1+1", "+2", "-3", "@sum(a1)", 'a"b', "a,b", "two\nlines", "cr\rx", "", "NA", "01", "\ttab", " spaces ", "ü")


def test_labels_in_csv_are_what_they_were(tmp_path):
    """Read back with pandas and with the csv module; names of columns too."""
    place = tmp_path / "p.csv"
    columns = (Column("label", LABELS), *(Column(f"p_{label}") for label in LABELS))
    n = len(LABELS)
    with open_output(destination(str(place)), tmp_path / ".part.csv", columns, n, lambda: None) as write:
        write(np.column_stack([np.arange(n), np.eye(n) / 3]))
    names = [column.name for column in columns]
    with place.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == names
    assert [row[0] for row in rows] == list(LABELS)
    found = pd.read_csv(place, dtype={"label": str}, keep_default_na=False)
    assert list(found.columns) == names
    assert found["label"].tolist() == list(LABELS)
    np.testing.assert_array_equal(found[names[1:]].to_numpy(), np.eye(n) / 3)


def test_integers_beyond_2_to_the_53_in_csv(tmp_path):
    labels = (2**53, 2**53 + 1, 2**63 - 1)
    place = tmp_path / "p.csv"
    with open_output(
        destination(str(place)), tmp_path / ".part.csv", (Column("label", labels),), 3, lambda: None
    ) as write:
        write(np.arange(3.0)[:, None])
    assert place.read_text().split() == ['"label"', *map(str, labels)]
