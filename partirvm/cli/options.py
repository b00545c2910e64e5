"""Options that several verbs share, and the way from options to ``Request``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from partirvm.cli.flags import help_of
from partirvm.cli.sections import GroupedOption
from partirvm.errors import UsageError
from partirvm.options import TABLE, Request, constraints
from partirvm.options import names as option_names
from partirvm.options.option import Option
from partirvm.planning.units import parse_bytes, parse_duration

Command = TypeVar("Command", bound=Callable[..., Any])


class SizeType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
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


class WholeType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
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


class BasisType(Names):
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


class RealType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number, or one of certain words; its bounds are checked with the request."""

    name = "NUMBER"

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; words stay."""
        if value in self.words:
            return value
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number{''.join(f' or {word}' for word in self.words)}.", param, ctx)


class RealOrNameType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number, or a name; both are checked with the request."""

    name = "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or the text as it is."""
        try:
            return float(value)
        except ValueError:
            return value


ORDER = ("everyday", "kernel", "strategy", "noise and priors", "resources", "cluster")
"""Groups of options as the help shows them."""

NAMED: dict[str, Any] = {
    "basis": BasisType(),
    "fixed_alpha": Pairs("NAME=ALPHA", "bias=1e-6"),
    "class_weight": Pairs("LABEL=WEIGHT", "spam=5,ham=1", "balanced"),
}
"""Options whose text is read in a way of its own."""


def _type(option: Option) -> Any:
    """How the text of a flag is read; words are checked with the request."""
    match option.check:
        case constraints.Whole(least=least, words=words):
            return WholeType(least, auto="auto" in words)
        case constraints.Real(words=words):
            return RealType(*words)
        case constraints.RealOrName():
            return RealOrNameType()
        case constraints.Factors() | constraints.ShapeAndRate():
            return Numbers()
        case constraints.Seconds():
            return Duration()
        case constraints.Bytes():
            return SizeType()
    return NAMED.get(option.name, click.STRING)


def _flag(option: Option) -> Callable[[Command], Command]:
    """The flag of an option."""
    if isinstance(option.check, constraints.Flag):
        start = option.default if isinstance(option.default, bool) else None
        pair = option.flag if option.check.optional else f"{option.flag}/--no-{option.flag[2:]}"
        return click.option(
            pair,
            option.name,
            is_flag=True,
            default=start,
            help=help_of(option.help),
            cls=GroupedOption,
            group=option.group,
        )
    default = option.default
    if isinstance(default, tuple):
        default = ",".join(f"{number:g}" for number in default)
    return click.option(
        option.flag,
        option.name,
        default=default,
        type=_type(option),
        metavar=option.metavar,
        help=help_of(option.help),
        cls=GroupedOption,
        group=option.group,
    )


scheduler = click.option(
    "--scheduler",
    metavar="ADDRESS",
    cls=GroupedOption,
    group="cluster",
    help="Run on the Dask cluster of this scheduler, such as tcp://10.0.0.5:8786.  [default: in this process]",
)

validation = click.option(
    "--validation",
    metavar="DATA",
    cls=GroupedOption,
    group="everyday",
    help="Held-out DATA: their error is shown after each round; working-set ends when it stops falling.",
)


def _flags() -> list[Any]:
    """The flags of a fit: those of the table by group, the held-out data among the everyday ones, the cluster last."""
    groups = {group: [_flag(option) for option in TABLE.values() if option.group == group] for group in ORDER}
    groups["everyday"].append(validation)
    groups["cluster"].append(scheduler)
    return [flag for flags in groups.values() for flag in flags]


def fit_options(command: Command) -> Command:
    """The options of a fit, which ``fit`` and ``plan`` have in common."""
    for option in reversed(_flags()):
        command = option(command)
    return command


def one_target(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The text of ``--target``, which is given once. Raises ``click.BadParameter`` if it is given again."""
    if len(given) > 1:
        raise click.BadParameter(
            f"it is given {len(given)} times. Give several targets with commas between them: "
            f"--target {','.join(given)}.",
            ctx,
            param,
        )
    return given[0] if given else None


allow_code = click.option(
    "--allow-code",
    is_flag=True,
    help="Import and run the Python function that is the kernel or basis of the job; required for such jobs.",
)

allow_data = click.option(
    "--allow-data",
    multiple=True,
    metavar="URL",
    help="DATA that JOB may read although they are in another store than JOB; may be given twice.",
)


def _allow_protocols(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
    if names:
        from partirvm.storage.address import allow_protocols

        allow_protocols(*names)


def allow_protocol(command: Command) -> Command:
    """The protocols of addresses that a command may open beyond the usual ones."""
    return click.option(
        "--allow-protocol",
        multiple=True,
        metavar="NAME",
        expose_value=False,
        callback=_allow_protocols,
        help="Also open URLs of this protocol of fsspec, such as https; may be given more than once.",
    )(command)


quiet = click.option("--quiet", is_flag=True, help="Print no progress, only errors and warnings.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing output.")
augment = click.option(
    "--augment",
    metavar="TRAIN_DATA",
    help="The training DATA: for std that grows with the distance from them (RVM*).",
)
reason = click.option("--reason", default="", metavar="TEXT", help="Why the job is ended; stored with the job.")
detach = click.option("--detach", is_flag=True, help="With --scheduler: submit the fit to the cluster and return.")


def moved(command: Command) -> Command:
    """Where what a job reads is now."""
    held_out = click.option(
        "--validation", metavar="DATA", help="New place of the held-out DATA of JOB, if they were moved."
    )
    data = click.option("--data", metavar="DATA", help="New place of the DATA of JOB, if they were moved.")
    return data(held_out(command))


def limits(command: Command) -> Command:
    """The options that a resume may change."""
    for option in (
        click.option("--memory-limit", type=SizeType(), help="Maximum resident memory of each process."),
        click.option(
            "--time-limit", type=Duration(), help="Time from now after which the job ends and keeps its model."
        ),
        click.option("--max-vectors", type=WholeType(1), metavar="M", help="Maximum number of relevance vectors."),
        click.option(
            "--max-rounds", type=WholeType(1), metavar="R", help="Maximum number of rounds, including those before."
        ),
        click.option(
            "--effort",
            type=click.Choice(get_args(option_names.Effort)),
            help="Effort of the working set, larger than before.",
        ),
    ):
        command = option(command)
    return command


def require_detachable(detach: bool, scheduler: str | None, verify: bool = False) -> None:
    """Raise ``click.UsageError`` for ``--detach`` without a cluster."""
    context = click.get_current_context()
    if detach and scheduler is None:
        raise click.UsageError(
            "--detach needs --scheduler ADDRESS: without a cluster the fit would stop when this command exits. Run it "
            "in the background of your shell instead (nohup, tmux, systemd-run).",
            context,
        )
    if detach and verify:
        raise click.UsageError(
            "--verify reads all of DATA in this process before the fit; it cannot be combined with --detach.", context
        )


def parameters(options: dict[str, Any]) -> Request:
    """What the options of a fit ask for; a flag that is not given stands for the default."""
    given = {name: value for name, value in options.items() if value is not None}
    return Request(**given)
