"""DATA for the integrity tests."""

import pytest
from written import rows

from partirvm import ingest


@pytest.fixture
def data(tmp_path):
    """Return DATA of 200 rows in four tiles."""
    ingest(rows(0), tmp_path / "d.zarr", tile_rows=64)
    return tmp_path / "d.zarr"
