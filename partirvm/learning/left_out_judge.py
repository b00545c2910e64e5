"""Compare a learned kernel with two cheap rivals on rows that neither of them used for learning.

An exact process with the kernel predicts left-out rows from up to ``PROCESS_ROWS`` other rows, as
do boosted trees and the mean of the nearest rows. If a rival has a clearly smaller error, the
function has structure that the kernel search has missed: the kernel is *lost*, and
``learning.escalation`` continues the search.

If the fit may use local residuals, these may capture this structure (protein: error .847 with the
kernel alone, .687 with the fit). If the kernel appears lost, its predictions are therefore
corrected by a multiple of the mean left-out error of the most similar known rows; the multiple
minimises the squared errors of the known rows.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import lapack, solve_triangular
from threadpoolctl import threadpool_limits

from partirvm.core.held_back import last_left_out
from partirvm.kernels.design import Design
from partirvm.learning.exact_process import ProcessFit, ProcessRows
from partirvm.learning.sample import SampledRows
from partirvm.planning.memory import PROCESS_ROWS
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

TREES = "boosted trees"
"""Name of the rival that consists of boosted trees."""

JUDGED_ROWS = 500
"""Maximum number of left-out rows."""

JUDGED_SHARE = 0.25
"""Maximum fraction of left-out rows."""

ROUNDS = 60
"""Number of boosted trees."""

RATE = 0.15
"""Learning rate of boosted trees."""

NEIGHBOURS = 8
"""Number of nearest rows that are averaged for a prediction."""

MOST_TARGETS = 3
"""Maximum number of targets for which trees are grown."""


@dataclass(frozen=True)
class LeftOutVerdict:
    """Root mean square errors on left-out rows, in units of the scaled targets.

    Attributes:
        rows: number of left-out rows.
        error: error with the kernel.
        rival: name of the best rival.
        rival_error: error of the best rival.
        lost: True if the rival is clearly better.
    """

    rows: int
    error: float
    rival: str
    rival_error: float
    lost: bool


@dataclass(frozen=True)
class LeftOutJudge:
    """Left-out rows and the rows from which they are predicted.

    Attributes:
        sample: the sample of rows.
        problem: the problem, which defines the scaling of inputs and targets.
        known: (n,), numbers of the rows used for prediction.
        new: (m,), numbers of the left-out rows.
        residuals: whether the fit may use local residuals.
    """

    sample: SampledRows = field(repr=False)
    problem: Problem = field(repr=False)
    known: Int
    new: Int
    residuals: bool = False

    @cached_property
    def rows(self) -> tuple[ProcessRows, ProcessRows]:
        """The known and the left-out rows."""
        known = ProcessRows.of(self.sample, self.problem, self.known)
        return known, ProcessRows.of(self.sample, self.problem, self.new)

    def losses(self, fit: ProcessFit) -> Float:
        """Return the weighted squared errors (m,) on left-out rows with the kernel and variances of
        ``fit``.

        If the kernel is lost and the fit may use local residuals, the errors are corrected first.
        """
        known, new = self.rows
        try:
            factor, white = known.whitened(fit, new)
        except np.linalg.LinAlgError:
            return np.full(len(new.X), np.inf)
        half = solve_triangular(factor, known.t, lower=True, check_finite=False)
        errors = new.t - white @ half
        losses = self._weighted(errors)
        if not (self.residuals and self.verdict(losses).lost):
            return losses
        inverse = lapack.dtrtri(factor, lower=1)[0]
        left_out = inverse.T @ half / (inverse**2).sum(axis=0)[:, None]
        return self._weighted(errors - self._corrections(fit, left_out))

    def absolute_error(self, fit: ProcessFit) -> float:
        """Return the weighted mean absolute error on left-out rows with the kernel and variances of
        ``fit``.

        It is infinite if the covariance is not positive definite. No local residuals are applied.
        """
        known, new = self.rows
        try:
            errors, _ = known.predicted(fit, new)
        except np.linalg.LinAlgError:
            return np.inf
        return float(np.sqrt(self._weighted(errors)).mean())

    def _corrections(self, fit: ProcessFit, left_out: Float) -> Float:
        """Return corrections (m, T) for left-out rows, computed from the left-out errors (n, T) of
        known rows."""
        known, new = self.rows
        similar = fit.kernel.values(known.X, known.X)
        np.fill_diagonal(similar, -np.inf)
        near = np.argpartition(-similar, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        means = left_out[near].mean(axis=1)
        multiple = np.clip(
            (means * left_out).sum(axis=0) / np.maximum((means**2).sum(axis=0), 1e-300), 0.0, 1.0
        )
        near = np.argpartition(-fit.kernel.values(new.X, known.X), NEIGHBOURS, axis=1)[
            :, :NEIGHBOURS
        ]
        return np.asarray(multiple * left_out[near].mean(axis=1))

    def _weighted(self, errors: Float) -> Float:
        """Return the weighted mean squares (m,) of errors (m, T) over the targets."""
        return np.asarray((errors**2).mean(axis=1) / self.rows[1].inverse)

    def tied_error(self, design: Design, weights: Float) -> float:
        """Return the root mean square error on left-out rows of a design with ``weights`` (M,
        T)."""
        rows = self.sample.rows.gather(np.sort(self.new))
        errors = design.scaling.targets(rows.t) - design.block(rows.X) @ weights
        return float(np.sqrt(self._weighted(errors).mean()))

    @cached_property
    def rivals(self) -> dict[str, Float]:
        """The weighted squared errors (m,) of each rival."""
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.neighbors import KNeighborsRegressor

        known, new = self.rows
        self.sample.check_interrupted()
        nearest = KNeighborsRegressor(min(NEIGHBOURS, len(known.X))).fit(known.X, known.t)
        predicted = {"nearest rows": nearest.predict(new.X).reshape(new.t.shape)}
        if known.t.shape[1] <= MOST_TARGETS:
            weights = None if np.ptp(known.inverse) == 0 else 1 / known.inverse
            trees = HistGradientBoostingRegressor(
                max_iter=ROUNDS, learning_rate=RATE, early_stopping=False, random_state=0
            )
            with threadpool_limits(1, "openmp"):
                columns = [trees.fit(known.X, t, weights).predict(new.X) for t in known.t.T]
            predicted[TREES] = np.column_stack(columns)
        return {name: self._weighted(new.t - targets) for name, targets in predicted.items()}

    def verdict(self, losses: Float) -> LeftOutVerdict:
        """Compare squared errors (m,) with the rivals' errors."""
        rival = min(self.rivals, key=lambda name: float(self.rivals[name].mean()))
        gain = losses - self.rivals[rival]
        error = float(np.sqrt(losses.mean()))
        rival_error = float(np.sqrt(self.rivals[rival].mean()))
        effort = self.sample.effort
        sure = gain.mean() > effort.sure * gain.std() / np.sqrt(len(gain))
        lost = bool(sure and error > effort.lost * rival_error)
        return LeftOutVerdict(len(losses), error, rival, rival_error, lost)


def judge_of(
    sample: SampledRows,
    problem: Problem,
    order: Int,
    residuals: bool = False,
    most: int = JUDGED_ROWS,
) -> LeftOutJudge | None:
    """Return the judge that leaves out the last rows of ``order``; None if there are too few rows.

    sample : the sample of rows
    problem : the problem, which defines the scaling of inputs and targets
    order : (n,), row numbers in random order
    residuals : whether the fit may use local residuals
    most : maximum number of left-out rows
    """
    known, new = last_left_out(order, most, JUDGED_SHARE, sample.groups_of(order))
    if len(new) < sample.effort.judged:
        return None
    return LeftOutJudge(sample, problem, known[:PROCESS_ROWS], new, residuals)
