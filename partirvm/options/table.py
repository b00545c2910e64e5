"""The request, which defines the table of options: the name, type, default, check, group and help
text of each.

The estimator constructors, the values that they accept (``options.values``), the flags of
``partirvm fit`` and the checks are derived from this table.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from partirvm.options.constraints import (
    MOST_NEIGHBOURS,
    POSITIVE,
    SWITCH,
    Check,
    Option,
    one_of,
    option,
)

# The words that options accept, as types
StrategyName: TypeAlias = Literal["auto", "basic", "split-merge", "incremental", "working-set"]
Selection: TypeAlias = Literal["auto", "error", "largest-error", "random", "gain"]
FitRows: TypeAlias = Literal["auto", "full", "growing", "sample"]
SolverName: TypeAlias = Literal["auto", "fixed-point", "fast"]
Gamma: TypeAlias = (
    Literal["learn", "learn-shared", "learn-per-feature", "scale"] | float | Sequence[float]
)
ClassLikelihood: TypeAlias = Literal["auto", "pooled", "multinomial"]
Metric: TypeAlias = Literal["auto", "widths", "directions"]
AutoOrNone: TypeAlias = Literal["auto", "none"]
TargetWarp: TypeAlias = Literal["none", "log", "asinh", "auto"]
KernelStore: TypeAlias = Literal["auto", "memory", "zarr", "none"]
Effort: TypeAlias = Literal["quick", "balanced", "thorough"]
Residual: TypeAlias = Literal["auto", "none", "local"]
NoiseForm: TypeAlias = Literal["auto", "constant", "local"]
Auto: TypeAlias = Literal["auto"]

COUNT = Check("whole", least=1, optional=True)
NUMBER_OR_AUTO = Check("whole", least=1, words=("auto",))

everyday = partial(option, "everyday")
of_kernel = partial(option, "kernel")
of_strategy = partial(option, "strategy")
of_noise = partial(option, "noise and priors")
of_resources = partial(option, "resources")


@dataclass(frozen=True)
class Request:
    """The options of a fit as a flat record. Once checked, it is plain JSON and part of a job's
    spec.

    ``kernel`` is a name, a function as ``module:function``, a kernel or its spec, a callable (which
    a job cannot store), or a list of these, in which case each centre has one basis function per
    kernel; None and "none" mean no kernel. ``basis`` is "linear", a function as
    ``module:function``, a callable (which a job cannot store), or a list of these. ``gamma`` is the
    name of a rule, a number or one number per feature. Words are plain strings here. The
    descriptions below are the help text of the flags.

    Parameters
    ----------
    kernel
        Kernel: "auto" (learned), "gaussian", "matern52", "matern32", "laplacian", "anova",
        "polynomial", "categorical", "linear", "linear-spline", "none", or "module:function"
        (see Kernels in the guide).
    gamma
        Inverse squared width of the kernel: "learn", "learn-shared", "learn-per-feature", "scale",
        a number, or one number per feature (see Kernels in the guide).
    max_vectors
        Maximum number of relevance vectors. A fit of all rows at once deletes the others in steps.
        [default: no limit]
    max_rounds
        Maximum number of rounds for "working-set" or "incremental".  [default: no limit]
    effort
        When the "working-set" rounds end: once doubling the work would lower the error by less than
        about 20 % ("quick") or 5 % ("balanced"; for classes, the log loss by less than 3 %), or
        once the evidence stops rising ("thorough"). "quick" also learns the kernel from fewer rows.
    noise
        Noise variance: a number (fixed, in squared units of the target), "constant" (estimated),
        "local" (depends on the inputs), or "auto" ("local" if it predicts left-out rows clearly
        better).
    memory_limit
        Maximum resident memory of each process, for example 512MiB or 2GiB; "auto" means 70 % of
        the memory of the machine, container or worker.
    seed
        Seed for all random choices.
    time_limit
        Time after which the fit ends and keeps its model, for example 90s, 15m or 8h. It includes
        kernel learning and planning.  [default: no limit]
    strategy
        How rows become candidates: "basic" (all rows in one fit, for a few thousand rows),
        "split-merge" (partitions of P rows are fitted in parallel and their vectors are merged in
        pairs), "incremental" (one partition after another joins the vectors kept so far),
        "working-set" (in each round, the P most promising rows join the vectors kept so far), or
        "auto" ("basic" for up to 200 rows, "working-set" for more).
    partition_size
        P, the number of candidates added in each fit; "auto" derives it from the sparsity of a
        basic RVM fitted to √(rows·features) random rows.
    classify
        Refuse a dataset with a numeric target; `ingest --classes` marks a target as a class.
    standardize
        Standardise features and numeric targets using their means and standard deviations.
    basis
        Basis functions in addition to those of the kernel, each with its own α: "linear" (the
        features), "module:function" (a Python function from rows (n, d) to φ (n, B)), or several of
        these. With "trees", predictions are weighted means of those of the fit and of boosted
        trees, which see jumps; left-out rows determine the weights. "auto" means "trees" if these
        clearly lower the errors of left-out rows.  [default: only those of the kernel]
    tree_rounds
        Maximum number of boosted trees per target, or per class, for basis="trees": boosting ends
        when a left-out fold no longer gains.
    fit_intercept
        Add a bias, a constant basis function with its own α.
    gamma_multiples
        Multiples of gamma, for example 1,8,64, that give several kernel widths at once, for targets
        with structure at several scales: each candidate row offers one basis function per multiple.
        If gamma is learned, learning starts from these multiples.
    metric
        How a learned "gaussian", "matern52" or "matern32" kernel measures distances: "widths" (one
        width per feature), "directions" (learned combinations of up to 45 features, each with a
        width), or "auto" (if gamma is "learn", "directions" if they predict better, judged on
        left-out rows for up to 2,000 rows and by the evidence for more; otherwise "widths").
    warp
        Transformation of skewed features: "auto" (if gamma is "learn" and this raises the evidence,
        a long-tailed feature is replaced by the inverse hyperbolic sine of its distance from a
        centre, a smooth logarithm) or "none".
    warp_target
        Fit the target as it is ("none"), its logarithm ("log"), the inverse hyperbolic sine of its
        distance from a centre ("asinh"), or whichever of these has the largest evidence on a sample
        of rows ("auto"). Predicted means, standard deviations and intervals refer to the target
        itself; training errors and noise refer to the transformed target.
    kernel_store
        Where kernel values are stored between passes: "memory" (in the part of memory_limit that
        the fit does not need), "zarr" (on disk, in the job folder), "none" (they are recomputed in
        every pass), or "auto" ("memory" for multinomial classes, whose passes reuse the same
        columns; otherwise "none"). The result does not depend on this option.
    selection
        How the working set selects its next candidates: "error" (largest errors among many random
        rows), "largest-error" (largest errors among all rows), "random", "gain" (largest evidence
        gains in a random pool), or "auto" (the same as "error"). In classification, "error" draws
        rows at random, favouring those with large errors.
    fit_rows
        Rows used by all fits except the last: "full" (all rows), "growing" (a random sample that
        grows with the number of columns, for "working-set"), "sample" (one random sample), or
        "auto" ("full"; with many rows, "growing", or "sample" for "split-merge" and "incremental").
    sample_rows
        Number of rows in the random sample for fit_rows="sample", or in the first sample for
        "growing"; "auto" means 20·P or 100·P.
    stop_fraction
        All fits except the last end once the number of vectors falls to this fraction of the number
        of candidates.
    solver
        How the evidence is maximised: "fixed-point" (updates all precisions together), "fast"
        (updates one column at a time, the one with the largest gain), or "auto" ("fixed-point"; the
        last fit of a regression then adds columns back as long as this raises the evidence).
    max_iterations
        Maximum number of iterations per fit or, for multinomial classes, of passes per fit.
        [default: 500 iterations, 200 passes]
    tol
        The last fit has converged once the log evidence changes by less than this amount per row.
    residual
        Whether a regression corrects each prediction with the errors of the nearest training rows:
        "none", "local" (the model then keeps the training rows), or "auto" ("local" if there are at
        least 400 rows and at most 4 targets, the correction raises the log density of left-out rows
        by 0.02 nats per row or lowers their error by 2 %, and the rows fit in memory or in the
        job's files).
    neighbours
        Maximum number of nearest training rows whose errors correct a prediction. Only a third or
        two thirds of this number are used if more rows would lower the error by less than half a
        per cent.
    residual_family
        Correlation function of the errors of nearby rows: "exponential", "matern32", "matern52", or
        "auto" (the one that corrects the predictions of left-out rows best).
    reference
        "auto": after a fit of at least 1,000 rows with a learned kernel, compare the model with
        boosted trees on left-out rows, and warn if the trees are clearly better. "none": skip this
        comparison.
    noise_prior
        Shape and rate (c, d) of a Gamma prior on the noise precision 1/σ². The prior counts as 2c
        additional rows with a residual sum of squares of 2d, in squared units of the target. 0,0 is
        flat.
    alpha_prior
        Shape and rate (a, b) of a Gamma prior on the precision α of each weight of the standardised
        problem. 0,0 is flat.
    fixed_alpha
        Fixed precisions α for the bias and for basis functions, by name.  [default: none]
    likelihood
        Distribution of the target: "auto"; "gaussian" for numbers; for classes, "pooled" (least
        squares on class indicators, calibrated on left-out rows) or "multinomial" (logistic link or
        softmax). "auto" is "gaussian" for numbers, "multinomial" for two overlapping classes in at
        most 50,000 rows, and "pooled" for other classes.
    moderate
        Take the uncertainty of the weights into account in class probabilities. Has no effect for
        "pooled", whose probabilities are calibrated on left-out rows.  [default: with two classes
        and at most 10,000 rows]
    class_weight
        Row weights by class: "balanced" (the same total weight for every class), or LABEL=WEIGHT,…
        (1 for classes not listed).  [default: 1]
    """

    kernel: Any = everyday("auto")
    gamma: Any = everyday("learn")
    max_vectors: int | None = everyday(None, COUNT)
    max_rounds: int | None = everyday(None, COUNT)
    effort: str = everyday("balanced", one_of(Effort))
    noise: float | str = everyday(
        "auto", Check("real", get_args(NoiseForm), above=0.0), second_flag="--noise-variance"
    )
    memory_limit: int | str = everyday("auto", Check("bytes", words=("auto",)))
    seed: int = everyday(0, Check("whole", least=0))
    time_limit: float | str | None = everyday(None, Check("seconds", optional=True))
    strategy: str = everyday("auto", one_of(StrategyName))
    partition_size: int | str = everyday("auto", NUMBER_OR_AUTO)
    classify: bool | None = everyday(None, Check("switch", optional=True))
    standardize: bool = everyday(True, SWITCH)
    basis: Any = of_kernel(None)
    tree_rounds: int = of_kernel(400, Check("whole", least=1))
    fit_intercept: bool = of_kernel(True, SWITCH, flag_name="intercept")
    gamma_multiples: tuple[float, ...] = of_kernel(
        (1.0,), Check("numbers", above=0.0), metavar="F,G,.."
    )
    metric: str = of_kernel("auto", one_of(Metric))
    warp: str = of_kernel("auto", one_of(AutoOrNone))
    warp_target: str = of_kernel("none", one_of(TargetWarp))
    kernel_store: str = of_resources("auto", one_of(KernelStore))
    selection: str = of_strategy("auto", one_of(Selection))
    fit_rows: str = of_strategy("auto", one_of(FitRows))
    sample_rows: int | str = of_strategy("auto", NUMBER_OR_AUTO, second_flag="--likelihood-rows")
    stop_fraction: float = of_strategy(0.5, Check("real", least=0.0, below=1.0))
    solver: str = of_strategy("auto", one_of(SolverName))
    max_iterations: int | None = of_strategy(None, COUNT)
    tol: float = of_strategy(1e-07, POSITIVE)
    residual: str = of_noise("auto", one_of(Residual))
    neighbours: int = of_noise(60, Check("whole", least=2, below=MOST_NEIGHBOURS + 1))
    residual_family: str = of_noise(
        "auto", Check("word", ("auto", "exponential", "matern32", "matern52"))
    )
    reference: str = of_noise("auto", one_of(AutoOrNone))
    noise_prior: tuple[float, float] = of_noise(
        (0.0, 0.0), Check("numbers", least=0.0, size=2), metavar="C,D"
    )
    alpha_prior: tuple[float, float] = of_noise(
        (0.0, 0.0), Check("numbers", least=0.0, size=2), metavar="A,B"
    )
    fixed_alpha: Mapping[str, float] | None = of_noise(
        None, Check("by name", optional=True), metavar="NAME=ALPHA,.."
    )
    likelihood: str = of_noise("auto", second_flag="--multi-class")
    moderate: bool | str = of_noise("auto", Check("switch", words=("auto",)))
    class_weight: Any = of_noise(None, metavar="W")

    @property
    def estimates_noise(self) -> bool:
        """True if a Gaussian noise variance is estimated; false if it is given, or if another
        likelihood was requested."""
        return isinstance(self.noise, str) and self.likelihood in ("auto", "gaussian")


_ENTRIES = re.findall(
    r"^(\w+)\n((?: {4}.+\n?)+)", inspect.cleandoc(Request.__doc__ or ""), re.MULTILINE
)
_TEXTS = {name: " ".join(map(str.strip, text.splitlines())) for name, text in _ENTRIES}

TABLE: dict[str, Option] = {
    each.name: replace(each.metadata["option"], name=each.name, help=_TEXTS.get(each.name, ""))
    for each in fields(Request)
}
"""Every option by name."""


def check(request: Request) -> Request:
    """Return the request with numbers parsed, or raise ``UsageError``; ``resolve`` checks kernels,
    bases and words."""
    return replace(
        request, **{name: row.check(name, getattr(request, name)) for name, row in TABLE.items()}
    )
