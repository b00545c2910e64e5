"""Resolve the options that are "auto": strategy, partition size, rows of the fits, selection, moderation."""

from __future__ import annotations

from partirvm.kernels import NoKernel
from partirvm.learning.basic_fits import DENSE, partition_size
from partirvm.options import Request
from partirvm.planning.plan import Sparseness
from partirvm.planning.schedule import Schedule
from partirvm.strategies.fit_rows import automatic, first_sample
from partirvm.strategies.in_order import BasicRound
from partirvm.strategies.instructions import Record
from partirvm.strategies.working_set import WorkingSetRounds

SMALL = 200
"""Maximum number of rows for which ``strategy="auto"`` makes every row a candidate (regression)."""

SMALL_CURVATURE = 10**6
"""Classification: maximum number C·N² of curvature elements for which ``strategy="auto"`` makes every row a candidate.

A single fit takes far fewer passes than a fit in rounds.
"""

SELECTION = "error"
"""Meaning of ``selection="auto"`` for regression; chosen by ``python -m benchmarks.working_set --selections``."""

CLASS_SELECTION = "gain"
"""Meaning of ``selection="auto"`` for classification.

Chosen by ``python -m benchmarks.classification --trial selection``.
"""

AUTO_PARTITION = (32, 1000)
"""Minimum and maximum of the partition size that ``partition_size="auto"`` chooses."""

MODERATE_ROWS = 10_000
"""Maximum number of rows for which ``moderate="auto"`` moderates the probabilities of two classes."""


def resolve_moderate(parameters: Request, n_rows: int, n_classes: int) -> bool:
    """Return True if probabilities include the uncertainty of the weights; "auto" does so for two classes and few rows.

    In ``benchmarks/classification`` moderation lowers the log loss of two classes on few rows by up to a quarter. With
    many rows the weights are uncertain only near the class boundary, where Laplace's approximation can be poor: on
    skin_nonskin the log loss rises. With more than two classes the log loss rises about as often as it falls.
    """
    if parameters.moderate == "auto":
        return n_classes == 2 and n_rows <= MODERATE_ROWS
    return bool(parameters.moderate)


def resolve_strategy(parameters: Request, n_rows: int, class_outputs: int = 0) -> str:
    """Resolve the strategy: ``"auto"`` is ``basic`` for few rows and ``working-set`` for more rows.

    ``class_outputs`` is the number C of linear predictors of a classification, and 0 for regression. Without a kernel
    the strategy is always ``basic``.
    """
    if parameters.kernel == NoKernel.name:
        return BasicRound.name
    if parameters.strategy != "auto":
        return parameters.strategy
    few = class_outputs * n_rows**2 <= SMALL_CURVATURE if class_outputs else n_rows <= SMALL
    return BasicRound.name if few and parameters.partition_size == "auto" else WorkingSetRounds.name


def resolve_partition_size(
    n_rows: int, d: int, measured: Record, centres: int = 0
) -> tuple[Sparseness, int, tuple[str, ...]]:
    """Resolve ``partition_size="auto"`` from the fit of the heuristic.

    Returns the measured sparseness, the partition size within its bounds, and notes about these bounds. After kernel
    learning the partition size is at least the number of ``centres``. Learned kernels are wide, so the heuristic finds
    few vectors; rounds of so few candidates would end the fit too early.
    """
    heuristic = partition_size(n_rows, d, measured.vectors / measured.rows)
    sparseness = Sparseness(measured.rows, measured.vectors, heuristic)
    least, most = AUTO_PARTITION
    size = min(max(heuristic, least), most, n_rows)
    notes: tuple[str, ...] = ()
    if size < min(centres, most, n_rows):
        size = min(centres, most, n_rows)
        notes += (f"partition size raised from {heuristic:,} to {size:,}, the number of centres in kernel learning",)
    elif size > heuristic:
        notes += (f"partition size raised from {heuristic:,} to {size:,}, the minimum of 'auto'",)
    if size < heuristic:
        why = "the maximum of 'auto'" if size == most else "the number of rows"
        notes += (f"partition size lowered to {size:,}, {why}",)
    if sparseness.rho > DENSE:
        notes += ("nearly every row became a vector: the kernel is probably too narrow (lower gamma)",)
    return sparseness, size, notes


def resolve_fit_rows(
    parameters: Request, schedule: Schedule, n_rows: int, size: int, n_kernels: int = 1, *, shuffled: bool = False
) -> tuple[str, int]:
    """Resolve ``fit_rows`` and the number of rows of a sample; a single fit uses all rows."""
    fit_rows = "full" if schedule.one_fit else parameters.fit_rows
    if fit_rows == "auto":
        fit_rows = automatic(schedule, n_rows, size, n_kernels, shuffled=shuffled)
    rows = parameters.sample_rows
    return fit_rows, min(first_sample(fit_rows, size) if rows == "auto" else int(rows), n_rows)


def resolve_selection(request: Request, schedule: Schedule, classifies: bool) -> str:
    """Resolve the selection of candidates; the order of rows if the schedule does not select."""
    if not schedule.selects:
        return schedule.order
    if request.selection != "auto":
        return request.selection
    return CLASS_SELECTION if classifies else SELECTION
