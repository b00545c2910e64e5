"""Rows appended to DATA, and jobs that are updated with them."""

import pickle

import numpy as np
import pytest
from journals import contents
from numpy.testing import assert_allclose, assert_array_equal
from surfaces import saddle
from watchers import Stopper

from partirvm import ingest, jobs, open_job
from partirvm.data import ZarrSource
from partirvm.errors import ChangedDataError, DataError, UsageError
from partirvm.jobs import create
from partirvm.options import Request

QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

REQUEST = Request(gamma=0.5)


@pytest.mark.parametrize("shuffle", [3, None])
def test_append_keeps_old_rows_and_hashes(tmp_path, shuffle):
    """New rows follow, and moments cover all rows, also after a second append."""
    parts = [saddle(100, 0), saddle(37, 1), saddle(90, 2)]
    place = tmp_path / "d.zarr"
    before = ingest(parts[0], place, shuffle=shuffle, tile_rows=32)
    old = [before.tile(number).X.copy() for number in range(before.n_tiles)]
    ingest(parts[1], place, append=True)
    data = ingest(parts[2], place, append=True)
    assert data.n_rows == 227
    expected = np.concatenate([np.column_stack(part) for part in parts])
    assert_array_equal(contents(data), expected)
    assert_array_equal(
        np.concatenate([data.tile(k).X for k in range(data.n_tiles)])[:100], np.concatenate(old)
    )
    assert data.fingerprint()["hashes"][:3] == before.fingerprint()["hashes"][:3]
    assert_allclose(data.moments.inputs.mean, expected[:, :2].mean(axis=0))
    assert_allclose(data.moments.targets.variance, expected[:, 2].var())
    assert not data.shuffled


def test_readers_see_the_rows_from_before_an_append(tmp_path):
    """This includes the last tile, in this process and another, until the next append."""
    place = tmp_path / "d.zarr"
    readers = [ingest(saddle(10, 0), place, tile_rows=32)]
    expected = contents(ZarrSource(place))
    readers.append(pickle.loads(pickle.dumps(readers[0])))
    ingest(saddle(5, 1), place, append=True)
    for reader in [*readers, pickle.loads(pickle.dumps(readers[0]))]:
        assert_array_equal(contents(reader), expected)
    ingest(saddle(5, 2), place, append=True)
    for reader in [*readers, pickle.loads(pickle.dumps(readers[0]))]:
        with pytest.raises(ChangedDataError, match="replaced while in use"):
            reader.tile(0)


def test_a_failed_append_leaves_the_data_unchanged(tmp_path):
    place = tmp_path / "d.zarr"
    X, y = saddle(50, 0)
    before = contents(ingest((X, y), place, tile_rows=32))
    with pytest.raises(DataError, match="no value in 25 rows"):
        ingest((X, np.where(y > 0, np.nan, y)), place, append=True)
    with pytest.raises(
        DataError, match=r"the dataset has the targets \[y\] without weights, unlike the new rows"
    ):
        ingest((X, y, np.ones(50)), place, append=True)
    with pytest.raises(UsageError, match=r"append takes features, .* from the dataset"):
        ingest((X, y), place, append=True, features=np.array(["x0", "x1"]))
    assert_array_equal(contents(ZarrSource(place)), before)
    grown = contents(ingest((X[:5], y[:5]), place, append=True))
    assert_array_equal(grown, np.concatenate([before, np.column_stack([X, y])[:5]]))
    assert not list(tmp_path.glob(".*"))


@QUIET
def test_only_an_update_uses_new_rows(tmp_path):
    """It needs new rows, and the earlier ones must be unchanged; a resume ignores new rows."""
    place = tmp_path / "d.zarr"
    folder = str(tmp_path / "job")
    X, y = saddle(100, 0)
    ingest((X, y), place, tile_rows=32)
    request = Request(gamma=0.5, strategy="working-set", partition_size=30, max_rounds=1)
    jobs.fit(str(place), folder, request)
    with pytest.raises(UsageError, match="has no rows that were appended"):
        open_job(folder).update()
    ingest(saddle(50, 1), place, append=True)
    with pytest.raises(UsageError, match="is done; it reached max_rounds"):
        open_job(folder).resume()
    ingest((X, y + 1), place, overwrite=True, tile_rows=32)
    with pytest.raises(UsageError, match="moments or tile size differ"):
        open_job(folder).update()


@QUIET
def test_a_job_without_a_fit_cannot_be_updated(tmp_path):
    """Such a job has not begun, has a constant target, or is a split-merge before its last
    merge."""
    place = str(tmp_path / "d.zarr")
    folder = str(tmp_path / "job")
    X, y = saddle(80, 0)
    halves = Request(gamma=0.5, strategy="split-merge", partition_size=20)
    for t, request, lines in ((y, REQUEST, 0), (np.ones(80), REQUEST, 9), (y, halves, 4)):
        ingest((X, t), place, overwrite=True)
        create(place, folder, request, None, True)
        if lines:
            jobs.run_job(folder, watcher=Stopper(lines))
        ingest(saddle(10, 1), place, append=True)
        with pytest.raises(
            UsageError, match="job cannot be updated: it has no fit to add new rows to"
        ):
            open_job(folder).update()
