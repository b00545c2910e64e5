"""Signals during writes to stderr: handlers only count them, and polls print."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from commandline import LONG, read_until, start, started
from waiting import PATIENCE, wait_for

from partirvm.cli import Signals, main
from partirvm.cli.running import SIGNALS

ROUNDS = 100
"""How often a first signal arrives at a random moment during a write."""

WRITER = f"""
import sys
from partirvm.cli.running import Signals
from partirvm.report.progress import Progress

progress = Progress(sys.stderr)
for number in range({ROUNDS}):
    with Signals(progress.note, keep=False) as stop:
        print(number, flush=True)
        while not stop.poll():
            progress.note("x" * 20_000)
"""


def buffered():
    """Return the environment without PYTHONUNBUFFERED, so that writes to stderr take a lock."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.usefixtures("processes")
def test_signals_during_writes_to_stderr_are_handled():
    """The writer spends most of its time in ``write``: stderr is a pipe that is read slowly."""
    pieces = []

    def read():
        assert process.stderr is not None
        while text := process.stderr.read(8192):
            pieces.append(re.sub(rb"x+\n?", b"", text))
            time.sleep(1e-3)

    command = [sys.executable, "-c", WRITER]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, bufsize=0, env=buffered())
    started.append(process)
    reader = threading.Thread(target=read)
    reader.start()
    assert process.stdout is not None
    for _ in range(ROUNDS):
        if process.stdout.readline():
            process.send_signal(signal.SIGINT)
    reader.join(PATIENCE)
    text = b"".join(pieces).decode()
    assert process.wait(PATIENCE) == 0, text
    assert "reentrant" not in text
    assert text.count("Ctrl-C again") == ROUNDS


def repeat(process, signals):
    """Send the signals in turn, with pauses between them, until the process has ended."""
    for count in range(2_000):
        if process.poll() is not None:
            return
        process.send_signal(signals[count % len(signals)])
        time.sleep(0.03)


@pytest.mark.usefixtures("processes")
def test_many_signals_end_a_fit_with_its_model(tour, tmp_path):
    """Signals of both kinds arrive until the end; there is a status, a model, and no error."""
    job = str(tmp_path / "job")
    process = start("fit", tour.train, job, *LONG, env=buffered())
    read_until(process.stderr, r"^ +3 ")
    process.send_signal(signal.SIGINT)
    repeat(process, (signal.SIGTERM, signal.SIGINT))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    assert "error" not in err
    assert f"partirvm resume {job}" in (err if "stopped at once" in err else out)


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_many_signals_end_an_ingest_without_leftovers(tour, tmp_path):
    """The exit status reports the failure."""
    output = tmp_path / "d.zarr"
    table = tmp_path / "long.csv"
    rows = (tour.folder / "train.csv").read_text().splitlines()
    table.write_text("\n".join([rows[0], *rows[1:] * 200]))
    process = start("ingest", str(table), str(output), "--target", "fare", env=buffered())
    wait_for(lambda: any(output.glob("rows-*")), "something half-written")
    repeat(process, (signal.SIGINT,))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4, err
    assert "Traceback" not in err
    assert "error: interrupted" in err
    assert [path.name for path in tmp_path.iterdir()] == ["long.csv"]


def test_handlers_of_another_program_are_restored(tmp_path):
    """The command line runs inside another program, whatever signals that program received."""
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyboardInterrupt), Signals(keep=False):
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert main(["status", str(tmp_path)]) == 2
    assert [signal.getsignal(number) for number in SIGNALS] == before
