"""How a command runs and ends: output, errors and warnings, exit status, signals, and a fit in the foreground."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Any

import click

from partirvm.cli.options import as_flags
from partirvm.errors import ClusterError, JobFailedError, NumericalError, PartirvmError, PartirvmWarning, UsageError
from partirvm.quoting import printable

TRACEBACK = "PARTIRVM_TRACEBACK"
"""Environment variable that switches tracebacks on."""

DEMO = "demo"
"""Object of the click context of commands that the demo runs."""


class ExitStatus(IntEnum):
    """Exit statuses."""

    DONE = 0
    USAGE = 2
    ABORTED = 3
    FAILED = 4


def echo(text: str, *, err: bool = False) -> None:
    """Print a line to stdout, or to stderr, with its control characters escaped."""
    click.echo(printable(text, keep="\n\t"), err=err)


def show(facts: Any, text: str, as_json: bool, *following: str) -> None:
    """Print a result and the commands that may follow (the demo prints its commands elsewhere)."""
    echo(json.dumps(facts) if as_json else text)
    if following and not as_json and click.get_current_context().obj is not DEMO:
        echo("\n".join(["", "next:", *(f"  {command}" for command in following)]))


def show_status(opened: Any, as_json: bool, before: str = "") -> int:
    """Print the status of a job and return the exit status that belongs to it."""
    from partirvm.report.text import status_text

    found = opened.progress()
    show(found, before + as_flags(status_text(found)), as_json)
    return {"done": ExitStatus.DONE, "aborted": ExitStatus.ABORTED}.get(found["status"], ExitStatus.FAILED)


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at this address and close it after the block; yield None without an address."""
    if address is None:
        yield None
        return
    from partirvm.execution.cluster import connect

    try:
        client = connect(address)
    except ClusterError as error:
        raise UsageError(str(error)) from error
    with client:
        yield client


def place(name: str, client: Any) -> str:
    """Return the path that a fit uses: absolute on a cluster, because its workers may run in another folder."""
    return name if client is None or "://" in name else str(Path(name).absolute())


def status_of(error: BaseException) -> ExitStatus:
    """Return the exit status of an error: 2 if the user can correct it, 4 for a failure.

    >>> status_of(click.UsageError("no such option")).name, status_of(ZeroDivisionError()).name
    ('USAGE', 'FAILED')
    """
    if isinstance(error, JobFailedError | NumericalError | ClusterError):
        return ExitStatus.FAILED
    corrected = isinstance(error, click.ClickException | PartirvmError) or _names_a_file(error)
    return ExitStatus.USAGE if corrected else ExitStatus.FAILED


