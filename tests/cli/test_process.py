"""What shows only in a process of its own: start-up, streams, signals, terminals, memory; and
crashes."""

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

from partirvm import predict
from partirvm.data import ingest

SHORT = ("--gamma", "1", "--partition-size", "60", "--max-rounds", "3", "--residual", "none")
ESCAPE = "\x1b"


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_help_imports_next_to_nothing():
    """Beside some of Python's own modules: Click, the command line, and errors, options and
    quoting."""
    names = "import sys; print(*sys.modules, file=sys.stderr)"
    bare = set(python(names).stderr.split())
    found = (
        set(python(f"from partirvm.cli import main; main(['--help']); {names}").stderr.split())
        - bare
    )
    top = {name.partition(".")[0] for name in found}
    assert top - sys.stdlib_module_names == {"click", "partirvm"}
    ours = {name.split(".")[1] for name in found if name.startswith("partirvm.")}
    assert ours == {"cli", "errors", "jobs", "options", "quoting"}
    assert len(found) < 150


def test_piped_progress_is_plain_lines_on_stderr(tour, cli, tmp_path):
    status, out, err = cli(
        "fit", tour.train, str(tmp_path / "job"), *SHORT, "--validation", tour.test, "--json"
    )
    assert status == 0
    assert json.loads(out)["rounds"] in (2, 3), (
        "the third round gives way to the second where its error is higher"
    )
    assert ESCAPE not in out + err
    assert "\r" not in err
    header, *rounds = err[err.index("round  ") :].splitlines()
    errors = ["training RMSE", "held-out RMSE", "held-out NLPD"]
    titles = ["round", "candidates", "vectors", *errors, "log evidence", "rows/s", "time", "memory"]
    assert re.split(" {2,}", header.strip()) == titles
    assert [line.split()[0] for line in rounds] == ["1", "2", "last"]
    assert len({len(line) for line in [header, *rounds]}) == 1


@pytest.mark.slow
def test_memory_limit_holds(tmp_path):
    """VmHWM of the process that ingests nothing and fits close to the least that it can: without a
    limit 185 MiB."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (15_000, 4))
    data = ingest((X, np.sin(3 * X).sum(axis=1) + rng.normal(0, 0.1, len(X))), tmp_path / "d.zarr")
    choices = (
        "--gamma",
        "0.5",
        "--partition-size",
        "200",
        "--max-rounds",
        "2",
        "--memory-limit",
        "152MiB",
    )
    status, peak, _, said = measured(
        "fit", data.url, str(tmp_path / "job"), *choices, "--neighbours", "20", "--quiet"
    )
    assert status == 0, said
    assert peak <= 152


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of glibc")
def test_freed_memory_goes_back():
    """After 100 MiB in blocks of 4 MiB were freed below a block that stays, they are no longer
    resident.

    glibc would keep them: a block that was freed before raises its threshold to that block's size.
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
    kept = python(code, "fixed").stdout.strip()
    assert kept == "other" or int(kept) < 10 << 20


@pytest.mark.parametrize("traced", [False, True])
def test_a_fault_of_ours_is_one_line_unless_asked(traced, cli, monkeypatch):
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
    """A pseudo-terminal as the stderr of a process."""

    def __init__(self, *arguments):
        self.master, slave = pty.openpty()
        self.process = start(*arguments, stderr=slave)
        os.close(slave)

    def finish(self):
        """Exit status, stdout, and all that the terminal saw."""
        seen = b""
        with suppress(OSError):  # the other end is closed
            while piece := os.read(self.master, 4096):
                seen += piece
        out, _ = self.process.communicate(timeout=120)
        os.close(self.master)
        return self.process.returncode, out, seen.decode(errors="replace")


HIDE = "\x1b[?25l"
SHOW = "\x1b[?25h"


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.slow
def test_the_live_view_runs_and_leaves_the_terminal_usable(tour, tmp_path):
    """A fit of six rounds: the view draws the last of them when it ends, however seldom it was
    drawn before."""
    choices = (*LONG[:4], "--partition-size", "20", "--max-rounds", "6", "--residual", "none")
    fit = ("fit", tour.train, str(tmp_path / "job"), "--validation", tour.test, *choices)
    status, out, seen = Terminal(*fit).finish()
    assert status == 0, seen
    assert ESCAPE not in out
    assert 0 <= seen.rindex(HIDE) < seen.rindex(SHOW)
    lines = [line.strip() for line in plain(seen).splitlines()]
    assert any(line.startswith("last ") for line in lines)
    drawn = plain(seen)[plain(seen).rindex("last ") :]
    for word in (" vectors", "peak memory"):
        assert word in drawn
    assert "held-out RMSE" in plain(seen)


@pytest.mark.slow
def test_the_live_view_ends_well_on_an_error(tmp_path, tour):
    rows = Path(tour.folder, "train.csv").read_text().splitlines()
    (tmp_path / "bad.csv").write_text("\n".join([*rows, "1,2,"]))
    status, out, seen = Terminal(
        "ingest", str(tmp_path / "bad.csv"), str(tmp_path / "d"), "--target", "fare"
    ).finish()
    assert (status, out) == (2, "")
    assert seen.rindex(HIDE) < seen.rindex(SHOW) < seen.rindex("partirvm: error:")
