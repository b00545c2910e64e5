"""DATA for the integrity tests."""

import pytest
from written import rows

from partirvm import ingest


@pytest.fixture
def data(tmp_path):
    """Return DATA of 200 rows in four tiles."""
    ingest(rows(0), tmp_path / "d.zarr", tile_rows=64)
    return tmp_path / "d.zarr"


@pytest.fixture(scope="session", autouse=True)
def forged_files(forgeries):
    """All tests in this folder are system tests."""
