"""The history of a fit: a record of each fit, and the line that is stored of it."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from partirvm.core.termination import Termination
from partirvm.process import peak_memory

Entry = dict[str, Any]
"""A history entry: a record with seconds and bytes, as plain JSON."""


@dataclass(frozen=True)
class Record:
    """One history line, which describes one fit. Errors and evidence are in the target's units.

    ``kind`` is "round" (an intermediate fit whose model is saved), "part" (a fit of
    split-and-merge, of ``level`` 0 for a partition; saved only if its evidence per row is the
    highest so far), "heuristic" (the fit that measures the partition size), "kernel" (a result of
    kernel learning), "final", or "early" (instead of "final" if the time limit ends a run before
    there is a model, or during the fit with local noise).

    ``rows`` is the number of rows of the posterior and of the log evidence; the training error is
    over the rows from which σ² was estimated. ``dropped`` counts the vectors deleted so far because
    of a limit. For classification, errors are the mean log loss (nats) and the fraction of
    misclassified rows, and ``iterations`` are passes. For several targets, the evidence is joint,
    the noise variance and the negative log density are means, and errors are root mean squares.

    After kernel learning, ``iterations`` are evaluations of the evidence, and ``gain`` is the
    increase of the tied evidence (``core.tied``) over the first kernel, in nats; between rounds,
    that of the fit, ``taken`` is true if the new kernel replaced the old one, and all fields except
    ``rows`` and ``candidates`` describe the fit with which the run continues. ``diagnostics``
    (``core.diagnostics``) are those of held-out rows, or of left-out rows of a last fit with one
    numeric target or with local residuals. ``overconfidence`` is the mean squared leave-one-out
    error divided by the variance that the evidence predicts. ``residuals`` are the
    ``ResidualsFitted.facts`` of a last fit.
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
    kernel: dict[str, Any] | None = None
    gain: float | None = None
    taken: bool | None = None
    choice: dict[str, Any] | None = None
    overconfidence: float | None = None
    overconfident: bool = False
    noise_sd: float | None = None
    noise_vectors: int | None = None
    residuals: dict[str, Any] | None = None
    diagnostics: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Spent:
    """Work since the last history entry: seconds and number of passes, and the total number of rows
    they read.

    ``since`` is the time of that entry (``perf_counter``).
    """

    passing: float = 0.0
    passes: int = 0
    rows: int = 0
    since: float = field(default_factory=time.perf_counter)

    def add(self, began: float, passes: int, rows: int) -> None:
        """Add passes since ``began`` (``perf_counter``) over ``rows`` rows in total."""
        self.passing += time.perf_counter() - began
        self.passes += passes
        self.rows += rows

    def share(self, of: int = 1) -> dict[str, float]:
        """Return and subtract the share of the next of ``of`` history entries. Time outside passes
        is that of fits."""
        passing = self.passing / of
        passes = self.passes // of
        rows = self.rows // of
        elapsed = (time.perf_counter() - self.since) / of
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
        record: what is stated of the fit
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
