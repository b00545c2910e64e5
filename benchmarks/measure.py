"""The command line of a benchmark, its runs in separate processes, and its results."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from partirvm.process import peak_memory


def command_line(text: str, *, data: bool = True, required: bool = True) -> argparse.ArgumentParser:
    """Return a parser with ``--output``.

    Args:
        text: the help
        data: whether the benchmark reads data sets, and has ``--data``
        required: whether it needs them
    """
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        made.add_argument(
            "--data",
            required=required,
            metavar="DIR",
            help="folder of NAME.npz, see benchmarks/datasets.py",
        )
    made.add_argument(
        "--output", default="benchmarks/results", help="output folder (default: benchmarks/results)"
    )
    return made


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def apart(function: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Call ``function`` in a new process; return its result with ``wall_seconds`` and ``peak_mib``
    (VmHWM) of the process.
    """
    try:
        return within(None, function, *args, **kwargs)
    except ChildProcessError as error:
        raise SystemExit(str(error)) from None


def within(
    seconds: float | None, function: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Call ``apart`` with a time limit.

    Raises TimeoutError after the limit, ChildProcessError if the process is killed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, function, args, kwargs))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            process.kill()
            raise TimeoutError(f"{function.__name__} took more than {seconds:.0f} s")
        result: dict[str, Any] = receiver.recv()
    except EOFError:
        raise ChildProcessError(
            f"the process of {function.__name__} ended without a result: see its output above"
        ) from None
    finally:
        process.join()
    return result


def _call(sender: Any, function: Callable[..., dict[str, Any]], args: Any, kwargs: Any) -> None:
    began = time.perf_counter()
    result = function(*args, **kwargs)
    sender.send(
        {**result, "wall_seconds": time.perf_counter() - began, "peak_mib": peak_memory() / 2**20}
    )


def machine(*more: str) -> dict[str, Any]:
    """Return a description of the machine and the versions of the software; ``more`` names optional
    packages."""
    found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
    found |= {
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    for name in ("numpy", "scipy", "zarr", "partirvm", *more):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Return a Markdown table. ``columns`` maps keys to formats such as ``.3f``; missing values are
    blank."""
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    cells = [
        [
            format(row[key], spec) if row.get(key) is not None else ""
            for key, spec in columns.items()
        ]
        for row in rows
    ]
    lines = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([head, *lines])


def write(
    output: str | Path, name: str, rows: list[dict[str, Any]], columns: dict[str, str]
) -> None:
    """Write NAME.json and NAME.md into the folder ``output``, and print the table."""
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, f"{name}.json").write_text(
        json.dumps({"machine": machine(), "rows": rows}, indent=1)
    )
    text = table(rows, columns)
    Path(folder, f"{name}.md").write_text(text + "\n")
    print(text)
