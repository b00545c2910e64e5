"""Strategies, learned kernels and priors by the command line: what is planned, printed, and summed up at the end."""

from __future__ import annotations

import re
from itertools import product

import pytest
from by_default import some

CHOICES = ("--gamma", "1", "--partition-size", "300")
COURSE = {
    "split-merge": "10 partitions of 300 candidates, merged on 4 levels",
    "incremental": "10 partitions of 300 candidates in order",
    "working-set": "300 candidates per round, until the evidence stops rising",
}
LIKELIHOOD = {
    "full": "",
    "sample": ", likelihood of a sample of 500 rows",
}


@pytest.mark.parametrize(
    ("strategy", "likelihood"),
    some(
        list(product(COURSE, LIKELIHOOD)),
        {("split-merge", "full"), ("incremental", "sample"), ("working-set", "full")},
    ),
)
def test_a_fit_by_every_strategy(strategy, likelihood, tour, cli, cli_json, tmp_path):
    """Its course in the first line, lines while it runs, a summary; and a model that predicts."""
    asked = (*CHOICES, "--strategy", strategy, "--likelihood", likelihood, "--likelihood-rows", "500")
    job = str(tmp_path / "job")
    status, out, err = cli("fit", tour.train, job, *asked)
    assert status == 0, err
    first, *lines = err.splitlines()
    assert first == f"3,000 rows × 2 features in 2 tiles; {strategy}, {COURSE[strategy]}{LIKELIHOOD[likelihood]}"
    levels = [line for line in lines if line.startswith("level ")]
    if strategy == "split-merge":
        fits = [re.match(r"level (\d+): (\d+) fits?, [0-9,]+ candidates → [0-9,]+ vectors, ", line) for line in levels]
        assert [found and found.groups() for found in fits] == [("0", "10"), ("1", "5"), ("2", "2"), ("3", "1")]
        assert "19 fits on 5 levels" in out
    else:
        assert levels == []
    assert lines[-1].split()[0] == "last"
    assert f"strategy        {strategy}, " in out
    assert "of 3,000 rows" in out
    assert cli_json("evaluate", job, tour.test, "--quiet")["rmse"] < 0.13


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
