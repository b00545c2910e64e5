"""How a command runs and ends: output, errors and warnings, exit status, signals, and a fit in the
foreground."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import IntEnum
from types import FrameType
from typing import Any, TextIO

import click

from partirvm import jobs
from partirvm.cli.options import DETAILS, as_flags
from partirvm.errors import (
    ClusterError,
    JobFailedError,
    NumericalError,
    PartirvmError,
    PartirvmWarning,
)
from partirvm.quoting import printable, without_credentials, wrapped

TRACEBACK = "PARTIRVM_TRACEBACK"
"""Environment variable that turns on tracebacks."""

DEMO = "demo"
"""The ``obj`` of the click context in commands that the demo runs."""


class ExitStatus(IntEnum):
    """Exit statuses."""

    DONE = 0
    USAGE = 2
    ABORTED = 3
    FAILED = 4


def width_of(stream: TextIO) -> int:
    """Return the width of the terminal that a stream writes to, or 0 without a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def echo(text: str, *, err: bool = False) -> None:
    """Print text to stdout, or to stderr, wrapped to the terminal and with its control characters
    escaped."""
    click.echo(
        wrapped(printable(text, keep="\n\t"), width_of(sys.stderr if err else sys.stdout)), err=err
    )


def show(facts: Any, text: str, as_json: bool, *following: str) -> None:
    """Print a result and suggestions for the next commands (except in the demo); with --quiet, only
    JSON."""
    context = click.get_current_context()
    if as_json:
        click.echo(without_credentials(json.dumps(facts)))
    elif not context.params.get("quiet"):
        echo(text)
        if following and context.obj is not DEMO:  # unwrapped, for copying
            click.echo(printable("\n  ".join(["\nnext:", *following]), keep="\n"))


def wants_details() -> bool:
    """Return True if the command has the flag ``--details``."""
    return bool(click.get_current_context().meta.get(DETAILS))


def show_status(opened: Any, as_json: bool, *following: str, **more: Any) -> int:
    """Print a job's facts and ``more``, and return the corresponding exit status."""
    from partirvm.report.text import job_facts, status_text

    facts = {**job_facts(opened), **more}
    text = status_text(facts, details=wants_details())
    show(facts, as_flags(text), as_json, *following)
    return {"done": ExitStatus.DONE, "aborted": ExitStatus.ABORTED}.get(
        facts["status"], ExitStatus.FAILED
    )


def cluster(address: str | None) -> AbstractContextManager[Any]:
    """Return a context manager that yields a client of the scheduler at this address, or None
    without an address."""
    from partirvm.execution.cluster import connect

    return nullcontext() if address is None else connect(address)


def shown_progress(**options: Any) -> Any:
    """Return a ``Progress`` context manager, whose module is slow to import."""
    from partirvm.report.progress import Progress

    return Progress(**options)


