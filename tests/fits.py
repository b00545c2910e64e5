"""Statistics and states of dense fits, for tests of code that uses them."""

from dataclasses import replace

import naive
import numpy as np
from numpy.testing import assert_allclose

from partirvm.core import GramBlock, GramStatistics


def small_cells(patch, rows, kept_bytes=1 << 28):
    """Set the maximum number of rows in a cell of local residuals, and the bytes of cells that stay
    in memory, with pytest's MonkeyPatch."""
    for name, value in (("CELL_ROWS", rows), ("KEPT_BYTES", kept_bytes)):
        patch.setattr(f"partirvm.local.cells.{name}", value)


def statistics_of(Phi, t, w=None, labels=None, offset=None):
    """Return the statistics of all columns, for the residual target t − Φ·offset if there is an
    offset."""
    t = t.reshape(len(t), -1)
    labels = np.arange(Phi.shape[1]) if labels is None else labels
    if offset is not None:
        offset = offset.reshape(len(labels), t.shape[1])
        t = t - Phi @ offset
    statistics = GramStatistics.of(labels, GramBlock.of(np.zeros((len(t), 0)), Phi, t, w))
    return statistics if offset is None else replace(statistics, offset=offset)


def dense_statistics(Phi, t, w=None, labels=None, offset=None):
    """Return the same statistics, entry by entry from the definitions; t is (N, T)."""
    n, m = Phi.shape
    labels = np.arange(m) if labels is None else labels
    offset = np.zeros((m, t.shape[1])) if offset is None else offset
    G, b, sum_squares = naive.gram(Phi, t - Phi @ offset, w)
    weights = np.ones(n) if w is None else w[w > 0]
    log_weight = float(np.log(weights).sum())
    return GramStatistics(labels, G, b, sum_squares, offset, len(weights), log_weight)


def assert_evidence(fit, Phi, t, **tolerance):
    """Assert that the log evidence of a fit follows from its columns, α and β (Tipping 2001, eq.
    15)."""
    expected = naive.log_evidence(Phi[:, fit.labels], t, fit.alpha, fit.beta)
    assert_allclose(fit.log_evidence, expected, **tolerance)