def _names_a_file(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename is not None


def explain(error: BaseException) -> None:
    """Print an error to stderr, with a traceback if ``TRACEBACK`` is set."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    echo(f"partirvm: error: {message_of(error)}", err=True)


def message_of(error: BaseException) -> str:
    """Return the message of an error as one paragraph. Its notes come last: from what the work can continue.

    >>> message_of(PartirvmError("raise memory_limit"))
    'raise --memory-limit'
    """
    cause = error.__cause__ if isinstance(error, click.Abort) else error  # click raises Abort for a KeyboardInterrupt
    notes = getattr(cause, "__notes__", [])
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "; ".join(["interrupted", *(notes or ["nothing was left behind"])])
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = f"{error.format_message()} See `{error.ctx.command_path} --help`."
    elif isinstance(error, click.ClickException):
        message = error.format_message()
    elif isinstance(error, PartirvmError):
        message = as_flags(str(error))
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    else:
        message = (
            f"{type(error).__name__}: {error}. This is a fault of the program or of its environment, not of your "
            f"input: run the same command with {TRACEBACK}=1 to see where it happened, and report it"
        )
    return "; ".join([message, *notes])


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print warnings to stderr as ``partirvm: warning: …``, each text once, without deprecations."""
    seen: set[str] = set()

    def warn(message: Any, category: type[Warning], *place: Any) -> None:
        text = as_flags(str(message)) if issubclass(category, PartirvmWarning) else f"{category.__name__}: {message}"
        if text not in seen and not issubclass(category, DeprecationWarning):
            seen.add(text)
            echo(f"partirvm: warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PartirvmWarning)
        warnings.showwarning = warn  # type: ignore[assignment]
        yield


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Handling of Ctrl-C and SIGTERM between ``listen`` and the end of the block.

    The first signal raises ``KeyboardInterrupt``, which lets a command remove files that are half-written. With
    ``announce`` the first signal only requests a stop, and the second one raises. Later signals are ignored, so that
    the command ends with its own message and exit status. A signal may arrive inside a write to stderr, where another
    write is an error (``reentrant call``): so the handler only counts, and ``poll`` announces the stop. With ``keep``
    signals stay ignored after the block if one has come: the handlers of Python would print a traceback.
    """

    def __init__(self, announce: Callable[[str], None] | None = None, *, keep: bool = True) -> None:
        self._announce, self._keep = announce, keep
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._count = 0
        self._announced = False

    def listen(self) -> None:
        """Replace the handlers of SIGINT and SIGTERM."""
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        if self._announce is None and self._before[signal.SIGINT] is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # in the background of a shell Ctrl-C is for other processes

    def poll(self) -> bool:
        """Return whether the fit must stop."""
        if self._count and self._announce is not None and not self._announced:
            self._announced = True
            self._announce(
                "stopping after this step and keeping the last model, if there is one; Ctrl-C again to stop at once"
            )
        return self._count > 0

    def __enter__(self) -> Signals:
        if self._announce is None:
            self.listen()
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
        if self._count > (self._announce is not None):
            # Only an exception can end a wait for threads, for a store or for a cluster before the next poll.
            _ignore()
            sys.unraisablehook = lambda unraisable: None  # no tracebacks of incomplete objects when they are collected
            raise KeyboardInterrupt


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def in_foreground(work: Callable[..., Any], job: str, *, quiet: bool, as_json: bool, resumed: bool = False) -> int:
    """Run ``work`` with progress, end it on Ctrl-C, print its result, and return the exit status.

    ``work`` takes a watcher, and returns what ``jobs.fit`` returns, or None if another process has finished the job.
    Before the plan is made, Ctrl-C ends a new fit at once: nothing is written yet.
    A ``resumed`` job is aborted instead, because its folder exists. Without a usable model the exit status is 4, and a
    message states the reason.
    """
    from partirvm import jobs
    from partirvm.model.relevance import basis_functions_json, targets_json
    from partirvm.report.progress import progress_for
    from partirvm.report.text import job_facts, summary

    with progress_for(quiet=quiet, spell=as_flags) as progress:
        begun = resumed
        try:
            with Signals(progress.note) as stop:
                if resumed:
                    stop.listen()

                def on_plan(made: Any) -> None:
                    nonlocal begun
                    begun = True
                    if not resumed:
                        stop.listen()
                    planned(made)

                hooks: Any = progress
                planned, hooks.on_plan, hooks.aborted = progress.on_plan, on_plan, stop.poll
                fitted = work(watcher=progress)
        except KeyboardInterrupt:
            store = jobs.Job(job).store
            if not begun or not store.exists():
                raise
            usable = store.has_model()
            has = "the model of the last finished round" if usable else "no model yet"
            progress.note(f"stopped at once; {job} holds {has}. Continue with: partirvm resume {job}")
            return ExitStatus.ABORTED if usable else ExitStatus.FAILED
    if fitted is None:
        echo(f"{job}: another process has run it in the meantime", err=True)
        return show_status(jobs.open_job(job), as_json)
    if fitted.model is None:
        if jobs.Job(job).status().value == "cancelled":
            raise JobFailedError(f"{job} was cancelled: its model was discarded")
        raise JobFailedError(f"{job} ended before it had a model. Continue with: partirvm resume {job}")
    reason = fitted.outcome.reason.value
    facts = {**job_facts(jobs.open_job(job)), "reason": reason, "target": fitted.model.columns.target}
    if reason != "converged":
        facts["advice"] = fitted.outcome.reason.advice
    facts |= targets_json(fitted.model)
    bases = basis_functions_json(fitted.model)
    facts |= {"basis": bases} if bases else {}
    following = [f"partirvm evaluate {job} TEST.zarr", f"partirvm predict {job} NEW.zarr predictions.csv"]
    aborted = reason == "aborted"
    show(facts, as_flags(summary(facts)), as_json, *following, *[f"partirvm resume {job}"] * aborted)
    return ExitStatus.ABORTED if aborted else ExitStatus.DONE
