"""Command options: flags generated from the table of options, options shared by several commands,
and the help.

Messages and help text name options as in Python (``max_rounds``, ``solver="fast"``), because the
command line and the Python API share them. ``as_flags`` rewrites the names as flags. Names in
quotes, in paths and in calls belong to the user's data or to Python and are not changed.
"""

import csv
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import click

from partirvm.errors import UsageError
from partirvm.options import TABLE, Request
from partirvm.options.constraints import Option, parse_bytes, parse_duration

Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS = {option.name: option.flag for option in TABLE.values() if option.name != "classify"}
FLAGS |= {"allow_code": "--allow-code", "augment": "--augment"}
"""Dict from the Python name of an option to its flag."""

_ANY = "|".join(FLAGS)
_BEFORE = r"(?<![\w'\"`/.\-=])"
_AFTER = r"(?![\w'\"`/(=\-]|\.\w)"
_VALUE = re.compile(rf"{_BEFORE}(?<!\w\()({_ANY})=('[^']*'|\"[^\"]*\"|[\w.]+)")
_NAME = re.compile(rf"{_BEFORE}({'|'.join(name for name in FLAGS if '_' in name)}){_AFTER}")


def as_flags(message: str) -> str:
    """Replace Python option names in a message with flags, for example ``solver='fast'`` with
    ``--solver fast``."""

    def with_flag(match: re.Match[str]) -> str:
        flag = FLAGS[match[1]]
        value = match[2].strip("'\"")
        switches = {"True": flag, "False": f"--no-{flag[2:]}", "None": f"{flag} none"}
        return switches.get(value, f"{flag} {value}")

    return _NAME.sub(lambda match: FLAGS[match[1]], _VALUE.sub(with_flag, message))


def help_of(text: str) -> str:
    """Turn an option's text in the table into the help text of its flag, without quotes around
    values."""
    return as_flags(text).replace('"', "")


