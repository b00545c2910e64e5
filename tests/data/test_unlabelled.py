"""Rows without a target: ingested like the data of a training, for prediction only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from partirvm.core.moments import ColumnMoments
from partirvm.data import ArraySource, Columns, ZarrSource, as_source, ingest, require_target
from partirvm.errors import DataError, UsageError

N = 300


def table(n: int = N, *, target: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    zone = np.array(["n", "s", "w"])[np.arange(n) % 3]
    rows = pd.DataFrame({"a": rng.normal(size=n), "zone": zone, "fare": rng.normal(size=n)})
    return rows if target else rows.drop(columns="fare")


@pytest.fixture
def train(tmp_path: Path) -> ZarrSource:
    return ingest(table(), tmp_path / "train.zarr", target="fare", categorical=["zone"])


def csv(folder: Path, rows: pd.DataFrame) -> Any:
    rows.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


def frame(folder: Path, rows: pd.DataFrame) -> Any:
    return rows


def frame_and_none(folder: Path, rows: pd.DataFrame) -> Any:
    return rows, None


TABLES = [csv, frame, frame_and_none]


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("write", TABLES, ids=lambda write: write.__name__)
def test_a_table_comes_back_without_a_target(write: Any, seed: int | None, train: ZarrSource, tmp_path: Path) -> None:
    rows = table(200, target=False)
    data = ingest(write(tmp_path, rows), tmp_path / "new.zarr", like=train, shuffle=seed, tile_rows=64)
    assert (data.n_rows, data.n_targets, data.n_tiles, data.seed) == (200, 0, 4, seed)
    assert data.columns == train.columns
    numbers = np.concatenate([data.original_rows(number) for number in range(4)])
    expected = np.arange(200) if seed is None else np.argsort(np.random.default_rng(seed).random(200), kind="stable")
    np.testing.assert_array_equal(numbers, expected)
    X = rows.replace({"zone": {"n": 0, "s": 1, "w": 2}}).to_numpy(float)
    tiles = [data.tile(number) for number in range(4)]
    np.testing.assert_array_equal(np.concatenate([tile.X for tile in tiles]), X[expected])
    assert [tile.t.shape for tile in tiles] == [(64, 0)] * 3 + [(8, 0)]
    assert data.moments is not None
    np.testing.assert_allclose(data.moments.inputs.mean, X.mean(axis=0), rtol=1e-12)
    assert data.moments.targets.mean.shape == (0,)


def plain(folder: Path, X: np.ndarray, weights: np.ndarray) -> Any:
    return X, None, weights


def npz(folder: Path, X: np.ndarray, weights: np.ndarray) -> Any:
    np.savez(folder / "new.npz", X=X, weights=weights)
    return folder / "new.npz"


@pytest.mark.parametrize("make", [plain, npz], ids=lambda make: make.__name__)
def test_arrays_come_back_without_a_target(make: Any, tmp_path: Path) -> None:
    """Tiles, hashes and moments are those of inputs and weights alone."""
    X, weights = np.random.default_rng(0).normal(size=(N, 2)), 1 + np.arange(N) % 2.0
    source = make(tmp_path, X, weights)
    data = ingest(source, tmp_path / "new.zarr", like=Columns(("x0", "x1")), shuffle=None)
    assert data.fingerprint().hashes == ArraySource(X, weights=weights).fingerprint().hashes
    data.verify()
    np.testing.assert_array_equal(data.tile(0).weights, weights)
    expected = ColumnMoments.of(X, weights)
    assert data.moments is not None
    np.testing.assert_array_equal(data.moments.inputs.square, expected.square)
    assert (data.moments.targets.n, data.moments.targets.total) == (N, expected.total)


@pytest.mark.parametrize("seed", [0, None])
def test_one_row_is_enough(seed: int | None, train: ZarrSource, tmp_path: Path) -> None:
    """And nothing is said of its constant columns, nor of rows that occur twice: that matters to a fit alone."""
    rows = table(1, target=False)
    data = ingest(csv(tmp_path, rows), tmp_path / "one.zarr", like=train, shuffle=seed)
    assert (data.n_rows, data.tile(0).X.tolist()) == (1, [[rows["a"][0], 0]])
    twice = ingest(pd.concat([rows, rows]), tmp_path / "two.zarr", like=train, shuffle=seed)
    assert twice.n_rows == 2


def test_a_source_with_the_target_stays_labelled(train: ZarrSource, tmp_path: Path) -> None:
    """Also one that is like data without a target, or has y where the training's target had another name."""
    new = ingest(table(target=False), tmp_path / "new.zarr", like=train)
    assert ingest(table(50), tmp_path / "labelled.zarr", like=new).n_targets == 1
    pair = table(50, target=False), pd.Series(np.arange(50.0), name="y")
    assert ingest(pair, tmp_path / "pair.zarr", like=train).columns.target == "y"


