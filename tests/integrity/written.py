"""Rows that the integrity tests write, and changes to stored files."""

import json

import numpy as np
from numpy.random import default_rng

from partirvm.options import Request

REQUEST = Request(gamma=0.5, strategy="working-set", partition_size=10, max_rounds=1, seed=1)
"""A fit in rounds that can be resumed."""


def rows(seed, n=200):
    """Return X (n, 2), y (n,) and weights (n,)."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n), rng.uniform(0.5, 2.0, n)


def rows_in(data, which=-1):
    """Return the group of rows of DATA that was written last, or an earlier one."""
    return sorted(data.glob("rows-*"), key=lambda path: path.stat().st_mtime_ns)[which]


def swap(one, other):
    """Exchange the names of two files or folders."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def edit(path, change):
    """Change JSON in place."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