class Text(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A flag whose text is converted by ``read``, which raises ``UsageError`` if it is invalid."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of the text; a default that is not text is returned unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except UsageError as error:
            self.fail(f"{error}.", param, ctx)


def number(text: str) -> Any:
    """Convert a text to an int or a float if possible; any other text is returned unchanged."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def pairs(kind: str, example: str, text: str) -> dict[str, float]:
    """Parse numbers by name, such as ``bias=1e-6``; the last ``=`` of each part ends the name."""
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        name = name.strip()
        if not name or name in numbers or not isinstance(number(value), int | float):
            raise UsageError(
                f"{part!r} is not {kind}, or its name was given before; example: {example}"
            )
        numbers[name] = number(value)
    return numbers


LEVEL = click.FloatRange(0, 1, min_open=True, max_open=True)
SIZE = Text("SIZE", partial(parse_bytes, what="the value"))
DURATION = Text("TIME", partial(parse_duration, what="the value"))
NAMES = Text(
    "A,B,…", lambda text: tuple(next(csv.reader([text], skipinitialspace=True))) if text else ("",)
)
FORMATS = Text(
    "A=FORMAT,…", lambda text: dict(each.rpartition("=")[::2] for each in NAMES.read(text))
)

READ: dict[str, Callable[[str], Any]] = {
    "gamma": lambda text: tuple(map(number, text.split(","))) if "," in text else number(text),
    "basis": lambda text: text if "," not in text else NAMES.read(text),
    "fixed_alpha": partial(pairs, "NAME=ALPHA", "bias=1e-6"),
    "class_weight": lambda text: (
        text if text == "balanced" else pairs("LABEL=WEIGHT", "spam=5,ham=1", text)
    ),
    "any": str,
    "word": str,
    "numbers": lambda text: tuple(map(number, text.split(","))),
}
"""Parsers for the texts of options that are not numbers, by option name or kind of check."""

METAVARS = {"seconds": "TIME", "bytes": "SIZE", "whole": "N"}


def flag(option: Option, **other: Any) -> Callable[[Command], Command]:
    """Return the flag for an option; ``other`` arguments of ``click.option`` override the arguments
    derived from the option."""
    default = option.default
    spelling = option.flag
    if option.check.kind == "switch":
        if not option.check.optional:
            spelling = f"{option.flag}/--no-{option.flag[2:]}"
        kind: dict[str, Any] = {
            "is_flag": True,
            "default": default if isinstance(default, bool) else None,
        }
    else:
        if isinstance(default, tuple):
            default = ",".join(f"{part:g}" for part in default)
        metavar = option.metavar or METAVARS.get(option.check.kind)
        read = READ.get(option.name) or READ.get(option.check.kind, number)
        checked = Text("TEXT", lambda text: option.check(option.flag, read(text)))
        kind = {"default": default, "type": checked, "metavar": metavar}
    text = help_of(option.meaning if "default" in other else option.help)
    spellings = [spelling, *filter(None, [option.second_flag])]
    return click.option(*spellings, option.name, **{"help": text, **kind, **other})


def _allow_protocols(
    context: click.Context, option: click.Parameter, names: tuple[str, ...]
) -> None:
    if names:
        from partirvm.storage.address import allow_protocols

        allow_protocols(*names)


ORDER = ("everyday", "kernel", "strategy", "noise and priors", "resources", "cluster")
"""Groups of fit options, in the order of the help."""

SHOWN = "partirvm.shown"
"""Key in a command's context for the groups of options that its help shows."""


def _show_all(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        ctx.meta[SHOWN] = (*ORDER, "other options")
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


DETAILS = "partirvm.details"
"""Key in a command's context that is true if technical details are printed."""


def _ask_for_details(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    ctx.meta[DETAILS] = requested


VALUES = {
    "--scheduler": (
        "ADDRESS",
        "Run on this Dask scheduler, such as tcp://10.0.0.5:8786.  [default: in this process]",
    ),
    "--validation": (
        "DATA",
        "Held-out dataset; its error is shown per round; working-set ends when it stops falling.",
    ),
    "--augment": (
        "TRAIN_DATA",
        "Training dataset: makes std grow away from its rows (RVM*); no local residuals.",
    ),
}
"""Metavar and help text of options shared by several commands."""

SWITCHES = {
    "--quiet": "Print no progress, only errors and warnings.",
    "--overwrite": "Replace an existing output that partirvm wrote.",
    "--detach": "With --scheduler: submit the fit to the cluster and return.",
    "--allow-code": (
        "Allow the job's Python kernel or basis function to be imported and run; such jobs "
        "require it."
    ),
}
"""Help text of flags shared by several commands."""

SHARED: dict[str, Callable[[Any], Any]] = {
    **{
        name: click.option(name, metavar=metavar, help=text)
        for name, (metavar, text) in VALUES.items()
    },
    **{name: click.option(name, is_flag=True, help=text) for name, text in SWITCHES.items()},
    "--json": click.option(
        "--json", "as_json", is_flag=True, help="Print the result as one line of JSON."
    ),
    "--reason": click.option(
        "--reason", default="", help="Reason for ending the job; stored with the job."
    ),
    "--details": click.option(
        "--details",
        is_flag=True,
        expose_value=False,
        callback=_ask_for_details,
        help="Also print technical details: the whole plan, evidence, passes and rates.",
    ),
    "--help-all": click.option(
        "--help-all",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show all options.",
    ),
    "--allow-protocol": click.option(
        "--allow-protocol",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_allow_protocols,
        help="Also open URLs with this fsspec protocol, such as https; repeatable.",
    ),
}
"""Options shared by several commands."""


def takes(*parameters: str | Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds these parameters to a command, in this order; a string is a key
    of ``SHARED`` or the name of an argument."""

    def decorate(command: Command) -> Command:
        for parameter in reversed(parameters):  # decorators are applied in reverse
            if isinstance(parameter, str):
                parameter = SHARED.get(parameter, click.argument(parameter))
            command = parameter(command)
        return command

    return decorate


limits = takes(
    *(
        flag(TABLE[name], default=None)
        for name in ("effort", "max_rounds", "max_vectors", "time_limit", "memory_limit")
    )
)
"""The options that a resume may change."""

GROUPS = {option.name: option.group for option in TABLE.values()} | {
    "validation": "everyday",
    "scheduler": "cluster",
}

fit_options = takes(
    *(flag(each) for group in ORDER for each in TABLE.values() if each.group == group),
    "--validation",
    "--scheduler",
)
"""The fit options that ``fit`` and ``plan`` share."""


class GroupedCommand(click.Command):
    """A command whose help shows the option groups "everyday" and "cluster" and the
    command-specific options; ``--help-all`` shows all groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group of options; command-specific options come last."""
        groups: dict[str, list[tuple[str, str]]] = {
            group: [] for group in (*ORDER, "other options")
        }
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                groups[GROUPS.get(param.name or "", "other options")].append(record)
        shown = ctx.meta.get(SHOWN, ("everyday", "cluster", "other options"))
        for name in [name for name in groups if name in shown]:
            with formatter.section(name.capitalize()):
                formatter.write_dl(groups[name])
        if hidden := [name for name in groups if name not in shown]:
            formatter.write_paragraph()
            count = sum(len(groups[name]) for name in hidden)
            formatter.write_text(f"--help-all shows {count} more options: {', '.join(hidden)}.")


def require_detachable(detach: bool, scheduler: str | None) -> None:
    """Raise ``click.UsageError`` for ``--detach`` without a cluster."""
    if detach and scheduler is None:
        alone = (
            "without a cluster the fit ends with this command: use nohup or tmux to keep it running"
        )
        raise click.UsageError(
            f"--detach needs --scheduler ADDRESS: {alone}.", click.get_current_context()
        )


def parameters(options: dict[str, Any]) -> Request:
    """Return the request that corresponds to a fit's options; omitted flags have their defaults."""
    return Request(**{name: value for name, value in options.items() if value is not None})
