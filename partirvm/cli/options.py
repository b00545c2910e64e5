"""Options that several verbs share, and the way from options to ``Request``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import click

from partirvm.cli.flags import help_of
from partirvm.cli.sections import GroupedOption
from partirvm.errors import UsageError
from partirvm.options import TABLE, Request, constraints
from partirvm.options.option import Option
from partirvm.planning.units import parse_bytes, parse_duration

Command = TypeVar("Command", bound=Callable[..., Any])


class Text(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A flag whose text is converted by ``read``, which raises ``UsageError`` for an invalid text."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of the text; a default that is not text is returned unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except UsageError as error:
            self.fail(f"{error}.", param, ctx)


SIZE = Text("SIZE", partial(parse_bytes, what="the value"))
DURATION = Text("TIME", partial(parse_duration, what="the value"))


def names(text: str) -> tuple[str, ...]:
    """Split names at commas. Raises ``UsageError`` for an empty name."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise UsageError(f"{text!r} has an empty name")
    return found


NAMES = Text("A,B,…", names)


def number(text: str) -> Any:
    """Convert a text to an int or a float if possible; any other text is returned unchanged."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def pairs(kind: str, example: str, text: str) -> dict[str, float]:
    """Parse numbers by name, such as ``bias=1e-6``; a name ends at the last ``=`` of its part."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        name = name.strip()
        if not name or not isinstance(number(value), int | float):
            raise UsageError(f"{part!r} is not {kind}: give such as {example}")
        if name in found:
            raise UsageError(f"{name!r} has two {kind.partition('=')[2].lower()}s")
        found[name] = number(value)
    return found


def _basis(text: str) -> str | tuple[str, ...]:
    found = names(text)
    return found[0] if len(found) == 1 else found


def _class_weight(text: str) -> str | dict[str, float]:
    return text if text == "balanced" else pairs("LABEL=WEIGHT", "spam=5,ham=1", text)


ORDER = ("everyday", "kernel", "strategy", "noise and priors", "resources", "cluster")
"""Groups of options as the help shows them."""

NAMED: dict[str, Callable[[str], Any]] = {
    "basis": _basis,
    "fixed_alpha": partial(pairs, "NAME=ALPHA", "bias=1e-6"),
    "class_weight": _class_weight,
}
"""Options whose text is read in a way of its own."""

METAVARS: dict[type, str] = {constraints.Seconds: "TIME", constraints.Bytes: "SIZE", constraints.Whole: "N"}


def _type(option: Option) -> Any:
    """Return the parameter type of a flag: it converts numbers, and calls the check of the option."""
    if isinstance(option.check, constraints.Anything | constraints.OneOf):
        read = NAMED.get(option.name)
        return click.STRING if read is None else Text("TEXT", read)

    def read_and_check(text: str) -> Any:
        several = isinstance(option.check, constraints.Factors | constraints.ShapeAndRate)
        value = tuple(map(number, text.split(","))) if several else NAMED.get(option.name, number)(text)
        return option.check(option.flag, value)

    return Text("TEXT", read_and_check)


def flag(option: Option, **other: Any) -> Callable[[Command], Command]:
    """Return the flag of an option; ``other`` arguments of ``click.option`` replace those that follow from the row."""
    default, spellings = option.default, [option.flag]
    if isinstance(option.check, constraints.Flag):
        if not option.check.optional:
            spellings = [f"{option.flag}/--no-{option.flag[2:]}"]
        kind: dict[str, Any] = {"is_flag": True, "default": default if isinstance(default, bool) else None}
    else:
        if isinstance(default, tuple):
            default = ",".join(f"{each:g}" for each in default)
        metavar = option.metavar or METAVARS.get(type(option.check))
        kind = {"default": default, "type": _type(option), "metavar": metavar}
    row = {"help": help_of(option.help), "cls": GroupedOption, "group": option.group, **kind}
    return click.option(*spellings, option.name, **{**row, **other})


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
    groups = {group: [flag(option) for option in TABLE.values() if option.group == group] for group in ORDER}
    groups["everyday"].append(validation)
    groups["cluster"].append(scheduler)
    return [each for flags in groups.values() for each in flags]


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


LIMITS = {
    "effort": "Effort of the working set, larger than before: quick, balanced or thorough.",
    "max_rounds": "Maximum number of rounds, including those before.",
    "max_vectors": "Maximum number of relevance vectors.",
    "time_limit": "Time from now after which the job ends and keeps its model.",
    "memory_limit": "Maximum resident memory of each process.",
}
"""Help of the options that a resume may change."""


def limits(command: Command) -> Command:
    """The options that a resume may change."""
    for name, text in reversed(LIMITS.items()):  # decorators apply from the last to the first
        command = flag(TABLE[name], default=None, help=text)(command)
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
