"""The commands in deploy/README.md, and processes that run them on this machine."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.random import default_rng
from waiting import PATIENCE, wait_for

from partirvm.data import ingest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def commands(section):
    """Return the lines of all code blocks in a section of the README."""
    text = DEPLOY.joinpath("README.md").read_text()
    blocks = text.split(f"\n## {section}\n")[1].split("\n## ")[0].split("```")[1::2]
    return [line for block in blocks for line in block.strip().splitlines()]


def environment(**more):
    """Return this environment without Dask settings, with this Python and checkout first."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), plain["PATH"]])
    package = os.pathsep.join([str(ROOT), *filter(None, [plain.get("PYTHONPATH")])])
    return {**plain, "PATH": path, "PYTHONPATH": package, **more}


def table(path):
    """Write a small table of columns a, b, fare."""
    rng = default_rng(3)
    X = rng.uniform(-2, 2, (400, 2))
    rows = np.column_stack([X, np.sin(2 * X[:, 0]) * X[:, 1] + 5 + rng.normal(0, 0.1, len(X))])
    np.savetxt(path, rows, delimiter=",", header="a,b,fare", comments="")


def prepared(folder):
    """Return a folder in which the README's commands find deploy/, trips.csv and trips.zarr."""
    folder.joinpath("deploy").symlink_to(DEPLOY)
    table(folder / "trips.csv")
    ingest(folder / "trips.csv", folder / "trips.zarr", target="fare")
    return folder


class Processes:
    """Servers that run until the test ends, with their output in files."""

    def __init__(self, folder):
        self.folder = folder
        self._running = list[subprocess.Popen[bytes]]()

    def start(self, command, env):
        """Start a server."""
        with self.folder.joinpath(f"server{len(self._running)}.log").open("wb") as log:
            pipes = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
            process = subprocess.Popen(command, cwd=self.folder, env=env, **pipes)
        self._running.append(process)
        return process

    def logs(self):
        """Return the output of all servers."""
        return "\n".join(log.read_text() for log in sorted(self.folder.glob("server*.log")))

    def wait_for(self, condition, what):
        """Poll until the condition holds; fail as soon as a server has ended."""

        def holds():
            ended = [process.args for process in self._running if process.poll() is not None]
            assert not ended, f"{ended} ended before {what}:\n{self.logs()}"
            return condition()

        wait_for(holds, what)

    def stop(self):
        """Terminate all servers as Docker does, the last one first, and then kill them."""
        for process in reversed(self._running):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


@contextlib.contextmanager
def started_servers(folder):
    """Run servers for the duration of the block."""
    servers = Processes(folder)
    try:
        yield servers
    finally:
        servers.stop()


def run(command, folder, env):
    """Run a command, given as a shell line or a list of words, to its end."""
    words = ["bash", "-c", command] if isinstance(command, str) else list(command)
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def replaced(words, replacements):
    """Return the words of a command with names, ports and paths of this machine."""
    local = []
    for word in words:
        for old, new in replacements.items():
            word = word.replace(old, new)
        local.append(word)
    return local


def split(line):
    """Return the variables before a command, and its words."""
    words = shlex.split(line)
    variables = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, words
