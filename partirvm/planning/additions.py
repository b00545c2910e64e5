"""Bytes and descriptions of what a fit does beside its rounds: local residuals, the comparison with
boosted trees, and boosted trees as basis functions."""

from dataclasses import dataclass, replace

from partirvm.errors import MemoryLimitError
from partirvm.options import Request
from partirvm.planning import memory
from partirvm.planning.cost import (
    CORRECTED,
    Work,
    boosted_outputs,
    boosting_operations,
    comparison_operations,
    tries_residuals,
)
from partirvm.planning.machine import Machine
from partirvm.planning.memory import (
    FLOAT,
    RESIDUAL_SHARE,
    DataShape,
    residual_bytes,
)
from partirvm.quoting import counted, format_bytes, format_duration
from partirvm.types import (
    COMPARED_MEMORY,
    COMPARED_ROWS,
    JUDGED_ROWS,
    LEFT_OUT_ROWS,
    TREES_OF_CLASSES,
)

TREE_ROWS = 200_000
"""Maximum number of rows from which boosted trees beside a fit learn."""

TREE_COPIES = 4
"""Number of copies of these rows in memory while the trees learn."""

SKLEARN_TREES = 100
"""Maximum number of boosted trees, per class for classes, that scikit-learn fits by default."""


def will_try_residuals(request: Request, shape: DataShape) -> bool:
    """Return whether local residuals are tried: never with a given noise variance."""
    tried = tries_residuals(request.residual, shape.n_rows, shape.n_targets)
    return tried and shape.measured and request.estimates_noise


def will_compare(request: Request, shape: DataShape, machine: Machine, learned: str | None) -> bool:
    """Return whether the fit is compared with boosted trees.

    Args:
        request: the resolved options.
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        learned: a description of the learned kernel; without one, nothing is compared.
    """
    return (
        bool(learned)
        and request.reference != "none"
        and shape.n_rows >= COMPARED_ROWS[0]
        and machine.limit >= COMPARED_MEMORY
        and shape.n_targets == 1
        and request.class_weight is None
    )


def bytes_of_residuals(request: Request, work: Work, machine: Machine) -> int:
    """Return the bytes of the stage of local residuals, or 0 for a fit without them."""
    shape = work.shape
    neighbours = request.neighbours
    left_out = min(shape.n_rows, LEFT_OUT_ROWS)
    if not work.residuals or _residual_need(shape, left_out, neighbours) > machine.limit:
        return 0
    in_memory = _residual_need(shape, shape.n_rows, neighbours) <= machine.limit
    return memory.residual_stage_bytes(shape, left_out, neighbours, in_memory=in_memory)


def _residual_need(shape: DataShape, rows: int, neighbours: int) -> int:
    """Return the lowest memory limit at which local residuals of ``rows`` rows are made in
    memory."""
    return RESIDUAL_SHARE * residual_bytes(shape, rows, neighbours)[1]


def bytes_of_comparison(request: Request, work: Work, machine: Machine) -> int:
    """Return the bytes of a comparison with boosted trees, including the one for a model without
    vectors; 0 without a comparison."""
    shape = work.shape
    libraries = machine.libraries
    comparisons = [0]
    may_lack_vectors = (
        request.reference != "none"
        and machine.limit >= COMPARED_MEMORY
        and shape.n_rows >= JUDGED_ROWS[0]
    )
    if may_lack_vectors:
        rows = min(shape.n_rows, JUDGED_ROWS[1])
        trees = SKLEARN_TREES * max(shape.n_classes, 1)
        comparisons.append(memory.comparison_bytes(shape, rows, libraries, trees))
    if work.compared:
        rows = min(shape.n_rows, COMPARED_ROWS[1])
        trees = max(TREES_OF_CLASSES, 8 * shape.n_classes)
        comparisons.append(memory.comparison_bytes(shape, rows, libraries, trees))
    return max(comparisons)


def comparison_text(work: Work) -> str | None:
    """Describe the comparison with boosted trees; None for a fit without it."""
    if not work.compared:
        return None
    rows = min(work.shape.n_rows, COMPARED_ROWS[1])
    seconds = comparison_operations(work.shape.n_rows) / work.rates.product
    return (
        f"with boosted trees on {rows // 5:,} left-out rows, about {format_duration(seconds)} "
        "(reference='none': skip)"
    )


