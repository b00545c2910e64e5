"""Fit a model from a spec and a source of rows, and warn about anything that lowers its accuracy.

After a fit with a learned kernel, the model is compared with boosted trees on left-out rows.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partirvm import errors
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.folds import folded
from partirvm.execution.kernel_store import keeping_blocks
from partirvm.jobs.comparison import compared
from partirvm.jobs.driver import Driver, Entry, MemoryJournal, Outcome
from partirvm.jobs.judged import Verdict, judged, outliers
from partirvm.learning.forms import kernel_text
from partirvm.learning.neighbours import LEAST_LEFT_OUT
from partirvm.quoting import format_bytes, listed, quoted
from partirvm.resolve.resolve import FitSpec
from partirvm.strategies import STRATEGIES
from partirvm.strategies.rounds import with_appended_rows
from partirvm.strategies.stages import RoundsState
from partirvm.types import COMPARED_MEMORY, COMPARED_ROWS, Columns

SHOWN = 3
"""Number of nearest rows that are shown for each row with the largest error."""


def run(
    driver: Driver,
    spec: FitSpec,
    journal: MemoryJournal,
    checkpoint: Any = None,
    beside: Path | None = None,
) -> Outcome:
    """Run the spec of a fit, starting from a strategy state (``checkpoint``), and warn about
    problems.

    The journal receives model and history. ``beside`` is the folder for kernel blocks on disk
    (None: a temporary one).
    """
    scaling = spec.problem.empty.scaling
    source = folded(driver.source, scaling)
    remarks = list[str]()
    judged = _judged(spec)
    driver.executor.use(spec.plan.threads)

    def for_readers(entry: Entry, fit: Any) -> Entry:
        found = kernel_text(entry, spec.problem.empty.scaling.names(source.columns.features))
        corrected = journal.model if (entry["residuals"] or {}).get("bytes") else None
        found["diagnostics"] = table_rows(entry["diagnostics"], source, driver.held_out, corrected)
        if _is_compared(spec, entry) and driver.interrupted() is None:
            driver.watcher.on_tiles("comparing", 0, 0)
            with suppress(
                errors.PartirvmError
            ):  # a finished fit does not fail because of its report
                beta = float(getattr(fit, "beta", 1.0))
                how = journal.model, source, driver.executor, beta, entry, spec.request.seed
                found["reference"] = compared(*how, searched=judged.get("levels", ()))
                remarks.extend(found["reference"]["remarks"] or filter(None, [lost(judged)]))
        if remark := worse(entry, journal.history):
            found["worse"] = remark
            remarks.append(remark)
        return found

    weighted = (
        source if spec.class_weights is None else source.with_class_weights(spec.class_weights)
    )
    driver = replace(driver, source=weighted, for_readers=for_readers)
    for entry in spec.entries if checkpoint is None else ():
        journal.record(entry)
        driver.watcher.on_record(entry)
    _warn_of_data(spec, source.columns)
    if named := outliers(spec, source, driver.executor):
        errors.warn(
            f"{named}, so they decide the fit: set `Warp(target='asinh')` (`--warp-target "
            "asinh`), or drop them",
            errors.DataWarning,
        )
    with keeping_blocks(spec.plan, driver.executor.forget, beside) as driver.keep_blocks:
        outcome = driver.run(
            STRATEGIES[spec.request.strategy](), spec.problem, spec.options, journal, checkpoint
        )
    _warn_of_fit(outcome, spec, remarks)
    if outcome.last is not None and outcome.last.kind == "final" and not outcome.last.vectors:
        _warn_without_vectors(spec, driver)
    _warn_of_residuals(outcome, spec)
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
    """
    # without coverage they refer to left-out training rows (``core.left_out``), otherwise to
    # held-out rows
    left_out = any(not each.get("covered", True) for each in diagnostics)
    shown = source if held_out is None or left_out else held_out
    numbers = cache(shown.original_rows)

    def with_numbers(target: int, each: Entry) -> Entry:
        found = {**each, "largest": []}
        places = [row for row, *_ in each["largest"]]
        with suppress(errors.PartirvmError):
            rows = [int(numbers(row // shown.tile_rows)[row % shown.tile_rows]) for row in places]
            found["largest"] = [
                [row, *values] for row, (_, *values) in zip(rows, each["largest"], strict=True)
            ]
            if model is not None:
                own = np.array(rows, dtype=np.float64) if left_out else None
                near = model.nearest_rows(shown.gather(places).X, own).values()
                of_target = (part if part.ndim == 2 else part[:, :, target] for part in near)
                pairs = zip(*(part[:, :SHOWN].tolist() for part in of_target), strict=True)
                found["neighbours"] = [list(zip(*each, strict=True)) for each in pairs]
        return found

    return [with_numbers(target, each) for target, each in enumerate(diagnostics)]


CLEARLY_LOST = 1.1
"""Error of the best kernel ÷ that of its best rival, on rows that taught neither, from which a
warning is issued."""

WORSE = 1.02
"""Ratio of held-out errors from which the last fit, which has fewer vectors, counts as worse than a
round."""


def _warn_of_data(spec: FitSpec, columns: Columns) -> None:
    """Warn about a constant target and constant features."""
    if not spec.problem.target_variance:
        errors.warn(
            f"the target {quoted(columns.target)} is constant: the model is its mean",
            errors.DataWarning,
        )
    if len(constant := np.flatnonzero(spec.input_variance[: len(columns.features)] == 0)):
        names = listed(columns.features[j] for j in constant)
        errors.warn(f"constant features are ignored: {names}", errors.DataWarning)


def _warn_of_fit(outcome: Outcome, spec: FitSpec, remarks: list[str]) -> None:
    """Warn about defects of a finished fit, such as a noise estimate at its floor or the memory
    limit."""
    last = outcome.last
    schedule = spec.plan.schedule
    if last is None or last.kind == "early":
        return
    if last.kind == "part":
        return
    if last.floored:
        errors.warn(
            "the noise estimate reached its floor: the data are nearly noise-free, or the model "
            "interpolates the targets; set the noise variance, widen the kernel, or check "
            "held-out errors",
            errors.NoiseFloorWarning,
        )
    if last.overconfident:
        times = (last.overconfidence or 0) ** 0.5
        errors.warn(
            f"errors on left-out rows are {times:,.1f} × the standard deviation implied by the "
            "evidence; the reported noise comes from these errors. The kernel is probably too "
            "narrow: try a lower gamma",
            errors.OverconfidenceWarning,
        )
    for remark in remarks:
        errors.warn(remark, errors.AccuracyWarning)
    if last.dropped:
        errors.warn(
            f"{last.dropped:,} vectors were dropped at merges because of max_vectors or "
            "memory_limit: fits of these data prune fewer than half of their candidates; raise "
            "the limit, or use the working-set strategy",
            errors.LimitWarning,
        )
    ends = {
        outcome.reason,
        *[last.termination] * (last.kind == "final"),
    }  # rounds need not converge
    in_order = [Termination.VECTORS] * (schedule.has_rounds and not schedule.selects)
    for reason in ends & {Termination.MEMORY, Termination.ITERATIONS, *in_order}:
        errors.warn(reason.advice, errors.LimitWarning)


def _warn_without_vectors(spec: FitSpec, driver: Driver) -> None:
    """Warn that a fit ended without relevance vectors, and whether other methods predict left-out
    rows better."""
    problem = spec.problem
    if not problem.target_variance or problem.empty.functions is not None:
        return
    predicted = "class frequencies" if problem.n_classes else "mean"
    verdict: Verdict | None = None
    asked = spec.request.reference != "none" and spec.plan.machine.limit >= COMPARED_MEMORY
    if asked and driver.interrupted() is None:
        with suppress(errors.PartirvmError):  # a finished fit does not fail because of its report
            verdict = judged(spec, driver.source, driver.executor)
    if verdict is None or (spec.plan.learned is None and not verdict.better):
        errors.warn(
            f"no relevance vector is left, so the model predicts the {predicted}: the kernel does "
            "not fit these data; try another gamma",
            errors.DataWarning,
        )
        return
    loss = "log loss" if problem.n_classes else "RMSE"
    if not verdict.better:
        others = ", ".join(f"{name} {each:.3g}" for name, each in verdict.losses.items())
        errors.warn(
            f"no relevance vector is left, so the model predicts the {predicted}: on "
            f"{verdict.rows:,} left-out rows, no other method is clearly better than its {loss} "
            f"of {verdict.own:.3g} either ({others}); these features hardly predict the target: "
            "use other features or more rows",
            errors.DataWarning,
        )
        return
    errors.warn(
        f"no relevance vector is left, so the model predicts the {predicted}, with a {loss} of "
        f"{verdict.own:.3g} on {verdict.rows:,} left-out rows, where {verdict.better} has "
        f"{verdict.losses[verdict.better]:.3g}: try another kernel, such as kernel='matern32', "
        "more rows, or transformed features",
        errors.AccuracyWarning,
    )


def _warn_of_residuals(outcome: Outcome, spec: FitSpec) -> None:
    """Warn if local residuals were requested and the model has none, with the reason."""
    last = outcome.last
    if spec.request.residual != "local" or last is None or last.kind != "final":
        return
    facts = last.residuals or {}
    if facts.get("bytes") or not spec.problem.target_variance:
        return
    if facts.get("lacking"):
        reason = (
            f"their {format_bytes(facts['lacking'])} fit neither in memory nor in a job folder: "
            "raise memory_limit"
        )
    elif last.fit_rows == "sample":
        reason = (
            "the last fit used a sample of the rows, of which none is left out: choose "
            "fit_rows='full'"
        )
    elif spec.problem.n_rows < LEAST_LEFT_OUT:
        reason = f"{spec.problem.n_rows:,} rows are fewer than {LEAST_LEFT_OUT}: add rows"
    else:
        reason = (
            "too few rows could be left out, or memory is too short to learn from them: raise "
            "memory_limit"
        )
    errors.warn(
        f"residual='local' had no effect: {reason}, or leave residual='auto'", errors.LimitWarning
    )


def worse(entry: Entry, history: Sequence[Entry]) -> str:
    """Return a remark if the last fit has a larger held-out error than an earlier round."""
    for key, name in (
        ("held_out_rmse", "held-out RMSE"),
        ("held_out_log_loss", "held-out log loss"),
    ):
        rounds = [each for each in history if each["kind"] == "round" and each.get(key) is not None]
        best = min(rounds, key=lambda each: float(each[key]), default=entry)
        if rounds and entry["kind"] == "final" and entry[key] > WORSE * best[key]:
            now = f"{entry[key]:.4g}"
            then = f"{best[key]:.4g}"
            number = best["number"]
            return (
                f"The {name} of the last fit is {now}, that of round {number} {then}: try "
                f"max_rounds={number}."
            )
    return ""


def _judged(spec: FitSpec) -> dict[str, Any]:
    """Return what rows that taught nothing said of the kernel; empty if it was not judged."""
    choices = [each["choice"] or {} for each in spec.entries if each["kind"] == "kernel"]
    return next((each["judged"] for each in choices if "rival" in each.get("judged", {})), {})


def lost(judged: dict[str, Any]) -> str:
    """Return a remark if the search has not found a kernel that predicts as well as its rivals, or
    ""."""
    if not judged.get("lost") or judged["error"] < CLEARLY_LOST * judged["rival_error"]:
        return ""
    rows = " and ".join(f"{count:,}" for count in judged["levels"])
    return (
        f"{judged['rival']} have an RMSE of {judged['rival_error']:.3g} of the target's deviation "
        f"on {judged['rows']:,} rows that taught nothing, the best kernel found "
        f"{judged['error']:.3g} (+{judged['error'] / judged['rival_error'] - 1:.0%}), although "
        f"the search continued on {rows} rows: transformed features, categories declared as such, "
        "or basis functions for the missing structure may help"
    )


def _is_compared(spec: FitSpec, entry: Entry) -> bool:
    """Return True for the last model if it has one target, or classes without class weights, and a
    learned kernel."""
    problem = spec.problem
    learned = any(each["kind"] == "kernel" for each in spec.entries)
    if (
        entry["kind"] != "final"
        or spec.request.reference == "none"
        or not learned
        or not entry["vectors"]
    ):
        return False
    if problem.n_rows < COMPARED_ROWS[0] or spec.plan.machine.limit < COMPARED_MEMORY:
        return False
    if problem.n_classes:
        return spec.class_weights is None
    return problem.n_targets == 1 and problem.target_variance > 0
