"""Start-up, streams, terminals, memory and crashes of commands in other processes."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commandline import LONG, measured, start
from numpy.random import default_rng
from waiting import PATIENCE

from partirvm import predict
from partirvm.data import ingest

SHORT = ("--gamma", "1", "--partition-size", "60", "--max-rounds", "3", "--residual", "none")
ESCAPE = "\x1b"


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.usefixtures("processes")
def test_help_imports_few_modules():
    """These are Click, the command line, errors, options and quoting, and the standard library."""
    names = "import sys; print(*sys.modules, file=sys.stderr)"
    bare = set(python(names).stderr.split())
    code = f"from partirvm.cli import main; main(['--help']); {names}"
    imported = set(python(code).stderr.split()) - bare
    top = {name.partition(".")[0] for name in imported}
    assert top - sys.stdlib_module_names == {"click", "partirvm"}
    ours = {name.split(".")[1] for name in imported if name.startswith("partirvm.")}
    assert ours == {"cli", "errors", "jobs", "options", "quoting"}
    assert len(imported) < 150


def test_piped_progress_is_plain_lines_on_stderr(tour, cli, tmp_path):
    fit = ("fit", tour.train, str(tmp_path / "job"), *SHORT, "--validation", tour.test, "--json")
    status, out, err = cli(*fit, "--details")
    assert status == 0
    assert json.loads(out)["rounds"] in (2, 3), "the better one of the last two rounds"
    assert ESCAPE not in out + err
    assert "\r" not in err
    header, *rounds = err[err.index("round  ") :].splitlines()
    errors = ["training RMSE", "held-out RMSE", "held-out NLPD"]
    titles = ["round", "candidates", "vectors", *errors, "log evidence", "rows/s", "time", "memory"]
    assert re.split(" {2,}", header.strip()) == titles
    assert [line.split()[0] for line in rounds] == ["1", "2", "final"]
    assert len({len(line) for line in [header, *rounds]}) == 1


@pytest.mark.slow
def test_a_fit_respects_its_memory_limit(tmp_path):
    """The limit is close to the least that is needed; without one VmHWM is 185 MiB."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, (15_000, 4))
    data = ingest((X, np.sin(3 * X).sum(axis=1) + rng.normal(0, 0.1, len(X))), tmp_path / "d.zarr")
    options = "--gamma 0.5 --partition-size 200 --max-rounds 2 --memory-limit 152MiB"
    fit = ("fit", data.url, str(tmp_path / "job"), *options.split(), "--neighbours", "20")
    status, peak, _, stderr = measured(*fit, "--quiet")
    assert status == 0, stderr
    assert peak <= 152


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of glibc")
def test_freed_memory_is_returned_to_the_system():
    """Blocks of 4 MiB, 100 MiB in all, that were freed below another block are no longer resident.

    glibc would keep them, as an earlier freed block raises its threshold to the size of that block.
    """
    code = """
import sys
from partirvm.process import resident_memory, return_freed_memory
import numpy as np
if sys.argv[1] == "fixed" and not return_freed_memory():
    print("other"), sys.exit()
del_first = np.ones(8 << 17); del del_first
before = resident_memory()
blocks = [np.ones(1 << 19) for _ in range(25)]
stays = np.ones(1 << 18)
del blocks
print(resident_memory() - before)
"""
    resident = python(code, "fixed").stdout.strip()
    assert resident == "other" or int(resident) < 10 << 20


@pytest.mark.parametrize("traced", [False, True])
def test_an_internal_error_is_one_line_without_a_traceback(traced, cli, monkeypatch):
    def crash(*arguments, **options):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(predict, "evaluate", crash)
    monkeypatch.setenv("PARTIRVM_TRACEBACK", "1" if traced else "")
    status, _, err = cli("evaluate", "job", "data")
    assert status == 4
    assert "partirvm: error: ZeroDivisionError: a fault." in err
    assert "PARTIRVM_TRACEBACK=1" in err
    assert ("Traceback" in err) == traced


class Terminal:
    """A pseudo-terminal that serves as a process's stderr."""

    def __init__(self, *arguments):
        self.master, slave = pty.openpty()
        self.process = start(*arguments, stderr=slave)
        os.close(slave)

    def finish(self):
        """Return exit status, stdout, and all output to the terminal."""
        output = b""
        with suppress(OSError):  # the other end is closed
            while piece := os.read(self.master, 4096):
                output += piece
        out, _ = self.process.communicate(timeout=PATIENCE)
        os.close(self.master)
        return self.process.returncode, out, output.decode(errors="replace")


HIDE = "\x1b[?25l"
SHOW = "\x1b[?25h"


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.slow
def test_the_live_view_draws_rounds_and_restores_the_terminal(tour, tmp_path):
    """The fit has six rounds; when it ends, the view draws the last one."""
    choices = (*LONG[:4], "--partition-size", "20", "--max-rounds", "6", "--residual", "none")
    fit = ("fit", tour.train, str(tmp_path / "job"), "--validation", tour.test, *choices)
    status, out, shown = Terminal(*fit).finish()
    assert status == 0, shown
    assert ESCAPE not in out
    assert 0 <= shown.rindex(HIDE) < shown.rindex(SHOW)
    lines = [line.strip() for line in plain(shown).splitlines()]
    assert any(line.startswith("final ") for line in lines)
    drawn = plain(shown)[plain(shown).rindex("final ") :]
    for word in (" vectors", "peak memory"):
        assert word in drawn
    assert "held-out RMSE" in plain(shown)


@pytest.mark.slow
def test_the_live_view_restores_the_terminal_after_an_error(tmp_path, tour):
    rows = Path(tour.folder, "train.csv").read_text().splitlines()
    (tmp_path / "bad.csv").write_text("\n".join([*rows, "1,2,"]))
    ingest = ("ingest", str(tmp_path / "bad.csv"), str(tmp_path / "d"), "--target", "fare")
    status, out, shown = Terminal(*ingest).finish()
    assert (status, out) == (2, "")
    assert shown.rindex(HIDE) < shown.rindex(SHOW) < shown.rindex("partirvm: error:")
