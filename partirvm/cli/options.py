"""Options that several verbs share, and the way from options to ``FitParameters``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from partirvm.errors import UsageError
from partirvm.planning.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from partirvm.types import FitParameters

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


_FIT = (
    click.option(
        "--strategy",
        default="auto",
        metavar="S",
        help="Which rows become candidates: working-set (a few each round), basic (all rows at once, for a few "
        "hundred), or auto.",
    ),
    click.option(
        "--likelihood", default="auto", metavar="L", help="Rows that the likelihood sees: full (all), or auto."
    ),
    click.option(
        "--selection",
        default="auto",
        metavar="S",
        help="How the working set chooses its next candidates: error (largest error), random, gain (largest gain of "
        "evidence), or auto.",
    ),
    click.option("--solver", default="auto", metavar="S", help="How dense fits are solved: fixed-point, or auto."),
    click.option("--kernel", default="gaussian", metavar="K", help="Kernel: gaussian."),
    click.option(
        "--gamma",
        default="auto",
        metavar="G",
        help="Width of the kernel exp(−G·distance²) between standardised rows: a number, one per feature with commas "
        "between, scale (1 / number of features), or auto.",
    ),
    click.option(
        "--partition-size",
        default="auto",
        type=Whole(1, auto=True),
        metavar="P",
        help="Candidates that join in each round; auto follows from the numbers of rows and features.",
    ),
    click.option(
        "--stop-fraction",
        default=0.5,
        type=float,
        metavar="F",
        help="A round's fit ends when the vectors fall to this fraction of its candidates.",
    ),
    click.option("--max-rounds", type=Whole(1), metavar="R", help="Most rounds.  [default: no limit]"),
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
        "--validation",
        metavar="DATA",
        help="Held-out DATA: their error is shown after each round, and the fit ends when it stops falling.",
    ),
    click.option(
        "--standardize/--no-standardize",
        default=True,
        help="Shift and scale features and target by their mean and standard deviation.",
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


quiet = click.option("--quiet", is_flag=True, help="No progress; errors and warnings are still printed.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace what stands there already.")
scheduler = _FIT[-1]


def parameters(options: dict[str, Any]) -> FitParameters:
    """What the options of a fit ask for."""
    from partirvm.types import FitParameters

    return FitParameters(**options)
