"""Sources of data in tiles of rows: arrays in memory, Zarr and Dask. The package also ingests tables."""

from partirvm.data.arrays import ArraySource, shuffled_rows
from partirvm.data.checks import class_codes, require_target
from partirvm.data.convert import as_source
from partirvm.data.ingestion import ingest
from partirvm.data.source import (
    Columns,
    Fingerprint,
    Source,
    Tile,
    hash_tile,
    tile_rows_for,
)
from partirvm.data.zarr_source import ZarrSource

__all__ = [
    "ArraySource",
    "Columns",
    "Fingerprint",
    "Source",
    "Tile",
    "ZarrSource",
    "as_source",
    "class_codes",
    "hash_tile",
    "ingest",
    "require_target",
    "shuffled_rows",
    "tile_rows_for",
]
