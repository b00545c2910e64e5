"""Priors and fixed precisions by the command line, into the job's spec and out of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ASKED = ("--alpha-prior", "1,0.1", "--noise-prior", "30,0.5", "--fixed-alpha", "bias=1e-6")
FIT = ("--gamma", "1", "--partition-size", "30", "--max-rounds", "1")


def test_they_go_into_the_job_and_act(tour, cli, tmp_path):
    """The model has the fixed α, and a prior of 10⁷ rows decides the noise; resume keeps them."""
    from partirvm import load_model

    job = str(tmp_path / "job")
    status, _, err = cli("fit", tour.train, job, *FIT, *ASKED, "--noise-prior", "5e6,1e5", "--quiet")
    assert status == 0, err
    spec = json.loads((Path(job) / "spec.json").read_text())["parameters"]
    assert spec["alpha_prior"] == [1.0, 0.1]
    assert spec["noise_prior"] == [5e6, 1e5]
    assert spec["fixed_alpha"] == {"bias": 1e-6}
    model = load_model(job)
    assert model.alpha[0] == 1e-6
    assert model.noise_variance == pytest.approx(1e5 / 5e6, rel=0.02)
    status, _, err = cli("resume", job, "--fixed-alpha", "bias=1")
    assert status == 2
    assert re.search("No such option:? '?--fixed-alpha", err)
    status, _, err = cli("resume", job, "--max-rounds", "2", "--quiet")
    assert status == 0, err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--alpha-prior", "1"), "--alpha-prior is (1,): it must be two numbers"),
        (("--noise-prior", "one,two"), "each of --noise-prior is 'one'"),
        (("--fixed-alpha", "slope=1"), "a name in --fixed-alpha is 'slope'; known: bias"),
        (("--fixed-alpha", "bias"), "'bias' is not NAME=ALPHA: give such as bias=1e-6"),
    ],
)
def test_what_is_refused(options, message, tour, cli, tmp_path):
    status, _, err = cli("fit", tour.train, str(tmp_path / "job"), *options)
    assert status == 2
    assert message in err
