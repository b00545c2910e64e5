"""The history of a fit: a record of each fit, and the line that is stored for it."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from partirvm.core.termination import Termination
from partirvm.process import peak_memory

Entry = dict[str, Any]
"""A history entry: a record with seconds and bytes, as plain JSON."""


@dataclass(frozen=True)
class Record:
    """Facts about one fit in a history line. Errors and evidence are in the target's units.

    For several targets, the evidence is joint, the noise variance and the negative log density are
    means, and errors are root mean squares. A field that does not apply is None.

    Attributes:
        kind: "round" (an intermediate fit whose model is saved), "part" (a fit of split-and-merge,
            saved only if its evidence per row is the highest so far), "heuristic" (the fit that
            measures the partition size), "kernel" (a result of kernel learning), "final", or
            "early" (instead of "final" if the time limit ends a run before there is a model, or
            during the fit with local noise)
        number: number of the round or part
        rows: number of rows of the posterior and of the log evidence
        candidates: number of candidates
        vectors: number of relevance vectors
        iterations: iterations of the fit, passes of a classification fit, or evaluations of the
            evidence in kernel learning
        termination: reason why the fit ended
        log_evidence: log evidence in nats
        selection: method by which candidates were chosen
        fit_rows: rows that the fit used
        noise_variance: σ²
        train_rmse: RMSE over the rows from which σ² was estimated
        level: level of a part of split-and-merge, 0 for a partition
        dropped: number of vectors deleted so far because of a limit
        floored: True if the noise variance is at its lower limit
        held_out_rmse: RMSE of the held-out rows
        held_out_nlpd: mean negative log predictive density of the held-out rows, in nats
        train_log_loss: mean log loss of the training rows, in nats
        train_error: fraction of misclassified training rows
        held_out_log_loss: mean log loss of the held-out rows, in nats
        held_out_error: fraction of misclassified held-out rows
        held_out_ece: expected calibration error of the held-out rows
        kernel: spec of the kernel, after kernel learning
        gain: after kernel learning, the increase of the tied evidence (``core.tied``) over the
            first kernel, in nats; between rounds, the increase of the fit's evidence
        taken: between rounds, True if the new kernel replaced the old one; all fields except
            ``rows`` and ``candidates`` then describe the fit with which the run continues
        choice: the comparison that determined the kernel
        overconfidence: mean squared leave-one-out error divided by the variance that the evidence
            predicts
        overconfident: True if this ratio calls for a warning
        noise_sd: mean standard deviation of local noise
        noise_vectors: number of vectors of the local noise
        residuals: ``ResidualsFitted.facts`` of a last fit
        trees: ``TreesFitted.facts`` of a last fit
        diagnostics: ``core.diagnostics`` of held-out rows, or of left-out rows of a last fit with
            one numeric target or with local residuals
    """

    kind: str
    number: int
    rows: int
    candidates: int
    vectors: int
    iterations: int
    termination: Termination
    log_evidence: float
    selection: str
    fit_rows: str = "full"
    noise_variance: float | None = None
    train_rmse: float | None = None
    level: int | None = None
    dropped: int = 0
    floored: bool = False
    held_out_rmse: float | None = None
    held_out_nlpd: float | None = None
    train_log_loss: float | None = None
    train_error: float | None = None
    held_out_log_loss: float | None = None
    held_out_error: float | None = None
    held_out_ece: float | None = None
    kernel: dict[str, Any] | None = None
    gain: float | None = None
    taken: bool | None = None
    choice: dict[str, Any] | None = None
    overconfidence: float | None = None
    overconfident: bool = False
    noise_sd: float | None = None
    noise_vectors: int | None = None
    residuals: dict[str, Any] | None = None
    trees: dict[str, Any] | None = None
    diagnostics: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Spent:
    """Work since the last history entry: seconds and number of passes, and the total number of rows
    read.

    ``since`` is the time of that entry, as ``clock`` returns it.
    """

    passing: float = 0.0
    passes: int = 0
    rows: int = 0
    since: float = field(default_factory=time.perf_counter)
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False)

    def add(self, began: float, passes: int, rows: int) -> None:
        """Add passes since ``began`` (a time of ``clock``) over ``rows`` rows in total."""
        self.passing += self.clock() - began
        self.passes += passes
        self.rows += rows

    def share(self, of: int = 1) -> dict[str, float]:
        """Return and subtract the next entry's share of the work, given that ``of`` entries remain.
        Time outside passes is attributed to fits."""
        passing = self.passing / of
        passes = self.passes // of
        rows = self.rows // of
        elapsed = (self.clock() - self.since) / of
        self.passing, self.passes, self.rows = (
            self.passing - passing,
            self.passes - passes,
            self.rows - rows,
        )
        self.since += elapsed
        solving = max(elapsed - passing, 0.0)
        return {
            "pass_seconds": passing,
            "passes": passes,
            "pass_rows": rows,
            "solve_seconds": solving,
        }


def line(record: Record, spent: dict[str, float], began: float, *, saved: bool) -> Entry:
    """Make a history entry from a record.

    Args:
        record: the facts about the fit
        spent: seconds and numbers of passes since the last entry (``Spent.share``)
        began: start of the work in seconds (``perf_counter``)
        saved: whether a model was saved
    """
    entry = {
        **asdict(record),
        "termination": record.termination.value,
        "seconds": time.perf_counter() - began,
    }
    return {**entry, **spent, "peak_memory": peak_memory(), "saved": saved}
