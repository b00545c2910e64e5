"""Job commands: their output, exit status, refusals, and Ctrl-C."""

import json
import re
import shutil
import signal

import pytest
from commandline import LONG, read_until, start
from waiting import PATIENCE, wait_for

from partirvm import jobs, load_model, open_job, predict
from partirvm.jobs import Status as JobStatus
from partirvm.jobs import create
from partirvm.options import Request


@pytest.fixture(scope="module")
def stopped_once(processes, tour, tmp_path_factory):
    """Return a job that Ctrl-C ended after its second round."""
    job = str(tmp_path_factory.mktemp("stopped") / "stopped")
    process = start("fit", tour.train, job, *LONG)
    read_until(process.stderr, r"^ +2 ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, err
    assert "keeping the last model" in err
    assert f"partirvm resume {job}" in out
    assert f"partirvm evaluate {job}" in out
    assert re.search(
        "ended +Aborted by a user: the model so far, if any, is usable; resume continues", out
    )
    assert predict.evaluate(job, tour.test)["n_rows"] == 700
    return job


@pytest.fixture
def stopped(stopped_once, tmp_path):
    """Return a copy of the stopped job."""
    return shutil.copytree(stopped_once, str(tmp_path / "stopped"))


def test_status_describes_a_finished_job(tour, cli, cli_json):
    status, out, err = cli("status", tour.job)
    assert (status, err) == (0, "")
    lines = dict(
        re.split(r" {2,}", line, maxsplit=1) for line in out.splitlines() if line[0] != " "
    )
    assert lines["status"].startswith("done since ")
    assert "reason" not in lines
    assert lines["ended"].startswith("--max-rounds was reached")
    facts = cli_json("status", tour.job, "--json")
    assert (facts["status"], facts["fits"], facts["model"]) == ("done", 3, True)
    assert facts["vectors"] == load_model(tour.job).n_vectors
    assert f"keeps {facts['vectors']} of {facts['n_rows']:,} rows as relevance vectors" in out
    assert lines["summary"] == facts["summary"]["sentences"][0]
    assert "log evidence" not in lines
    _, out, _ = cli("status", tour.job, "--details")
    for name in ("vectors", "log evidence", "passes", "strategy"):
        assert re.search(f"^{name} ", out, re.MULTILINE)


def test_jobs_prints_a_table(tour, stopped, cli, cli_json, tmp_path):
    status, out, _ = cli("jobs", str(tmp_path))
    assert status == 0
    header, line = out.splitlines()
    titles = "job status fits vectors measure training held-out time since reason"
    assert re.split(" {2,}", header) == titles.split()
    assert line.split()[:2] == ["stopped", "aborted"]
    (facts,) = cli_json("jobs", str(tmp_path), "--json")
    assert facts["status"] == "aborted"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "spec.json").write_text("{")
    _, out, _ = cli("jobs", str(tmp_path))
    assert re.search(r"bad +unreadable .*spec\.json: damaged", out)


def test_wait_exits_with_the_status_of_the_job(tour, stopped, cli):
    assert cli("wait", tour.job)[0] == 0
    assert cli("wait", stopped)[0] == 3
    assert cli("cancel", stopped, "--reason", "wrong target")[0] == 0
    status, out, _ = cli("wait", stopped)
    assert status == 4
    assert "wrong target" in out
    status, _, err = cli("resume", stopped)
    assert status == 2
    assert "was cancelled" in err


def test_resume_shows_all_rounds(stopped, cli):
    reached = len(open_job(stopped).state().history)
    status, _, err = cli("resume", stopped, "--max-rounds", str(reached + 2))
    assert status == 0, err
    rounds = re.findall(r"^ *(\d+|final) ", err, re.MULTILINE)
    assert rounds == [*map(str, range(1, reached + 2)), "final"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gamma", "3"), r"No such option:? '?--gamma"),
        (("--no-standardize",), r"No such option:? '?--no-standardize"),
        (
            ("--validation", "x.zarr"),
            r"x\.zarr: the job began without a held-out dataset: omit --validation",
        ),
        (("--max-rounds", "0"), r"--max-rounds is 0: it must be a whole number ≥ 1"),
        (("--wdith", "3"), r"No such option"),
        (("--detach",), r"--detach needs --scheduler ADDRESS: without a cluster the fit"),
    ],
)
def test_resume_refuses_changed_options(stopped, cli, arguments, message):
    before = len(open_job(stopped).store.events())
    status, out, err = cli("resume", stopped, *arguments)
    assert (status, out) == (2, "")
    assert re.search(message, err)
    assert len(open_job(stopped).store.events()) == before


def test_resume_of_a_finished_job_names_its_limit(tour, cli):
    events = len(open_job(tour.job).store.events())
    for options in ((), ("--max-rounds", "3")):
        status, out, err = cli("resume", tour.job, *options)
        assert (status, err) == (0, "")
        assert "is done; it reached --max-rounds = 3: resume with a larger --max-rounds" in out
    assert json.loads(cli("resume", tour.job, "--json")[1])["status"] == "done"
    assert len(open_job(tour.job).store.events()) == events
    status, _, err = cli("cancel", tour.job)
    assert status == 2
    assert "delete the folder" in err