def explain(error: BaseException) -> ExitStatus:
    """Print an error to stderr; return its exit status: 2 if the user can correct it, 4 for a
    failure."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    echo(f"partirvm: error: {message_of(error)}", err=True)
    failed = isinstance(error, JobFailedError | NumericalError | ClusterError)
    corrected = isinstance(error, click.ClickException | PartirvmError)
    return ExitStatus.USAGE if corrected and not failed else ExitStatus.FAILED


def message_of(error: BaseException) -> str:
    """Return the message of an error as one paragraph. Its notes, which say how to continue, come
    last."""
    cause = (
        error.__cause__ if isinstance(error, click.Abort) else error
    )  # click raises Abort for a KeyboardInterrupt
    notes = getattr(cause, "__notes__", [])
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "; ".join(["interrupted", *(notes or ["nothing was left behind"])])
    if isinstance(error, click.ClickException):
        message = error.format_message()
        if isinstance(error, click.UsageError) and error.ctx is not None:
            message += f" See `{error.ctx.command_path} --help`."
    elif isinstance(error, PartirvmError):
        message = as_flags(str(error))
    else:
        fault = "This is a fault in the program or its environment, not in your input"
        message = (
            f"{type(error).__name__}: {error}. {fault}: run it with {TRACEBACK}=1 to see where, "
            "and report it"
        )
    return "; ".join([message, *notes])


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print each warning once to stderr, as ``partirvm: warning: …``."""

    def warn(message: Any, category: type[Warning], *place: Any) -> None:
        text = (
            as_flags(str(message))
            if issubclass(category, PartirvmWarning)
            else f"{category.__name__}: {message}"
        )
        echo(f"partirvm: warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", PartirvmWarning)
        warnings.showwarning = warn  # type: ignore[assignment]
        yield


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Handler of Ctrl-C and SIGTERM inside a block; signals that were ignored before remain
    ignored.

    The first signal raises ``KeyboardInterrupt``; with ``announce`` it only requests a stop, and
    the second one raises. Later signals are ignored; with ``keep``, even after the block. The
    handler only counts, and ``poll`` announces the stop: a signal may arrive during a write to
    stderr, when another write is an error (``reentrant call``).
    """

    def __init__(self, announce: Callable[[str], None] | None = None, *, keep: bool = True) -> None:
        self._announce = announce
        self._keep = keep
        self._gentle = announce is not None
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._count = 0

    def poll(self) -> bool:
        """Return whether the fit must stop."""
        if self._count and self._announce is not None:
            announce = self._announce
            self._announce = None
            announce(
                "stopping after this step and keeping the last model, if any; Ctrl-C again to "
                "stop at once"
            )
        return self._count > 0

    def __enter__(self) -> Signals:
        for number in SIGNALS:
            self._before[number] = signal.getsignal(number)
            if self._before[number] is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        if self._keep and (self._count or signal.getsignal(signal.SIGTERM) is signal.SIG_IGN):
            _ignore()
            return
        sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > self._gentle:
            # Only an exception can end a wait for threads, for a store or for a cluster before the
            # next poll.
            _ignore()
            sys.unraisablehook = lambda unraisable: (
                None
            )  # no tracebacks when incomplete objects are collected
            raise KeyboardInterrupt


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def in_foreground(work: Callable[..., Any], job: str, *, quiet: bool, as_json: bool) -> int:
    """Run ``work`` with progress, end it on Ctrl-C, print its result, and return the exit status.

    The first Ctrl-C aborts the fit; the second stops the process. Without a usable model, the exit
    status is 4, and a message gives the reason.

    Args:
        work: a function that takes a watcher and returns the result of ``jobs.fit``, or None if
            another process has finished the job.
        job: the job folder.
        quiet: True if no progress is shown.
        as_json: True if the result is printed as JSON.
    """
    from partirvm.model.facts import targets_json

    opened = jobs.Job(job)
    with shown_progress(quiet=quiet, spell=as_flags, details=wants_details()) as progress:
        try:
            with Signals(progress.note) as stop:
                progress.aborted = stop.poll
                fitted = work(watcher=progress)
        except KeyboardInterrupt:
            if not opened.store.exists():
                raise
            usable = opened.store.has_model()
            has = "the model of the last finished round" if usable else "no model yet"
            progress.note(
                f"stopped at once; {job} holds {has}. Continue with:\n  partirvm resume {job}"
            )
            return ExitStatus.ABORTED if usable else ExitStatus.FAILED
    if fitted is None or opened.status().value == "cancelled":
        return show_status(opened, as_json)
    if fitted.model is None:
        raise JobFailedError(
            f"{job} ended before it had a model. Continue with: partirvm resume {job}"
        )
    target = fitted.model.design.scaling.target.name(fitted.model.columns.target)
    facts = {"target": target, **targets_json(fitted.model)}
    following = [
        f"partirvm evaluate {job} TEST.csv",
        f"partirvm predict {job} NEW.csv predictions.csv",
    ]
    aborted = fitted.reason.value == "aborted"
    return show_status(opened, as_json, *following, *[f"partirvm resume {job}"] * aborted, **facts)
