"""Columns of a design by their labels."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design

Int = NDArray[np.int64]


class Labelled(Protocol):
    """A fit whose columns have these labels (M,)."""

    @property
    def labels(self) -> Int: ...


def labels_of(design: Design) -> Int:
    """Labels of all columns of a design, the leading ones first."""
    return np.concatenate([design.leading, design.labels])


def positions(wanted: Int, labels: Int) -> Int:
    """Where the wanted labels stand among ``labels``, which hold them all.

    >>> positions(np.array([7, -1]), np.array([-1, 3, 7])).tolist()
    [2, 0]
    """
    order = np.argsort(labels, kind="stable")
    return order[np.searchsorted(labels, wanted, sorter=order)]


def survivors(design: Design, fit: Labelled) -> Design:
    """The columns of ``design`` that are still in the fit, in the fit's order."""
    labels = fit.labels
    return design.take(positions(labels[labels >= 0], design.labels), leading=labels[labels < 0])