@dataclass(frozen=True)
class BesideRounds:
    """What a fit does beside its rounds.

    Attributes:
        residuals: the cost of local residuals in words, if the fit may use them
        comparison: the cost of the comparison with boosted trees in words, if there is one
        residual_bytes: the bytes of the stage of local residuals
        comparison_bytes: the bytes of boosted trees beside the fit, and of a comparison with such
            trees, including the one for a model without vectors
        tree_rows: the number of rows from which boosted trees beside the fit learn
    """

    residuals: str | None
    comparison: str | None
    residual_bytes: int
    comparison_bytes: int
    tree_rows: int

    @classmethod
    def of(
        cls, request: Request, work: Work, machine: Machine, columns: int, *, has_trees: bool
    ) -> "BesideRounds":
        """Return what a fit does.

        Args:
            request: the resolved options
            work: the inputs of all cost formulas
            machine: the processes that run the tasks
            columns: the maximum number of columns of the fit
            has_trees: True for boosted trees beside the fit
        """
        tree_rows = rows_of_trees(work.shape, machine) if has_trees else 0
        return cls(
            residuals=residuals_text(request, work, machine, columns),
            comparison=comparison_text(work),
            residual_bytes=bytes_of_residuals(request, work, machine),
            comparison_bytes=max(
                bytes_of_comparison(request, work, machine),
                bytes_of_trees(request, work.shape, machine, tree_rows),
            ),
            tree_rows=tree_rows,
        )


def rows_of_trees(shape: DataShape, machine: Machine) -> int:
    """Return the number of rows from which boosted trees beside a fit learn."""
    affordable = machine.budget // (TREE_COPIES * FLOAT * (shape.n_features + shape.n_targets))
    return max(min(shape.n_rows, TREE_ROWS, int(affordable)), 0)


def operations_of_trees(request: Request, shape: DataShape, machine: Machine) -> float:
    """Return the maximum number of operations of boosted trees beside a fit.

    Args:
        request: the resolved options.
        shape: the sizes of the data.
        machine: the processes that run the tasks.
    """
    return boosting_operations(shape, rows_of_trees(shape, machine), request.tree_rounds)


def with_additions(
    work: Work, request: Request, machine: Machine, learned: str | None, *, has_trees: bool
) -> Work:
    """Return the inputs of the cost formulas with what a fit does beside its rounds.

    Args:
        work: the inputs for the rounds.
        request: the resolved options.
        machine: the processes that run the tasks.
        learned: a description of the learned kernel, or None.
        has_trees: True for boosted trees beside the fit.
    """
    shape = work.shape
    return replace(
        work,
        residuals=will_try_residuals(request, shape),
        compared=not has_trees and will_compare(request, shape, machine, learned),
        boosted=has_trees * operations_of_trees(request, shape, machine),
    )


def bytes_of_trees(request: Request, shape: DataShape, machine: Machine, rows: int) -> int:
    """Return the bytes of boosted trees beside a fit, or 0 without them.

    Args:
        request: the resolved options.
        shape: the sizes of the data.
        machine: the processes that run the tasks.
        rows: the number of rows from which the trees learn.
    """
    if not rows:
        return 0
    trees = boosted_outputs(shape) * request.tree_rounds
    return memory.comparison_bytes(shape, rows, machine.libraries, trees)


def trees_text(request: Request, rows: int) -> str | None:
    """Describe boosted trees beside a fit; None without them.

    Args:
        request: the resolved options.
        rows: the number of rows from which the trees learn.
    """
    if not rows:
        return None
    return (
        f"at most {counted(request.tree_rounds, 'round')} of boosting on {counted(rows, 'row')}, "
        "without each of five folds and on all; left-out rows determine the trees' share in the "
        "predictions"
    )


def require_memory_for_residuals(request: Request, shape: DataShape, machine: Machine) -> None:
    """Raise ``MemoryLimitError`` if local residuals are requested but cannot even be learned from
    left-out rows."""
    if request.residual != "local":
        return
    need = _residual_need(shape, min(shape.n_rows, LEFT_OUT_ROWS), request.neighbours)
    if need > machine.limit:
        raise MemoryLimitError(
            f"residual='local' needs {format_bytes(need)}, but the memory limit is "
            f"{format_bytes(machine.limit)}: raise memory_limit, lower neighbours, or leave "
            "residual='auto'"
        )


def residuals_text(request: Request, work: Work, machine: Machine, columns: int) -> str | None:
    """Describe the bytes and seconds that local residuals take; None for a fit without them.

    Args:
        request: the resolved options.
        work: the inputs of all cost formulas.
        machine: the processes that run the tasks.
        columns: the maximum number of columns of the fit.
    """
    if not work.residuals:
        return None
    shape = work.shape
    n = shape.n_rows
    k = request.neighbours
    need = _residual_need(shape, min(n, LEFT_OUT_ROWS), k)
    if need > machine.limit:
        return f"not tried below a memory_limit of {format_bytes(need)}"
    size = format_bytes(residual_bytes(shape, n, k)[0])
    place = "in memory" if _residual_need(shape, n, k) <= machine.limit else "in files of a job"
    one_pass = ""
    if n > LEFT_OUT_ROWS:
        seconds = work.pass_seconds(n, n * columns, 2.0 * n * columns)
        one_pass = f", a pass of {format_duration(seconds)}"
    # targets share the search for neighbours
    rate = int(CORRECTED / k / (1.0 + (shape.n_targets - 1) / 4))
    return (
        f"the errors of the {k} nearest rows correct predictions if this helps left-out rows: "
        f"about {size} {place}{one_pass}, {rate:,} predictions per second and core"
    )