def test_classes_are_kept_for_the_prediction(tmp_path: Path) -> None:
    rows = table()
    rows["fare"] = np.where(rows["fare"] > 0, "high", "low")
    train = ingest(rows, tmp_path / "train.zarr", target="fare", categorical=["zone"], classes=True)
    new = ingest(table(target=False), tmp_path / "new.zarr", like=train)
    assert new.columns == train.columns
    assert new.columns.classes == ("high", "low")


HINT = r"To predict rows without a target.*`--like`"

WRONG: list[tuple[str, Callable[[Path], Any], dict[str, Any], type[Exception], str]] = [
    ("table", lambda folder: csv(folder, table(9, target=False)), {}, UsageError, HINT),
    ("named target", lambda folder: csv(folder, table(9, target=False)), {"target": "fare"}, DataError, HINT),
    ("arrays", lambda folder: (np.eye(3), None), {}, DataError, f"no array y.*{HINT}"),
    ("npz", lambda folder: npz(folder, np.eye(3), np.ones(3)), {}, DataError, f"no array y.*{HINT}"),
    ("an array alone", lambda folder: np.eye(3), {}, UsageError, r"\(X, None\) and like="),
]


@pytest.mark.parametrize(
    ("make", "options", "error", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_without_data_to_be_like(
    make: Callable[[Path], Any], options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        ingest(make(tmp_path), tmp_path / "d.zarr", **options)
    assert not (tmp_path / "d.zarr").exists()


LIKE: list[tuple[str, Callable[[Path], Any], dict[str, Any], str]] = [
    ("another target", lambda folder: table(9, target=False), {"target": "fair"}, f"no column 'fair'.*{HINT}"),
    ("a feature is lacking", lambda folder: table(9, target=False)[["a"]], {}, "no column 'zone'"),
    ("no rows", lambda folder: table(0, target=False).astype({"zone": str}), {}, r"there are no rows\.$"),
    ("one row with a target", lambda folder: table(1), {}, "only one row"),
    ("missing value", lambda folder: table(9, target=False).replace({"zone": {"s": None}}), {}, "row 1.*'zone'"),
    ("weights", lambda folder: table(9, target=False), {"weights": "w"}, "no column 'w' .weights."),
    ("bad weights", lambda folder: (table(9, target=False), None, -np.ones(9)), {}, "negative"),
    ("no rows in arrays", lambda folder: (np.empty((0, 2)), None), {}, r"there are no rows\.$"),
]


@pytest.mark.parametrize(("make", "options", "message"), [case[1:] for case in LIKE], ids=[case[0] for case in LIKE])
def test_wrong_input(
    make: Callable[[Path], Any], options: dict[str, Any], message: str, train: ZarrSource, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        ingest(make(tmp_path), tmp_path / "new.zarr", like=train, **options)
    assert not (tmp_path / "new.zarr").exists()


def test_a_target_is_required_where_it_is_needed(train: ZarrSource, tmp_path: Path) -> None:
    require_target(train)
    require_target(ArraySource(np.eye(3), np.arange(3)))
    new = ingest(table(target=False), tmp_path / "new.zarr", like=train)
    for source in (new, as_source(new.url)):
        with pytest.raises(DataError, match=r"new\.zarr: the data have no target.*has the target 'fare'"):
            require_target(source)
    with pytest.raises(DataError, match="ArraySource of 3 rows × 3 features: the data have no target"):
        require_target(ArraySource(np.eye(3)))
