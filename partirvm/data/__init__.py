"""Data sources that deliver rows in tiles: in-memory, Zarr and Dask arrays. The package also
ingests tables."""

from partirvm.data.arrays import ArraySource, shuffled_rows
from partirvm.data.convert import as_source
from partirvm.data.folds import folded
from partirvm.data.ingestion import ingest
from partirvm.data.labels import label_array
from partirvm.data.source import Source, require_target
from partirvm.data.zarr_source import ZarrSource

__all__ = [
    "ArraySource",
    "Source",
    "ZarrSource",
    "as_source",
    "folded",
    "ingest",
    "label_array",
    "require_target",
    "shuffled_rows",
]
