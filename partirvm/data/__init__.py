"""Sources of data in tiles of rows: arrays in memory, Zarr and Dask. The package also ingests tables."""

from partirvm.data.arrays import ArraySource, shuffled_rows
from partirvm.data.checks import class_codes, require_target
from partirvm.data.convert import as_source
from partirvm.data.ingestion import ingest
from partirvm.data.source import Columns, Fingerprint, Source, Tile, tile_rows_for, tile_slices
from partirvm.data.tiled import check_fingerprint, hash_tile
from partirvm.data.zarr_source import ZarrArraySource, ZarrSource

__all__ = [
    "ArraySource",
    "Columns",
    "Fingerprint",
    "Source",
    "Tile",
    "ZarrArraySource",
    "ZarrSource",
    "as_source",
    "check_fingerprint",
    "class_codes",
    "hash_tile",
    "ingest",
    "require_target",
    "shuffled_rows",
    "tile_rows_for",
    "tile_slices",
]
