"""One version in all files that state it, and classifiers that follow the lower bound of Python."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import partirvm

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]


def test_one_version():
    """Of the package, its metadata, the citation and the image."""
    assert partirvm.__version__ == PROJECT["version"]
    assert yaml.safe_load(ROOT.joinpath("CITATION.cff").read_text())["version"] == PROJECT["version"]
    for name in ("compose.yaml", "Dockerfile"):
        found = re.findall(r"partirvm:([\d.]+)", ROOT.joinpath("deploy", name).read_text())
        assert set(found) == {PROJECT["version"]}, name
    assert f"## {PROJECT['version']}" in ROOT.joinpath("CHANGELOG.md").read_text()


def test_the_workflow_has_every_classified_python():
    """The matrix of the tests is the list of classifiers, and the oldest is the lower bound."""
    if not ROOT.joinpath(".github").exists():
        pytest.skip("the sdist holds no workflows")
    jobs = yaml.safe_load(ROOT.joinpath(".github/workflows/tests.yml").read_text())["jobs"]
    classified = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"


def test_the_oldest_versions_are_the_lower_bounds():
    """``minimum-versions.txt`` begins with the lower bound of each dependency; a version in it may have more parts."""
    pinned = dict(re.findall(r"^([\w-]+)==(.+)$", ROOT.joinpath("minimum-versions.txt").read_text(), re.MULTILINE))
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["plot"]]
    for name, bound in (re.match(r"([\w-]+)(?:\[.*\])?>=(.+)", line).groups() for line in asked):
        assert f"{pinned[name]}.".startswith(f"{bound}."), name
