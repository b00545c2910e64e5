"""Faults that were written by hand: realistic mistakes, each with the promise that it breaks.

Drawn mutants (``draw``) change one token. These change what a tired author gets wrong: the fold of
a row, a factor, a sign, a unit, the order of columns, the age of a value, or the owner of a lease.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.draw import FUNCTIONS, Mutant

WRITTEN = "written"
"""The kind of these mutants."""


@dataclass(frozen=True)
class Fault:
    """A change of ``before``, which occurs once in a file of partirvm/, to ``after``.

    ``promise`` is what no longer holds.
    """

    file: str
    before: str
    after: str
    promise: str


FAULTS = (
    Fault(
        "learning/exact_process.py",
        "T * (log_determinant + n * np.log(2 * np.pi))",
        "(log_determinant + T * n * np.log(2 * np.pi))",
        "the evidence of T targets counts the determinant T times",
    ),
    Fault(
        "learning/target.py",
        " - np.log(scaling.t_scale)",
        "",
        "evidences of warped targets are compared in the units of the target itself",
    ),
    Fault(
        "learning/left_out_judge.py",
        ".mean(axis=1) / self.rows[1].inverse",
        ".mean(axis=1) * self.rows[1].inverse",
        "errors of left-out rows count in proportion to their weights",
    ),
    Fault(
        "learning/search.py",
        "log_evidence -= rows *",
        "log_evidence += rows *",
        "the history states the evidence in the units of the target",
    ),
    Fault(
        "learning/embedding.py",
        "wider * (count + 1) / (count - 1)",
        "wider * (count + 1) / count",
        "an unknown level has the variance of a new draw, (1 + 1/L)·S·L/(L − 1)",
    ),
    Fault(
        "learning/level_variances.py",
        "self.rows.some(np.flatnonzero(~inside))",
        "self.rows.some(np.flatnonzero(self.folds >= 0))",
        "the effects that a training row sees are learned without its fold",
    ),
    Fault(
        "local/cells.py",
        "k = min(k, self.n_rows - (own is not None))",
        "k = min(k, self.n_rows)",
        "a row is no neighbour of itself, even if there are no other rows",
    ),
    Fault(
        "local/cells.py",
        "np.lexsort((candidates[:, :, NUMBER], distances))[:, :k]",
        'np.argsort(distances, axis=1, kind="stable")[:, :k]',
        "of rows at equal distance the smaller number is nearer, in whatever cell it is",
    ),
    Fault(
        "local/kriging.py",
        "shrinkage = np.exp(-0.5 * kernel.exponent * rows.log_factors)",
        "shrinkage = np.exp(-kernel.exponent * rows.log_factors)",
        "the weights of neighbours' errors give the mean error that is predicted",
    ),
    Fault(
        "local/kriging.py",
        "return mean, variance * (1.0 - conditional.known) / conditional.unknown",
        "return mean, variance * (1.0 - conditional.known)",
        "the variance of a mean error is that of the noisy one without the noise",
    ),
    Fault(
        "local/metric.py",
        "float(np.sqrt(gamma / 2))",
        "float(np.sqrt(gamma))",
        "rows whose category differs are √gamma apart",
    ),
    Fault(
        "data/folds.py",
        "numbers = tile.start + np.arange(len(tile.X), dtype=np.int64)",
        "numbers = np.arange(len(tile.X), dtype=np.int64)",
        "the fold of a row depends on its number in the source, not on its place in a tile",
    ),
    Fault(
        "data/writer.py",
        "new = slice(self.n_old if number == 0 else 0, None)",
        "new = slice(0, None)",
        "the moments count each row once after rows are appended to a tile that is not full",
    ),
    Fault(
        "data/writer.py",
        "            self.lease.check()\n            try:\n                self.published = True",
        "            try:\n                self.published = True",
        "a writer that has lost its lease does not publish",
    ),
    Fault(
        "data/source.py",
        "concatenated(pieces).take(np.argsort(order), 0)",
        "concatenated(pieces).take(order, 0)",
        "gathered rows have the order of their numbers",
    ),
    Fault(
        "data/frame_rows.py",
        "[names.index(name) for name in wanted]",
        "sorted(names.index(name) for name in wanted)",
        "a data frame's columns are read by name, in the order of the model",
    ),
    Fault(
        "data/zarr_source.py",
        "return not n_last or hash_tile(self.tile(full).take(slice(n_last), 0)) == hashes[full]",
        "return True",
        "rows of the last tile that were changed are no appended rows",
    ),
    Fault(
        "export/graph.py",
        "graph.joined(blocks).take(np.argsort(order))",
        "graph.joined(blocks).take(order)",
        "the columns of several kernels have the order of the weights",
    ),
    Fault(
        "export/graph.py",
        "for j in SWEEPS * features.gaps.tolist():",
        "for j in features.gaps.tolist():",
        "several missing values of a row are predicted in as many sweeps as in the model",
    ),
    Fault(
        "export/graph.py",
        "power = 1.0 if model.calibration is not None else TEMPER",
        "power = TEMPER",
        "an exported calibrated noise variance is that of the model",
    ),
    Fault(
        "export/shapley.py",
        "leggauss(2 * ((len(self.columns) + 3) // 4))",
        "leggauss(max((len(self.columns) - 1) // 2, 1))",
        "Shapley values of products are exact for any number of columns",
    ),
    Fault(
        "storage/folder.py",
        "        file.flush()\n        _flush_handle(file.fileno())",
        "        file.flush()",
        "an object is on the disk before its name is",
    ),
    Fault(
        "storage/lease.py",
        'return {epoch: claim["token"] for epoch, claim in newest.items()} == {\n'
        "            self.epoch: self.token\n        }",
        "return set(newest) == {self.epoch}",
        "a holder notices that its folder was replaced by another with the same epoch",
    ),
    Fault(
        "storage/lease.py",
        "return now is None or bool(self.began and now and now != self.began)",
        "return now is None",
        "a process that has reused the number of a dead holder is not the holder",
    ),
    Fault(
        "storage/records.py",
        "range(first or listed[0], listed[-1] + 1)",
        "range(listed[0], listed[-1] + 1)",
        "a missing first event is noticed",
    ),
    Fault(
        "jobs/store.py",
        'number > claim["mark"]',
        'number >= claim["mark"]',
        "the last event before a claim is valid",
    ),
    Fault(
        "jobs/state.py",
        'history=before[: int(event.get("history", len(before)))],',
        "history=before,",
        "lines of history after the checkpoint are dropped when a driver resumes",
    ),
    Fault(
        "jobs/attempt.py",
        "lines = len(self.history) - (\n            state.end is not None\n        )",
        "lines = len(self.history)",
        "an update from a final checkpoint drops the final line",
    ),
    Fault(
        "jobs/attempt.py",
        '"lost": n_lost - recorded,',
        '"lost": n_lost,',
        "each lost worker is counted once",
    ),
    Fault(
        "jobs/store.py",
        ' and name < f"{kind}s/{self.lease.epoch + 1:06d}"',
        "",
        "a writer removes no groups of a later writer",
    ),
    Fault(
        "fit/residual_folds.py",
        "np.delete(self.shifts[fold], rows, axis=0)",
        "np.delete(self.shifts[fold - 1], rows, axis=0)",
        "the errors of neighbours are those of the fit without the row's own fold",
    ),
    Fault(
        "fit/residual_rows.py",
        "1.0 / weights[rows],",
        "weights[rows],",
        "local residuals trust rows in proportion to their weights",
    ),
    Fault(
        "fit/residual_rows.py",
        "                numbers[rows],",
        "                tile.start + rows,",
        "neighbours are named by the numbers that the user's rows have",
    ),
    Fault(
        "fit/judged.py",
        "lower = means[best] < RIVAL ** (1 / rivals.power) * by_mean.mean()",
        "lower = means[best] < RIVAL * by_mean.mean()",
        "a rival is clearly better from a ratio of losses as they are shown",
    ),
    Fault(
        "resolve/samples.py",
        "seed=self.request.seed)",
        "seed=0)",
        "random_state decides which rows teach the kernel",
    ),
    Fault(
        "resolve/new_problem.py",
        "(targets.variance * targets.total / targets.n) / scaling.t_scale**2",
        "targets.variance / scaling.t_scale**2",
        "the target variance counts rows by their weights",
    ),
    Fault(
        "resolve/new_problem.py",
        "GammaDensity(shape, rate / target_scale**2)",
        "GammaDensity(shape, rate / target_scale)",
        "the rate of noise_prior is in squared units of the target",
    ),
    Fault(
        "resolve/new_problem.py",
        "np.where(levels > 0, levels + 1.0, inputs.mean)",
        "np.where(levels > 0, levels, inputs.mean)",
        "a missing label is a level of its own, not an unknown one",
    ),
    Fault(
        "resolve/resolve.py",
        "codes=data.codes,\n        groups=data.groups,\n    )\n    request",
        "groups=data.groups,\n    )\n    request",
        "an update uses the classes of the appended rows",
    ),
    Fault(
        "spec/panel_pass.py",
        "min(last + 1, sorted_rows.stop)",
        "min(last, sorted_rows.stop)",
        "the last row of a panel belongs to it",
    ),
    Fault(
        "spec/panel_pass.py",
        "mask & (panel.weights > 0)",
        "mask & (panel.weights >= 0)",
        "a row of weight 0 is no candidate",
    ),
    Fault(
        "spec/problem.py",
        "beta = np.maximum(self.beta, other.beta)",
        "beta = np.minimum(self.beta, other.beta)",
        "two fits that are joined start from the larger β",
    ),
    Fault(
        "spec/entries.py",
        "self.since += elapsed",
        "self.since = time.perf_counter()",
        "of several entries that are written together, each has its share of the seconds",
    ),
)


def written(root: Path) -> list[Mutant]:
    """Return the mutants of ``FAULTS`` in the tree at ``root``.

    Raises ``ValueError`` with all faults whose text is not there, or not once.
    """
    stale = [fault for fault in FAULTS if _source(root, fault).count(fault.before.encode()) != 1]
    if stale:
        lines = (f"partirvm/{fault.file}: {fault.before!r}" for fault in stale)
        raise ValueError("the text of these faults does not occur once:\n" + "\n".join(lines))
    return [_mutant(root, fault) for fault in FAULTS]


def _source(root: Path, fault: Fault) -> bytes:
    return (root / "partirvm" / fault.file).read_bytes()


def _mutant(root: Path, fault: Fault) -> Mutant:
    """Return the mutant of a fault."""
    source = _source(root, fault)
    before = fault.before.encode()
    start = source.index(before)
    line = source.count(b"\n", 0, start) + 1
    return Mutant(
        folder=fault.file.partition("/")[0],
        file=f"partirvm/{fault.file}",
        function=_function_at(ast.parse(source), line),
        kind=WRITTEN,
        occurrence=0,
        line=line,
        before=fault.before,
        after=fault.after,
        start=start,
        stop=start + len(before),
        promise=fault.promise,
    )


def _function_at(module: ast.Module, line: int) -> str:
    """Return the qualified name of the innermost function that contains a line."""
    path = list[str]()
    node: ast.AST = module
    while True:
        inside = (
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or 0)
        )
        child = next(inside, None)
        if child is None:
            return ".".join(path)
        if isinstance(child, ast.ClassDef | FUNCTIONS):
            path.append(child.name)
        node = child
