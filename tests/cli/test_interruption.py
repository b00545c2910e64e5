"""Signals that arrive while a process writes to stderr: handlers only count, polls print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from commandline import start

ROUNDS = 100
"""Times that the first signal arrives at a random moment of the writing."""

WRITER = f"""
import sys
from partirvm.cli.interruption import Interruption
from partirvm.report.progress import progress_for

progress = progress_for(sys.stderr)
for number in range({ROUNDS}):
    with Interruption(progress.note) as stop:
        stop.listen()
        print(number, flush=True)
        while not stop.poll():
            progress.note("x" * 20_000)
"""


def buffered() -> dict[str, str]:
    """The environment without what would leave stderr without a buffer, and its writes without a lock."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_signals_inside_writes_to_stderr():
    """The writer spends nearly all of its time inside ``write``: stderr is a pipe that is read slowly."""
    said: list[bytes] = []

    def read() -> None:
        assert process.stderr is not None
        while text := process.stderr.read(8192):
            said.append(re.sub(rb"x+\n?", b"", text))
            time.sleep(1e-3)

    command = [sys.executable, "-c", WRITER]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, bufsize=0, env=buffered()) as process:
        reader = threading.Thread(target=read)
        reader.start()
        assert process.stdout is not None
        for _ in range(ROUNDS):
            if process.stdout.readline():
                process.send_signal(signal.SIGINT)
        reader.join()
    text = b"".join(said).decode()
    assert process.returncode == 0, text
    assert "reentrant" not in text
    assert text.count("Ctrl-C again") == ROUNDS


@pytest.mark.parametrize("count", [1, 30])
def test_many_signals_end_a_fit_in_order(tour, tmp_path, count):
    """One signal keeps the model; any number of them ends with a status, a model, and no error."""
    job = str(tmp_path / "job")
    asked = ("--gamma", "20", "--strategy", "incremental", "--partition-size", "6", "--max-rounds", "500")
    process = start("fit", tour.train, job, *asked, env=buffered())
    assert process.stderr is not None
    for line in process.stderr:
        if line.split()[:1] == ["3"]:
            break
    for _ in range(count):
        process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 3, said
    assert "Traceback" not in said
    assert "error" not in said
    assert f"partirvm resume {job}" in (said if "stopped at once" in said else out)
