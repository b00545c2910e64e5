"""The request, and with it the table of options: name, type, default, check, help and group of each, once.

The constructors of the estimators, the values that they take (``options.values``), the flags of ``partirvm fit``, the
checks and the notes on options without effect follow from this table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from partirvm.options import names
from partirvm.options.constraints import (
    Anything,
    Bytes,
    Factors,
    Flag,
    GammaDensity,
    PositiveByName,
    Real,
    RealOrName,
    Seconds,
    Whole,
    one_of,
)
from partirvm.options.option import CLASSES, NUMBERS, SEVERAL_CLASSES, checked, option, table_of
from partirvm.options.option import idle as _idle

SEVERAL_FITS, ROUNDS, CHOSEN_ROWS = "several fits", "rounds", "chosen rows"
"""What an option may ask of a strategy: that candidates join in several fits, in rounds, or chosen among all rows."""

WITH_KERNEL = {"kernel": ("some",)}
"""What applies where rows offer candidates."""


@dataclass(frozen=True)
class Request:
    """What a user asks of a fit: flat, and plain JSON once it is checked, which goes into a job's spec.

    ``kernel`` is a name, a function's ``module:function``, a kernel or its spec, or a callable, which no job can hold;
    or a list of such, which centres have side by side; None and "none" stand for no kernel. ``basis`` is "linear", a
    function's ``module:function``, a callable or a transformer, which no job can hold, or a list of such. ``gamma`` is
    a rule's name, a number or one number per feature. Words are plain texts here; their types are in ``names``.
    """

    kernel: Any = option(
        "gaussian",
        Anything(),
        group="everyday",
        metavar="K",
        help="Kernel: gaussian (or rbf), laplacian, matern32, matern52, polynomial, sigmoid, categorical, linear, "
        "linear-spline, none (the functions of --basis alone), or module:function, a Python function of points and "
        "centres that can be imported here and on every worker (PYTHONPATH).",
    )
    gamma: Any = option(
        "auto",
        Anything(),
        group="everyday",
        metavar="G",
        help="Width of the kernel, exp(−G·distance²) for gaussian, between standardised rows: a number, one per "
        "feature with commas between, scale (1 / number of features), learn (the width of most evidence), "
        "learn-per-feature (one for each, which switches irrelevant features off), or auto (one per feature, or up to "
        "2,000 rows one for all where rows held out say so). Not for linear, linear-spline and functions.",
    )
    strategy: str = option(
        "auto",
        Anything(),
        group="everyday",
        metavar="S",
        applies=WITH_KERNEL,
        help="How rows become candidates: basic (all at once, for a few hundred rows), split-merge (partitions of P "
        "rows on their own, their vectors merged in pairs), incremental (one partition after the other beside the "
        "vectors kept so far), working-set (beside these the P most promising rows), or auto (basic up to 200 rows, "
        "working-set beyond).",
    )
    partition_size: int | str = option(
        "auto",
        Whole(1, ("auto",)),
        group="everyday",
        metavar="P",
        applies=WITH_KERNEL,
        help="Candidates that join in one fit; auto measures on √(rows·features) random rows how sparse the problem "
        "is.",
    )
    max_vectors: int | None = option(
        None,
        Whole(1, optional=True),
        group="everyday",
        metavar="M",
        applies=WITH_KERNEL,
        help="Most relevance vectors.  [default: no limit]",
    )
    max_rounds: int | None = option(
        None,
        Whole(1, optional=True),
        group="everyday",
        metavar="R",
        applies={"strategy": (ROUNDS,)},
        help="Most rounds of working-set or incremental.  [default: no limit]",
    )
    time_limit: float | str | None = option(
        None,
        Seconds(),
        group="everyday",
        help="End after this time, such as 90s, 15m or 8h, with the model so far.  [default: no limit]",
    )
    memory_limit: int | str = option(
        "auto",
        Bytes(),
        group="everyday",
        help="Most resident memory of each process, such as 512MiB or 2GiB; auto is 70 % of what the machine, "
        "container or worker has.",
    )
    classify: bool | None = option(
        None,
        Flag(optional=True),
        group="everyday",
        help="Refuse DATA whose target is a number: classes are those that `ingest --classes` found.",
    )
    seed: int = option(0, Whole(0), group="everyday", help="Seed of all random choices.")
    standardize: bool = option(
        True,
        Flag(),
        group="everyday",
        help="Shift and scale features and target, unless it is a class, by their mean and standard deviation.",
    )
    basis: Any = option(
        None,
        Anything(),
        group="kernel",
        metavar="B",
        help="Basis functions beside those of the kernel, each judged by evidence on its own: linear (the features), "
        "module:function, a Python function of rows that returns a column for each, or both with a comma between.  "
        "[default: the kernel's alone]",
    )
    fit_intercept: bool = option(
        True,
        Flag(),
        group="kernel",
        flag_name="intercept",
        help="Offer a bias, one basis function with its own prior, or not.",
    )
    gamma_multiples: tuple[float, ...] = option(
        (1.0,),
        Factors(),
        group="kernel",
        metavar="F,G,..",
        help="Several widths at once, for targets with structure of several sizes: each row offers a basis function "
        "for each of these times gamma, such as 1,8,64. Where gamma is learned they are where it begins.",
    )
    gamma_prior: str = option(
        "flat",
        one_of(names.GammaPrior),
        group="kernel",
        metavar="P",
        help="Prior of each feature's gamma where these are learned: flat, or half-normal, which switches more "
        "features off.",
    )
    kernel_store: str = option(
        "auto",
        one_of(names.KernelStore),
        group="resources",
        metavar="S",
        applies=WITH_KERNEL,
        help="Where kernel values are kept between passes: memory (what the fit leaves of --memory-limit), zarr "
        "(beside the job), none (evaluated in every pass), or auto: none for a regression, the fastest by "
        "measurement for classes. Changes no result.",
    )
    selection: str = option(
        "auto",
        one_of(names.Selection),
        group="strategy",
        metavar="S",
        applies={"strategy": (CHOSEN_ROWS,)},
        help="How the working set chooses its next candidates: error (largest error), random, gain (largest gain of "
        "evidence), map-weight (largest weight in a fit of all rows at once: small data), or auto (error, for classes "
        "gain).",
    )
    fit_rows: str = option(
        "auto",
        one_of(names.FitRows),
        group="strategy",
        metavar="L",
        flag_name="likelihood",
        applies={"strategy": (SEVERAL_FITS,)},
        help="Rows that fits before the last one are judged by: full (all), sample (one random sample), partition "
        "(only their own candidates, with the noise of other rows), or auto (full, but sample where full would cost "
        "split-merge or incremental too much).",
    )
    last_rows: str = option(
        "full",
        one_of(names.LastRows),
        group="strategy",
        metavar="L",
        flag_name="final-likelihood",
        help="The same for the last fit; anything but full is for comparisons.",
    )
    sample_rows: int | str = option(
        "auto",
        Whole(1, ("auto",)),
        group="strategy",
        metavar="R",
        flag_name="likelihood-rows",
        applies={"fit_rows": ("sample",)},
        help="Rows of the sample of --likelihood sample; auto is 20·P.",
    )
    noise_rows: int | None = option(
        None,
        Whole(1, optional=True),
        group="strategy",
        metavar="R",
        applies={"fit_rows": ("partition",), "target": (NUMBERS,)},
        help="Rows that give the noise of --likelihood partition.  [default: all]",
    )
    noise_every: int = option(
        1,
        Whole(1),
        group="strategy",
        metavar="K",
        applies={"fit_rows": ("partition",), "target": (NUMBERS,)},
        help="Iterations between two measurements of the noise on these rows.",
    )
    stop_fraction: float = option(
        0.5,
        Real(least=0.0, below=1.0),
        group="strategy",
        metavar="F",
        applies={"strategy": (SEVERAL_FITS,)},
        help="A fit before the last one ends when its vectors fall to this fraction.",
    )
    stop_rule: str = option(
        "candidates",
        one_of(names.StopRule),
        group="strategy",
        metavar="RULE",
        applies={"strategy": (SEVERAL_FITS,)},
        help="What it is a fraction of: candidates (those that the fit began with), or partition (P).",
    )
    heuristic_rows: int = option(
        2000,
        Whole(1),
        group="strategy",
        metavar="R",
        applies={"strategy": (SEVERAL_FITS,)},
        help="Most rows on which --partition-size auto measures.",
    )
    solver: str = option(
        "auto",
        one_of(names.SolverName),
        group="strategy",
        metavar="S",
        help="How the evidence is maximised: fixed-point (all precisions together), fast (one column at a time, that "
        "which gains most), or auto (the fixed point; in the last fit of a regression columns come back).",
    )
    updates: str = option(
        "mackay",
        one_of(names.Updates),
        group="strategy",
        metavar="U",
        help="How precisions are updated: mackay, or em (expectation maximisation: steady, and far slower).",
    )
    max_iterations: int | None = option(
        None,
        Whole(1, optional=True),
        group="strategy",
        metavar="I",
        help="Most iterations of one fit; of classes most passes.  [default: 500; of classes 200]",
    )
    tol: float = option(
        1e-7,
        Real(above=0.0),
        group="strategy",
        metavar="T",
        help="The last fit has converged when the evidence changes by less than T nats per row.",
    )
    noise_variance: float | str = option(
        "estimate",
        RealOrName(above=0.0),
        group="noise and priors",
        metavar="V",
        applies={"target": (NUMBERS,)},
        help="Variance of the noise, in the target's unit squared; or estimate.",
    )
    noise_prior: tuple[float, float] = option(
        (0.0, 0.0),
        GammaDensity(),
        group="noise and priors",
        metavar="C,D",
        applies={"target": (NUMBERS,), "noise_variance": ("estimate",)},
        help="Shape and rate of a Gamma prior on the precision of the noise: as if 2C rows more had left squared "
        "errors of 2D in all, in the target's unit squared; 0,0 is flat.",
    )
    alpha_prior: tuple[float, float] = option(
        (0.0, 0.0),
        GammaDensity(),
        group="noise and priors",
        metavar="A,B",
        help="Shape and rate of a Gamma prior on the precision of each weight; 0,0 is flat.",
    )
    fixed_alpha: Mapping[str, float] | None = option(
        None,
        PositiveByName(),
        group="noise and priors",
        metavar="NAME=ALPHA,..",
        help="Precisions that stay as they are, of the bias and of basis functions by name.  [default: none]",
    )
    multi_output: str = option(
        "shared",
        one_of(names.MultiOutput),
        group="noise and priors",
        metavar="M",
        applies={"target": (NUMBERS,)},
        help="What several targets share: shared (vectors and precisions; weights and noise are of each). For "
        "independent fits ingest each target by itself.",
    )
    multi_class: str = option(
        "auto",
        Anything(),
        group="noise and priors",
        metavar="S",
        applies={"target": (SEVERAL_CLASSES,)},
        help="How three classes and more are told apart: multinomial (one softmax, vectors in common), ovr (each from "
        "the rest), or auto (multinomial).",
    )
    moderate: bool | str = option(
        "auto",
        Flag(words=("auto",)),
        group="noise and priors",
        applies={"target": CLASSES},
        help="Let probabilities of classes allow for the uncertainty of the weights, or not.  [default: with two "
        "classes of 10,000 rows at most]",
    )
    class_weight: Any = option(
        None,
        Anything(),
        group="noise and priors",
        metavar="W",
        applies={"target": CLASSES},
        help="Weights of the rows of each class: balanced (each class the same in all), or LABEL=WEIGHT,… (others 1).  "
        "[default: 1 each]",
    )


TABLE = table_of(Request)
"""Every option by name."""


def check(request: Request) -> Request:
    """The request with texts turned into numbers. Raises ``UsageError`` naming the option that cannot be.

    The kernel, the basis, the strategy and the names of likelihoods are checked where they are resolved
    (``setup.parameters``), which knows those there are, and so is what options exclude each other.
    """
    return checked(request, TABLE)


def idle(request: Request, chosen: Mapping[str, Collection[str]]) -> list[str]:
    """Names of the options that differ from their defaults and have no effect where these words were chosen.

    Keys are those of ``Option.applies``: "target", "strategy", "fit_rows", "kernel", "noise_variance".

    >>> idle(Request(selection="gain", noise_rows=7), {"strategy": [ROUNDS], "fit_rows": ["full"]})
    ['selection', 'noise_rows']
    """
    return _idle(request, TABLE, chosen)
