"""The demo: the ordinary verbs on real data, one after another, each with the command that it stands for."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from partirvm.cli.failures import ExitStatus
from partirvm.cli.shared import DEMO
from partirvm.cli.terminal import echo


@dataclass(frozen=True)
class Settings:
    """How much the demo does: options of its fit, and which share of the grid's rows and columns it takes."""

    gamma: str = "80"
    partition_size: int = 350
    max_rounds: int = 6
    every: int = 1


def run(verbs: click.Group, output: str, memory_limit: int, quiet: bool, settings: Settings = Settings()) -> int:
    """Run the demo with these commands, write its files to the folder ``output``, and return the exit status."""
    from partirvm.cli.terrain import SHARES, TARGET, draw, load_terrain, write_tables

    began = time.perf_counter()
    folder = Path(output)
    terrain = load_terrain(settings.every)
    folder.mkdir(parents=True, exist_ok=True)
    rows = write_tables(terrain, folder)
    _say(
        f"{sum(rows[name] for name in SHARES):,} cells of a landscape, split at random into {folder}/train.npz,", quiet
    )
    _say("validation.npz and test.npz, and all of them in order in grid.npz.", quiet)

    def data(name: str) -> str:
        return str(folder / f"{name}.zarr")

    job, picture = str(folder / "job"), folder / "terrain.png"
    limit = ["--memory-limit", f"{memory_limit >> 20}MiB"]
    for name in rows:
        table = str(folder / f"{name}.npz")
        _command(verbs, "ingest", table, data(name), "--target", TARGET, *limit, "--overwrite", quiet=quiet)
    choices = ["--gamma", settings.gamma, "--partition-size", str(settings.partition_size)]
    choices += ["--max-rounds", str(settings.max_rounds), "--validation", data("validation"), *limit]
    status: int = _command(verbs, "fit", data("train"), job, *choices, "--overwrite", quiet=quiet)
    if status != ExitStatus.DONE:
        return status
    scores: dict[str, Any] = _command(verbs, "evaluate", job, data("test"), quiet=quiet)
    _command(verbs, "predict", job, data("grid"), data("prediction"), "--overwrite", quiet=quiet)
    draw(terrain, folder / "job", folder / "prediction.zarr", scores, picture)
    echo(_summary(scores, time.perf_counter() - began, picture))
    return ExitStatus.DONE


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        echo(text, err=True)


def _command(verbs: click.Group, *arguments: str, quiet: bool) -> Any:
    """Show a command and run it in this process; its result."""
    _say(f"\n$ partirvm {shlex.join(arguments)}", quiet)
    arguments = (*arguments, *["--quiet"] * quiet)
    return verbs.main(arguments, prog_name="partirvm", standalone_mode=False, obj=DEMO)


def _summary(scores: dict[str, Any], seconds: float, picture: Path) -> str:
    from partirvm.execution.process import peak_memory
    from partirvm.planning.units import format_bytes, format_duration

    lines = [
        ("test RMSE", f"{scores['rmse']:.2f} m"),
        ("test NLPD", f"{scores['nlpd']:.3f} nats per cell"),
        ("95 % interval", f"covers {100 * scores['coverage_95']:.1f} % of {scores['n_rows']:,} test cells"),
        ("vectors", f"{scores['n_vectors']:,}"),
        ("took", f"{format_duration(seconds)}, peak memory {format_bytes(peak_memory())}"),
        ("picture", str(picture)),
    ]
    return "\n" + "\n".join(f"{name:<16}{text}" for name, text in lines)
