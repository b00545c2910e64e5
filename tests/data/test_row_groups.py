"""Codes of groups, and groups in DATA."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from partirvm import Groups, ingest
from partirvm.data import ZarrSource
from partirvm.data.row_groups import label_codes
from partirvm.errors import DataError, UsageError

DAYS = pd.date_range("2024-01-01", periods=60, freq="D")


def frame():
    """60 days at 3 stations."""
    return pd.DataFrame(
        {
            "x": np.arange(180.0),
            "station": np.repeat(["a", "b", "c"], 60),
            "when": np.tile(DAYS, 3),
            "y": np.sin(np.arange(180.0)),
        }
    )


@pytest.mark.parametrize(
    "labels",
    [
        [1, 2, 1, 3],
        np.array([1.0, 2.0, 1.0, 3.0]),
        ["1", "2", "1", "3"],
        pd.Series(["1", "2", "1", "3"], dtype="category"),
        np.array([1, "2", 1, 3.0], dtype=object),
    ],
    ids=["list", "float", "text", "category", "mixed"],
)
def test_equal_labels_have_equal_codes_in_every_type(labels):
    codes = label_codes(labels, 4)
    assert_array_equal(codes, label_codes(np.array([1, 2, 1, 3]), 4))
    assert codes[0] == codes[2]
    assert len(np.unique(codes)) == 3
    assert_array_equal(codes, codes.astype(np.float64).astype(np.int64))


def test_blocks_of_time_and_space_are_groups():
    weeks = Groups.by_time("when", "7d").codes([pa.array(DAYS)])
    assert 9 <= len(np.unique(weeks)) <= 10
    assert np.all(np.unique(weeks, return_counts=True)[1] <= 7)
    numbers = Groups.by_time("hour", 6).codes([pa.array([0, 5, 6, 11, 12])])
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3] != numbers[4]
    x = pa.array([0.0, 19.9, 20.0, -0.1])
    y = pa.array([0.0, 0.0, 0.0, 0.0])
    blocks = Groups.by_blocks(("x", "y"), 20).codes([x, y])
    assert blocks[0] == blocks[1]
    assert len(np.unique(blocks)) == 3


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("station", Groups("station")),
        ("a, b", Groups(("a", "b"))),
        ("when:7d", Groups.by_time("when", "7d")),
        ("when:6h", Groups("when", 0.25)),
        ("x,y:20", Groups.by_blocks(("x", "y"), 20)),
    ],
)
def test_groups_are_written_as_text(text, groups):
    assert Groups.parsed(text) == groups
    assert Groups.parsed(str(groups)) == groups


@pytest.mark.parametrize("side", [0, -1.0, float("inf")])
def test_blocks_have_a_positive_side(side):
    with pytest.raises(UsageError, match="must be positive"):
        Groups("x", side)


def test_data_store_the_groups_of_rows(tmp_path):
    """A column of labels is no feature; appended rows have groups, too; tiles keep them."""
    path = tmp_path / "data.zarr"
    data = ingest(frame(), path, target="y", groups="station", tile_rows=50)
    assert data.columns.given == ("x", "when")
    more = frame().assign(x=lambda rows: rows["x"] + 1000, station="d")
    ingest(more, path, append=True)
    data = ZarrSource(path)
    assert data.grouped
    stations = pd.concat([frame(), more])["station"].to_numpy()
    expected = label_codes(stations, 360)
    for number in range(data.n_tiles):
        tile = data.tile(number)
        assert_array_equal(tile.groups, expected[data.original_rows(number)])
        assert_array_equal(data.groups_of_tile(number), tile.groups)


def test_columns_of_blocks_remain_features(tmp_path):
    data = ingest(frame(), tmp_path / "data.zarr", target="y", groups=Groups("when", 7.0))
    assert data.columns.given == ("x", "station", "when")


def test_groups_are_part_of_the_identity_of_data(tmp_path):
    """The same rows with other groups are other data."""
    prints = [
        ingest(frame(), tmp_path / f"{name}.zarr", target="y", groups=groups).fingerprint()
        for name, groups in (("days", "when:1d"), ("weeks", "when:7d"), ("none", None))
    ]
    assert len({print_["about"] for print_ in prints}) == 3
    assert prints[0]["hashes"] != prints[1]["hashes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": "place"}, "no column 'place'"),
        ({"groups": "x:-1"}, "must be positive"),
        ({"groups": "station:7d"}, "need numbers or dates"),
    ],
)
def test_unusable_groups_are_refused(tmp_path, change, message):
    with pytest.raises((DataError, UsageError), match=message):
        ingest(frame(), tmp_path / "data.zarr", target="y", **change)


def test_missing_labels_are_refused(tmp_path):
    rows = frame()
    rows.loc[7, "station"] = None
    with pytest.raises(DataError, match="1 missing values, the first in row 7"):
        ingest(rows, tmp_path / "data.zarr", target="y", groups="station")
