"""No foreign text reaches the terminal as a control sequence, in results, warnings or errors."""

import pytest

from partirvm.jobs import create
from partirvm.options import Request

RED = "\x1b[31m"
QUIET = "--quiet"


def plain(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_names_and_labels_in_a_table_are_escaped(desk, cli):
    rows = "".join(f"1,{k},{RED}{'ab'[k % 2]}\r\n" for k in range(9))
    (desk / "t.csv").write_text(f"{RED}one,b,{RED}y\r\n{rows}", newline="")
    status, out, err = cli("ingest", "t.csv", "d.zarr", "--target", f"{RED}y", "--classes")
    assert status == 0
    assert "\\x1b[31my (2 classes: \\x1b[31ma, \\x1b[31mb)" in out
    assert plain(out + err)
    status, out, err = cli("ingest", "t.csv", "e.zarr", "--target", "z", QUIET)
    assert status == 2
    assert "Its columns: \\x1b[31mone, b, \\x1b[31my" in err
    assert plain(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", f"{RED}\n.csv", "d.zarr"),
        ("plan", f"{RED}.zarr"),
        ("fit", f"{RED}.zarr", "job"),
        ("evaluate", f"{RED}job", "d.zarr"),
        ("predict", "job", "d.zarr", f"{RED}.txt"),
        (f"{RED}verb",),
        ("plan", "d.zarr", f"--{RED}"),
        ("plan", "d.zarr", "--max-rounds", f"{RED}"),
        ("plan", "\udcff.zarr"),
    ],
)
def test_names_on_the_command_line_are_escaped(arguments, desk, cli):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert plain(err)
    assert "partirvm: error: " in err


HOSTILE = "\x1b]0;title\x07\x1b[2Jgone\r\x9b1m\u202e"
ESCAPED = r"\x1b]0;title\x07\x1b[2Jgone\r\x9b1m\u202e"


@pytest.fixture
def job(tour, tmp_path, cli):
    """Return a job that was aborted with a hostile reason."""
    place = str(tmp_path / "jobs" / "one")
    create(tour.train, place, Request(gamma=1.0), None, False)
    assert cli("abort", place, "--reason", HOSTILE)[0] == 0
    return place


@pytest.mark.parametrize("verb", ["status", "jobs", "wait", "follow"])
def test_reasons_are_escaped(job, cli, verb):
    arguments = {"jobs": ("jobs", job.rpartition("/")[0]), "follow": ("status", job, "--follow")}
    _, out, err = cli(*arguments.get(verb, (verb, job)))
    assert ESCAPED in out
    assert not set("\x1b\x07\r\x9b\u202e") & set(out + err)