@pytest.mark.usefixtures("processes")
def test_a_second_ctrl_c_ends_the_process_at_once(tour, tmp_path):
    """The job is then interrupted."""
    job = str(tmp_path / "job")
    process = start("fit", tour.train, job, *LONG)
    read_until(process.stderr, r"^ +2 ")
    # the first one would end most fits before a second one arrives
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, err
    assert out == ""
    assert f"stopped at once; {job} holds the model of the last finished round" in err
    opened = open_job(job)
    assert opened.status().value == "interrupted"
    assert opened.state().reason == "stopped at once (KeyboardInterrupt)"


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_follow_shows_rounds_as_they_finish(tour, tmp_path, cli):
    """The job is followed from another process until an abort; Ctrl-C and a timeout do not affect
    it."""
    job = str(tmp_path / "job")
    process = start("fit", tour.train, job, *LONG, "--quiet")
    wait_for((tmp_path / "job" / "events").exists, "the job")
    follower, leaver = (start("status", job, "--follow") for _ in range(2))
    read_until(leaver.stdout, r"^ +1 ")
    leaver.send_signal(signal.SIGINT)
    _, err = leaver.communicate(timeout=PATIENCE)
    assert (leaver.returncode, err) == (0, f"stopped following the job; {job} is still running\n")
    shown = read_until(follower.stdout, r"^ +3 ")
    assert process.poll() is None
    assert re.search(r"^\d+ \w+ \d{4}, [\d:]+  running: by process \d+ on", shown, re.MULTILINE)
    status, out, err = cli("wait", job, "--timeout", "0.5s")
    assert (status, out) == (4, "")
    assert "is still running after 0.5 s" in err
    status, out, _ = cli("abort", job, "--reason", "enough")
    assert status == 0
    assert f"partirvm wait {job}" in out
    out, err = follower.communicate(timeout=PATIENCE)
    assert (follower.returncode, err) == (3, "")
    assert re.search(r"^\d+ \w+ \d{4}, [\d:]+  aborted: enough$", out, re.MULTILINE)
    assert len(re.findall(r"^round ", shown + out, re.MULTILINE)) == 1
    status, out, _ = cli("status", job, "--follow", "--json")
    assert status == 3
    entries = [json.loads(line) for line in out.splitlines()]
    assert [entry["number"] for entry in entries[:-1]] == list(range(1, len(entries)))
    assert entries[-1]["status"] == "aborted"
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    status, out, _ = cli("abort", job)
    assert status == 0
    assert f"{job} is aborted. " in out


@pytest.mark.parametrize("usable", [True, False])
def test_ctrl_c_while_a_resume_is_planned_aborts_the_job(
    tour, stopped, cli, tmp_path, monkeypatch, usable
):
    """The status is 3 if the job has a model, and 4 if it has none."""
    job = stopped if usable else str(tmp_path / "queued")
    if not usable:
        create(tour.train, job, Request(gamma=1.0, max_rounds=1), None, False)
    run_job = jobs.run_job

    def pressed(*arguments, **hooks):
        signal.raise_signal(signal.SIGINT)
        return run_job(*arguments, **hooks)

    monkeypatch.setattr(jobs, "run_job", pressed)
    status, out, err = cli("resume", job)
    assert open_job(job).status() is JobStatus.ABORTED
    assert f"partirvm resume {job}" in out + err
    if usable:
        assert status == 3
        assert "Aborted by a user: the model so far" in out
    else:
        assert (status, out) == (4, "")
        assert "ended before it had a model" in err


@pytest.mark.usefixtures("without_charts")
def test_report_writes_a_single_page(tour, stopped, cli, tmp_path):
    page = tmp_path / "job.html"
    assert cli("report", tour.job, str(page)) == (0, f"{page}: open it in a browser\n", "")
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "max_rounds was reached" in text
    assert cli("report", stopped, str(page))[0] == 2
    assert cli("report", stopped, str(page), "--overwrite")[0] == 0
    assert "aborted" in page.read_text()
    status, _, err = cli("report", tour.job, str(tmp_path / "job.pdf"))
    assert status == 2
    assert "must end in .html" in err


def test_export_format_follows_the_file_extension(tour, cli, tmp_path):
    for ending in ("onnx", "h", "npz"):
        options = ("--outputs", "mean", "--dtype", "float32")
        status, out, _ = cli("export", tour.job, str(tmp_path / f"model.{ending}"), *options)
        assert (status, "written" in out) == (0, True)
    status, _, err = cli("export", tour.job, str(tmp_path / "model.h"))
    assert status == 2
    assert "replace it with --overwrite" in err
    assert cli("export", tour.job, str(tmp_path / "model.pkl"))[0] == 2
