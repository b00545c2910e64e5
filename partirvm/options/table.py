"""The request, and with it the table of options: name, type, default, check, group and text of each, once.

The constructors of the estimators, the values that they take (``options.values``), the flags of ``partirvm fit``, the
checks follow from this table.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from partirvm.options.constraints import MOST_NEIGHBOURS, POSITIVE, SWITCH, Check, Option, one_of, option

# The words that options take, as types
StrategyName: TypeAlias = Literal["auto", "basic", "split-merge", "incremental", "working-set"]
Selection: TypeAlias = Literal["auto", "error", "largest-error", "random", "gain"]
FitRows: TypeAlias = Literal["auto", "full", "growing", "sample"]
SolverName: TypeAlias = Literal["auto", "fixed-point", "fast"]
Gamma: TypeAlias = Literal["auto", "scale", "learn", "learn-per-feature"] | float | Sequence[float]
MultiClass: TypeAlias = Literal["auto", "pooled", "multinomial"]
Metric: TypeAlias = Literal["auto", "widths", "directions"]
InputWarp: TypeAlias = Literal["auto", "none"]
TargetWarp: TypeAlias = Literal["none", "log", "asinh", "auto"]
KernelStore: TypeAlias = Literal["auto", "memory", "zarr", "none"]
Effort: TypeAlias = Literal["quick", "balanced", "thorough"]
Reference: TypeAlias = Literal["auto", "none"]
Residual: TypeAlias = Literal["auto", "none", "local"]
NoiseForm: TypeAlias = Literal["auto", "constant", "local"]
Auto: TypeAlias = Literal["auto"]
Estimate: TypeAlias = Literal["estimate"]

COUNT, NUMBER_OR_AUTO = Check("whole", least=1, optional=True), Check("whole", least=1, words=("auto",))

everyday, of_kernel, of_strategy = (partial(option, group) for group in ("everyday", "kernel", "strategy"))
of_noise, of_resources = (partial(option, group) for group in ("noise and priors", "resources"))


@dataclass(frozen=True)
class Request:
    """What a user asks of a fit: flat, and plain JSON once it is checked, which goes into a job's spec.

    ``kernel`` is a name, a function's ``module:function``, a kernel or its spec, or a callable, which no job can hold;
    or a list of such, which centres have side by side; None and "none" stand for no kernel. ``basis`` is "linear", a
    function's ``module:function``, a callable, which no job can hold, or a list of such. ``gamma`` is a rule's name, a
    number or one number per feature. Words are plain texts here. The texts below are the help of the
    flags.

    Parameters
    ----------
    kernel
        Kernel: "auto" (the family of largest evidence among "gaussian", "matern52" and "matern32", if gamma is learned
        for a regression; otherwise "gaussian"), "gaussian" (or "rbf"), "laplacian", "matern32", "matern52",
        "polynomial", "categorical", "linear", "linear-spline", "none" (only the functions of basis), or
        "module:function", a Python function of points (n, d) and centres (m, d) that returns k (n, m); every worker
        must be able to import it.
    gamma
        Inverse squared width of the kernel on standardised features: exp(−gamma·distance²) for "gaussian". A number,
        one number per feature, "scale" (1 / number of features), "learn" (one width, of largest evidence),
        "learn-per-feature" (one width per feature; irrelevant features are switched off), or "auto" (learned per
        feature or, for a regression, per learned direction of the features; up to 2,000 rows, rows left out decide
        which, for classes whether one width will do). Not used by "linear", "linear-spline" and functions.
    strategy
        How rows become candidates: "basic" (all rows in one fit, for some thousand rows), "split-merge" (partitions of
        P rows are fitted side by side and their vectors merged in pairs), "incremental" (one partition after the other
        joins the vectors kept so far), "working-set" (in each round the P most promising rows join them), or "auto"
        ("basic" up to 200 rows, "working-set" above).
    partition_size
        P, the number of candidates that join in one fit; "auto" derives it from the sparsity of a basic RVM on
        √(rows·features) random rows.
    max_vectors
        Maximum number of relevance vectors.  [default: no limit]
    max_rounds
        Maximum number of rounds of "working-set" or "incremental".  [default: no limit]
    effort
        When the rounds of "working-set" end: if twice the work would lower the error by less than about 20 % ("quick")
        or 5 % ("balanced"; the log loss of classes 3 %), or if the evidence no longer rises ("thorough"). "quick" also
        learns the kernel from fewer rows.
    time_limit
        Time after which the fit ends and keeps its model, such as 90s, 15m or 8h; kernel learning and planning
        count.  [default: no limit]
    memory_limit
        Maximum resident memory of each process, such as 512MiB or 2GiB; "auto" is 70 % of the memory of the machine,
        container or worker.
    classify
        Refuse DATA with a numeric target; `ingest --classes` marks a target as a class.
    seed
        Seed of all random choices.
    standardize
        Shift and scale features and numeric targets by their mean and standard deviation.
    basis
        Basis functions beside those of the kernel, each with its own α: "linear" (the features), "module:function", a
        Python function of rows (n, d) that returns φ (n, B), or several of these.  [default: only those of the kernel]
    fit_intercept
        Add a bias, one basis function with its own α.
    gamma_multiples
        Several kernel widths at once, for targets with structure of several sizes. Multiples of gamma, such as 1,8,64:
        each candidate row has one basis function for each multiple. If gamma is learned, the multiples are its start.
    metric
        Distances in a learned "gaussian", "matern52" or "matern32" kernel: "widths" (a width per feature), "directions"
        (learned combinations of up to 45 features, each with a width), or "auto" (if gamma is "auto", directions where
        they predict better: up to 2,000 rows on held-out rows, above by evidence; else widths).
    warp
        Skewed features: "auto" (where that raises the evidence, a feature with a long tail counts by the inverse
        hyperbolic sine of its distance from a centre, a smooth logarithm; if gamma is "auto") or "none".
    warp_target
        Fit the target as it is ("none"), its logarithm ("log"), or the inverse hyperbolic sine of its distance from a
        centre ("asinh"), or what of these has the largest evidence on some rows ("auto"). Means, deviations and
        intervals are those of the target; training errors and noise those of what is fitted.
    kernel_store
        Where kernel values are kept between passes: "memory" (what the fit leaves of memory_limit), "zarr" (on disk
        beside the job), "none" (evaluated in every pass), or "auto" ("memory" for two classes and "multinomial", whose
        passes repeat their columns, otherwise "none"). The result does not depend on it.
    selection
        How the working set selects its next candidates: "error" (largest error among many random rows), "largest-error"
        (among all rows), "random", "gain" (largest gain of evidence in a random pool), or "auto" ("error"). Of classes
        rows of large error are drawn.
    fit_rows
        Rows that all fits before the last one use: "full" (all rows), "growing" (a random sample that grows with the
        number of columns, for "working-set"), "sample" (one random sample), or "auto" ("full"; of many rows "growing",
        or "sample" for "split-merge" and "incremental").
    sample_rows
        Number of rows of the random sample of fit_rows="sample", or of the first sample of "growing"; "auto" is 20·P or
        100·P.
    stop_fraction
        Fits before the last one end when the number of vectors falls to this fraction of their candidates.
    solver
        How the evidence is maximised: "fixed-point" (all precisions together), "fast" (one column at a time, the one
        with the largest gain), or "auto" (the fixed point; the last fit of a regression then adds columns again while
        that raises the evidence).
    max_iterations
        Maximum number of iterations of one fit, or of its passes for two classes and multinomial.  [default: 500
        iterations, 200 passes]
    tol
        The last fit has converged when the evidence changes by less than this number of nats per row.
    noise_variance
        Variance of the noise in the target's unit squared: a number, or "estimate".
    noise
        Noise variance: "constant", "local" (it depends on the inputs), or "auto" ("local" if rows left out are
        predicted clearly better).
    residual
        Whether the errors of the nearest training rows correct each prediction of a regression: "none", "local" (the
        model then keeps these rows), or "auto" ("local" if, of 1,000 rows and more with 4 targets at most, rows left
        out are predicted with an error lower by 5 % or a log density higher by 0.05 nats, and the rows fit in memory or
        in files of a job).
    neighbours
        Maximum number of nearest training rows whose errors correct a prediction; a third or two thirds of it where
        more gain less than half a per cent of the error.
    residual_family
        Correlation of the errors of near rows: "exponential", "matern32", "matern52", or "auto" (the one that corrects
        rows left out best).
    reference
        After a fit of at least 1,000 rows with a learned kernel: compare the model with boosted trees on rows left out,
        and warn if they are clearly better ("auto"), or do not ("none").
    noise_prior
        Shape and rate (c, d) of a Gamma prior on the noise precision 1/σ²; it counts like 2c more rows with a sum of
        squared residuals of 2d, in the target's unit squared. 0,0 is flat.
    alpha_prior
        Shape and rate (a, b) of a Gamma prior on the precision α of each weight of the standardised problem. 0,0 is
        flat.
    fixed_alpha
        Fixed precisions α of the bias and of basis functions, by name.  [default: none]
    multi_class
        Model of classes: "pooled" (least squares on indicators of the classes, calibrated by rows left out),
        "multinomial" (logistic link or softmax), or "auto" ("pooled" of more than two classes or 50,000 rows).
    moderate
        Class probabilities include the uncertainty of the weights; not those of pooled, which are calibrated by rows
        left out.  [default: with two classes and at most 10,000 rows]
    class_weight
        Weights of the rows of each class: "balanced" (equal total weight of all classes), or LABEL=WEIGHT,… (1 for
        classes not named).  [default: 1]
    """

    kernel: Any = everyday("auto")
    gamma: Any = everyday("auto")
    strategy: str = everyday("auto", one_of(StrategyName))
    partition_size: int | str = everyday("auto", NUMBER_OR_AUTO)
    max_vectors: int | None = everyday(None, COUNT)
    max_rounds: int | None = everyday(None, COUNT)
    effort: str = everyday("balanced", one_of(Effort))
    time_limit: float | str | None = everyday(None, Check("seconds", optional=True))
    memory_limit: int | str = everyday("auto", Check("bytes", words=("auto",)))
    classify: bool | None = everyday(None, Check("switch", optional=True))
    seed: int = everyday(0, Check("whole", least=0))
    standardize: bool = everyday(True, SWITCH)
    basis: Any = of_kernel(None)
    fit_intercept: bool = of_kernel(True, SWITCH, flag_name="intercept")
    gamma_multiples: tuple[float, ...] = of_kernel((1.0,), Check("numbers", above=0.0), metavar="F,G,..")
    metric: str = of_kernel("auto", one_of(Metric))
    warp: str = of_kernel("auto", one_of(InputWarp))
    warp_target: str = of_kernel("none", one_of(TargetWarp))
    kernel_store: str = of_resources("auto", one_of(KernelStore))
    selection: str = of_strategy("auto", one_of(Selection))
    fit_rows: str = of_strategy("auto", one_of(FitRows), flag_name="likelihood")
    sample_rows: int | str = of_strategy("auto", NUMBER_OR_AUTO, flag_name="likelihood-rows")
    stop_fraction: float = of_strategy(0.5, Check("real", least=0.0, below=1.0))
    solver: str = of_strategy("auto", one_of(SolverName))
    max_iterations: int | None = of_strategy(None, COUNT)
    tol: float = of_strategy(1e-07, POSITIVE)
    noise_variance: float | str = of_noise("estimate", Check("name", above=0.0, words=("estimate",)))
    noise: str = of_noise("auto", one_of(NoiseForm))
    residual: str = of_noise("auto", one_of(Residual))
    neighbours: int = of_noise(60, Check("whole", least=2, below=MOST_NEIGHBOURS + 1))
    residual_family: str = of_noise("auto", Check("word", ("auto", "exponential", "matern32", "matern52")))
    reference: str = of_noise("auto", one_of(Reference))
    noise_prior: tuple[float, float] = of_noise((0.0, 0.0), Check("numbers", least=0.0, size=2), metavar="C,D")
    alpha_prior: tuple[float, float] = of_noise((0.0, 0.0), Check("numbers", least=0.0, size=2), metavar="A,B")
    fixed_alpha: Mapping[str, float] | None = of_noise(None, Check("by name", optional=True), metavar="NAME=ALPHA,..")
    multi_class: str = of_noise("auto")
    moderate: bool | str = of_noise("auto", Check("switch", words=("auto",)))
    class_weight: Any = of_noise(None, metavar="W")


_ENTRIES = re.findall(r"^(\w+)\n((?: {4}.+\n?)+)", inspect.cleandoc(Request.__doc__ or ""), re.MULTILINE)
_TEXTS = {name: " ".join(map(str.strip, text.splitlines())) for name, text in _ENTRIES}

TABLE: dict[str, Option] = {
    each.name: replace(each.metadata["option"], name=each.name, help=_TEXTS.get(each.name, ""))
    for each in fields(Request)
}
"""Every option by name."""


def check(request: Request) -> Request:
    """Return the request with texts turned into numbers. Raises ``UsageError`` naming the option that cannot be.

    The kernel, the basis, the names of likelihoods, and options that exclude each other are checked by ``resolve``.
    """
    return replace(request, **{name: row.check(name, getattr(request, name)) for name, row in TABLE.items()})
