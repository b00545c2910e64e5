"""A learned kernel by the command line: what is planned, printed, and summed up at the end."""

from __future__ import annotations

import re

LEARNED = re.compile(
    r"gaussian, gamma of \S+ \S+, gamma of \S+ \S+: from 3,000 rows × [0-9,]+ centres, \d+ evaluations, evidence \+\S+ "
    "nats"
)


def test_a_kernel_is_learned(tour, cli, cli_json, tmp_path):
    """A line while it runs, one of the plan; a model that predicts better than that of the start; a report."""
    asked = ("--kernel", "gaussian", "--gamma", "learn-per-feature", "--partition-size", "60", "--max-rounds", "1")
    status, out, _ = cli("plan", tour.train, *asked)
    assert status == 0
    assert re.search(rf"^learned     {LEARNED.pattern}$", out, re.M)
    job, plain = str(tmp_path / "job"), str(tmp_path / "plain")
    status, _, err = cli("fit", tour.train, job, *asked)
    assert status == 0, err
    lines = [line for line in err.splitlines() if line.startswith("learned: ")]
    assert len(lines) >= 1
    assert all(LEARNED.search(line) for line in lines)
    assert cli("fit", tour.train, plain, "--gamma", "scale", *asked[4:])[0] == 0
    learned, start = (cli_json("evaluate", each, tour.test, "--quiet")["rmse"] for each in (job, plain))
    assert learned < start
    assert cli("report", job, str(tmp_path / "report.html"))[0] == 0
