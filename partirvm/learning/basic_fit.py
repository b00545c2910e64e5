"""A basic RVM on rows in memory."""

from dataclasses import replace
from typing import Any

from partirvm.kernels.design import Design
from partirvm.learning.sample import SampledRows
from partirvm.spec.problem import Options, PassFit, Problem
from partirvm.strategies.stages import INTERMEDIATE, final_rule


def basic_fit(sample: SampledRows, problem: Problem, design: Design, options: Options) -> Any:
    """Fit the columns of a design to a sample, with the tolerance of intermediate fits; return the
    fit and its reason to end.

    Args:
        sample: the rows
        problem: the problem with its kernel
        design: the candidates
        options: options of the fit
    """
    likelihood = problem.likelihood
    options = replace(options, tol=INTERMEDIATE * options.tol)
    rule = replace(final_rule(options), guard=False)
    start = likelihood.start(problem)
    statistics = sample.run(*likelihood.measure(start, problem.empty, design, None))
    begun = likelihood.join(problem, start, problem.empty, design, *statistics)
    solved: Any = likelihood.fit(problem, options, design, begun, rule, None, None)
    if isinstance(solved, PassFit):
        while solved.reason is None:
            (block,) = sample.run(solved.next_pass)
            solved = solved.advance(block, sample.check_interrupted)
        return solved
    (solved,) = sample.executor.solve([solved], lambda done, total: sample.check_interrupted())
    return solved
