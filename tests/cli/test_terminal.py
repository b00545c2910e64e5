"""What others wrote into a job does not steer the terminal of those who look at it."""

from __future__ import annotations

import pytest
from commandline import Tour

from partirvm.jobs.submission import create
from partirvm.options import Request

HOSTILE = "\x1b]0;title\x07\x1b[2Jgone\r\x9b1m\u202e"
ESCAPED = r"\x1b]0;title\x07\x1b[2Jgone\r\x9b1m\u202e"


@pytest.fixture
def job(tour: Tour, tmp_path, cli) -> str:
    """A job that was aborted for a hostile reason."""
    place = str(tmp_path / "jobs" / "one")
    create(tour.train, place, Request(gamma=1.0), None, False)
    assert cli("abort", place, "--reason", HOSTILE)[0] == 0
    return place


@pytest.mark.parametrize("verb", ["status", "jobs", "wait", "follow"])
def test_reasons_are_shown_escaped(job, cli, verb):
    arguments = {"jobs": ("jobs", job.rpartition("/")[0]), "follow": ("status", job, "--follow")}
    _, out, err = cli(*arguments.get(verb, (verb, job)))
    assert ESCAPED in out
    assert not set("\x1b\x07\r\x9b\u202e") & set(out + err)


def test_a_page_has_them_escaped_too(job, cli, tmp_path):
    assert cli("report", job, str(tmp_path / "page.html"))[0] == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ESCAPED in text
    assert not set("\x1b\x07\x9b\u202e") & set(text)


def test_names_in_errors_and_warnings_are_shown_escaped(tour, cli, tmp_path):
    """A place that is not there, and a column of that name that is constant."""
    status, _, err = cli("status", f"{tmp_path}/{HOSTILE}")
    assert status == 2
    assert ESCAPED in err
    table = tmp_path / "t.csv"
    rows = "".join(f"{k},1,{k % 7}\n" for k in range(60))
    table.write_text(f'a,"{HOSTILE.replace(chr(13), "")}",y\n{rows}', encoding="utf-8")
    assert cli("ingest", str(table), str(tmp_path / "t.zarr"), "--target", "y")[0] == 0
    _, out, err = cli("fit", str(tmp_path / "t.zarr"), str(tmp_path / "job"), "--gamma", "1", "--strategy", "basic")
    assert ESCAPED.replace(r"\r", "") in err
    assert not set("\x1b\x07\x9b\u202e") & set(out + err)
