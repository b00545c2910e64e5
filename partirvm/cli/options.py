"""Options that several verbs share, and the way from options to ``Request``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from partirvm.errors import UsageError
from partirvm.planning.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from partirvm.options import Request

Command = TypeVar("Command", bound=Callable[..., Any])


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Bytes, as in ``512MiB``; also ``auto`` where that is allowed."""

    name = "SIZE"

    def __init__(self, *, auto: bool = True) -> None:
        self.auto = auto

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Bytes as a number; ``auto`` stays."""
        if self.auto and value == "auto":
            return value
        try:
            return parse_bytes(value, "size")
        except UsageError as error:
            self.fail(f"{error}.", param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Seconds, as in ``1h``."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds as a number."""
        try:
            return parse_duration(value, "time")
        except UsageError as error:
            self.fail(f"{error}.", param, ctx)


class Whole(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A whole number from ``least`` up; also ``auto`` where that is allowed."""

    name = "N"

    def __init__(self, least: int, *, auto: bool = False) -> None:
        self.least, self.auto = least, auto

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; ``auto`` stays."""
        if self.auto and value == "auto":
            return value
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if number < self.least:
            wanted = f"a whole number ≥ {self.least}" + " or auto" * self.auto
            self.fail(f"{value!r} is not {wanted}.", param, ctx)
        return number


class Names(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Column names with commas between them."""

    name = "A,B,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names as a tuple."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} has an empty name.", param, ctx)
        return names


class Basis(Names):
    """Bases with commas between them; one alone is itself."""

    name = "B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name, or several as a tuple."""
        names = super().convert(value, param, ctx)
        return names[0] if len(names) == 1 else names


class Numbers(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Numbers with commas between them."""

    name = "A,B,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers as a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not numbers with commas between them, such as 1,8,64.", param, ctx)


class Pairs(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Numbers of names, such as ``bias=1e-6``; also certain words. ``kind`` says what the two are."""

    name = "NAME=NUMBER,…"

    def __init__(self, kind: str, example: str, *words: str) -> None:
        self.kind, self.example, self.words = kind, example, words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word, or a dict of names and numbers; what stands before the last ``=`` of a part is the name."""
        if not isinstance(value, str) or value in self.words:
            return value
        found: dict[str, float] = {}
        for part in value.split(","):
            name, there, text = part.rpartition("=")
            name = name.strip()
            try:
                number = float(text)
            except ValueError:
                there = ""
            if not (there and name):
                words = "".join(f"{word}, or " for word in self.words)
                self.fail(f"{part!r} is not {self.kind}: give {words}such as {self.example}.", param, ctx)
            if name in found:
                self.fail(f"{name!r} has two {self.kind.partition('=')[2].lower()}s.", param, ctx)
            found[name] = number
        return found


_FIT = (
    click.option(
        "--strategy",
        default="auto",
        metavar="S",
        help="How rows become candidates: basic (all at once, for a few hundred rows), split-merge (partitions of P "
        "rows on their own, their vectors merged in pairs), incremental (one partition after the other beside the "
        "vectors kept so far), working-set (beside these the P most promising rows), or auto (basic up to 200 rows, "
        "working-set beyond).",
    ),
    click.option(
        "--likelihood",
        default="auto",
        metavar="L",
        help="Rows that fits before the last one are judged by: full (all), sample (one random sample), partition "
        "(only their own candidates, with the noise of other rows), or auto (full, but sample where full would cost "
        "split-merge or incremental too much).",
    ),
    click.option(
        "--final-likelihood",
        default="full",
        metavar="L",
        help="The same for the last fit; anything but full is for comparisons.",
    ),
    click.option(
        "--likelihood-rows",
        default="auto",
        type=Whole(1, auto=True),
        metavar="R",
        help="Rows of the sample of --likelihood sample; auto is 20·P.",
    ),
    click.option(
        "--noise-rows",
        type=Whole(1),
        metavar="R",
        help="Rows that give the noise of --likelihood partition.  [default: all]",
    ),
    click.option(
        "--noise-every",
        default=1,
        type=Whole(1),
        metavar="K",
        help="Iterations between two looks at these rows.",
    ),
    click.option(
        "--selection",
        default="auto",
        metavar="S",
        help="How the working set chooses its next candidates: error (largest error), random, gain (largest gain of "
        "evidence), map-weight (largest weight in a fit of all rows at once: small data), or auto (error, for classes "
        "gain).",
    ),
    click.option(
        "--solver",
        default="auto",
        metavar="S",
        help="How the evidence is maximised: fixed-point (all precisions together), fast (one column at a time, that "
        "which gains most), or auto (the fixed point; in the last fit of numbers columns come back while that gains).",
    ),
    click.option(
        "--alpha-prior",
        default="0,0",
        type=Numbers(),
        metavar="A,B",
        help="Shape and rate of a Gamma prior on the precision of each weight; 0,0 is flat.",
    ),
    click.option(
        "--noise-prior",
        default="0,0",
        type=Numbers(),
        metavar="C,D",
        help="Shape and rate of a Gamma prior on the precision of the noise: as if 2C rows more had left squared "
        "errors of 2D in all, in the target's unit squared; 0,0 is flat.",
    ),
    click.option(
        "--updates",
        default="mackay",
        metavar="U",
        help="How precisions are updated: mackay, or em (expectation maximisation: steady, and far slower).",
    ),
    click.option(
        "--fixed-alpha",
        type=Pairs("NAME=ALPHA", "bias=1e-6"),
        metavar="NAME=ALPHA,..",
        help="Precisions that stay as they are, of the bias and of basis functions by name.  [default: none]",
    ),
    click.option(
        "--multi-output",
        default="shared",
        metavar="M",
        help="What several targets share: shared (vectors and precisions; weights and noise are of each). For "
        "independent fits ingest each target by itself.",
    ),
    click.option(
        "--kernel",
        default="gaussian",
        metavar="K",
        help="Kernel: gaussian (or rbf), laplacian, matern32, matern52, polynomial, sigmoid, categorical, linear, "
        "linear-spline, none (the functions of --basis alone), or module:function, a Python function of points and "
        "centres that can be imported here and on every worker (PYTHONPATH).",
    ),
    click.option(
        "--gamma",
        default="auto",
        metavar="G",
        help="Width of the kernel, exp(−G·distance²) for gaussian, between standardised rows: a number, one per "
        "feature with commas between, scale (1 / number of features), learn (the width of most evidence), "
        "learn-per-feature (one for each, which switches irrelevant features off), or auto (one per feature, or up to "
        "2,000 rows one for all where rows held out say so). Not for linear, linear-spline and functions.",
    ),
    click.option(
        "--gamma-multiples",
        default="1",
        type=Numbers(),
        metavar="F,G,..",
        help="Several widths at once, for targets with structure of several sizes: each row offers a basis function "
        "for each of these times gamma, such as 1,8,64. Where gamma is learned they are where it begins.",
    ),
    click.option(
        "--gamma-prior",
        default="flat",
        metavar="P",
        help="Prior of each feature's gamma where these are learned: flat, or half-normal, which switches more "
        "features off.",
    ),
    click.option(
        "--basis",
        type=Basis(),
        metavar="B",
        help="Basis functions beside those of the kernel, each judged by evidence on its own: linear (the features), "
        "module:function, a Python function of rows that returns a column for each, or both with a comma between.  "
        "[default: the kernel's alone]",
    ),
    click.option(
        "--partition-size",
        default="auto",
        type=Whole(1, auto=True),
        metavar="P",
        help="Candidates that join in one fit; auto measures on √(rows·features) random rows how sparse the problem "
        "is.",
    ),
    click.option(
        "--heuristic-rows",
        default=2000,
        type=Whole(1),
        metavar="R",
        help="Most rows on which --partition-size auto measures.",
    ),
    click.option(
        "--stop-fraction",
        default=0.5,
        type=float,
        metavar="F",
        help="A fit before the last one ends when its vectors fall to this fraction.",
    ),
    click.option(
        "--stop-rule",
        default="candidates",
        metavar="RULE",
        help="What it is a fraction of: candidates (those that the fit began with), or partition (P).",
    ),
    click.option(
        "--max-rounds",
        type=Whole(1),
        metavar="R",
        help="Most rounds of working-set or incremental.  [default: no limit]",
    ),
    click.option("--max-vectors", type=Whole(1), metavar="M", help="Most relevance vectors.  [default: no limit]"),
    click.option(
        "--time-limit",
        type=Duration(),
        help="End after this time, such as 90s, 15m or 8h, with the model so far.  [default: no limit]",
    ),
    click.option(
        "--memory-limit",
        default="auto",
        type=Size(),
        help="Most resident memory of each process, such as 512MiB or 2GiB; auto is 70 % of what the machine, "
        "container or worker has.",
    ),
    click.option(
        "--kernel-store",
        default="auto",
        metavar="S",
        help="Where kernel values are kept between passes: memory (what the fit leaves of --memory-limit), zarr "
        "(beside the job), none (evaluated in every pass), or auto: none of numbers, what was measured fastest of "
        "classes. Changes no result.",
    ),
    click.option(
        "--validation",
        metavar="DATA",
        help="Held-out DATA: their error is shown after each round, and working-set ends when it stops falling.",
    ),
    click.option(
        "--classify",
        is_flag=True,
        default=None,
        help="Refuse DATA whose target is a number: classes are those that `ingest --classes` found.",
    ),
    click.option(
        "--multi-class",
        default="auto",
        metavar="S",
        help="How three classes and more are told apart: multinomial (one softmax, vectors in common), ovr (each from "
        "the rest), or auto (multinomial).",
    ),
    click.option(
        "--moderate/--no-moderate",
        default=None,
        help="Let probabilities of classes allow for the uncertainty of the weights, or not.  [default: with two "
        "classes of 10,000 rows at most]",
    ),
    click.option(
        "--class-weight",
        type=Pairs("LABEL=WEIGHT", "spam=5,ham=1", "balanced"),
        metavar="W",
        help="Weights of the rows of each class: balanced (each class the same in all), or LABEL=WEIGHT,… (others 1).  "
        "[default: 1 each]",
    ),
    click.option(
        "--standardize/--no-standardize",
        default=True,
        help="Shift and scale features and target, unless it is a class, by their mean and standard deviation.",
    ),
    click.option("--seed", default=0, type=Whole(0), help="Seed of all random choices."),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run on the Dask cluster of this scheduler, such as tcp://10.0.0.5:8786.  [default: in this process]",
    ),
)


def fit_options(command: Command) -> Command:
    """The options of a fit, which ``fit`` and ``plan`` have in common."""
    for option in reversed(_FIT):
        command = option(command)
    return command


allow_code = click.option(
    "--allow-code",
    is_flag=True,
    help="Import and run the function that the job names as its kernel or basis; without this such a job is refused.",
)

quiet = click.option("--quiet", is_flag=True, help="No progress; errors and warnings are still printed.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace what stands there already.")
scheduler = _FIT[-1]
augment = click.option(
    "--augment",
    metavar="TRAIN_DATA",
    help="The DATA of the fit: a basis function more at each row makes std grow away from them (RVM*).",
)
reason = click.option("--reason", default="", metavar="TEXT", help="Why, for those who look at the job later.")
detach = click.option(
    "--detach", is_flag=True, help="With --scheduler: hand the fit over to the cluster and return at once."
)


def moved(command: Command) -> Command:
    """Where what a job reads is now."""
    held_out = click.option(
        "--validation", metavar="DATA", help="Where the held-out DATA of JOB are now, if they were moved."
    )
    data = click.option("--data", metavar="DATA", help="Where the DATA of JOB are now, if they were moved.")
    return data(held_out(command))


def limits(command: Command) -> Command:
    """The options that a resume may change."""
    for option in (
        click.option("--memory-limit", type=Size(), help="Most resident memory of each process."),
        click.option("--time-limit", type=Duration(), help="End after this time from now, with the model so far."),
        click.option("--max-vectors", type=Whole(1), metavar="M", help="Most relevance vectors."),
        click.option("--max-rounds", type=Whole(1), metavar="R", help="Most rounds, those before included."),
    ):
        command = option(command)
    return command


def require_detachable(detach: bool, scheduler: str | None, verify: bool = False) -> None:
    """Refuse ``--detach`` where there is nobody to go on."""
    context = click.get_current_context()
    if detach and scheduler is None:
        raise click.UsageError(
            "--detach needs --scheduler ADDRESS: without a cluster nobody would go on with the fit once this command "
            "ends. Run it in the background of your shell instead (nohup, tmux, systemd-run).",
            context,
        )
    if detach and verify:
        raise click.UsageError("--verify reads all of DATA here, before the fit: not with --detach.", context)


def parameters(options: dict[str, Any]) -> Request:
    """What the options of a fit ask for."""
    from partirvm.options import Request

    if options.get("moderate", "") is None:
        options = {**options, "moderate": "auto"}
    return Request(**options)
