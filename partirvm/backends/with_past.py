"""An executor that adds the approximated statistics of deleted rows to each statistic (online learning)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from partirvm.backends.base import Blocks, Executor, Progress
from partirvm.core.past import PastStatistics
from partirvm.core.posterior import factorise
from partirvm.data.source import Source
from partirvm.kernels.design import Design
from partirvm.likelihoods.gaussian_passes import GramPass, LeaveOneOutPass, ResidualPass
from partirvm.likelihoods.passes import Pass
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]

RIDGE = 1e-8
"""Ridge term added to the unit diagonal of the scaled normal equations of ``Approximation``."""


class Approximation:
    """Least squares approximation of columns by the K columns of ``design`` at raw inputs ``points`` (p, d)."""

    def __init__(self, design: Design, points: Float) -> None:
        self.design, self.points = design, points
        self._places = {label: place for place, label in enumerate(_labels(design))}
        self._found: dict[int, Float] = {}
        gram = sum((block.T @ block for block in self._blocks(design)), np.zeros((design.n_columns,) * 2))
        gram.flat[:: len(gram) + 1] *= 1.0 + RIDGE
        empty = np.diagonal(gram) <= 0
        gram[empty, empty] = 1.0  # the coefficient of a column that is zero at all points is zero
        self._factor, self._scale, _ = factorise(gram)

    def coefficients(self, design: Design) -> Float:
        """Return coefficients B (K, M) of a design's M columns; a column that is one of the K has a unit vector."""
        labels, known = _labels(design), self._places.keys() | self._found.keys()
        strange = np.array([k for k, label in enumerate(design.labels.tolist()) if label not in known], dtype=np.int64)
        leading = np.array([label for label in design.leading.tolist() if label not in known], dtype=np.int64)
        some = design.take(strange, leading=leading)
        if some.n_columns:
            pairs = zip(self._blocks(self.design), self._blocks(some), strict=True)
            right = sum((mine.T @ theirs for mine, theirs in pairs), np.zeros((len(self._places), some.n_columns)))
            if len(right):
                right = self._scale[:, None] * cho_solve((self._factor, True), self._scale[:, None] * right)
            self._found |= {label: right[:, k] for k, label in enumerate(_labels(some))}
        found = np.zeros((len(self._places), len(labels)))
        for k, label in enumerate(labels):
            if label in self._places:
                found[self._places[label], k] = 1.0
            else:
                found[:, k] = self._found[label]
        return found

    def _blocks(self, design: Design) -> list[Float]:
        starts = range(0, len(self.points), PANEL_ROWS)
        return [design.block(self.points[start : start + PANEL_ROWS]) for start in starts]


class WithPast:
    """Executor that adds the ``past`` statistics to each statistic of all rows computed by ``executor``."""

    def __init__(self, executor: Executor, past: PastStatistics, approximation: Approximation) -> None:
        self._executor, self._past, self._approximation = executor, past, approximation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(
        self,
        passes: Sequence[Pass],
        source: Source,
        progress: Progress | None = None,
        blocks: Blocks | None = None,
    ) -> list[Any]:
        """Return the statistic of each pass, with the past statistics added."""
        found = self._executor.run(passes, source, progress, blocks)
        return [self._with(pass_, statistic) for pass_, statistic in zip(passes, found, strict=True)]

    def _with(self, pass_: Pass, statistic: Any) -> Any:
        if isinstance(pass_, LeaveOneOutPass):
            return None  # leave-one-out needs all rows of the fit, and deleted rows are missing
        if not self._past.statistics.n:
            return statistic
        columns = self._approximation.coefficients
        match pass_:
            case GramPass(rows=None):
                old_rows = self._past.cross if pass_.diagonal else self._past.block
                return statistic + old_rows(columns(pass_.kept), columns(pass_.new), pass_.offset)
            case ResidualPass(rows=None):
                return self._past.residual(columns(pass_.design), pass_.mean, statistic)
        return statistic


def _labels(design: Design) -> list[int]:
    return [*design.leading.tolist(), *design.labels.tolist()]
