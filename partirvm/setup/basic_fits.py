"""Basic RVM fits of a sample: all sample rows are candidates, and the fits use no other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.stopping import StopRule
from partirvm.core.termination import Termination
from partirvm.kernels import Kernel, Several
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Fit, RunningFit
from partirvm.likelihoods.columns import survivors
from partirvm.likelihoods.gaussian import Solve, rebase, settle
from partirvm.likelihoods.gaussian_passes import GramPass, ResidualPass
from partirvm.likelihoods.laplace import Newton, Start
from partirvm.setup.sample import SampledRows
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.rules import INTERMEDIATE, REBASES, final_rule

Float = NDArray[np.float64]

CLASS_CANDIDATES = 100
"""Maximum number of candidates of a basic RVM of classes, since the cost of a pass grows with their square.

It was not compared with other values.
"""

DRAW = 6
"""Number that makes the random candidates different from other draws with the same seed."""


def fits_at(
    sample: SampledRows, problem: Problem, options: Options, kernels: Sequence[Kernel | Several]
) -> list[tuple[Design, Float]]:
    """Fit one basic RVM per kernel; return for each kernel the columns kept and the posterior mean (M, C).

    The fits use the looser tolerance of intermediate fits. The errors of two widths differ clearly long before the
    fits have converged to the final tolerance.
    """
    problems = [replace(problem, empty=replace(problem.empty, kernel=kernel)) for kernel in kernels]
    rows = sample.rows.rows
    if problem.classifies and len(rows) > CLASS_CANDIDATES:
        rows = np.sort(np.random.default_rng((options.seed, DRAW)).permutation(rows)[:CLASS_CANDIDATES])
    designs = [sample.candidates(each, rows)[1] for each in problems]
    rule = replace(final_rule(options), tol=INTERMEDIATE * options.tol, guard=False)
    likelihood: Any = problem.likelihood
    if problem.classifies:
        start, rule = Start.of(likelihood.start(problem)), replace(rule, max_iterations=options.max_passes, guard=False)
        tasks = [Newton(design, likelihood, start, rule, len(design.labels)) for design in designs]
        found = [course.fit for course in _newton(sample, tasks)]
        return [(survivors(design, fit), fit.mean) for design, fit in zip(designs, found, strict=True)]
    solves = _solves(sample, problems, designs, rule)
    fits = [solution.fit for solution in sample.solve(solves)]
    return [(survivors(design, fit), fit.posterior.means) for design, fit in zip(designs, fits, strict=True)]


def fit_to_the_end(
    sample: SampledRows, problem: Problem, options: Options, design: Design
) -> tuple[Design, Fit, Termination]:
    """Fit these columns to the final tolerance; return the columns kept, the fit and the reason for its end."""
    rule = final_rule(options)
    likelihood: Any = problem.likelihood
    if problem.classifies:
        start, rule = Start.of(likelihood.start(problem)), replace(rule, max_iterations=options.max_passes, guard=False)
        task = Newton(design, likelihood, start, rule, len(design.labels), prior=problem.prior)
        (course,) = _newton(sample, [task])
        assert course.reason is not None
        return survivors(design, course.fit), course.fit, course.reason
    (block,) = sample.run(_gram(problem, design))
    nothing = likelihood.start(problem)
    fit = likelihood.restart(problem, options, nothing, likelihood.warm(nothing), design, block)
    del block
    rebases, reason = 0, Termination.CANCELLED
    while True:
        (solution,) = sample.solve(
            [Solve(fit, rule if rebases < REBASES else replace(rule, guard=False), len(design.labels))]
        )
        fit, reason = solution.fit, solution.reason
        design = survivors(design, fit)
        (residual,) = sample.run(ResidualPass(design, fit.posterior.means))
        if reason is not Termination.CANCELLED:
            return design, settle(fit, residual), reason
        fit, rebases = rebase(fit, residual), rebases + 1


def _solves(sample: SampledRows, problems: list[Problem], designs: list[Design], rule: StopRule) -> list[Solve]:
    blocks = sample.run(*map(_gram, problems, designs))
    return [
        Solve(
            problem.likelihood.join(problem.likelihood.start(problem), problem.empty, design, block),
            rule,
            len(design.labels),
        )
        for problem, design, block in zip(problems, designs, blocks, strict=True)
    ]


def _gram(problem: Problem, design: Design) -> GramPass:
    return GramPass(problem.empty, design, np.zeros((0, len(design.scaling.t_shift))))


def _newton(sample: SampledRows, tasks: Sequence[Newton]) -> list[RunningFit]:
    """Run several classification fits together, so that one reading of the rows serves the next pass of each fit."""
    running: list[RunningFit] = [task.begun() for task in tasks]
    while going := [k for k, course in enumerate(running) if course.reason is None]:
        blocks: list[Any] = sample.run(*(running[k].next_pass for k in going))
        for k, block in zip(going, blocks, strict=True):
            running[k] = running[k].advance(block, sample.check_interrupted)
    return running
