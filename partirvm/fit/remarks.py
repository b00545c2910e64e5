"""Warnings and remarks about the data and about a finished fit."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from partirvm import errors
from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.execution import Executor
from partirvm.fit.comparison import TREE_ADVICE
from partirvm.fit.driver import Driver, Entry, Outcome
from partirvm.fit.judged import BOOSTING, Verdict, judged, outliers
from partirvm.fit.local_residuals import LEAST_LEFT_OUT
from partirvm.learning.left_out_judge import TREES
from partirvm.quoting import format_bytes, listed, quoted
from partirvm.resolve.resolve import FitSpec
from partirvm.types import COMPARED_MEMORY

CLEARLY_LOST = 1.1
"""Error of the best kernel ÷ that of its best rival, on rows that taught neither, from which a
warning is issued."""

WORSE = 1.02
"""Ratio of held-out errors from which the last fit, which has fewer vectors, counts as worse than a
round."""


def warn_of_data(spec: FitSpec, source: Source, executor: Executor) -> str:
    """Warn about a constant target, constant features, and a few targets that decide the fit.

    Return a sentence on these targets, or "".
    """
    columns = source.columns
    if not spec.problem.target_variance:
        errors.warn(
            f"the target {quoted(columns.target)} is constant: the model is its mean",
            errors.DataWarning,
        )
    constant = np.flatnonzero(spec.input_variance[: len(columns.features)] == 0)
    if len(constant):
        names = listed(columns.features[j] for j in constant)
        errors.warn(f"constant features are ignored: {names}", errors.DataWarning)
    if spec.problem.groups is not None and spec.problem.target_variances is not None:
        errors.warn(
            "several targets of a dataset are fitted together, without leaving out groups: their "
            "standard deviations are those of rows of known groups; fit one target per dataset, or "
            "rows in memory",
            errors.AccuracyWarning,
        )
    far_targets = outliers(spec, source, executor)
    if far_targets:
        errors.warn(
            f"{far_targets}, so they decide the fit: set `Warp(target='asinh')` (`--warp-target "
            "asinh`), or drop them",
            errors.DataWarning,
        )
    return far_targets


def warn_of_fit(outcome: Outcome, spec: FitSpec, remarks: list[str]) -> None:
    """Warn about defects of a finished fit, such as a noise estimate at its floor or the memory
    limit."""
    last = outcome.last
    schedule = spec.plan.schedule
    if last is None or last.kind in ("early", "part"):
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
    ends = {outcome.reason}
    if last.kind == "final":  # rounds need not converge
        ends.add(last.termination)
    limits = {Termination.MEMORY, Termination.ITERATIONS}
    if schedule.has_rounds and not schedule.selects:
        limits.add(Termination.VECTORS)
    for reason in ends & limits:
        errors.warn(reason.advice, errors.LimitWarning)


def warn_without_vectors(spec: FitSpec, driver: Driver) -> None:
    """Warn that a fit ended without relevance vectors, and whether other methods predict left-out
    rows better."""
    problem = spec.problem
    if not problem.target_variance or problem.empty.functions is not None:
        return
    predicted = problem.likelihood.prediction_without_vectors
    verdict: Verdict | None = None
    judges = spec.request.reference != "none" and spec.plan.machine.limit >= COMPARED_MEMORY
    if judges and driver.interrupted() is None:
        with suppress(errors.PartirvmError):  # a finished fit does not fail because of its report
            verdict = judged(spec, driver.source, driver.executor)
    if verdict is None or (spec.plan.learned is None and not verdict.better):
        errors.warn(
            f"no relevance vector is left, so the model predicts the {predicted}: the kernel does "
            "not fit these data; try another gamma",
            errors.DataWarning,
        )
        return
    loss = problem.likelihood.loss_name
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
    trees = "basis='trees', " if verdict.better == BOOSTING else ""
    errors.warn(
        f"no relevance vector is left, so the model predicts the {predicted}; on "
        f"{verdict.rows:,} left-out rows, its {loss} is {verdict.own:.3g}, that of "
        f"{verdict.better} {verdict.losses[verdict.better]:.3g}: try {trees}another kernel, such "
        "as kernel='matern32', more rows, or transformed features",
        errors.AccuracyWarning,
    )


def warn_of_residuals(outcome: Outcome, spec: FitSpec) -> None:
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


def lost(judged: dict[str, Any]) -> str:
    """Return a remark if the search has not found a kernel that predicts as well as its rivals, or
    "", given their errors."""
    if not judged.get("lost") or judged["error"] < CLEARLY_LOST * judged["rival_error"]:
        return ""
    advice = TREE_ADVICE if judged["rival"] == TREES else ""
    rows = " and ".join(f"{count:,}" for count in judged["levels"])
    return (
        f"{judged['rival']} have an RMSE of {judged['rival_error']:.3g} of the target's deviation "
        f"on {judged['rows']:,} rows that taught nothing, the best kernel found "
        f"{judged['error']:.3g} (+{judged['error'] / judged['rival_error'] - 1:.0%}), although "
        f"the search continued on {rows} rows: {advice}transformed features, categories declared "
        "as such, or basis functions for the missing structure may help"
    )
