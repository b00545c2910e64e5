"""Small jobs whose rows of local residuals have no room in memory, though a larger limit has room for them."""

from __future__ import annotations

import importlib

import numpy as np

from partirvm import ingest
from partirvm.options import Request

SMALL = [
    ("partirvm.core.left_out", "LEFT_OUT_ROWS", 600),
    ("partirvm.likelihoods.gaussian", "LEFT_OUT_ROWS", 600),
    ("partirvm.resolve.resolve", "RESIDUAL_SHARE", 780),
    ("partirvm.local.cells", "CELL_ROWS", 300),
]
"""Of 600 rows left out, the records of 10 neighbours and of the rows take 2.68 MB, those of 2,000 rows 2.81 MB."""

SHORT, LONG = 780 * 2_750_000, 8 << 30
"""Memory limits without room for the records of all rows, and with room."""

ASKED = {"gamma": 0.5, "strategy": "working-set", "partition_size": 20, "max_rounds": 2, "neighbours": 10}


def rows(n, seed=0):
    """Inputs (n, 2) and a function with details that a few wide basis functions cannot describe, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = np.sin(3 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 0]) * np.cos(15 * X[:, 1])
    return X, y + 0.05 * rng.standard_normal(n)


def request(memory=SHORT, residual="local"):
    """A fit of a second."""
    return Request(**ASKED, memory_limit=memory, residual=residual)


def make_data(folder):
    """DATA of 2,000 rows in 4 tiles."""
    ingest(rows(2000), folder / "d.zarr", tile_rows=512)
    return str(folder / "d.zarr")


def make_small(set_value=None):
    """Make small data large for this process, or by a function of an object, a name and a value."""
    for module, name, value in SMALL:
        (set_value or setattr)(importlib.import_module(module), name, value)
