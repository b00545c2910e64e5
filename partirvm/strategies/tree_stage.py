"""The last stage of a fit with boosted trees: their share in its predictions, and the uncertainty
of the mixture.

Neither the fit nor the trees have learned from the rows that determine the share; the intervals of
the mixture are calibrated on the same rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from partirvm.core.diagnostics import NO_ENDS, NumberDiagnostics
from partirvm.core.left_out import LeftOut, inside_95, recalibrated
from partirvm.core.scores import MOST_TARGETS
from partirvm.core.stacking import LeftOutNumbers
from partirvm.spec.problem import NO_TREES, Problem
from partirvm.strategies.instructions import FitTrees, TreesFitted
from partirvm.types import Float


def requests_trees(state: Any) -> bool:
    """Return True if boosted trees are to be learned for a fit, which is a last one to all rows."""
    return bool(state.options.trees != NO_TREES and state.options.last_rows == "full")


def request_of(state: Any, left_out: Sequence[LeftOut]) -> FitTrees | None:
    """Return the request for boosted trees; None if the rows of numbers were not left out.

    Args:
        state: the settled state, with local residuals
        left_out: errors of left-out rows of the fit alone, for each target: of left-out groups, if
            there are any, and then of rows of known groups
    """
    request = FitTrees(state.problem, state.options, state.design, state.fit)
    if not state.problem.likelihood.has_noise:
        return request
    fit = state.fit
    if not left_out or fit.fixed_noise:
        return None
    corrected = state.local.left_out
    if fit.of_known_groups is not None:
        of_groups, of_rows = left_out
        of_known = fit.of_known_groups.noise_variance
        numbers = (
            left_out_numbers([fit.calibration.noise_variance], [of_groups]),
            corrected or left_out_numbers([of_known], [of_rows]),
        )
        return replace(request, numbers=numbers)
    if corrected is not None:
        return replace(request, numbers=(corrected,), residuals=state.local.residuals)
    noise = noise_variances(fit, left_out)
    if fit.calibration is not None:
        noise = [fit.calibration.noise_variance]
    return replace(request, numbers=(left_out_numbers(noise, left_out),))


def noise_variances(fit: Any, left_out: Sequence[LeftOut]) -> list[float]:
    """Return the noise variance of each target that the errors of left-out rows imply."""
    variances = []
    betas = np.broadcast_to(fit.beta, len(left_out)).tolist()
    target_variances = np.broadcast_to(fit.target_variance, len(left_out)).tolist()
    for of_target, beta, variance in zip(left_out, betas, target_variances, strict=True):
        calibration = of_target.calibration(beta, variance)
        assert calibration is not None
        variances.append(calibration.noise_variance)
    return variances


def left_out_numbers(
    noise_variances: Sequence[float], left_out: Sequence[LeftOut]
) -> LeftOutNumbers:
    """Return what a fit predicts for left-out rows.

    Args:
        noise_variances: the noise variance of each target
        left_out: the rows, for each target
    """
    weights = left_out[0].targets[:, 1]
    errors = []
    deviations = []
    for noise_variance, of_target in zip(noise_variances, left_out, strict=True):
        of_rows, variances = of_target.expected()
        errors.append(of_rows / np.sqrt(weights))
        deviations.append(np.sqrt((variances + noise_variance) / weights))
    return LeftOutNumbers(
        rows=left_out[0].rows,
        targets=np.column_stack([of_target.targets[:, 0] for of_target in left_out]),
        errors=np.column_stack(errors),
        deviations=np.column_stack(deviations),
        weights=weights,
        groups=left_out[0].groups,
    )


def with_share(state: Any, request: FitTrees, trees: TreesFitted) -> Any:
    """Return a state with boosted trees, whose uncertainty is that of the mixture.

    Args:
        state: the settled state
        request: the request for the trees
        trees: the answer
    """
    state = replace(state, trees=trees, local=replace(state.local, left_out=None))
    if trees.share is None or not request.numbers:
        return state
    shares = (trees.share, trees.share.known or trees.share)
    mixed = [
        numbers.mixed(predictions, share.share).scaled(share.spreads)
        for numbers, predictions, share in zip(
            request.numbers, trees.predictions, shares, strict=False
        )
    ]
    diagnostics = tuple(
        _diagnostics(state.problem, mixed[0], target)
        for target in range(min(mixed[0].errors.shape[1], MOST_TARGETS))
    )
    state = replace(state, trees=replace(trees, diagnostics=diagnostics))
    if len(mixed) > 1:
        of_groups = recalibrated(state.fit.calibration, *_standardised(mixed[0], 0), grouped=True)
        state = replace(state, fit=replace(state.fit, calibration=of_groups))
    of_rows = mixed[-1]
    residuals = state.local.residuals
    if residuals is not None:
        calibrations = tuple(
            recalibrated(calibration, *_standardised(of_rows, target))
            for target, calibration in enumerate(residuals.calibrations)
        )
        residuals = replace(residuals, calibrations=calibrations)
        return replace(state, local=replace(state.local, residuals=residuals))
    if state.fit.calibration is None:  # several targets
        return state
    name = "calibration" if len(mixed) == 1 else "of_known_groups"
    calibration = recalibrated(getattr(state.fit, name), *_standardised(of_rows, 0))
    return replace(state, fit=replace(state.fit, **{name: calibration}))


def _standardised(numbers: LeftOutNumbers, target: int) -> tuple[Float, Float]:
    """Return the errors of a target in units of their standard deviations (m,), and these
    deviations for rows of weight 1 (m,)."""
    deviations = numbers.deviations[:, target]
    return numbers.errors[:, target] / deviations, deviations * np.sqrt(numbers.weights)


def _diagnostics(problem: Problem, numbers: LeftOutNumbers, target: int) -> NumberDiagnostics:
    """Return the diagnostics of left-out rows in a target's units, without coverage: these rows
    calibrate the intervals."""
    scaling = problem.empty.scaling
    t = numbers.targets[:, target]
    errors = numbers.errors[:, target]
    deviations = numbers.deviations[:, target]
    diagnostics = NumberDiagnostics.of(t, t - errors, deviations, numbers.rows, NO_ENDS)
    diagnostics = replace(diagnostics, inside=inside_95(np.abs(errors) / deviations))
    return diagnostics.scaled(scaling.t_shift[target], scaling.t_scale[target], scaling.target)
