"""Fit a model from a spec and a source of rows, and warn about anything that lowers its accuracy.

After a fit with a learned kernel, the model is compared with boosted trees on left-out rows.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from partirvm import errors
from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.data.source import Tile
from partirvm.execution.kernel_store import keeping_blocks
from partirvm.fit.assessment import assessment_of, with_left_out_classes
from partirvm.fit.comparison import ScoredClasses, compared
from partirvm.fit.driver import Driver, Entry, MemoryJournal, Outcome
from partirvm.fit.found_groups import FoundGroups, SharedErrors, find_groups
from partirvm.fit.remarks import (
    lost,
    warn_of_data,
    warn_of_fit,
    warn_of_residuals,
    warn_without_vectors,
    worse,
)
from partirvm.learning.forms import kernel_text
from partirvm.model import AnyModel, ClassModel, Model
from partirvm.model.summary import Assessment
from partirvm.resolve.resolve import FitSpec
from partirvm.spec.entries import Record
from partirvm.strategies import STRATEGIES
from partirvm.strategies.instructions import Save
from partirvm.strategies.rounds import with_appended_rows
from partirvm.strategies.stages import RoundsState

SHOWN = 3
"""Number of nearest rows that are shown for each row with the largest error."""


@dataclass
class EntryReader:
    """Adds what readers of the history want to know, and collects remarks for warnings.

    Attributes:
        driver: runs the fit.
        spec: its specification.
        source: the rows without class weights.
        journal: holds the model and the entries so far.
        outliers: a sentence on a few targets that decide the fit, or "".
        remarks: sentences for warnings after the fit.
        scored: for classes, the left-out rows of the last fit.
    """

    driver: Driver
    spec: FitSpec
    source: Source
    journal: MemoryJournal
    outliers: str = ""
    remarks: list[str] = field(default_factory=list)
    scored: ScoredClasses | None = None

    def facts(self, entry: Entry, fit: Any) -> Entry:
        """Return further fields of an entry of ``fit``."""
        source = self.source
        driver = self.driver
        facts = kernel_text(entry, self.spec.problem.empty.scaling.names(source.columns.features))
        corrected = None
        if (entry["residuals"] or {}).get("bytes"):
            corrected = cast(Model, self.journal.model).of_known_groups()
        facts["diagnostics"] = table_rows(entry["diagnostics"], source, driver.held_out, corrected)
        if _is_compared(self.spec, entry) and driver.interrupted() is None:
            driver.watcher.on_tiles("comparing", 0, 0)
            # a finished fit does not fail because of its report
            with suppress(errors.PartirvmError):
                facts["reference"] = self._reference(entry, fit)
        groups = self._found_groups(entry, fit)
        if groups is not None:
            facts["groups"] = groups.facts()
            self.remarks.append(groups.remark())
        remark = worse(entry, self.journal.history)
        if remark:
            facts["worse"] = remark
            self.remarks.append(remark)
        return facts

    def assess(self, model: AnyModel, save: Save, sample: Tile) -> Assessment:
        """Return what is known of the quality of a model.

        Args:
            model: the model
            save: the request to save it, with its fit and its line of history
            sample: random rows of the data
        """
        record = save.record
        assessment = assessment_of(self.spec, model, record, sample, self.outliers)
        if save.trees is not None and save.trees.logits is not None:
            left_out = save.trees.logits
            return with_left_out_classes(assessment, left_out.codes, left_out.probabilities())
        is_last = record.kind == "final" and record.vectors > 0
        if self.spec.problem.likelihood.classifies and is_last and not self.driver.interrupted():
            # a finished fit does not fail because of its report
            with suppress(errors.PartirvmError):
                self.scored = self._scored(model, save.fit)
        if self.scored is None or assessment.rows == "held-out":
            return assessment
        probabilities = self.scored.probabilities(cast(ClassModel, model))
        return with_left_out_classes(assessment, self.scored.codes, probabilities)

    def _scored(self, model: Any, fit: Any) -> ScoredClasses:
        """Leave rows with classes out of a fit."""
        beta = _beta(fit)
        return ScoredClasses.of(model, self.source, self.driver.executor, beta, self.spec)

    def _found_groups(self, entry: Entry, fit: Any) -> FoundGroups | SharedErrors | None:
        """Return groups of rows that were not declared, if a last fit of one number shows any."""
        problem = self.spec.problem
        model = cast(Model, self.journal.model)
        plain = entry["kind"] == "final" and problem.groups is None and problem.n_targets == 1
        calibrated = getattr(fit, "calibration", None) is not None
        # without noise, errors between neighbouring rows are those of interpolation
        if not plain or not calibrated or not model.n_vectors or fit.floored:
            return None
        with suppress(errors.PartirvmError):  # a finished fit does not fail because of its report
            return find_groups(model, float(fit.beta), self.source, self.driver.executor)
        return None

    def _reference(self, entry: Entry, fit: Any) -> Entry:
        """Compare the model with boosted trees."""
        judged = _judged(self.spec)
        reference = compared(
            self.journal.model,
            self.source,
            self.driver.executor,
            _beta(fit),
            entry,
            self.spec,
            searched=judged.get("levels", ()),
            scored=self.scored,
        )
        remark = lost(judged)
        if reference["remarks"]:
            self.remarks.extend(reference["remarks"])
        elif remark:
            self.remarks.append(remark)
        return reference


def run(
    driver: Driver,
    spec: FitSpec,
    journal: MemoryJournal,
    checkpoint: Any = None,
    beside: Path | None = None,
) -> Outcome:
    """Run the spec of a fit and warn about problems.

    Args:
        driver: reads the rows and runs passes
        spec: the specification
        journal: receives model and history
        checkpoint: the strategy state from which the run starts; None for a new run
        beside: folder for kernel blocks on disk; None is a temporary one
    """
    scaling = spec.problem.empty.scaling
    functions = spec.problem.empty.functions
    source = folded(driver.source.with_weight_unit(scaling.weight_unit), scaling, functions)
    driver.executor.use(spec.plan.threads)
    reader = EntryReader(driver, spec, source, journal)
    weighted = source
    if spec.class_weights is not None:
        weighted = source.with_class_weights(spec.class_weights)
    driver = replace(driver, source=weighted, for_readers=reader.facts, assessed=reader.assess)
    if checkpoint is None:
        for entry in spec.entries:
            journal.record(entry)
            driver.watcher.on_record(entry)
    reader.outliers = warn_of_data(spec, source, driver.executor)
    strategy = STRATEGIES[spec.request.strategy]()
    with keeping_blocks(spec.plan, driver.executor.forget, beside) as keep_blocks:
        driver.keep_blocks = keep_blocks
        outcome = driver.run(strategy, spec.problem, spec.options, journal, checkpoint)
    warn_of_fit(outcome, spec, reader.remarks)
    if outcome.last is not None and _is_empty(outcome.last):
        warn_without_vectors(spec, driver)
    warn_of_residuals(outcome, spec)
    return outcome


def is_growable(state: Any, spec: FitSpec) -> bool:
    """Return True if new rows can join the fit: its target varies, and its state is not specific to
    split-merge."""
    return isinstance(state, RoundsState) and bool(spec.problem.target_variance)


def with_new_rows(state: RoundsState, spec: FitSpec) -> RoundsState:
    """Return a checkpoint's state, extended to the new rows of a grown spec
    (``resolve.resolve``)."""
    state = with_appended_rows(state, spec.problem, spec.options)
    return state if spec.plan.schedule.selects else replace(state, selection=spec.options.selection)


def table_rows(
    diagnostics: list[Entry], source: Source, held_out: Source | None, model: Any = None
) -> list[Entry]:
    """Return the diagnostics in a line of history, with row numbers of the original table in
    ``largest``.

    With local residuals, ``neighbours`` holds number, distance, weight and error of the ``SHOWN``
    training rows nearest to each of these rows. Unreadable parts are left out: a finished fit does
    not fail because of its report.

    Args:
        diagnostics: the diagnostics of each target
        source: the source of the training rows
        held_out: the source of the held-out rows, or None
        model: the model if it has local residuals, or None
    """
    # without coverage they refer to left-out training rows (``core.left_out``), otherwise to
    # held-out rows
    left_out = any(not table.get("covered", True) for table in diagnostics)
    shown = source if held_out is None or left_out else held_out
    original_rows = cache(shown.original_rows)
    tables = []
    for target, diagnostic in enumerate(diagnostics):
        table = {**diagnostic, "largest": []}
        tables.append(table)
        places = [row for row, *_ in diagnostic["largest"]]
        with suppress(errors.PartirvmError):
            rows = [
                int(original_rows(row // shown.tile_rows)[row % shown.tile_rows]) for row in places
            ]
            pairs = zip(rows, diagnostic["largest"], strict=True)
            table["largest"] = [[row, *values] for row, (_, *values) in pairs]
            if model is not None:
                numbers = np.array(rows, dtype=np.float64) if left_out else None
                nearest = model.nearest_rows(shown.gather(places).X, numbers)
                table["neighbours"] = neighbours_of_target(nearest.values(), target)
    return tables


def neighbours_of_target(parts: Iterable[Any], target: int) -> list[Any]:
    """Return the number, distance, weight and error of the ``SHOWN`` nearest rows of each row.

    Args:
        parts: arrays (m, k), or (m, k, T) for several targets
        target: number of the target
    """
    of_target = [part if part.ndim == 2 else part[:, :, target] for part in parts]
    by_row = zip(*(part[:, :SHOWN].tolist() for part in of_target), strict=True)
    return [list(zip(*row, strict=True)) for row in by_row]


def _beta(fit: Any) -> float:
    """Return the noise precision of a fit; one for a logistic link, which has none."""
    return float(getattr(fit, "beta", 1.0))


def _judged(spec: FitSpec) -> dict[str, Any]:
    """Return what rows that taught nothing said of the kernel; empty if it was not judged."""
    choices = [entry["choice"] or {} for entry in spec.entries if entry["kind"] == "kernel"]
    return next((choice["judged"] for choice in choices if "rival" in choice.get("judged", {})), {})


def _is_empty(last: Record) -> bool:
    """Return True for a last model that has neither vectors nor boosted trees."""
    trees = last.trees or {}
    return last.kind == "final" and not last.vectors and not trees.get("share")


def _is_compared(spec: FitSpec, entry: Entry) -> bool:
    """Return True for the last model if a comparison is planned, and it has vectors, and boosted
    trees were not tried beside it."""
    is_last = entry["kind"] == "final" and bool(entry["vectors"])
    return spec.plan.comparison is not None and is_last and not entry["trees"]
