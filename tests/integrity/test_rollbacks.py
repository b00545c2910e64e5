"""Parts of a job or of DATA as they were before: a named error, never the older state without a word."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from partirvm import ingest, jobs, open_job
from partirvm.data import ZarrSource
from partirvm.errors import FormatError, MissingDataError, PartirvmError
from partirvm.jobs.store import JobStore
from partirvm.options import Request

ASKED = Request(gamma=0.5, strategy="working-set", partition_size=10, max_rounds=1, seed=1)


def rows(seed, n):
    """X (n, 2) and y (n,)."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0])


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """DATA that grew twice, the second time for the update of a job, and the job before it; and other DATA."""
    tops = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for number, top in enumerate(tops):
        for k, n in enumerate((150, 20, 20)):
            if (number, k) == (0, 2):
                jobs.fit(str(top / "d.zarr"), str(top / "job"), ASKED)
                shutil.copytree(top / "job", top / "old-job")
            ingest(rows(10 * number + k, n), top / "d.zarr", **({"append": True} if k else {"tile_rows": 64}))
    assert str(open_job(tops[0] / "job").update().wait(60)) == "done"
    return tops


@pytest.fixture
def top(intact, tmp_path):
    """A copy to change."""
    return shutil.copytree(intact[0], tmp_path / "top")


def back(top, part):
    """Return a folder of the job to what it was before the update."""
    shutil.rmtree(top / "job" / part)
    shutil.copytree(top / "old-job" / part, top / "job" / part)


@pytest.mark.parametrize("how", ["series", "pointer", "attributes"])
def test_the_spec_of_before_an_update(how, top):
    """An older one would give a fit of other rows, or another kernel."""
    if how == "series":
        back(top, "specs")
    else:
        newest = max((top / "job" / "specs").glob("*.json"))
        path = newest if how == "pointer" else newest.with_suffix("") / "zarr.json"
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(PartirvmError, match="specs/0"):
        JobStore(top / "job").fit_spec()


@pytest.mark.parametrize("how", ["swapped", "of other DATA", "attributes of other DATA", "attributes of before"])
def test_an_append_in_the_wrong_place(how, top, intact):
    """A group that is not the one that was published under this name is named, not skipped."""
    data = top / "d.zarr"
    first, last = sorted(data.glob("append-*"))
    if how == "swapped":
        first.rename(data / "aside")
        last.rename(first)
        (data / "aside").rename(last)
    elif how == "of other DATA":
        shutil.rmtree(last)
        shutil.copytree(sorted((intact[1] / "d.zarr").glob("append-*"))[-1], last)
    elif how == "attributes of before":
        shutil.copy(first / "zarr.json", last)
    else:
        shutil.copy(sorted((intact[1] / "d.zarr").glob("append-*"))[-1] / "zarr.json", last)
    with pytest.raises(FormatError, match=last.name):
        ZarrSource(data)


@pytest.mark.timeout(30)
def test_a_missing_event_ends_a_resume(top):
    """The next holder cannot state how many events there are: it says so, and does not try for ever."""
    path = top / "job" / "events" / "000002.json"
    path.unlink()
    with pytest.raises(MissingDataError, match=r"events/000002\.json is missing"):
        open_job(top / "job").resume(max_rounds=3)
